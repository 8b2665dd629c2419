#!/usr/bin/env python3
"""Leaves out each barrier of the CUDA kernels in turn and runs the tests that reach it.

    barriers.py BUILD_FOLDER [NAME_PART ...]

The folder holds a release build with tests; NAME_PART selects tests/cuda_*_test of it.
Nothing is compiled: the stand-in of tests/simt/ knows each __syncthreads, __syncwarp and
wait for copies by its line. Exit code 1 if no test misses one of them: it is needless,
or not tested.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

TEST_SECONDS = 300
SCHEDULES = ("", "warps=descending,blocks=descending,copies=late,mma=split",
             "warps=interleaved,blocks=interleaved,copies=late")


def passes(binary, **environment):
    try:
        return subprocess.run([str(binary), "--gtest_fail_fast", "--gtest_brief=1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, **environment}, timeout=TEST_SECONDS,
                              check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def reached_by(binary):
    """Kind and site of each barrier that the test runs."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "barriers"
        if not passes(binary, TOKEND_SIMT_RECORD=str(record)):
            sys.exit(f"{binary.name} fails with all barriers in place")
        return {tuple(line.split()) for line in record.read_text().splitlines()} \
            if record.exists() else set()


def missed_by(binary, site):
    """Which run fails without the barrier, or None. The shadow memory sees most."""
    shadow = binary.with_name(binary.name + "_shadow")
    if shadow.exists() and not passes(shadow, TOKEND_SIMT_DROP=site):
        return shadow.name
    for schedule in SCHEDULES:
        if not passes(binary, TOKEND_SIMT_DROP=site, TOKEND_SIMT_SCHEDULE=schedule):
            return f"{binary.name} {schedule}".strip()
    return None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tests = pathlib.Path(sys.argv[1]) / "tests"
    parts = sys.argv[2:] or [""]
    binaries = sorted(path for path in tests.glob("cuda_*_test")
                      if any(part in path.name for part in parts))
    barriers = {}
    for binary in binaries:
        for barrier in reached_by(binary):
            barriers.setdefault(barrier, []).append(binary)
    survivors = 0
    for (kind, site), reaching in sorted(barriers.items(), key=lambda item: item[0][1]):
        killer = next(filter(None, (missed_by(binary, site) for binary in reaching)), None)
        survivors += killer is None
        names = ", ".join(binary.name for binary in reaching)
        print(f"{site} ({kind}): " + (f"missed by {killer}" if killer
                                      else f"SURVIVES {names}"), flush=True)
    print(f"{len(barriers)} barriers, {survivors} that no test misses")
    return 1 if survivors or not barriers else 0


if __name__ == "__main__":
    sys.exit(main())
