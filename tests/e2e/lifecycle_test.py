"""The daemon's start and end: exit codes, addresses, health, reflection, drain."""

import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

import grpc
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from harness import (
    BIN,
    CALL_SECONDS,
    EMULATOR,
    SMOLLM2,
    TINY,
    Daemon,
    DaemonTest,
    c,
    connect,
    error_of,
    g,
    long_turn,
    main,
    need,
    prompt_turn,
    wait_until,
)

SERVICES = ["GenerationService", "SessionService", "ModelService", "AdminService"]


class Lifecycle(unittest.TestCase):
    def start(self, *flags, **kwargs):
        daemon = Daemon(*flags, **kwargs)
        self.addCleanup(daemon.close)
        return daemon

    def assert_exits(self, code, needle, daemon):
        self.assertEqual(daemon.wait_exit(), code, daemon.log())
        errors = [line for line in daemon.log().splitlines() if "level=error" in line]
        self.assertEqual(len(errors), 1, daemon.log())
        self.assertIn(needle, errors[0])


class ExitTest(Lifecycle):
    def folder(self):
        return pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name, data):
        path = self.folder() / name
        path.write_bytes(data)
        return path

    def test_a_bad_model_file(self):
        need(TINY)
        whole = TINY.read_bytes()
        for name, data, needle in (
                ("junk.gguf", b"not a model" * 100, "magic"), ("empty.gguf", b"", "empty.gguf"),
                ("half.gguf", whole[:len(whole) // 2], "half.gguf"),
                ("cut.gguf", whole[:1000], "cut.gguf")):
            with self.subTest(name):
                self.assert_exits(65, needle, self.start("--model", self.write(name, data)))

    def test_what_a_file_holds_is_said_with_its_path(self):
        need(TINY)
        # The tokeniser, which is read while loading: a type no token has.
        key = b"tokenizer.ggml.token_type"
        whole = bytearray(TINY.read_bytes())
        first = whole.index(key) + len(key) + 4 + 4 + 8  # array, of i32, count
        whole[first:first + 4] = b"\xff\xff\xff\x7f"
        path = self.write("odd.gguf", bytes(whole))
        self.assert_exits(65, f"{path}: ", self.start("--model", path))

    def test_wrong_settings(self):
        good = ("--model", TINY)
        for needle, flags in (
                ("model", ()), ("model", ("--model", "/nowhere.gguf")),
                ("max_running", (*good, "--max-running", "33")),
                ("max-running", (*good, "--max-running", "many")),
                ("frobnicate", (*good, "--frobnicate", "1")),
                ("listen", (*good, "--listen", "0.0.0.0:0")),
                ("drain_timeout_ms", (*good, "--drain-timeout-ms", "-1")),
                ("config", ("--config", "/nowhere.txtpb")),
                ("cannot read /tmp: ", (*good, "--config", "/tmp")),
                ("threads: 257 is not in [1, 256]", (*good, "--threads", "257")),
                ("context_tokens: 100000 is more than", (*good, "--context", "100000")),
                ("default_retention.sliding_window.window_tokens: 100000 is not in",
                 (*good, "--default-retention", "sliding_window {window_tokens: 100000}")),
                ("default_retention.layered.full_layers: 100 is not in",
                 (*good, "--default-retention",
                  "layered {full_layers: 100 window {window_tokens: 16}}")),
                ("default_retention.heavy_hitters.kept_pages: 500 is not in",
                 (*good, "--default-retention",
                  "heavy_hitters {window_tokens: 16 kept_pages: 500}")),
                ("default_retention.heavy_hitters.epoch_tokens: 17 is no multiple",
                 (*good, "--default-retention",
                  "heavy_hitters {window_tokens: 16 epoch_tokens: 17}")),
                ("no_such_setting", ("--config", self.write("c", b"no_such_setting: 1"))),
                ("max_running", ("--config", self.write("c", b"max_running: 99999999999")))):
            with self.subTest(str(flags)):
                daemon = self.start(*flags)
                self.assertEqual(daemon.wait_exit(), 78, daemon.log())
                self.assertIn(needle, daemon.log())
                self.assertEqual(daemon.log().count("level=error"), 1, daemon.log())

    def test_a_second_daemon_on_the_same_address(self):
        need(TINY)
        path = self.folder() / "s"
        first = self.start("--model", TINY, listen=("127.0.0.1:0", f"unix:{path}")).wait_ready()
        for address in first.addresses:
            with self.subTest(address):
                second = self.start("--model", TINY, listen=(address,))
                self.assert_exits(1, str(path) if "unix" in address else address, second)
        second = self.start("--model", TINY, metrics=first.metrics_address)
        self.assert_exits(1, first.metrics_address, second)
        # The first one still answers on both.
        for address in first.addresses:
            stubs = connect(address)
            turn = prompt_turn("Still", stop=g.StopRules(max_output_tokens=1))
            stubs.generation.Generate(g.GenerateRequest(turn=turn), timeout=CALL_SECONDS)
            stubs.channel.close()
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o660)
        self.assertEqual(first.stop(), 0, first.log())
        # A socket that was left behind is no hindrance.
        self.start("--model", TINY, listen=(f"unix:{path}",)).wait_ready()

    def test_help_and_version(self):
        for flag, needle in (("--help", "Exit codes"), ("--version", "tokend ")):
            done = subprocess.run([*EMULATOR, BIN / "tokend", flag], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 0)
            self.assertIn(needle, done.stdout)


class HealthTest(Lifecycle):
    def test_not_serving_until_the_model_is_warm(self):
        need(SMOLLM2)
        daemon = self.start("--model", SMOLLM2, "--threads", "1").wait_listening()
        channel = daemon.stubs.channel
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.assertFalse(daemon.model().ready)
        with self.assertRaises(grpc.RpcError) as caught:
            daemon.stubs.generation.Generate(g.GenerateRequest(turn=prompt_turn()))
        error = error_of(caught.exception)
        self.assertEqual((error.code, error.reason),
                         (grpc.StatusCode.UNAVAILABLE, "MODEL_LOADING"))
        self.assertGreater(error.retry_seconds, 0)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        self.assertTrue(daemon.model().ready)
        for name in ("", *(f"tokend.v1.{service}" for service in SERVICES)):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(service="nobody"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        daemon.process.terminate()
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.assertEqual(daemon.wait_exit(), 0, daemon.log())

    def test_reflection(self):
        need(TINY)
        daemon = self.start("--model", TINY).wait_ready()
        database = ProtoReflectionDescriptorDatabase(daemon.stubs.channel)
        listed = set(database.get_services())
        self.assertLessEqual({f"tokend.v1.{name}" for name in SERVICES} | {"grpc.health.v1.Health"},
                             listed)
        file = database.FindFileContainingSymbol("tokend.v1.GenerationService")
        self.assertIsInstance(file, descriptor_pb2.FileDescriptorProto)
        self.assertIn("Turn", [message.name for message in file.message_type])
        # As README.md calls it.
        buf = pathlib.Path(sys.executable).parent / "buf"
        done = subprocess.run(
            [buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "-d",
             '{"turn": {"prompt": {"text": "Once upon a time"}, "stop": {"maxOutputTokens": 16}}}',
             f"http://{daemon.address}/tokend.v1.GenerationService/Generate"],
            capture_output=True, text=True, timeout=120,
            env={key: value for key, value in os.environ.items() if "proxy" not in key.lower()})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(json.loads(done.stdout)["finished"]["reason"],
                      ("FINISH_REASON_LENGTH", "FINISH_REASON_END_OF_TEXT"))


class DrainTest(Lifecycle):
    def test_a_running_stream_finishes_and_new_turns_are_refused(self):
        need(SMOLLM2)
        daemon = self.start("--model", SMOLLM2, "--threads", "2").wait_ready()
        stream = daemon.stubs.generation.Stream(
            g.StreamRequest(turn=long_turn(tokens=40)), timeout=CALL_SECONDS)
        self.assertTrue(next(stream).HasField("started"))
        daemon.process.terminate()
        wait_until("the drain begins", lambda: "event=draining" in daemon.log())
        with self.assertRaises(grpc.RpcError) as caught:
            daemon.stubs.generation.Generate(g.GenerateRequest(turn=prompt_turn()), timeout=30)
        error = error_of(caught.exception)
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.UNAVAILABLE, "DRAINING"))
        finished = list(stream)[-1].finished
        self.assertEqual((finished.reason, finished.usage.output_tokens),
                         (c.FINISH_REASON_LENGTH, 40))
        self.assertEqual(daemon.wait_exit(), 0, daemon.log())

    def test_patience_ends(self):
        need(SMOLLM2)
        daemon = self.start("--model", SMOLLM2, "--threads", "2", "--drain-timeout-ms",
                            "300").wait_ready()
        stream = daemon.stubs.generation.Stream(g.StreamRequest(turn=long_turn()))
        self.assertTrue(next(stream).HasField("started"))
        daemon.process.terminate()
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream)
        error = error_of(caught.exception)
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.UNAVAILABLE, "DRAINING"))
        self.assertEqual(daemon.wait_exit(), 0, daemon.log())


