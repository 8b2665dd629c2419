"""Checks rules about the source tree that no compiler checks.

Usage: check_tree.py ROOT. Prints one line per violation; exit code 1 if any.
"""

import pathlib
import re
import sys

# Folder -> folders whose headers it may include, besides its own. Dependencies
# point one way: service -> {core, metrics, proto}, metrics -> core/base, and
# inside core as below. Tests and examples may include anything.
CORE = ["base", "gguf", "chat", "tokenizer", "ops", "cpu", "model", "kv", "sampling", "engine"]
ARROWS = {
    "core/base": [],
    "core/gguf": ["core/base"],
    "core/chat": ["core/base"],
    "core/tokenizer": ["core/gguf", "core/base"],
    "core/ops": ["core/base"],
    "core/cpu": ["core/ops", "core/base"],
    "core/model": ["core/ops", "core/gguf", "core/base"],
    "core/kv": ["core/ops", "core/base"],
    "core/sampling": ["core/ops", "core/base"],
    "core/engine": [
        "core/model", "core/kv", "core/sampling", "core/tokenizer", "core/ops", "core/base",
    ],
    "cuda_kernels": ["core/ops", "core/base"],
    "metrics": ["core/base"],
    "proto": [],
    "service": [f"core/{name}" for name in CORE] + ["metrics", "proto", "cuda_kernels"],
}
FREE = ("tests", "examples")

GRPC = re.compile(r"^(grpc|grpcpp|google/(protobuf|rpc))/|\.pb\.h$")
PROMETHEUS = re.compile(r"^prometheus/")
CUDA = re.compile(r"^(cuda(?!_kernels/)|cublas|nvml|cooperative_groups|mma\.h|cub/|thrust/)")
# Folder prefix -> headers of others that stay out of it.
FOREIGN = {
    "core": (GRPC, PROMETHEUS, CUDA),
    "metrics": (GRPC, CUDA),
    "cuda_kernels": (GRPC, PROMETHEUS),
    "service": (CUDA,),
    "proto": (PROMETHEUS, CUDA),
}

# Debian's build of absl::Mutex is invisible to ThreadSanitizer; gcc 12 has no <format>.
BANNED_HEADERS = {
    "absl/synchronization/mutex.h": "use core/base/mutex.h",
    "absl/log/log.h": "not in Debian's Abseil",
    "absl/log/check.h": "use core/base/check.h",
    "format": "not in gcc 12",
}

MAX_LINES = 400
CXX = (".h", ".cc", ".cu", ".cuh")
COUNTED = CXX + (".py", ".sh", ".cmake", ".proto")
SKIPPED_FOLDERS = ("build", ".git", "__pycache__", "corpus", "golden")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def files(root):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not any(part in SKIPPED_FOLDERS for part in relative.parts[:-1]):
            yield relative


def folder_of(path):
    """The folder of ARROWS that a file or include path belongs to, or None."""
    if path.endswith(".pb.h"):
        return "proto"
    for folder in ARROWS:
        if path.startswith(folder + "/"):
            return folder
    return None


def check_include(relative, line, quote, header):
    where = f"{relative}:{line}"
    top = relative.parts[0]
    source = folder_of(str(relative))
    for pattern in FOREIGN.get(top, ()):
        if pattern.search(header):
            yield f"{where}: {top}/ must not include <{header}>"
    if header in BANNED_HEADERS:
        yield f"{where}: <{header}>: {BANNED_HEADERS[header]}"
    target = folder_of(header)
    if quote == '"' and ("/" not in header or header.startswith(".")):
        yield f'{where}: "{header}" is no path from the root of the tree'
    if top in FREE:
        return
    if header.split("/")[0] in FREE:
        yield f"{where}: product code must not include {header}"
    elif source and target and target != source and target not in ARROWS[source]:
        yield f"{where}: {source} must not depend on {target} ({header})"


def check_guard(relative, lines):
    guard = "TOKEND_" + re.sub(r"[^A-Za-z0-9]", "_", str(relative)).upper() + "_"
    wanted = {f"#ifndef {guard}", f"#define {guard}"}
    if not wanted <= set(lines):
        yield f"{relative}: include guard must be {guard}"


def check_file(relative, root):
    suffix = relative.suffix
    if suffix not in COUNTED and relative.name not in ("dev", "CMakeLists.txt"):
        return
    lines = (root / relative).read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) > MAX_LINES:
        yield f"{relative}: {len(lines)} lines, more than {MAX_LINES}"
    if suffix not in CXX:
        return
    top = relative.parts[0]
    if top not in FREE and folder_of(str(relative)) is None:
        yield f"{relative}: folder is not in the table of arrows"
    if suffix == ".h":
        yield from check_guard(relative, lines)
    for number, text in enumerate(lines, 1):
        match = INCLUDE.match(text)
        if match:
            yield from check_include(relative, number, match[1], match[2])


def check_tree(root):
    root = pathlib.Path(root)
    return [problem for relative in files(root) for problem in check_file(relative, root)]


def main():
    root = pathlib.Path(sys.argv[1])
    problems = check_tree(root)
    count = sum(1 for relative in files(root) if relative.suffix in CXX)
    print("\n".join(problems + [f"{count} C++ files, {len(problems)} violations"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
