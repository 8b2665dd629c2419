"""Runs a real tokend and talks to it from outside. Tests import it and end with main().

The programs are in $TOKEND_BIN_DIR, the installed Python client in
$TOKEND_BUILD_DIR/python. Models: a tiny one beside the checkout, where every call
ends at once, and SmolLM2 ($TOKEND_TEST_MODEL), whose turns last long enough to be
interrupted. Where a model is missing its tests are skipped and the exit code is 77.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TOKEND_BUILD_DIR"])
BIN = pathlib.Path(os.environ["TOKEND_BIN_DIR"])
EMULATOR = os.environ.get("TOKEND_EMULATOR", "").split()
CLIENT = BUILD / "python"
SHARED = ROOT.parent / "shared"
TINY = SHARED / "tiny_models" / "llama.gguf"
_CACHE = os.environ.get("TOKEND_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tokend"
)
SMOLLM2 = pathlib.Path(
    os.environ.get("TOKEND_TEST_MODEL") or f"{_CACHE}/models/SmolLM2-135M-Instruct.Q4_1.gguf"
)

sys.path.insert(0, str(CLIENT))

import grpc  # noqa: E402
from google.rpc import error_details_pb2  # noqa: E402
from grpc_status import rpc_status  # noqa: E402
from tokend.v1 import admin_pb2 as a  # noqa: E402
from tokend.v1 import common_pb2 as c  # noqa: E402, F401
from tokend.v1 import generation_pb2 as g  # noqa: E402
from tokend.v1 import model_pb2 as m  # noqa: E402
from tokend.v1 import sessions_pb2 as s  # noqa: E402
from tokend_client import connect, make_stubs  # noqa: E402, F401

START_SECONDS = 120
STOP_SECONDS = 60
CALL_SECONDS = 120  # of calls that should end by themselves


def wait_until(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Daemon:
    """A tokend process in a folder of its own."""

    def __init__(self, *flags, listen=("127.0.0.1:0",), metrics="127.0.0.1:0", connect=connect):
        self._folder = tempfile.TemporaryDirectory(prefix="tokend-e2e-")
        self.folder = pathlib.Path(self._folder.name)
        self.ports_file = self.folder / "ports"
        command = [*EMULATOR, BIN / "tokend", "--metrics-listen", metrics]
        command += ["--ports-file", self.ports_file]
        # What is compared to the bit is the CPU's, whatever this machine has.
        if "--device" not in flags:
            command += ["--device", "cpu"]
        for address in listen:
            command += ["--listen", address.replace("FOLDER", str(self.folder))]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*command, *map(str, flags)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )
        self._connect, self._stubs = connect, None

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def wait_listening(self):
        def listening():
            assert self.process.poll() is None, f"tokend ended early:\n{self.log()}"
            return self.ports_file.exists()

        wait_until("the ports file", listening, START_SECONDS)
        lines = [line.split("=", 1) for line in self.ports_file.read_text().splitlines()]
        self.addresses = [value for key, value in lines if key == "grpc"]
        self.metrics_address = next((value for key, value in lines if key == "metrics"), None)
        return self

    def wait_ready(self):
        self.wait_listening()
        wait_until("a ready model", lambda: self.model().ready, START_SECONDS)
        return self

    @property
    def address(self):
        return self.addresses[0]

    @property
    def stubs(self):
        if self._stubs is None:
            self._stubs = self._connect(self.address)
        return self._stubs

    def model(self):
        return self.stubs.model.GetModel(m.GetModelRequest(), timeout=CALL_SECONDS)

    def stats(self):
        return self.stubs.admin.GetStats(a.GetStatsRequest(), timeout=CALL_SECONDS)

    def idle(self):
        stats = self.stats()
        return stats.running_turns == 0 and stats.waiting_turns == 0

    def scrape(self):
        """{"name": {"label=value,...": number}} of /metrics."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{self.metrics_address}/metrics"
        with opener.open(url, timeout=30) as response:
            return parse_metrics(response.read().decode())

    def wait_exit(self, seconds=STOP_SECONDS):
        return self.process.wait(seconds)

    def stop(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        return self.wait_exit()

    def close(self):
        if self._stubs is not None:
            self._stubs.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._folder.cleanup()


def parse_metrics(text):
    out = {}
    for line in text.splitlines():
        found = re.fullmatch(r"([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)", line)
        if found:
            labels = (found[2] or "").replace('"', "").rstrip(",")
            out.setdefault(found[1], {})[labels] = float(found[3])
    return out


class DaemonTest(unittest.TestCase):
    """One daemon for all tests of a class. It must survive them and drain with code 0."""

    MODEL = TINY
    FLAGS = ("--threads", "2")

    @classmethod
    def setUpClass(cls):
        need(cls.MODEL)
        cls.daemon = Daemon("--model", cls.MODEL, *cls.FLAGS)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait_ready()
        cls.stubs = cls.daemon.stubs

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.process.poll()
        if code is None:
            code = cls.daemon.stop()
        assert code == 0, f"tokend ended with {code}:\n{cls.daemon.log()[-4000:]}"

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log()[-4000:])

    def generate(self, turn, timeout=CALL_SECONDS):
        return self.stubs.generation.Generate(g.GenerateRequest(turn=turn), timeout=timeout)

    def stream(self, turn, timeout=CALL_SECONDS):
        return self.stubs.generation.Stream(g.StreamRequest(turn=turn), timeout=timeout)

    def session(self, name):
        return self.stubs.sessions.GetSession(s.GetSessionRequest(name=name)).session

    def assert_fails(self, code, reason, call):
        """Runs call(); returns what the error says."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        error = error_of(caught.exception)
        self.assertEqual((error.code, error.reason), (code, reason), error.message)
        return error

    def assert_pages_sum(self, counts):
        parts = counts.free + counts.cached + counts.private_pages
        parts += counts.shared + counts.pinned + counts.quarantined
        self.assertEqual(parts, counts.total)


def error_of(error):
    """Code, message, reason, metadata, field violations and retry hint of an RpcError."""
    out = types.SimpleNamespace(code=error.code(), message=error.details(), reason=None,
                                metadata={}, fields=[], retry_seconds=None)
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info = error_details_pb2.ErrorInfo()
        request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            assert info.domain == "tokend", info
            out.reason, out.metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(request):
            out.fields = [violation.field for violation in request.field_violations]
        elif detail.Unpack(retry):
            delay = retry.retry_delay
            out.retry_seconds = delay.seconds + delay.nanos / 1e9
    return out


def prompt_turn(text="Once upon a time", **fields):
    return g.Turn(prompt=g.TextInput(text=text), **fields)


def long_turn(tokens=4000, **fields):
    """A turn of SmolLM2 that lasts for minutes if nobody ends it."""
    stop = g.StopRules(max_output_tokens=tokens, ignore_end_of_text=True)
    return prompt_turn(stop=stop, **fields)


def collect(stream):
    """What a whole stream said: text, raw, token_ids, started, finished."""
    out = types.SimpleNamespace(text="", raw=b"", token_ids=[], started=None, finished=None)
    for response in stream:
        kind = response.WhichOneof("event")
        assert out.finished is None, "an event after Finished"
        if kind == "started":
            assert out.started is None and not out.token_ids, "Started is not first"
            out.started = response.started
        elif kind == "delta":
            assert response.delta.index == len(out.token_ids), "a gap between two deltas"
            out.text += response.delta.text
            out.raw += response.delta.raw or response.delta.text.encode()
            out.token_ids += response.delta.token_ids
        elif kind == "finished":
            out.finished = response.finished
    return out


def run_threads(functions):
    """Runs all at once; returns their results, raises the first exception."""
    results = [None] * len(functions)

    def run(index):
        try:
            results[index] = (functions[index](), None)
        except BaseException as error:  # noqa: B902  # reported by the caller's thread
            results[index] = (None, error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, error in results:
        if error is not None:
            raise error
    return [value for value, _ in results]


def need(path):
    if not pathlib.Path(path).exists():
        raise unittest.SkipTest(f"{path} is missing")


def main():
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    assert result.testsRun + len(result.skipped) > 0, "no tests"
    sys.exit(77 if result.skipped else 0)
