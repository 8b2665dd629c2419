"""A flooded queue: who finds no room is told so, and when to come back; nobody is lost."""

import time

import grpc
from harness import (
    SMOLLM2,
    DaemonTest,
    c,
    collect,
    error_of,
    g,
    long_turn,
    main,
    prompt_turn,
    run_threads,
    wait_until,
)

RUNNING, QUEUED, FLOOD = 2, 4, 40


class QueueTest(DaemonTest):
    MODEL = SMOLLM2
    FLAGS = ("--threads", "2", "--max-running", str(RUNNING), "--max-queued", str(QUEUED))

    def fill(self):
        """Long turns that take every place to run and to wait."""
        streams = []
        for i in range(RUNNING + QUEUED):
            stream = self.stream(long_turn(request_id=f"fill-{i}"))
            stream.initial_metadata()  # admitted
            streams.append(stream)
            if i + 1 == RUNNING:
                wait_until("they run", lambda: self.daemon.stats().running_turns == RUNNING)
        stats = self.daemon.stats()
        self.assertEqual((stats.running_turns, stats.waiting_turns), (RUNNING, QUEUED))
        return streams

    def empty(self, streams):
        for stream in streams:
            stream.cancel()
        wait_until("an idle server", self.daemon.idle)

    def test_a_full_queue_refuses_at_once_and_then_serves(self):
        streams = self.fill()
        start = time.monotonic()
        for _ in range(FLOOD):
            error = self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL",
                                      lambda: self.generate(prompt_turn("Room?")))
            self.assertGreater(error.retry_seconds, 0)
            self.assertLess(error.retry_seconds, 3600)
        self.assertLess(time.monotonic() - start, 60)
        self.empty(streams)
        answer = self.generate(prompt_turn("Room?", stop=g.StopRules(
            max_output_tokens=3, ignore_end_of_text=True)))
        self.assertEqual(answer.finished.reason, c.FINISH_REASON_LENGTH)

    def test_a_flood_at_once(self):
        turn = prompt_turn("A flood", stop=g.StopRules(max_output_tokens=4,
                                                       ignore_end_of_text=True))

        def call():
            try:
                return len(collect(self.stream(turn)).token_ids)
            except grpc.RpcError as error:
                return error_of(error).reason

        outcomes = run_threads([call] * FLOOD)
        self.assertLessEqual(set(outcomes), {4, "QUEUE_FULL"})
        self.assertGreaterEqual(outcomes.count(4), RUNNING + QUEUED)
        wait_until("an idle server", self.daemon.idle)
        self.assert_pages_sum(self.daemon.stats().pages)
        self.assertEqual(call(), 4)

    def test_a_waiting_turn_can_be_stopped_and_cancelled(self):
        streams = self.fill()
        last = f"fill-{RUNNING + QUEUED - 1}"
        stopped = self.stubs.generation.StopGeneration(
            g.StopGenerationRequest(request_id=last, keep_output_tokens=0), timeout=60).finished
        self.assertEqual((stopped.reason, stopped.version), (c.FINISH_REASON_INTERRUPTED, ""))
        events = [response.WhichOneof("event") for response in streams.pop()]
        self.assertEqual(events, ["finished"])
        # Its place is free, and one more leaves by itself: a dead client's turn never starts.
        streams.append(self.stream(long_turn(request_id="again")))
        streams[-1].initial_metadata()
        streams[-1].cancel()
        wait_until("it left the queue",
                   lambda: self.daemon.stats().waiting_turns == QUEUED - 1)
        self.empty(streams)

    def test_first_come_first_served(self):
        streams = self.fill()
        for i in range(RUNNING):
            streams[i].cancel()
        next_up = streams[RUNNING:2 * RUNNING]
        for stream in next_up:
            self.assertTrue(next(stream).HasField("started"))
        self.assertEqual(self.daemon.stats().waiting_turns, QUEUED - RUNNING)
        self.empty(streams)


if __name__ == "__main__":
    main()
