"""What systemd hears from the daemon, and the exit codes the unit relies on.

A fake NOTIFY_SOCKET stands for systemd. The model is $TOKEND_TEST_MODEL; without one
the tests that need it are skipped, visibly.
"""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = os.path.join(os.environ["TOKEND_BIN_DIR"], "tokend")
EMULATOR = os.environ.get("TOKEND_EMULATOR", "").split()
CACHE = os.environ.get("TOKEND_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tokend"
)
MODEL = os.environ.get("TOKEND_TEST_MODEL") or f"{CACHE}/models/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS = 240  # sanitizers and emulation are slow

skipped = []


def needs_model(test):
    def wrapper(self):
        if not os.path.exists(MODEL):
            skipped.append(test.__name__)
            self.skipTest(f"no model at {MODEL}")
        test(self)

    return wrapper


class Daemon:
    """tokend under a fake systemd."""

    def __init__(self, folder, *flags, watchdog_usec=0):
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(f"{folder}/notify")
        env = {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}
        if watchdog_usec:
            env["WATCHDOG_USEC"] = str(watchdog_usec)
        self.log_path = pathlib.Path(folder) / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*EMULATOR, BINARY, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                 "--ports-file", f"{folder}/ports", *flags],
                env=env, stdout=log, stderr=subprocess.STDOUT,
            )

    def messages(self, seconds):
        """Yields state lines until nothing came for that long or the daemon ended."""
        deadline = time.monotonic() + seconds
        self.notify.settimeout(0.2)
        while time.monotonic() < deadline:
            try:
                yield from self.notify.recv(4096).decode().splitlines()
            except socket.timeout:
                if self.process.poll() is not None:
                    return

    def wait_for(self, line, seconds):
        seen = []
        for message in self.messages(seconds):
            seen.append(message)
            if message == line:
                return seen
        raise AssertionError(f"{line} did not come within {seconds} s; saw {seen}\n{self.log()}")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.notify.close()


class HeldThread:
    """Stops one thread of a child, as a step that hangs would."""

    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
    ALL_THREADS = 0x40000000  # __WALL

    def __init__(self, pid, name):
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        (self.thread,) = [int(task.name) for task in tasks
                          if (task / "comm").read_text().strip() == name]
        self.libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(self, request):
        arguments = map(ctypes.c_long, (request, self.thread, 0, 0))
        if self.libc.ptrace(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self.ptrace(self.SEIZE)
        self.ptrace(self.INTERRUPT)
        os.waitpid(self.thread, self.ALL_THREADS)

    def __exit__(self, *_):
        self.ptrace(self.DETACH)


class NotifyTest(unittest.TestCase):
    def start(self, *flags, **kwargs):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        daemon = Daemon(temp.name, *flags, **kwargs)
        self.addCleanup(daemon.close)
        return daemon, pathlib.Path(temp.name)

    @needs_model
    def test_ready_pings_while_idle_and_stops(self):
        daemon, folder = self.start("--model", MODEL, "--drain-timeout-ms", "3600000",
                                    watchdog_usec=4_000_000)
        daemon.wait_for("READY=1", START_SECONDS)
        # Ready means reachable: the address is known and takes a connection.
        ports = dict(line.split("=", 1) for line in (folder / "ports").read_text().splitlines())
        host, port = ports["grpc"].rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=5).close()
        # systemd kills at WATCHDOG_USEC without a ping; the convention is half of it.
        for _ in range(3):
            start = time.monotonic()
            daemon.wait_for("WATCHDOG=1", 4)
            self.assertLess(time.monotonic() - start, 4)
        daemon.process.send_signal(signal.SIGTERM)
        # Or systemd kills it at TimeoutStopSec, its turns undone.
        seen = daemon.wait_for("EXTEND_TIMEOUT_USEC=3605000000", 10)
        self.assertIn("STOPPING=1", seen)
        self.assertEqual(daemon.process.wait(60), 0, daemon.log())

    @needs_model
    def test_no_pings_while_the_step_loop_stands_still(self):
        if EMULATOR:
            self.skipTest("threads of an emulated process cannot be held one by one")
        daemon, _ = self.start("--model", MODEL, watchdog_usec=2_000_000)
        daemon.wait_for("READY=1", START_SECONDS)
        daemon.wait_for("WATCHDOG=1", 4)
        with HeldThread(daemon.process.pid, "tokend-engine"):
            list(daemon.messages(0.2))  # what was sent just before
            self.assertNotIn("WATCHDOG=1", list(daemon.messages(4)))
        daemon.wait_for("WATCHDOG=1", 4)

    @needs_model
    def test_no_pings_unless_asked(self):
        daemon, _ = self.start("--model", MODEL)
        daemon.wait_for("READY=1", START_SECONDS)
        self.assertNotIn("WATCHDOG=1", list(daemon.messages(3)))

    def expect_exit(self, code, needle, *flags):
        daemon, _ = self.start(*flags)
        seen = list(daemon.messages(START_SECONDS))
        self.assertEqual(daemon.process.wait(5), code, daemon.log())
        self.assertNotIn("READY=1", seen)
        self.assertIn(needle, daemon.log())

    def test_bad_model_exits_65(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as bad:
            bad.write(b"GGUF\x03\0\0\0" + b"\xff" * 64)
            bad.flush()
            self.expect_exit(65, bad.name, "--model", bad.name)

    def test_bad_configuration_exits_78(self):
        with tempfile.NamedTemporaryFile("w", suffix=".textproto") as config:
            config.write('model: "/nowhere"\nmax_running: 0\n')
            config.flush()
            self.expect_exit(78, "max_running", "--config", config.name)

    def test_unknown_setting_exits_78(self):
        with tempfile.NamedTemporaryFile("w", suffix=".textproto") as config:
            config.write('model: "/nowhere"\nno_such_setting: 1\n')
            config.flush()
            self.expect_exit(78, "no_such_setting", "--config", config.name)

    def test_bad_flag_exits_78(self):
        self.expect_exit(78, "threads", "--model", MODEL, "--threads", "-1")


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if program.result.wasSuccessful() and skipped:
        print(f"SKIPPED without a model: {', '.join(skipped)}")
        sys.exit(77)
    sys.exit(not program.result.wasSuccessful())
