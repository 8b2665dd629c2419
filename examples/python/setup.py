"""Compiles the protocol into the package as it is built."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        from grpc_tools import protoc

        files = sorted(str(path) for path in PROTO.glob("tokend/v1/*.proto"))
        if not files:
            raise SystemExit(f"{PROTO} holds no protocol files: install from a checkout of tokend")
        well_known = pathlib.Path(protoc.__file__).parent / "_proto"
        out = self.build_lib
        arguments = [f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}",
                     f"--pyi_out={out}", f"--grpc_python_out={out}"]
        if protoc.main(["protoc", *arguments, *files]) != 0:
            raise SystemExit("protoc failed")


setup(cmdclass={"build_py": BuildWithStubs})
