"""Connects the generated stubs of tokend.v1 to a server.

    stubs = connect("127.0.0.1:50551")   # or "unix:/run/tokend/tokend.sock"
    stubs.generation.Stream(...)         # also .sessions, .model, .admin
    stubs.channel.close()
"""

import types

import grpc
from tokend.v1 import admin_pb2_grpc, generation_pb2_grpc, model_pb2_grpc, sessions_pb2_grpc

# A whole answer with log-probabilities can pass gRPC's 4 MiB; robots sit beside
# their server, not behind an HTTP proxy.
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))


def _stubs(channel):
    return types.SimpleNamespace(
        channel=channel,
        generation=generation_pb2_grpc.GenerationServiceStub(channel),
        sessions=sessions_pb2_grpc.SessionServiceStub(channel),
        model=model_pb2_grpc.ModelServiceStub(channel),
        admin=admin_pb2_grpc.AdminServiceStub(channel),
    )


def connect(address):
    """Stubs whose calls block. Their channel connects at the first call."""
    return _stubs(grpc.insecure_channel(address, options=_OPTIONS))


def connect_async(address):
    """Stubs for asyncio; call it inside the running event loop."""
    return _stubs(grpc.aio.insecure_channel(address, options=_OPTIONS))
