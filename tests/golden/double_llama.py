"""The `llama` architecture in double precision, straight from a GGUF file.

It shares no code with transformers, neither the reading of the file nor the model, and so shows
that the reference has the weights and the rope convention right, and how far float32 is off.
"""

import gguf
import numpy as np
import torch


class DoubleLlama:
    def __init__(self, reader: gguf.GGUFReader):
        def number(key):
            return reader.fields["llama." + key].contents()

        self.layers = number("block_count")
        self.heads = number("attention.head_count")
        self.kv_heads = number("attention.head_count_kv")
        self.rotated = number("rope.dimension_count")
        self.base = number("rope.freq_base")
        self.epsilon = number("attention.layer_norm_rms_epsilon")
        self.tensors = {
            t.name: torch.from_numpy(
                np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float64)
            )
            for t in reader.tensors
        }

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return x * scale * self.tensors[name + ".weight"]

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T

    def rope(self, x):
        """x [tokens, heads, head size]: pair (2i, 2i + 1) turns by position * base^(-2i / rotated)."""
        pair = torch.arange(0, self.rotated, 2, dtype=torch.float64)
        frequency = self.base ** (-pair / self.rotated)
        angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

    def attention(self, x, block):
        tokens = x.shape[0]
        q = self.rope(self.linear(x, block + "attn_q").view(tokens, self.heads, -1))
        k = self.rope(self.linear(x, block + "attn_k").view(tokens, self.kv_heads, -1))
        v = self.linear(x, block + "attn_v").view(tokens, self.kv_heads, -1)
        group = self.heads // self.kv_heads
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(tokens, -1)
        return self.linear(mixed, block + "attn_output")

    def feed_forward(self, x, block):
        gate = torch.nn.functional.silu(self.linear(x, block + "ffn_gate"))
        return self.linear(gate * self.linear(x, block + "ffn_up"), block + "ffn_down")

    @torch.no_grad()
    def logits(self, ids: list[int]) -> np.ndarray:
        """float64 [tokens, vocabulary]"""
        embedding = self.tensors["token_embd.weight"]
        x = embedding[torch.tensor(ids)]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            x = x + self.attention(self.norm(x, block + "attn_norm"), block)
            x = x + self.feed_forward(self.norm(x, block + "ffn_norm"), block)
        output = self.tensors.get("output.weight", embedding)
        return (self.norm(x, "output_norm") @ output.T).numpy()
