"""The installed unit, users and directories, as systemd's own tools judge them.

Usage: unit_test.py, with TOKEND_BUILD_DIR and TOKEND_BIN_DIR in the environment.
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["TOKEND_BUILD_DIR"]
BINARY = os.path.join(os.environ["TOKEND_BIN_DIR"], "tokend")
# systemd-analyze's scale is 0 to 100 here: an exposure of 2.5.
EXPOSURE_THRESHOLD = "25"


def run(*command, **kwargs):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs
    )


class UnitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temp.cleanup)
        cls.root = pathlib.Path(cls.temp.name) / "root"
        cls.prefix = cls.root / "opt/tokend"
        result = run(
            "cmake", "--install", BUILD, "--prefix", "/opt/tokend",
            env={**os.environ, "DESTDIR": str(cls.root)},
        )
        assert result.returncode == 0, result.stdout
        cls.unit = (cls.prefix / "lib/systemd/system/tokend.service").read_text()
        cls.gpu = (cls.prefix / "share/tokend/systemd/gpu.conf").read_text()

    def place(self, unit, drop_in=None):
        """A unit file on disk that points at the built daemon, drop-in beside it."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.temp.name))
        path = folder / "tokend.service"
        path.write_text(unit.replace("/opt/tokend/bin/tokend", BINARY))
        if drop_in is not None:
            (folder / "tokend.service.d").mkdir()
            (folder / "tokend.service.d/gpu.conf").write_text(drop_in)
        return str(path)

    def verify(self, unit, drop_in=None):
        return run("systemd-analyze", "--man=no", "verify", self.place(unit, drop_in))

    def exposure(self, unit, drop_in=None):
        result = run(
            "systemd-analyze", "security", "--no-pager", "--offline=true",
            f"--threshold={EXPOSURE_THRESHOLD}", self.place(unit, drop_in),
        )
        value = re.search(r"Overall exposure level for tokend.service: ([0-9.]+)", result.stdout)
        self.assertIsNotNone(value, result.stdout)
        return result.returncode, float(value[1]), result.stdout

    def test_installed_files(self):
        self.assertIn(
            "ExecStart=/opt/tokend/bin/tokend --config /etc/tokend/tokend.textproto\n", self.unit
        )
        self.assertNotIn("@", re.sub(r"@[a-z-]+", "", self.unit), "an unexpanded variable")
        for name in ("bin/tokend", "bin/tokctl"):
            self.assertTrue(os.access(self.prefix / name, os.X_OK), name)
        self.assertTrue((self.root / "etc/tokend/tokend.textproto").is_file())

    def test_reinstall_keeps_an_edited_configuration(self):
        config = self.root / "etc/tokend/tokend.textproto"
        original = config.read_text()
        self.addCleanup(config.write_text, original)
        config.write_text("# edited\n")
        run(
            "cmake", "--install", BUILD, "--prefix", "/opt/tokend",
            env={**os.environ, "DESTDIR": str(self.root)},
        )
        self.assertEqual(config.read_text(), "# edited\n")

    # An unknown key is only a line of output: exit code 0 proves nothing.
    def test_verify_is_silent(self):
        result = self.verify(self.unit)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_verify_is_silent_with_gpu_drop_in(self):
        result = self.verify(self.unit, self.gpu)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_gpu_drop_in_gives_what_cuda_needs(self):
        lines = self.gpu.splitlines()
        for name in ("PrivateDevices", "PrivateUsers", "MemoryDenyWriteExecute"):
            self.assertIn(f"{name}=yes", self.unit.splitlines())
            self.assertIn(f"{name}=no", lines)
        allowed = [line.split("=")[1] for line in lines if line.startswith("DeviceAllow=")]
        for node in ("char-nvidia* rw", "/dev/nvmap rw", "char-nvhost* rw"):
            self.assertIn(node, allowed)
        # Under the state directory, which alone may be written.
        self.assertIn("Environment=CUDA_CACHE_PATH=%S/tokend/cuda-cache", lines)
        self.assertIn("StateDirectory=tokend", self.unit.splitlines())

    def test_installed_daemon_finds_its_cuda_library(self):
        library = self.prefix / "lib/libtokend_cuda.so"
        if not (pathlib.Path(BUILD) / "lib/libtokend_cuda.so").exists():
            self.skipTest("built without nvcc")
        self.assertTrue(library.exists())
        self.assertNotIn("not installed", self.start_with_cuda())
        moved = library.with_suffix(".moved")
        library.rename(moved)
        self.addCleanup(moved.rename, library)
        self.assertIn("libtokend_cuda.so is not installed", self.start_with_cuda())

    def start_with_cuda(self):
        """What the installed daemon says with --device cuda and no model to speak of."""
        model = os.environ.get("TOKEND_TEST_MODEL", "")
        if not os.path.exists(model):
            self.skipTest("no model")
        result = run(
            "timeout", "--signal=TERM", "20", str(self.prefix / "bin/tokend"), "--model", model,
            "--device", "cuda", "--listen", "127.0.0.1:0", "--metrics-listen", "off",
        )
        return result.stdout

    def test_verify_sees_mistakes(self):
        self.assertIn("Unknown key", self.verify(self.unit + "\n[Service]\nNoSuchKey=1\n").stdout)
        self.assertIn("Unknown key", self.verify(self.unit, "[Service]\nNoSuchKey=1\n").stdout)

    def test_exposure(self):
        code, value, report = self.exposure(self.unit)
        print(f"exposure {value}", file=sys.stderr)
        self.assertEqual(code, 0, report)
        self.assertLessEqual(value, 2.5)

    def test_exposure_counts_what_is_taken_away(self):
        code, value, _ = self.exposure(self.unit, self.gpu)
        print(f"exposure with the GPU drop-in {value}", file=sys.stderr)
        self.assertGreater(value, self.exposure(self.unit)[1])
        weak = re.sub(r"(?m)^(Protect|Private|Restrict|System|User)\w*=.*\n", "", self.unit)
        code, value, _ = self.exposure(weak)
        self.assertNotEqual(code, 0)
        self.assertGreater(value, 2.5)

    def test_restart_policy(self):
        for line in (
            "Type=notify", "Restart=on-failure", "RestartPreventExitStatus=65 78",
            "RuntimeDirectoryMode=0750", "StateDirectory=tokend",
        ):
            self.assertIn(line + "\n", self.unit)
        self.assertRegex(self.unit, r"(?m)^WatchdogSec=\d+$")

    def test_users_and_directories(self):
        sysusers = str(self.prefix / "lib/sysusers.d/tokend.conf")
        tmpfiles = str(self.prefix / "lib/tmpfiles.d/tokend.conf")
        (self.root / "etc").mkdir(parents=True, exist_ok=True)
        result = run("systemd-sysusers", f"--root={self.root}", "--dry-run", sysusers)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("tokend", result.stdout)
        if os.geteuid() != 0:
            self.skipTest("owners can be set by root only")
        result = run("systemd-sysusers", f"--root={self.root}", sysusers)
        self.assertEqual(result.returncode, 0, result.stdout)
        passwd = (self.root / "etc/passwd").read_text()
        uid, gid = map(int, re.search(r"(?m)^tokend:[^:]*:(\d+):(\d+):", passwd).groups())
        result = run("systemd-tmpfiles", f"--root={self.root}", "--create", tmpfiles)
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        for name, owner, mode in (
            ("var/lib/tokend", (uid, gid), 0o750),
            ("etc/tokend", (0, gid), 0o750),
            ("etc/tokend/tokend.textproto", (0, gid), 0o640),
        ):
            status = (self.root / name).stat()
            self.assertEqual((status.st_uid, status.st_gid), owner, name)
            self.assertEqual(stat.S_IMODE(status.st_mode), mode, name)


if __name__ == "__main__":
    for tool in ("systemd-analyze", "systemd-sysusers", "systemd-tmpfiles"):
        if not shutil.which(tool):
            print(f"SKIPPED: {tool} is not installed")
            sys.exit(77)
    if not os.access(BINARY, os.X_OK):
        sys.exit(f"{BINARY} is not built")
    unittest.main()
