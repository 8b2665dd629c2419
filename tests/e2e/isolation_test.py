"""What a stream says does not depend on who else is being served."""

import random
import sys
import threading

from harness import SMOLLM2, DaemonTest, collect, g, main, prompt_turn, wait_until

OTHERS = 7
TOKENS = 32


class IsolationTest(DaemonTest):
    MODEL = SMOLLM2

    def turns(self):
        """A greedy and a seeded turn, on prompts of different lengths."""
        stop = g.StopRules(max_output_tokens=TOKENS, ignore_end_of_text=True)
        greedy = prompt_turn("The quick brown fox " * 30, stop=stop)
        greedy.sampling.temperature = 0
        seeded = prompt_turn("A robot walks into a bar.", stop=stop)
        seeded.sampling.temperature, seeded.sampling.seed = 1.0, 7
        for turn in (greedy, seeded):
            turn.output.top_logprobs = 3
        return greedy, seeded

    def neighbour(self, rng, until):
        """One stream after the other, of all lengths, some cancelled."""
        while not until.is_set():
            words = rng.sample(["canary", "lamp", "river", "seven", "blue", "over"], k=3)
            turn = prompt_turn(" ".join(words) * rng.randrange(1, 40), stop=g.StopRules(
                max_output_tokens=rng.randrange(1, 60), ignore_end_of_text=True))
            turn.sampling.seed = rng.randrange(1 << 30)
            stream = self.stream(turn)
            for i, _ in enumerate(stream):
                if until.is_set() or (i > 5 and rng.random() < 0.05):
                    stream.cancel()
                    break

    def test_alone_and_among_others_the_same_bits(self):
        turns = self.turns()
        alone = [self.generate(turn) for turn in turns]
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        until = threading.Event()
        threads = [threading.Thread(target=self.neighbour, args=(random.Random(seed + i), until))
                   for i in range(OTHERS)]
        for thread in threads:
            thread.start()
        try:
            wait_until("company", lambda: self.daemon.stats().running_turns >= OTHERS - 2)
            for _ in range(2):
                for turn, expected in zip(turns, alone, strict=True):
                    among = self.generate(turn)
                    self.assertEqual(among.token_ids, expected.token_ids)
                    self.assertEqual(among.text, expected.text)
                    # Log-probabilities too: the sums are the same bit for bit.
                    self.assertEqual(among.logprobs, expected.logprobs)
        finally:
            until.set()
            for thread in threads:
                thread.join()

    def test_cold_cached_and_forked_are_the_same(self):
        turn = self.turns()[0]
        turn.session.name, turn.session.allow_missing = "sessions/warm", True
        cold = collect(self.stream(turn))
        self.assertIn(cold.finished.usage.cached_tokens, range(cold.finished.usage.input_tokens))
        turn.session.name = "sessions/warm-2"
        warm = collect(self.stream(turn))
        self.assertGreater(warm.finished.usage.cached_tokens, 0)
        self.assertEqual(warm.token_ids, cold.token_ids)


if __name__ == "__main__":
    main()
