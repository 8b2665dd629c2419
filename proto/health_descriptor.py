"""Writes the grpc.health.v1 descriptor of PyPI's grpcio-health-checking, which ships no .proto."""

import sys

from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2

files = descriptor_pb2.FileDescriptorSet()
health_pb2.DESCRIPTOR.CopyToProto(files.file.add())
# Its name becomes an include path and a name in reflection: the canonical one.
files.file[0].name = "grpc/health/v1/health.proto"
with open(sys.argv[1], "wb") as out:
    out.write(files.SerializeToString())
