"""Measures llama.cpp on a GGUF file, one measurement per command, so that engines can alternate.

    python llama_cpp_bench.py MODEL.gguf [--threads 2] [--flash-attention] [--context 2048]

Needs PyPI's llama-cpp-python, built with native CPU code. Commands come on stdin, one a line, and
each is answered by one JSON line on stdout:

    (after loading and warm-up)  {"name": "ready", "versions": ..., "flash_attention": ...}
    prefill N                    {"name": "prefill_N", "value": tokens/s, "unit": "tokens/s"}
    decode N [DEPTH]             {"name": "decode_N", ...}: N single-token steps at batch 1 behind
                                 DEPTH tokens (default 1), without sampling
    quit                         ends, as the end of input does

A command that cannot be carried out is answered by {"error": ...}. Prompts go in as one batch of at
most 512 tokens; logits are computed for the last token alone.
"""

import argparse
import importlib.metadata
import json
import sys
import time

import llama_cpp

BATCH = 512


class Bench:
    def __init__(self, arguments: argparse.Namespace):
        self.llama = llama_cpp.Llama(
            arguments.model,
            n_ctx=arguments.context,
            n_batch=BATCH,
            n_ubatch=BATCH,
            n_threads=arguments.threads,
            n_threads_batch=arguments.threads,
            flash_attn=arguments.flash_attention,
            verbose=False,
        )
        vocabulary = self.llama.n_vocab()
        self.ids = [(i * 7919 + 31) % vocabulary for i in range(arguments.context)]

    def evaluate(self, begin: int, end: int, step: int) -> float:
        """Seconds to evaluate tokens [begin, end) behind the first `begin`, `step` at a time."""
        start = time.perf_counter()
        for position in range(begin, end, step):
            self.llama.eval(self.ids[position : min(position + step, end)])
        llama_cpp.llama_synchronize(self.llama.ctx)
        return time.perf_counter() - start

    def prefill(self, count: int) -> float:
        self.llama.reset()
        return count / self.evaluate(0, count, BATCH)

    def decode(self, count: int, depth: int = 1) -> float:
        self.llama.reset()
        self.evaluate(0, depth, BATCH)
        return count / self.evaluate(depth, depth + count, 1)

    def run(self, line: str) -> dict:
        kind, *numbers = line.split()
        sizes = [int(number) for number in numbers]
        allowed = {"prefill": (1,), "decode": (1, 2)}.get(kind, ())
        if len(sizes) not in allowed or min(sizes) < 1 or sum(sizes) + 1 > len(self.ids):
            return {"error": f"cannot run {line.strip()!r}"}
        value = getattr(self, kind)(*sizes)
        name = "_".join(line.split())
        return {"name": name, "value": round(value, 2), "unit": "tokens/s"}


def answer(message: dict) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flash-attention", action="store_true")
    parser.add_argument("--context", type=int, default=2048)
    arguments = parser.parse_args()

    bench = Bench(arguments)
    bench.prefill(min(BATCH, arguments.context))
    bench.decode(8)
    answer(
        {
            "name": "ready",
            "versions": {
                "llama-cpp-python": importlib.metadata.version("llama-cpp-python"),
                "python": sys.version.split()[0],
            },
            "cpu": llama_cpp.llama_print_system_info().decode(),
            "threads": arguments.threads,
            "flash_attention": arguments.flash_attention,
        }
    )
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        if line.strip():
            try:
                answer(bench.run(line))
            except ValueError:
                answer({"error": f"not a number in {line.strip()!r}"})


if __name__ == "__main__":
    main()
