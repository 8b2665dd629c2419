"""Turns that end before they are done: by cancel, deadline, StopGeneration, a dead client."""

import os
import random
import subprocess
import sys
import threading
import time

import grpc
from harness import (
    CLIENT,
    SMOLLM2,
    DaemonTest,
    c,
    collect,
    g,
    long_turn,
    m,
    main,
    prompt_turn,
    s,
    wait_until,
)

SECOND_CLIENT = """
import sys
from tokend.v1 import common_pb2 as c, generation_pb2 as g
from tokend_client import connect
turn = g.Turn(prompt=g.TextInput(text="A dead client's words"), request_id=sys.argv[2],
              session=g.SessionTarget(name="sessions/dead", allow_missing=True),
              stop=g.StopRules(max_output_tokens=4000, ignore_end_of_text=True))
for response in connect(sys.argv[1]).generation.Stream(g.StreamRequest(turn=turn)):
    if response.HasField("delta"):
        print(response.delta.index, flush=True)
"""


def read_tokens(stream, count):
    """Reads until so many output tokens came; returns their ids."""
    ids = []
    for response in stream:
        ids += response.delta.token_ids
        if len(ids) >= count:
            break
    return ids


class InterruptTest(DaemonTest):
    MODEL = SMOLLM2

    def target(self, name, **fields):
        return g.SessionTarget(name=f"sessions/{name}", allow_missing=True, **fields)

    def stop(self, request_id, keep=None):
        request = g.StopGenerationRequest(request_id=request_id, keep_output_tokens=keep)
        return self.stubs.generation.StopGeneration(request, timeout=60).finished

    def in_use(self):
        counts = self.daemon.stats().pages
        self.assert_pages_sum(counts)
        return counts.private_pages + counts.shared + counts.pinned

    def assert_pages_return(self, before, seconds=20):
        wait_until("the pages are free", lambda: self.daemon.idle() and self.in_use() == before,
                   seconds)

    def test_cancel_frees_pages_and_changes_nothing(self):
        before = self.in_use()
        stream = self.stream(long_turn(session=self.target("cancel")))
        read_tokens(stream, 4)
        self.assertGreater(self.in_use(), before)
        stream.cancel()
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.CANCELLED)
        self.assert_pages_return(before)
        self.assert_fails(grpc.StatusCode.NOT_FOUND, "NO_SUCH_RESOURCE",
                          lambda: self.session("sessions/cancel"))

    def test_cancel_stops_a_long_prefill(self):
        before = self.in_use()
        stream = self.stream(g.Turn(tokens=g.TokenInput(token_ids=[1000] * 8000)))
        self.assertTrue(next(stream).HasField("started"))
        stream.cancel()
        # Far less than the whole prompt would take.
        self.assert_pages_return(before, seconds=10)

    def test_partial_commit_keeps_what_was_written(self):
        stream = self.stream(long_turn(session=self.target("part", commit=g.COMMIT_MODE_PARTIAL)))
        ids = read_tokens(stream, 6)
        stream.cancel()
        wait_until("the turn ends", self.daemon.idle)
        head = self.session("sessions/part")
        self.assertEqual(head.version, 1)
        kept = self.stubs.sessions.ReadTokens(s.ReadTokensRequest(name="sessions/part")).token_ids
        prompt = self.stubs.model.Tokenize(m.TokenizeRequest(text="Once upon a time")).token_ids
        self.assertEqual(list(kept)[:len(prompt) + len(ids)], [*prompt, *ids])

    def test_stop_keeps_as_many_tokens_as_asked(self):
        for keep in (0, 5):
            turn = long_turn(session=self.target(f"keep-{keep}"), request_id=f"keep-{keep}")
            stream = self.stream(turn)
            ids = read_tokens(stream, 8)
            stopped = self.stop(turn.request_id, keep)
            rest = list(stream)
            self.assertEqual(rest[-1].finished, stopped)
            self.assertEqual(stopped.reason, c.FINISH_REASON_INTERRUPTED)
            self.assertEqual(stopped.version, f"sessions/keep-{keep}/versions/1")
            kept = self.stubs.sessions.ReadTokens(s.ReadTokensRequest(name=stopped.version))
            prompt = self.stubs.model.Tokenize(m.TokenizeRequest(text="Once upon a time")).token_ids
            self.assertEqual(list(kept.token_ids), [*prompt, *ids[:keep]])
            # The next turn goes on from there.
            after = self.generate(prompt_turn(" and", session=self.target(f"keep-{keep}"),
                                              stop=g.StopRules(max_output_tokens=2)))
            self.assertEqual(after.finished.usage.base_tokens, kept.tokens)

    def test_stop_without_keep_is_as_if_never_sent(self):
        before = self.in_use()
        stream = self.stream(long_turn(session=self.target("none"), request_id="none"))
        read_tokens(stream, 4)
        stopped = self.stop("none")
        self.assertEqual((stopped.reason, stopped.version), (c.FINISH_REASON_INTERRUPTED, ""))
        self.assertEqual(list(stream)[-1].finished, stopped)
        self.assertEqual(stream.code(), grpc.StatusCode.OK)
        self.assert_pages_return(before)
        self.assert_fails(grpc.StatusCode.NOT_FOUND, "NO_SUCH_RESOURCE",
                          lambda: self.session("sessions/none"))

    def test_stop_that_keeps_too_much_lets_it_run(self):
        stream = self.stream(long_turn(request_id="much"))
        read_tokens(stream, 2)
        self.assert_fails(grpc.StatusCode.OUT_OF_RANGE, "BAD_POSITION",
                          lambda: self.stop("much", 100000))
        self.assertGreaterEqual(len(read_tokens(stream, 2)), 2)
        self.stop("much")
        self.assert_fails(grpc.StatusCode.NOT_FOUND, "NO_SUCH_RESOURCE",
                          lambda: self.stop("never-was"))

    def test_the_deadline_drops_the_turn(self):
        before = self.in_use()
        with self.assertRaises(grpc.RpcError) as caught:
            collect(self.stream(long_turn(session=self.target("late")), timeout=1.5))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assert_pages_return(before)

    def test_a_killed_client_frees_its_pages(self):
        before = self.in_use()
        client = subprocess.Popen(
            [sys.executable, "-c", SECOND_CLIENT, self.daemon.address, "dead"],
            env={**os.environ, "PYTHONPATH": str(CLIENT)}, stdout=subprocess.PIPE)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        for _ in range(3):
            self.assertTrue(client.stdout.readline())
        self.assertEqual(self.daemon.stats().running_turns, 1)
        client.kill()
        client.stdout.close()
        self.assert_pages_return(before)
        self.assert_fails(grpc.StatusCode.NOT_FOUND, "NO_SUCH_RESOURCE",
                          lambda: self.session("sessions/dead"))

    def test_a_storm_of_cancels(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        before = self.in_use()
        threads = [threading.Thread(target=self.storm, args=(random.Random(seed + i),))
                   for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assert_pages_return(before)

    def storm(self, rng):
        for _ in range(25):
            stream = self.stream(long_turn())
            time.sleep(rng.choice((0, 0, 0.001, 0.01, 0.05, 0.2)))
            stream.cancel()


if __name__ == "__main__":
    main()
