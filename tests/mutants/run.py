#!/usr/bin/env python3
"""Builds each mutant of mutants.py in a copy of the project and runs its tests.

    run.py [NAME_PART ...]      from the project's root

Exit code 1 if one survives, or no longer fits the code.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from mutants import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutants" / "source"
BUILD = ROOT / "build" / "mutants" / "build"
TEST_SECONDS = 300


def run(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)


def copy_project():
    """What git tracks, with times that stay where nothing changed."""
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    wanted = [name for name in files.split("\0") if name and (ROOT / name).is_file()]
    for name in wanted:
        source, target = ROOT / name, COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)


def build(targets):
    return run("cmake", "--build", str(BUILD), "-j", os.environ.get("TOKEND_JOBS", "2"),
               "--target", *targets)


def first_failure(tests):
    for test in tests:
        try:
            if run(str(BUILD / "tests" / test), timeout=TEST_SECONDS).returncode != 0:
                return test
        except subprocess.TimeoutExpired:
            return f"{test} (did not end)"
    return None


def verdict(mutant):
    """What killed it, or None, and what to say."""
    _, name, old, new, tests = mutant
    path = COPY / name
    text = path.read_text()
    if text.count(old) != 1:
        return None, f"its text is in {name} {text.count(old)} times"
    path.write_text(text.replace(old, new))
    try:
        built = build(tests)
        if built.returncode != 0:
            return None, "it does not compile:\n" + built.stdout[-3000:]
        test = first_failure(tests)
        return test, "SURVIVED" if test is None else f"found by {test}"
    finally:
        path.write_text(text)


def main():
    parts = sys.argv[1:] or [""]
    chosen = [mutant for mutant in MUTANTS if any(part in mutant[0] for part in parts)]
    copy_project()
    configured = run("cmake", "-S", str(COPY), "-B", str(BUILD), "-G", "Ninja",
                     f"-DTOKEND_VENV={ROOT / 'build' / 'venv'}", "-DCMAKE_CXX_FLAGS_RELEASE=-O1")
    tests = sorted({test for mutant in chosen for test in mutant[4]})
    built = build(tests) if configured.returncode == 0 else configured
    if built.returncode != 0:
        sys.exit("the project itself does not build:\n" + built.stdout[-3000:])
    if failed := first_failure(tests):
        sys.exit(f"{failed} fails without a mutant")
    survivors = 0
    for mutant in chosen:
        killer, words = verdict(mutant)
        survivors += killer is None
        print(f"{mutant[0]}: {words}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
