"""The daemon on a CUDA device, which the stand-in of tests/simt/ plays: a
libtokend_cuda.so of the same backend lies beside a copy of the daemon."""

import pathlib
import shutil
import tempfile

import grpc
import harness
from harness import BUILD, TINY, Daemon, DaemonTest, main, need, prompt_turn, s

LIBRARY = BUILD / "tests/simt/libtokend_cuda.so"


def install(folder, library):
    """A daemon in folder/bin, with the library beside it or without; its bin."""
    programs = pathlib.Path(folder) / "bin"
    programs.mkdir()
    shutil.copy(BUILD / "bin/tokend", programs)
    if library:
        (programs.parent / "lib").mkdir()
        shutil.copy(LIBRARY, programs.parent / "lib")
    return programs


class OnDevice(DaemonTest):
    FLAGS = ("--device", "cuda", "--activations", "f32", "--threads", "2", "--context", "128")

    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        harness.BIN, plain = install(temp.name, library=True), harness.BIN
        cls.addClassCleanup(setattr, harness, "BIN", plain)
        super().setUpClass()

    def greedy(self, stubs=None):
        turn = prompt_turn("Once upon a time")
        turn.sampling.temperature = 0
        turn.stop.max_output_tokens = 8
        turn.stop.ignore_end_of_text = True
        request = harness.g.GenerateRequest(turn=turn)
        return list((stubs or self.stubs).generation.Generate(request, timeout=120).token_ids)

    def test_says_which_device(self):
        self.assertIn('event=device device="cuda:0 (SIMT stand-in', self.daemon.log())
        self.assertIn("cuda:0 (SIMT", self.daemon.model().model.attributes["device"])
        self.assertIn("cuda:0 (SIMT", self.daemon.stats().device)
        labels = next(iter(self.daemon.scrape()["tokend_build_info"]))
        self.assertIn("device=cuda", labels)

    def test_greedy_tokens_are_those_of_the_cpu(self):
        with_device = self.greedy()
        self.assertEqual(len(with_device), 8)
        cpu = Daemon("--model", TINY, "--device", "cpu", "--activations", "f32", "--context", "128")
        self.addCleanup(cpu.close)
        cpu.wait_ready()
        self.assertEqual(self.greedy(cpu.stubs), with_device)

    def test_heavy_hitters_are_refused_by_name(self):
        self.assertNotIn("heavy_hitters", self.daemon.model().model.features)
        request = s.CreateSessionRequest(session_id="h")
        request.session.retention.heavy_hitters.window_tokens = 32
        request.session.retention.heavy_hitters.kept_pages = 1
        error = self.assert_fails(grpc.StatusCode.FAILED_PRECONDITION, "FEATURE_UNAVAILABLE",
                                  lambda: self.stubs.sessions.CreateSession(request))
        self.assertEqual(error.metadata["feature"], "heavy_hitters")


class Choice(harness.unittest.TestCase):
    def start(self, library, *flags):
        need(TINY)
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        harness.BIN, plain = install(temp.name, library), harness.BIN
        self.addCleanup(setattr, harness, "BIN", plain)
        daemon = Daemon("--model", TINY, "--context", "128", *flags)
        self.addCleanup(daemon.close)
        return daemon

    def test_auto_takes_the_device(self):
        daemon = self.start(True, "--device", "auto").wait_ready()
        self.assertIn("cuda:0", daemon.model().model.attributes["device"])
        self.assertEqual(daemon.stop(), 0)

    def test_auto_does_without_the_library(self):
        daemon = self.start(False, "--device", "auto").wait_ready()
        self.assertRegex(daemon.log(), r"event=device device=cpu why=.*libtokend_cuda.so is not in")
        self.assertEqual(daemon.stop(), 0)

    def test_cuda_without_the_library_ends_the_start(self):
        daemon = self.start(False, "--device", "cuda")
        self.assertEqual(daemon.wait_exit(), 78)
        self.assertIn("device: libtokend_cuda.so is not installed", daemon.log())

    def test_a_device_that_is_not_there(self):
        daemon = self.start(True, "--device", "cuda:7")
        self.assertEqual(daemon.wait_exit(), 78)
        self.assertIn("there is no device cuda:7, only cuda:0", daemon.log())


if __name__ == "__main__":
    main()
