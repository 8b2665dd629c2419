"""Reads the machine code of libtokend_cuda.so for parts with dependent launch.

Usage: dependent_launch_sass_test.py LIBRARY. A compiler may move loads across the wait
for the kernel before (see cuda_kernels/device/dependent_launch.cuh); here is where it
shows. Before the wait a kernel reads global memory by asynchronous copies alone and
writes none; a matmul has its first weights under way by then. Skips (77) without the
tools cuobjdump and nvdisasm, or where the library has no such code.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIP = 77
WAIT = "ACQBULK"
COPY = "LDGSTS"
# Global and generic accesses; local and shared ones are LDL, LDS, STL, STS.
MEMORY = re.compile(r"^(LDG|LD|STG|ST|ATOMG|ATOM|RED)(\.|$)")
EARLY_COPIES = re.compile(r"MatmulDecodeKernel|MatmulWideKernel")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)")


def find_tools():
    """The folders of cuobjdump and of nvdisasm, which it starts, first in PATH."""
    folders = [str(path.parent) for path in pathlib.Path(sys.prefix).glob(
        "lib/python*/site-packages/nvidia/*/bin/cuobjdump")]
    path = os.pathsep.join(folders + [os.environ.get("PATH", ""), "/usr/local/cuda/bin"])
    if shutil.which("cuobjdump", path=path) and shutil.which("nvdisasm", path=path):
        return path
    return None


def functions(listing):
    """Name -> opcodes in the order of their addresses."""
    found = {}
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            opcodes = found.setdefault(match.group(1), [])
        elif match := INSTRUCTION.match(line):
            opcodes.append(match.group(1))
    return found


def violations(name, opcodes):
    wait = next((i for i, opcode in enumerate(opcodes) if opcode.startswith(WAIT)), None)
    if wait is None:
        return [f"{name}: a matmul does not wait"] if EARLY_COPIES.search(name) else []
    early = opcodes[:wait]
    result = [f"{name}: {opcode} before the wait" for opcode in early
              if MEMORY.match(opcode) and not opcode.startswith(COPY)]
    if EARLY_COPIES.search(name) and not any(opcode.startswith(COPY) for opcode in early):
        result.append(f"{name}: no {COPY} before the wait")
    return result


def check_the_check():
    good = ["LDGSTS.E.BYPASS.128", "LDS.128", "ACQBULK", "LDG.E"]
    assert not violations("MatmulDecodeKernel", good)
    assert violations("MatmulDecodeKernel", ["ACQBULK", "LDGSTS.E"])
    assert violations("MatmulDecodeKernel", ["LDGSTS.E"])
    assert violations("NormRowsKernel", ["LDG.E.128", "ACQBULK"])
    assert violations("NormRowsKernel", ["ATOMG.E.ADD", "ACQBULK"])
    assert not violations("NormRowsKernel", ["LDC", "ACQBULK", "STG.E"])
    listing = "Function : abc\n  /*0000*/  @!P0 LDGSTS.E.128 [R1], desc[UR4][R2.64] ;\n"
    assert functions(listing) == {"abc": ["LDGSTS.E.128"]}


def main():
    check_the_check()
    path = find_tools()
    if path is None:
        print("skipped: no cuobjdump and nvdisasm")
        return SKIP
    listing = subprocess.run(["cuobjdump", "-sass", sys.argv[1]], check=True, text=True,
                             capture_output=True, env={**os.environ, "PATH": path}).stdout
    dependent = {}
    for part in re.split(r"^\s*code for sm_", listing, flags=re.MULTILINE)[1:]:
        arch = int(re.match(r"\d+", part).group())
        if arch < 90:
            continue
        for name, opcodes in functions(part).items():
            dependent[f"sm_{arch} {name}"] = opcodes
    if not dependent:
        print("skipped: no code for parts with dependent launch")
        return SKIP
    found = [line for name, opcodes in sorted(dependent.items())
             for line in violations(name, opcodes)]
    waiting = sum(any(o.startswith(WAIT) for o in opcodes) for opcodes in dependent.values())
    print(f"{len(dependent)} kernels, {waiting} wait, {len(found)} violations", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
