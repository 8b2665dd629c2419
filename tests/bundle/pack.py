"""Packs a build into a folder that runs on a bare machine with a GPU.

Usage: pack.py BUILD BUNDLE. From BUILD: bin/, cuda_tests/ with its lib/.
"""

import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared"
PROGRAMS = ("tokend", "tokctl", "tokend_device_bench", "cuda_device")
SCRIPTS = ("run.sh", "daemon.sh", "sanitizer.sh")
# The C library's own: taken only where the machine's is older.
GLIBC = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl)\.so)")
MAX_BYTES = 60 * 1000 * 1000


def needed(program):
    """The shared objects that `program` loads: name -> path."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", listing, re.MULTILINE)
    if missing:
        sys.exit(f"{program}: not found: {', '.join(missing)}")
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", listing, re.MULTILINE))


def place(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=False, stderr=subprocess.DEVNULL)


def pack(build, bundle):
    shutil.rmtree(bundle, ignore_errors=True)
    binaries = [(build / "bin" / name, bundle / "bin" / name) for name in PROGRAMS]
    binaries.append((build / "cuda_tests/lib/libtokend_cuda.so", bundle / "lib/libtokend_cuda.so"))
    for test in sorted((build / "cuda_tests").glob("*_gpu")):
        binaries.append((test, bundle / "tests" / test.name.removesuffix("_gpu")))
    for source, target in binaries:
        if not source.exists():
            sys.exit(f"{source} is not built")
        place(source, target)
        for name, path in needed(source).items():
            folder = "lib/glibc" if GLIBC.match(name) else "lib"
            if not (bundle / folder / name).exists():
                place(path, bundle / folder / name)
    for name in SCRIPTS:
        shutil.copy(HERE / name, bundle / name)
    # Tests look for ../shared from where they run.
    (bundle / "work").mkdir()
    (bundle / "models").mkdir()
    for model in (SHARED / "tiny_models").glob("*.gguf"):
        (bundle / "shared/tiny_models").mkdir(parents=True, exist_ok=True)
        for file in (model, model.with_suffix(".json")):
            shutil.copy(file, bundle / "shared/tiny_models")
    if (SHARED / "tiny_models/llama.gguf").exists():
        shutil.copy(SHARED / "tiny_models/llama.gguf", bundle / "models/llama.gguf")


def main():
    build, bundle = map(pathlib.Path, sys.argv[1:3])
    pack(build, bundle)
    size = sum(f.stat().st_size for f in bundle.rglob("*") if f.is_file())
    print(f"{bundle}: {size / 1e6:.1f} MB; copy it to a machine with a GPU and start run.sh")
    if size > MAX_BYTES:
        sys.exit(f"more than {MAX_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
