"""tokctl against a server that asks for a token, over TLS."""

import pathlib
import tempfile
import time

from tokctl import DONE, REFUSED, UNREACHABLE, USAGE, json_lines, run

from callers import caller, make_certificate, principals
from harness import TINY, Daemon, DaemonTest, main, need

ALICE, BOB = "alice-secret", "bob-secret"
TURN = ("generate", "--prompt", "Once", "--max-tokens", "4", "--ignore-eos", "--json")


class AuthTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        need(TINY)
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.certificate, key = make_certificate(cls.folder, "server")
        cls.other_certificate, _ = make_certificate(cls.folder, "other")
        config = cls.folder / "config"
        config.write_text(principals(alice=ALICE, bob=BOB))
        cls.daemon = Daemon(
            "--model", TINY, "--threads", "2", "--config", config, "--tls-cert-file",
            cls.certificate, "--tls-key-file", key,
            connect=lambda address: caller(address, ALICE, ca_file=cls.certificate))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait_ready()

    def ctl(self, *arguments, token=None, certificate=None, **kwargs):
        if token is not None:
            arguments = ("--token", token, *arguments)
        return run("--server", self.daemon.address, "--ca-file",
                   certificate or self.certificate, *arguments, **kwargs)

    def test_a_token_from_the_command_line_or_the_environment(self):
        for kwargs in ({"token": ALICE}, {"env": {"TOKEND_TOKEN": ALICE}},
                       {"token": ALICE, "env": {"TOKEND_TOKEN": "wrong"}}):
            done = self.ctl(*TURN, **kwargs)
            self.assertEqual((done.code, done.err), (DONE, ""))
            self.assertEqual(len(json_lines(done.out)[0]["token_ids"]), 4)
        done = self.ctl("--wait", "30s", "stats", token=BOB)
        self.assertEqual(done.code, DONE, done.err)

    def test_every_command_sends_it(self):
        for command in (TURN, (*TURN, "--stream"), ("model",), ("stats",),
                        ("tokenize", "--text", "a"), ("detokenize", "1"),
                        ("sessions", "create", "mine"), ("sessions", "show", "mine"),
                        ("sessions", "fork", "mine", "other"), ("sessions", "list"),
                        ("sessions", "delete", "other"), ("sessions", "delete", "mine")):
            with self.subTest(command):
                done = self.ctl(*command, token=ALICE)
                self.assertEqual((done.code, done.err), (DONE, ""))
                for kwargs in ({}, {"token": "wrong-one"}):
                    done = self.ctl(*command, **kwargs)
                    self.assertEqual((done.code, done.out), (REFUSED, ""))
                    self.assertIn("UNAUTHENTICATED", done.err)
                    self.assertNotIn("wrong-one", done.err)

    def test_a_wrong_token_is_not_waited_for(self):
        start = time.monotonic()
        done = self.ctl("--wait", "60s", "--json", "model", token="wrong")
        self.assertEqual(done.code, REFUSED)
        self.assertEqual(json_lines(done.err)[0]["reason"], "UNAUTHENTICATED")
        self.assertLess(time.monotonic() - start, 30)

    def test_sessions_of_another(self):
        self.assertEqual(self.ctl(*TURN, "--session", "plan", token=ALICE).code, DONE)
        self.assertIn("sessions/plan", self.ctl("sessions", "list", token=ALICE).out)
        self.assertNotIn("sessions/plan", self.ctl("sessions", "list", token=BOB).out)
        done = self.ctl("--json", "sessions", "show", "plan", token=BOB)
        self.assertEqual((done.code, json_lines(done.err)[0]["reason"]),
                         (REFUSED, "NO_SUCH_RESOURCE"))

    def test_a_server_that_is_not_trusted(self):
        for certificate in (self.other_certificate, None):
            tls = ("--ca-file", certificate) if certificate else ()
            done = run("--server", self.daemon.address, *tls, "--json", "--token", ALICE, "model")
            self.assertEqual((done.code, done.out), (UNREACHABLE, ""))
            (error,) = json_lines(done.err)  # and nothing else
            self.assertIn("verify failed" if certificate else self.daemon.address,
                          error["message"])

    def test_certificates_to_trust_that_are_none(self):
        junk, empty = self.folder / "junk", self.folder / "empty"
        junk.write_text("no PEM")
        empty.write_text("")
        for bad in (junk, empty, self.folder, "/nowhere"):
            done = self.ctl("model", token=ALICE, certificate=bad)
            self.assertEqual((done.code, done.out), (USAGE, ""))
            self.assertIn("--ca-file: ", done.err)
            self.assertIn(str(bad), done.err)


if __name__ == "__main__":
    main()
