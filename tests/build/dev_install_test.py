"""What cmake/dev_install.sh says while it installs: `./dev model` owns stdout."""

import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# apt-get, played: talks on stdout, as the real one does.
SCRIPT = """
. cmake/dev_install.sh
missing_packages() { echo some-package; }
can_be_root() { true; }
as_root() { echo "ran $1 $2"; }
apt_install some-package
"""


class DevInstallTest(unittest.TestCase):
    def test_apt_speaks_on_stderr(self):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", SCRIPT], cwd=ROOT, text=True,
                              capture_output=True, check=True)
        self.assertEqual(done.stdout, "")
        self.assertIn("ran apt-get update", done.stderr)
        self.assertIn("ran apt-get install", done.stderr)


if __name__ == "__main__":
    unittest.main()
