"""TLS from outside: who is served, who is not, and certificates that cannot be used."""

import pathlib
import socket
import subprocess
import tempfile
import unittest

import grpc
from callers import caller, make_certificate
from harness import (
    CALL_SECONDS,
    TINY,
    Daemon,
    DaemonTest,
    c,
    collect,
    connect,
    g,
    m,
    main,
    need,
    prompt_turn,
)


def short_turn():
    return prompt_turn(stop=g.StopRules(max_output_tokens=24, ignore_end_of_text=True))


class TlsTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        need(TINY)
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.certificate, key = make_certificate(folder, "server")
        cls.other_certificate, _ = make_certificate(folder, "other")
        cls.daemon = Daemon(
            "--model", TINY, "--threads", "2", "--tls-cert-file", cls.certificate,
            "--tls-key-file", key, listen=("127.0.0.1:0", "unix:FOLDER/s"),
            connect=lambda address: caller(address, ca_file=cls.certificate))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait_ready()
        cls.stubs = cls.daemon.stubs

    def test_a_stream_is_what_it_is_without_tls(self):
        turn = short_turn()
        turn.sampling.temperature = 0
        whole = collect(self.stream(turn))
        self.assertEqual((len(whole.token_ids), whole.finished.reason),
                         (24, c.FINISH_REASON_LENGTH))
        # TLS is for TCP; the socket has its file's permissions.
        local = connect(self.daemon.addresses[1])
        self.addCleanup(local.channel.close)
        plain = collect(local.generation.Stream(g.StreamRequest(turn=turn), timeout=CALL_SECONDS))
        self.assertEqual(whole.token_ids, plain.token_ids)

    def test_strangers_are_refused_and_the_daemon_serves_on(self):
        for stranger in (connect(self.daemon.address),
                         caller(self.daemon.address, ca_file=self.other_certificate)):
            for call in (
                    lambda: stranger.model.GetModel(m.GetModelRequest(), timeout=CALL_SECONDS),
                    lambda: list(stranger.generation.Stream(g.StreamRequest(turn=short_turn()),
                                                            timeout=CALL_SECONDS))):
                with self.assertRaises(grpc.RpcError) as caught:
                    call()
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            stranger.channel.close()
        self.assertEqual(len(collect(self.stream(short_turn())).token_ids), 24)

    def test_half_a_handshake_does_not_hinder(self):
        host, port = self.daemon.address.rsplit(":", 1)
        for start in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096):
            for _ in range(5):
                connection = socket.create_connection((host, int(port)))
                self.addCleanup(connection.close)
                connection.sendall(start)
        fresh = caller(self.daemon.address, ca_file=self.certificate)
        self.addCleanup(fresh.channel.close)
        self.assertTrue(fresh.model.GetModel(m.GetModelRequest(), timeout=30).ready)


class CertificateTest(unittest.TestCase):
    """Exit code 78 and one line that names the setting and the file."""

    @classmethod
    def setUpClass(cls):
        need(TINY)
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.certificate, cls.key = make_certificate(cls.folder, "server")

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def assert_refused(self, setting, needle, certificate, key):
        flags = ("--tls-cert-file", certificate) if certificate else ()
        flags += ("--tls-key-file", key) if key else ()
        daemon = Daemon("--model", TINY, *flags)
        try:
            self.assertEqual(daemon.wait_exit(), 78, daemon.log())
            errors = [line for line in daemon.log().splitlines() if "level=error" in line]
            self.assertEqual(len(errors), 1, daemon.log())
            self.assertRegex(errors[0], rf'message="{setting}: ')
            self.assertIn(str(needle), errors[0])
            self.assertNotIn("level=warning event=grpc", daemon.log())
        finally:
            daemon.close()

    def test_missing_and_unreadable(self):
        absent = self.folder / "absent"
        self.assert_refused("tls_cert_file", absent, absent, self.key)
        self.assert_refused("tls_key_file", absent, self.certificate, absent)
        self.assert_refused("tls_cert_file", self.folder, self.folder, self.key)
        self.assert_refused("tls_key_file", "together", self.certificate, None)
        self.assert_refused("tls_cert_file", "together", None, self.key)

    def test_not_what_they_should_be(self):
        junk, empty = self.write("junk", b"no PEM" * 100), self.write("empty", b"")
        cut = self.write("cut", self.certificate.read_bytes()[:200])
        for bad in (junk, empty, cut, self.key):
            self.assert_refused("tls_cert_file", bad, bad, self.key)
        cut = self.write("cut.key", self.key.read_bytes()[:80])
        for bad in (junk, empty, cut, self.certificate):
            self.assert_refused("tls_key_file", bad, self.certificate, bad)
        locked = self.folder / "locked.key"
        subprocess.run(["openssl", "ec", "-in", self.key, "-aes128", "-passout", "pass:secret",
                        "-out", locked], check=True, capture_output=True, timeout=60)
        self.assert_refused("tls_key_file", locked, self.certificate, locked)

    def test_not_a_pair(self):
        for name, kind in (("ec", "ec:P-256"), ("rsa", "rsa:2048")):
            _, key = make_certificate(self.folder, name, kind)
            self.assert_refused("tls_key_file", key, self.certificate, key)

    def test_too_weak(self):
        certificate, key = make_certificate(self.folder, "weak", "rsa:512")
        self.assert_refused("tls_cert_file", certificate, certificate, key)


if __name__ == "__main__":
    main()
