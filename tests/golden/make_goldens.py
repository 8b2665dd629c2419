"""Writes golden logits, continuations and log-probabilities of a GGUF model by transformers.

    python make_goldens.py MODEL.gguf OUTPUT_DIR

Needs the packages of requirements.txt (no GPU) and takes about three minutes. The model is loaded
by `from_pretrained(dir, gguf_file=...)` in float32, which de-quantises the file's weights. Its
logits are compared with a reading of the file of our own in double precision (double_llama.py);
the largest distance, as a share of the logits' standard deviation, is written as `float32_error`:
what float32 itself costs, over all positions of a case and for each stored row.

goldens.json
  model, versions, vocab_size
  prompts[]     name, text, messages (chats: `text` is what the file's template makes of them, with
                add_generation_prompt), ids, and
                rows[] {position, row, std, float32_error}: all logits after ids[0..position] are
                    row `row` of logits.f32, std is their standard deviation
                greedy[48]: the continuation; end-of-turn tokens do not end it
                gap[48]: best minus second best logit at each step
                top_ids[48][20], top_logprobs[48][20]: the 20 best natural log-probabilities there
  perplexity    text, ids[n], logprobs[n-1] (of ids[i+1] after ids[0..i]), perplexity, rows[] as
                above, top_ids[n-1][20], top_logprobs[n-1][20]
logits.f32      little-endian float32 rows of vocab_size values
tokenizer.json  cases[] {text, parse_special, ids}: special tokens in the text are recognised only
                with parse_special; no BOS or EOS is added
"""

import argparse
import hashlib
import importlib.metadata
import json
import pathlib

import gguf
import numpy as np
import torch
import transformers

import gguf_tokenizer
from double_llama import DoubleLlama
from golden_json import write_json
from tokenizer_texts import PLAIN, SPECIAL

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
PACKAGES = ("torch", "transformers", "tokenizers", "gguf", "numpy")
GREEDY = 48
TOP = 20
PERPLEXITY_TOKENS = 1024
PERPLEXITY_ROWS = 18


class Rows:
    """Collects whole rows of logits for logits.f32."""

    def __init__(self):
        self.data = []

    def add(self, position: int, logits: np.ndarray, errors: np.ndarray) -> dict:
        row = logits[position].astype("<f4")
        assert np.isfinite(row).all()
        self.data.append(row)
        return {
            "position": position,
            "row": len(self.data) - 1,
            "std": float(row.std()),
            "float32_error": float(f"{errors[position]:.3g}"),
        }


class Reference:
    def __init__(self, path: pathlib.Path):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        # No end-of-turn token: a continuation always has its full length.
        self.model.generation_config = transformers.GenerationConfig(
            do_sample=False, max_new_tokens=GREEDY, pad_token_id=0
        )

    @torch.no_grad()
    def logits(self, ids: list[int]) -> np.ndarray:
        return self.model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()

    @torch.no_grad()
    def greedy(self, ids: list[int]) -> list[int]:
        out = self.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)))
        assert out.shape[1] == len(ids) + GREEDY
        return out[0, len(ids) :].tolist()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def best(logprobs: np.ndarray) -> tuple[list, list]:
    order = np.argsort(-logprobs, axis=-1, kind="stable")[:, :TOP]
    return order.tolist(), np.take_along_axis(logprobs, order, -1).round(6).tolist()


def errors_by_double(double: DoubleLlama, ids: list[int], logits: np.ndarray) -> np.ndarray:
    """By position: largest distance from the double-precision model over the standard deviation."""
    wide = double.logits(ids)
    errors = np.abs(wide - logits).max(-1) / wide.std(-1)
    assert errors.max() < 1e-3, f"float32 and double differ by {errors.max()} standard deviations"
    return errors


def read_prompt(entry: dict, tokenizer, template) -> dict:
    case = {"name": entry["name"]}
    if "messages" in entry:
        case["messages"] = entry["messages"]
        case["text"] = template.apply_chat_template(
            entry["messages"], tokenize=False, add_generation_prompt=True
        )
    elif "file" in entry:
        case["text"] = cut((INPUTS / entry["file"]).read_text(), tokenizer, entry["tokens"])
    else:
        case["text"] = entry["text"]
    case["ids"] = gguf_tokenizer.encode(tokenizer, case["text"])
    return case


