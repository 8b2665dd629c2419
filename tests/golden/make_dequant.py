"""Writes golden de-quantisation vectors: raw GGUF blocks and the float32 values they stand for.

    python make_dequant.py [OUTPUT_DIR]          (default: dequant/ beside this script)

Needs PyPI's `gguf` 0.19 and numpy. For each tensor type TYPE (lower case, as in GGUF) two files:

    TYPE.blocks   the blocks as they lie in a GGUF file, one after the other
    TYPE.f32      little-endian float32, the values of those blocks in order

The values come from gguf.quants.dequantize, which computes in float32 with a rounding after each
operation: an implementation with fused multiply-add may differ in the last bit of the larger term.
The blocks hold random codes and finite scales; the first ones of every quantised type are edges:
zero scale, codes all clear, codes all set, a subnormal scale, a large one; both signs.
"""

import pathlib
import sys

import gguf
import numpy as np

SEED = 20240601

# Type: (blocks to write, byte offsets of the float16 scales inside a block).
QUANTISED = {
    "Q4_0": (12, [0]),
    "Q4_1": (12, [0, 2]),
    "Q5_0": (12, [0]),
    "Q5_1": (12, [0, 2]),
    "Q8_0": (12, [0]),
    "Q4_K": (8, [0, 2]),
    "Q5_K": (8, [0, 2]),
    "Q6_K": (8, [208]),
}


def edge_scales() -> list[float]:
    """Scales of the first blocks; the code bytes of blocks 1 and 2 are all 0x00 and all 0xff."""
    return [0.0, 0.5, -0.25, 2.0**-24, 1024.0]


def quantised_blocks(rng: np.random.Generator, name: str) -> np.ndarray:
    count, scale_offsets = QUANTISED[name]
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    blocks[1] = 0x00
    blocks[2] = 0xFF
    for index in range(count):
        for position, offset in enumerate(scale_offsets):
            if index < len(edge_scales()):
                scale = edge_scales()[index] * (-1.0) ** position
            else:
                scale = rng.normal(0.0, 0.02)
            blocks[index, offset : offset + 2] = np.frombuffer(
                np.array(scale, dtype="<f2").tobytes(), dtype=np.uint8
            )
    return blocks


def half_blocks(rng: np.random.Generator, name: str) -> np.ndarray:
    """256 random finite bit patterns of a 16-bit float, zeros, subnormals and extremes first."""
    exponent_mask = 0x7C00 if name == "F16" else 0x7F80
    bits = rng.integers(0, 1 << 16, size=4096, dtype=np.uint16)
    bits = bits[(bits & exponent_mask) != exponent_mask][:256]
    largest = exponent_mask - 1
    edges = [0x0000, 0x8000, 0x0001, 0x8001, largest, largest | 0x8000]
    bits[: len(edges)] = edges
    return bits.astype("<u2").view(np.uint8).reshape(1, -1)


def main() -> None:
    default = pathlib.Path(__file__).resolve().parent / "dequant"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    for name in ["F16", "BF16", *QUANTISED]:
        blocks = half_blocks(rng, name) if name in ("F16", "BF16") else quantised_blocks(rng, name)
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype("<f4")
        assert np.isfinite(values).all(), name
        (out / f"{name.lower()}.blocks").write_bytes(blocks.tobytes())
        (out / f"{name.lower()}.f32").write_bytes(values.tobytes())
        print(f"{name}: {blocks.nbytes} bytes, {values.size} values")


if __name__ == "__main__":
    main()
