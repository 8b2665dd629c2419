"""The Python examples, each as a user runs it."""

import os
import subprocess
import sys
import unittest

from harness import CLIENT, ROOT, SMOLLM2, DaemonTest, main

EXAMPLES = ROOT / "examples" / "python"
NAMES = [name + suffix for name in ("stream", "barge_in", "fork", "reconnect")
         for suffix in ("", "_async")]
HELPERS = {"setup", "tokend_client"}
# Of the README, where `stubs` and imports come from.
README = """
from tokend_client import connect
from tokend.v1 import generation_pb2 as g
import sys
stubs = connect(sys.argv[1])
turn = g.Turn(prompt=g.TextInput(text="Hi"), stop=g.StopRules(max_output_tokens=1))
print(sum(1 for _ in stubs.generation.Stream(g.StreamRequest(turn=turn))))
assert stubs.sessions and stubs.model and stubs.admin
"""


class ExamplesTest(DaemonTest):
    MODEL = SMOLLM2

    def run_python(self, *command):
        done = subprocess.run(
            [sys.executable, *command, self.daemon.address], capture_output=True, text=True,
            timeout=120, env={**os.environ, "PYTHONPATH": str(CLIENT)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

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

    def test_readme(self):
        self.assertGreaterEqual(int(self.run_python("-c", README)), 3)


class SizeTest(unittest.TestCase):
    def test_each_is_known_and_short(self):
        files = {path.stem: path for path in EXAMPLES.glob("*.py")}
        self.assertEqual(set(files), {*NAMES, *HELPERS})
        for name, path in files.items():
            self.assertLess(len(path.read_text().splitlines()), 40, name)


if __name__ == "__main__":
    main()
