"""Runs tokctl for the tests of this folder."""

import json
import os
import pathlib
import subprocess
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from harness import BIN, EMULATOR  # noqa: E402

DONE, REFUSED, USAGE, UNREACHABLE, BAD_MODEL = 0, 1, 2, 3, 65


def run(*arguments, stdin="", seconds=120, env=None):
    """Exit code, stdout, stderr."""
    done = subprocess.run(
        [*EMULATOR, BIN / "tokctl",
         *(each if isinstance(each, bytes) else str(each) for each in arguments)], input=stdin, capture_output=True,
        text=True, timeout=seconds, env={**os.environ, **(env or {})})
    return types.SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]