def cut(text: str, tokenizer, count: int) -> str:
    """The beginning of a text that has exactly `count` tokens."""
    ids = gguf_tokenizer.encode(tokenizer, text)
    assert len(ids) >= count, f"{len(ids)} tokens, {count} needed"
    short = tokenizer.decode(ids[:count], skip_special_tokens=False)
    assert gguf_tokenizer.encode(tokenizer, short) == ids[:count]
    return short


def prompt_golden(case: dict, reference: Reference, double: DoubleLlama, rows: Rows) -> dict:
    ids = case["ids"]
    greedy = reference.greedy(ids)
    logits = reference.logits(ids + greedy[:-1])
    steps = logits[len(ids) - 1 :]
    assert steps.argmax(-1).tolist() == greedy, "a cached and a whole pass disagree"
    second, first = np.sort(steps, axis=-1)[:, -2:].T
    errors = errors_by_double(double, ids + greedy[:-1], logits)
    case["float32_error"] = float(f"{errors.max():.3g}")
    case["rows"] = [rows.add(p, logits, errors) for p in (len(ids) // 2, len(ids) - 1)]
    case["greedy"] = greedy
    case["gap"] = (first - second).astype(np.float64).round(6).tolist()
    case["top_ids"], case["top_logprobs"] = best(log_softmax(steps))
    return case


def perplexity_golden(text: str, tokenizer, reference, double, rows: Rows) -> dict:
    ids = gguf_tokenizer.encode(tokenizer, text)
    logits = reference.logits(ids)
    logprobs = log_softmax(logits)[:-1]
    following = np.take_along_axis(logprobs, np.array(ids[1:])[:, None], -1)[:, 0]
    case = {"text": text, "ids": ids, "perplexity": float(np.exp(-following.mean()))}
    errors = errors_by_double(double, ids, logits)
    case["float32_error"] = float(f"{errors.max():.3g}")
    positions = np.linspace(3, len(ids) - 2, PERPLEXITY_ROWS).astype(int)
    case["rows"] = [rows.add(int(p), logits, errors) for p in positions]
    case["logprobs"] = following.round(6).tolist()
    case["top_ids"], case["top_logprobs"] = best(logprobs)
    return case


def tokenizer_goldens(reader: gguf.GGUFReader) -> dict:
    plain = gguf_tokenizer.build(reader, parse_special=False)
    special = gguf_tokenizer.build(reader, parse_special=True)
    cases = []
    for text in PLAIN + SPECIAL:
        ids = gguf_tokenizer.encode(plain, text)
        cases.append({"text": text, "parse_special": False, "ids": ids})
    for text in SPECIAL:
        ids = gguf_tokenizer.encode(special, text)
        cases.append({"text": text, "parse_special": True, "ids": ids})
    return {"pre": reader.fields["tokenizer.ggml.pre"].contents(), "cases": cases}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    arguments = parser.parse_args()
    path, out = arguments.model, arguments.output
    out.mkdir(parents=True, exist_ok=True)

    reader = gguf.GGUFReader(path)
    write_json(out / "tokenizer.json", tokenizer_goldens(reader))
    tokenizer = gguf_tokenizer.build(reader, parse_special=True)
    template = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=reader.fields["tokenizer.chat_template"].contents(),
    )
    reference, double, rows = Reference(path), DoubleLlama(reader), Rows()
    prompts = []
    for entry in json.loads((INPUTS / "prompts.json").read_text()):
        case = prompt_golden(read_prompt(entry, tokenizer, template), reference, double, rows)
        print(f"{case['name']}: {len(case['ids'])} tokens, float32_error {case['float32_error']}")
        print(repr(tokenizer.decode(case["greedy"], skip_special_tokens=False)))
        prompts.append(case)
    text = cut((INPUTS / "perplexity.txt").read_text(), tokenizer, PERPLEXITY_TOKENS)
    perplexity = perplexity_golden(text, tokenizer, reference, double, rows)
    print(f"perplexity {perplexity['perplexity']:.4f}, float32_error {perplexity['float32_error']}")
    goldens = {
        "model": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "vocab_size": len(rows.data[0]),
        "prompts": prompts,
        "perplexity": perplexity,
    }
    write_json(out / "goldens.json", goldens)
    (out / "logits.f32").write_bytes(b"".join(row.tobytes() for row in rows.data))


if __name__ == "__main__":
    main()