class LogTest(DaemonTest):
    def test_one_line_a_turn_and_never_its_text(self):
        secret = "xyzzy-canary"
        turn = prompt_turn(secret, request_id="logged", stop=g.StopRules(max_output_tokens=3))
        self.generate(turn)
        lines = [line for line in self.daemon.log().splitlines() if "request_id=logged" in line]
        self.assertEqual(len(lines), 1)
        self.assertNotIn(secret, self.daemon.log())

    def test_text_that_is_none_leaves_no_trace(self):
        # Turn.prompt.text is not UTF-8: protobuf refuses the message, and says so at length.
        call = self.stubs.channel.unary_unary("/tokend.v1.GenerationService/Generate")
        good = g.GenerateRequest(turn=prompt_turn("ab")).SerializeToString()
        bad = good.replace(b"ab", b"\xff\xfe")
        self.assertNotEqual(good, bad)
        for _ in range(3):
            with self.assertRaises(grpc.RpcError):
                call(bad, timeout=30)
        self.generate(prompt_turn("Go", stop=g.StopRules(max_output_tokens=1)))
        for line in self.daemon.log().splitlines():
            self.assertRegex(line, r"^time=\S+ level=\w+ event=\w+")
            self.assertNotIn("UTF-8", line)

    def test_a_half_open_connection_does_not_hinder(self):
        host, port = self.daemon.address.rsplit(":", 1)
        sockets = [socket.create_connection((host, int(port))) for _ in range(20)]
        self.generate(prompt_turn("Go", stop=g.StopRules(max_output_tokens=1)), timeout=30)
        for connection in sockets:
            connection.close()


if __name__ == "__main__":
    main()
