"""Connects the generated stubs of tokend.v1 to a server.

    stubs = connect("127.0.0.1:50551")   # or "unix:/run/tokend/tokend.sock"
    stubs.generation.Stream(...)         # also .sessions, .model, .admin
    stubs.channel.close()

    # TLS, or whatever else a channel of your own can do.
    stubs = make_stubs(grpc.secure_channel(address, grpc.ssl_channel_credentials(ca_pem)))
"""

import types

import grpc
from tokend.v1 import admin_pb2_grpc, generation_pb2_grpc, model_pb2_grpc, sessions_pb2_grpc

# A whole answer with log-probabilities can pass gRPC's 4 MiB; robots sit beside
# their server, not behind an HTTP proxy.
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))


def make_stubs(channel):
    """Stubs on a channel."""
    return types.SimpleNamespace(
        channel=channel,
        generation=generation_pb2_grpc.GenerationServiceStub(channel),
        sessions=sessions_pb2_grpc.SessionServiceStub(channel),
        model=model_pb2_grpc.ModelServiceStub(channel),
        admin=admin_pb2_grpc.AdminServiceStub(channel),
    )


def connect(address):
    """Stubs whose calls block. Their channel connects at the first call."""
    return make_stubs(grpc.insecure_channel(address, options=_OPTIONS))


def connect_async(address):
    """Stubs for asyncio; call it inside the running event loop."""
    return make_stubs(grpc.aio.insecure_channel(address, options=_OPTIONS))
