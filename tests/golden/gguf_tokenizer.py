"""Hugging Face's `tokenizers` set up from the metadata of a GGUF file.

transformers' own conversion of a GGUF tokenizer knows nothing of `tokenizer.ggml.pre`, so that it
would not split digits. Here the pre-tokeniser is the one that the model was published with.
"""

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # tokenizer.ggml.token_type of tokens that are special


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level])
    raise ValueError(f"pre-tokeniser {name!r} is not known here")


def build(reader: gguf.GGUFReader, parse_special: bool) -> Tokenizer:
    """With parse_special, special tokens in a text become their ids; else they are plain text."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizer(reader.fields["tokenizer.ggml.pre"].contents())
    tokenizer.decoder = decoders.ByteLevel()
    if parse_special:
        special = [token for token, kind in zip(tokens, types) if kind == CONTROL]
        tokenizer.add_special_tokens(
            [AddedToken(token, special=True, normalized=False) for token in special]
        )
    assert tokenizer.get_vocab_size() == len(tokens)
    for token in (tokens[0], tokens[len(tokens) // 2], tokens[-1]):
        assert tokenizer.token_to_id(token) == vocabulary[token]
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids; each is checked to be the piece of that number in the file's vocabulary."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(encoding.ids, skip_special_tokens=False)
    assert decoded == text, f"{text!r} comes back as {decoded!r}"
    return encoding.ids
