"""examples/demo.sh, which `./dev demo` runs, with the programs as they are built."""

import os
import subprocess
import unittest

import tokctl  # noqa: F401  # finds the harness

from harness import BIN, ROOT, SMOLLM2, main, need


class DemoTest(unittest.TestCase):
    def test_demo(self):
        need(SMOLLM2)
        done = subprocess.run([ROOT / "examples" / "demo.sh", SMOLLM2], text=True, timeout=240,
                              capture_output=True, env={**os.environ, "TOKEND_BIN_DIR": str(BIN)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = done.stdout + done.stderr
        for pattern in (r"Paris", r"sessions/demo/versions/2",
                        r"forked from +sessions/demo/versions/2",
                        r"(?m)^VERSION +PARENT", r"(?m)^tokend_generated_tokens_total \d+",
                        r"(?m)^tokend_requests_total\{reason=\"\w+\"\} [1-9]",
                        r"[\d.]+ tokens/s while decoding, \d+ ms to the first token"):
            self.assertRegex(said, pattern)


if __name__ == "__main__":
    main()
