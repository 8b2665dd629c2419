"""The daemon needs nothing of CUDA to start; its CUDA library shows one symbol."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

BIN = pathlib.Path(os.environ["TOKEND_BIN_DIR"])
LIBRARY = pathlib.Path(os.environ["TOKEND_BUILD_DIR"]) / "lib/libtokend_cuda.so"
CUDA = re.compile(r"cuda|cublas|nvidia|libnv", re.IGNORECASE)


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))


class CudaFreeTest(unittest.TestCase):
    def test_programs_need_nothing_of_cuda(self):
        for name in ("tokend", "tokctl"):
            libraries = needed(BIN / name)
            self.assertIn("libc.so.6", libraries)
            self.assertEqual([library for library in libraries if CUDA.search(library)], [])

    def test_library_brings_the_runtime_along(self):
        if not LIBRARY.exists():
            self.skipTest("built without nvcc")
        self.assertEqual([library for library in needed(LIBRARY) if CUDA.search(library)], [])
        symbols = run("readelf", "--dyn-syms", "--wide", LIBRARY)
        shown = [line.split()[7] for line in symbols.splitlines()
                 if re.search(r" (GLOBAL|WEAK|UNIQUE) +DEFAULT +\d+ ", line)]
        self.assertEqual(shown, ["tokend_cuda_library"])


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if program.result.skipped else 0)
