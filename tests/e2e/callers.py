"""Callers with tokens and over TLS, and the certificates for them."""

import collections
import hashlib
import subprocess

import grpc
import harness  # noqa: F401  # finds the client
from tokend_client import make_stubs

_OPTIONS = (("grpc.enable_http_proxy", 0),)
_Details = collections.namedtuple(
    "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression"))


class _Details(_Details, grpc.ClientCallDetails):
    pass


class _Authorization(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, value):
        self._value = value

    def _intercept(self, proceed, details, request):
        metadata = [*(details.metadata or ()), ("authorization", self._value)]
        return proceed(_Details(details.method, details.timeout, metadata, details.credentials,
                                details.wait_for_ready, details.compression), request)

    intercept_unary_unary = intercept_unary_stream = _intercept


def caller(address, token=None, authorization=None, ca_file=None):
    """Stubs that send a bearer token, or a whole authorization; with ca_file over TLS."""
    if ca_file is None:
        channel = grpc.insecure_channel(address, options=_OPTIONS)
    else:
        roots = grpc.ssl_channel_credentials(ca_file.read_bytes())
        channel = grpc.secure_channel(address, roots, options=_OPTIONS)
    if token is not None:
        authorization = f"Bearer {token}"
    if authorization is not None:
        channel = grpc.intercept_channel(channel, _Authorization(authorization))
    return make_stubs(channel)


def principals(**tokens):
    """Settings that make each name a principal with its token."""
    hashes = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in tokens.items()}
    return "".join(f'principals {{ name: "{name}" token_sha256: "{value}" }}\n'
                   for name, value in hashes.items())


def make_certificate(folder, name, key_type="ec:P-256"):
    """A self-signed certificate of 127.0.0.1 and its key: two PEM files."""
    kind, size = key_type.split(":")
    kind = ["ec", "-pkeyopt", f"ec_paramgen_curve:{size}"] if kind == "ec" else [key_type]
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", certificate, "-keyout", key],
        check=True, capture_output=True, timeout=60)
    return certificate, key
