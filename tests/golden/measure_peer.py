"""Measures llama.cpp on the same model file against the golden values of transformers.

    python measure_peer.py MODEL.gguf GOLDEN_DIR [--output peer_llama_cpp.json] [--threads 2]

Needs PyPI's llama-cpp-python and numpy. Default settings (f16 KV cache, no flash attention). Each
prompt is evaluated as one batch and its golden continuation token by token.

peer_llama_cpp.json
  versions, settings
  tokenizer     how many cases agree with tokenizer.json, and those that do not
  prompts[]     name; first_top20_error: largest |log-probability - reference| among the reference's
                20 best of the first new token; max_top20_error: the same over all 48;
                max_row_error: largest |logit - reference| of the stored rows over the row's
                standard deviation, both rows' means taken off; equal_greedy: leading
                tokens of its own greedy continuation that are equal
  mean_first_top20_error, mean_max_top20_error
  perplexity    perplexity and the reference's; kl_rows: mean Kullback-Leibler divergence
                KL(reference || llama.cpp) in nats over the stored rows; kl_top20: the same over all
                positions, with the vocabulary cut to the reference's 20 best and one rest
"""

import argparse
import importlib.metadata
import json
import pathlib

import llama_cpp
import numpy as np

from golden_json import write_json


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def evaluate(llama, ids: list[int], following: list[int]) -> np.ndarray:
    """float32 [len(ids) + len(following), vocabulary]: ids in one go, the rest one at a time."""
    llama.reset()
    llama.eval(ids)
    for token in following:
        llama.eval([token])
    return llama.scores[: len(ids) + len(following)].copy()


def own_greedy(llama, ids: list[int], count: int) -> list[int]:
    llama.reset()
    llama.eval(ids)
    out = []
    for _ in range(count):
        out.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        llama.eval(out[-1:])
    return out


def row_error(row: np.ndarray, reference: np.ndarray) -> float:
    centred = (row - row.mean()) - (reference - reference.mean())
    return float(np.abs(centred).max() / reference.std())


def measure_prompt(llama, case: dict, rows: np.ndarray) -> dict:
    ids, greedy = case["ids"], case["greedy"]
    logits = evaluate(llama, ids, greedy[:-1])
    logprobs = log_softmax(logits[len(ids) - 1 :])
    top = np.take_along_axis(logprobs, np.array(case["top_ids"]), -1)
    errors = np.abs(top - np.array(case["top_logprobs"])).max(-1)
    own = own_greedy(llama, ids, len(greedy))
    equal = next((i for i, (a, b) in enumerate(zip(own, greedy)) if a != b), len(greedy))
    return {
        "name": case["name"],
        "first_top20_error": rounded(errors[0]),
        "max_top20_error": rounded(errors.max()),
        "max_row_error": rounded(
            max(row_error(logits[r["position"]], rows[r["row"]]) for r in case["rows"])
        ),
        "equal_greedy": equal,
    }


def kl_top(case: dict, logprobs: np.ndarray) -> float:
    mine = np.exp(np.take_along_axis(logprobs, np.array(case["top_ids"]), -1))
    reference = np.exp(np.array(case["top_logprobs"]))
    mine = np.concatenate([mine, 1 - mine.sum(-1, keepdims=True)], -1).clip(1e-12)
    reference = np.concatenate([reference, 1 - reference.sum(-1, keepdims=True)], -1).clip(1e-12)
    return float((reference * np.log(reference / mine)).sum(-1).mean())


def measure_perplexity(llama, case: dict, rows: np.ndarray) -> dict:
    ids = case["ids"]
    logprobs = log_softmax(evaluate(llama, ids, []))
    following = np.take_along_axis(logprobs[:-1], np.array(ids[1:])[:, None], -1)
    kl = []
    for entry in case["rows"]:
        reference = log_softmax(rows[entry["row"]])
        kl.append((np.exp(reference) * (reference - logprobs[entry["position"]])).sum())
    return {
        "perplexity": rounded(np.exp(-following.mean())),
        "reference": rounded(case["perplexity"]),
        "kl_rows": rounded(np.mean(kl)),
        "kl_top20": rounded(kl_top(case, logprobs[:-1])),
    }


def measure_tokenizer(llama, cases: list[dict]) -> dict:
    different = []
    for case in cases:
        text = case["text"].encode()
        ids = llama.tokenize(text, add_bos=False, special=case["parse_special"])
        if ids != case["ids"]:
            different.append({"text": case["text"], "ids": case["ids"], "peer": ids})
    return {"cases": len(cases), "equal": len(cases) - len(different), "different": different}


def rounded(value) -> float:
    return float(f"{value:.6g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("--output", default="peer_llama_cpp.json")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    goldens = json.loads((arguments.goldens / "goldens.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((arguments.goldens / "tokenizer.json").read_text(encoding="utf-8"))
    rows = np.fromfile(arguments.goldens / "logits.f32", "<f4").reshape(-1, goldens["vocab_size"])
    llama = llama_cpp.Llama(
        str(arguments.model),
        n_ctx=2048,
        n_threads=arguments.threads,
        n_threads_batch=arguments.threads,
        logits_all=True,
        verbose=False,
    )
    prompts = [measure_prompt(llama, case, rows) for case in goldens["prompts"]]
    means = {
        f"mean_{key}": rounded(np.mean([prompt[key] for prompt in prompts]))
        for key in ("first_top20_error", "max_top20_error")
    }
    result = {
        "versions": {"llama-cpp-python": importlib.metadata.version("llama-cpp-python")},
        "settings": {"kv": "f16", "flash_attention": False, "n_batch": 512},
        "tokenizer": measure_tokenizer(llama, tokenizer["cases"]),
        "prompts": prompts,
        **means,
        "perplexity": measure_perplexity(llama, goldens["perplexity"], rows),
    }
    write_json(arguments.goldens / arguments.output, result)
    print((arguments.goldens / arguments.output).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
