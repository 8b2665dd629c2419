"""The Python examples, each as a user runs it."""

import os
import re
import subprocess
import sys
import unittest

from harness import CLIENT, ROOT, SMOLLM2, DaemonTest, main

EXAMPLES = ROOT / "examples" / "python"
NAMES = [name + suffix for name in ("stream", "barge_in", "fork", "reconnect")
         for suffix in ("", "_async")]
HELPERS = {"setup", "tokend_client"}
ADDRESS = "127.0.0.1:50551"  # of the README


class PythonTest(DaemonTest):
    MODEL = SMOLLM2

    def run_python(self, *command):
        done = subprocess.run(
            [sys.executable, *command, self.daemon.address], capture_output=True, text=True,
            timeout=120, env={**os.environ, "PYTHONPATH": str(CLIENT)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout


class ExamplesTest(PythonTest):
    def run_example(self, name):
        return self.run_python(EXAMPLES / f"{name}.py")

    def test_stream(self):
        for name in ("stream", "stream_async"):
            self.assertRegex(self.run_example(name), r"(?s)\w.*\n\d+ tokens\n$")

    def test_barge_in(self):
        for name in ("barge_in", "barge_in_async"):
            self.assertRegex(self.run_example(name),
                             r"\nkept 8 tokens of the answer in sessions/talk-\S+/versions/1\n$")
        self.assertEqual(self.daemon.stats().running_turns, 0)

    def test_fork(self):
        for name in ("fork", "fork_async"):
            lines = self.run_example(name)
            self.assertRegex(lines, r"(?m)^sessions/trunk-\S+/versions/2:['\"]")
            self.assertRegex(lines, r" was forked from sessions/trunk-\S+/versions/1\n$")

    def test_reconnect(self):
        for name in ("reconnect", "reconnect_async"):
            self.assertRegex(self.run_example(name),
                             r"(?s)Things to buy:.*sessions/note-\S+ is at version 2, \d+ tokens"
                             r"\n$")


class ReadmeTest(PythonTest):
    # A bound on the answer, which has none of its own.
    FLAGS = (*DaemonTest.FLAGS, "--context", "1024")

    def test_readme(self):
        """The README's own text, which talks to the usual address."""
        (script,) = re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / "README.md").read_text())
        self.assertEqual(script.count(f'"{ADDRESS}"'), 1)
        said = self.run_python("-c", script.replace(ADDRESS, self.daemon.address))
        self.assertRegex(said, r"\w{3}")
        session = self.session("sessions/robot-7")
        self.assertEqual(session.version, 1)


class SizeTest(unittest.TestCase):
    def test_each_is_known_and_short(self):
        files = {path.stem: path for path in EXAMPLES.glob("*.py")}
        self.assertEqual(set(files), {*NAMES, *HELPERS})
        for name, path in files.items():
            self.assertLess(len(path.read_text().splitlines()), 40, name)


if __name__ == "__main__":
    main()
