"""What /metrics says is what happened: pages add up, each turn is counted once."""

import random
import sys
import threading
import time

import grpc
from harness import SMOLLM2, DaemonTest, collect, g, long_turn, main, prompt_turn, wait_until

LENGTH, CANCELLED, INTERRUPTED, BAD = 6, 5, 2, 3


class MetricsTest(DaemonTest):
    MODEL = SMOLLM2
    FLAGS = ("--threads", "2", "--max-queued", "16")

    def requests(self):
        return self.daemon.scrape()["tokend_requests_total"]

    def grown(self, before, after):
        return {key: after[key] - before.get(key, 0) for key in after
                if after[key] != before.get(key, 0)}

    def first_tokens(self, scrape):
        return scrape["tokend_time_to_first_token_seconds_count"][""]

    def test_each_turn_is_counted_once_by_how_it_ended(self):
        before = self.daemon.scrape()
        short = prompt_turn("Count", stop=g.StopRules(max_output_tokens=5,
                                                      ignore_end_of_text=True))
        for i in range(LENGTH):
            _ = self.generate(short) if i % 2 else collect(self.stream(short))
        for _ in range(CANCELLED):
            stream = self.stream(long_turn())
            while not next(stream).HasField("delta"):
                pass
            stream.cancel()
        for i in range(INTERRUPTED):
            stream = self.stream(long_turn(request_id=f"stop-{i}"))
            while not next(stream).HasField("delta"):
                pass
            self.stubs.generation.StopGeneration(g.StopGenerationRequest(request_id=f"stop-{i}"))
            list(stream)
        for _ in range(BAD):
            turn = prompt_turn()
            turn.sampling.top_p = 2
            self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD",
                              lambda turn=turn: self.generate(turn))
        wait_until("an idle server", self.daemon.idle)
        after = self.daemon.scrape()
        self.assertEqual(
            self.grown(before["tokend_requests_total"], after["tokend_requests_total"]),
            {"reason=length": LENGTH, "reason=cancelled": CANCELLED,
             "reason=interrupted": INTERRUPTED, "reason=invalid_field": BAD})
        ended = LENGTH + CANCELLED + INTERRUPTED
        self.assertEqual(self.first_tokens(after) - self.first_tokens(before), ended)
        name = "tokend_request_seconds_count"
        self.assertEqual(after[name][""] - before[name][""], ended + BAD)
        tokens = after["tokend_generated_tokens_total"][""]
        self.assertGreaterEqual(tokens, 5 * LENGTH + CANCELLED + INTERRUPTED)
        self.assertGreater(after["tokend_decode_seconds_total"][""], 0)

    def assert_pages_add_up(self, scrape, total):
        pages = scrape["tokend_kv_pages"]
        self.assertEqual(len(pages), 6)
        self.assertEqual(sum(pages.values()), total)

    def test_pages_add_up_during_and_after_a_storm_of_cancels(self):
        total = self.daemon.stats().pages.total
        before = self.daemon.scrape()
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        counts = []

        def storm(rng):
            for _ in range(20):
                stream = self.stream(long_turn())
                time.sleep(rng.choice((0, 0.001, 0.02, 0.1)))
                stream.cancel()
                counts.append(1)

        threads = [threading.Thread(target=storm, args=(random.Random(seed + i),))
                   for i in range(6)]
        for thread in threads:
            thread.start()
        scrapes = 0
        while any(thread.is_alive() for thread in threads):
            self.assert_pages_add_up(self.daemon.scrape(), total)
            scrapes += 1
        for thread in threads:
            thread.join()
        wait_until("an idle server", self.daemon.idle)
        after = self.daemon.scrape()
        self.assertGreater(scrapes, 3)
        self.assert_pages_add_up(after, total)
        self.assertEqual(after["tokend_kv_pages"]["state=private"],
                         before["tokend_kv_pages"]["state=private"])
        self.assertEqual(after["tokend_requests_running"][""], 0)
        self.assertEqual(after["tokend_requests_waiting"][""], 0)
        # A call that was cancelled before it arrived is no turn.
        grown = self.grown(before["tokend_requests_total"], after["tokend_requests_total"])
        self.assertLessEqual(set(grown), {"reason=cancelled", "reason=queue_full"})
        self.assertLessEqual(sum(grown.values()), len(counts))
        self.assertGreater(sum(grown.values()), 0)

    def test_sessions_and_operations(self):
        before = self.daemon.scrape()
        target = g.SessionTarget(name="sessions/measured", allow_missing=True)
        stop = g.StopRules(max_output_tokens=1)
        for _ in range(3):
            self.generate(prompt_turn("Hello", session=target, stop=stop))
        target.expected_version = 99
        self.assert_fails(grpc.StatusCode.ABORTED, "VERSION_MISMATCH", lambda: self.generate(
            prompt_turn("Hello", session=target, stop=stop)))
        self.session("sessions/measured")
        after = self.daemon.scrape()
        self.assertEqual(after["tokend_sessions"][""] - before["tokend_sessions"][""], 1)
        self.assertEqual(after["tokend_versions"][""] - before["tokend_versions"][""], 3)
        name = "tokend_session_operations_total"
        grown = self.grown(before[name], after[name])
        self.assertEqual((grown["op=commit"], grown["op=get"]), (3, 1))
        name = "tokend_version_conflicts_total"
        self.assertEqual(after[name][""] - before[name][""], 1)

    def test_process_metrics(self):
        scrape = self.daemon.scrape()
        self.assertEqual(scrape["tokend_ready"][""], 1)
        self.assertGreater(scrape["process_resident_memory_bytes"][""], 50e6)
        self.assertGreater(scrape["process_open_fds"][""], 5)


class MemoryTest(DaemonTest):
    MODEL = SMOLLM2
    FLAGS = ("--threads", "2", "--context", "1024", "--kv-budget", "32MiB")

    def test_resident_memory_is_what_was_planned(self):
        """Weights, KV cache and a fixed rest: nothing of the model file beside them."""
        turn = prompt_turn("One robot, two cameras, three boxes. " * 80)
        turn.stop.max_output_tokens, turn.stop.ignore_end_of_text = 50, True
        self.generate(turn)
        scrape = self.daemon.scrape()
        planned = scrape["tokend_device_memory_bytes"]
        rest = scrape["process_resident_memory_bytes"][""]
        rest -= planned["kind=weights"] + planned["kind=kv"]
        print(f"resident beyond weights and KV cache: {rest / 1e6:.1f} MB", file=sys.stderr)
        self.assertLess(rest, 60e6, planned)


if __name__ == "__main__":
    main()
