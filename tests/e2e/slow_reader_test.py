"""A client that stops reading: it loses its turn in bounded time, and nobody else does."""

import time

import grpc
from harness import (
    CALL_SECONDS,
    DaemonTest,
    c,
    collect,
    error_of,
    g,
    main,
    make_stubs,
    prompt_turn,
    s,
    wait_until,
)

PATIENCE_MS = 2000
TOKENS = 500
# Twenty alternatives make a token about a kilobyte, so a few dozen fill the window.
ALTERNATIVES = 20


class SlowReaderTest(DaemonTest):
    FLAGS = ("--threads", "2", "--stall-timeout-ms", str(PATIENCE_MS))

    def stop_reading(self, **fields):
        """A stream whose client took its start, and then nothing until the turn paused."""
        options = (("grpc.enable_http_proxy", 0), ("grpc.http2.bdp_probe", 0),
                   ("grpc.http2.lookahead_bytes", 1))
        stubs = make_stubs(grpc.insecure_channel(self.daemon.address, options=options))
        self.addCleanup(stubs.channel.close)
        stop = g.StopRules(max_output_tokens=TOKENS, ignore_end_of_text=True)
        turn = prompt_turn(stop=stop, output=g.OutputOptions(top_logprobs=ALTERNATIVES), **fields)
        before = self.generated()
        stream = stubs.generation.Stream(g.StreamRequest(turn=turn), timeout=CALL_SECONDS)
        self.assertTrue(next(stream).HasField("started"))
        last = [before]

        def paused():
            last.append(self.generated())
            return before < last[-1] == last[-2]

        wait_until("the turn pauses", paused)
        self.assertLess(last[-1] - before, TOKENS, "nothing filled up: the test tests nothing")
        return stream

    def generated(self):
        return self.daemon.scrape()["tokend_generated_tokens_total"][""]

    def too_slow(self):
        return self.daemon.scrape()["tokend_requests_total"].get("reason=reader_too_slow", 0)

    def short(self, name=None):
        turn = prompt_turn("Others", stop=g.StopRules(max_output_tokens=8,
                                                      ignore_end_of_text=True))
        if name:
            turn.session.name = name
        return self.generate(turn, timeout=30).finished

    def assert_pages_are_back(self):
        total = self.daemon.stats().pages.total

        def are_back():
            pages = self.daemon.scrape()["tokend_kv_pages"]
            self.assertEqual(sum(pages.values()), total)
            return pages["state=free"] + pages["state=cached"] == total

        wait_until("its pages are back", are_back)

    def test_the_turn_ends_and_others_are_served_meanwhile(self):
        ended = self.too_slow()
        start = time.monotonic()
        stream = self.stop_reading()
        self.assertEqual(self.short().reason, c.FINISH_REASON_LENGTH)
        pages = self.daemon.scrape()
        self.assertEqual(pages["tokend_requests_running"][""], 1)
        self.assertGreater(pages["tokend_kv_pages"]["state=private"], TOKENS // 32)
        self.assertEqual(self.too_slow(), ended)
        wait_until("the turn ends", self.daemon.idle, PATIENCE_MS / 1000 + 30)
        self.assertGreaterEqual(time.monotonic() - start, PATIENCE_MS / 1000)
        self.assertEqual(self.too_slow(), ended + 1)
        self.assert_pages_are_back()
        # The client that comes back is told why, behind what was on its way.
        with self.assertRaises(grpc.RpcError) as caught:
            collect(stream)
        error = error_of(caught.exception)
        self.assertEqual((error.code, error.reason),
                         (grpc.StatusCode.RESOURCE_EXHAUSTED, "READER_TOO_SLOW"))

    def test_its_session_stays_as_it_was(self):
        name, ended = "sessions/slow", self.too_slow()
        self.stubs.sessions.CreateSession(s.CreateSessionRequest(session_id="slow"))
        self.addCleanup(self.stubs.sessions.DeleteSession, s.DeleteSessionRequest(name=name))
        first = self.short(name)
        stream = self.stop_reading(session=g.SessionTarget(name=name))
        # The next writer waits no longer than the patience lasts.
        second = self.short(name)
        self.assertEqual(self.too_slow(), ended + 1)
        self.assertEqual((first.version, second.version),
                         (f"{name}/versions/1", f"{name}/versions/2"))
        self.assertEqual(second.usage.base_tokens,
                         first.usage.input_tokens + first.usage.output_tokens)
        stream.cancel()

    def test_who_reads_again_in_time_gets_everything(self):
        ended = self.too_slow()
        answer = collect(self.stop_reading())
        self.assertEqual((len(answer.token_ids), answer.finished.reason),
                         (TOKENS, c.FINISH_REASON_LENGTH))
        self.assertEqual(self.too_slow(), ended)
        self.assert_pages_are_back()


if __name__ == "__main__":
    main()
