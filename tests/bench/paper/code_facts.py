"""Writes what nvcc made of the kernels, for speed on paper.

Usage: code_facts.py CUOBJDUMP OUT LIBRARY COSTS. LIBRARY: libtokend_cuda.so; COSTS: the
object of block_costs.cu. Lines: "registers PART SYMBOL COUNT" of each kernel, and "cost
FORMAT INSTRUCTIONS INTEGER" of a warp for a block of packed weights.
"""

import pathlib
import re
import subprocess
import sys

ARCH = re.compile(r"^arch = sm_(\d+)")
FUNCTION = re.compile(r"Function\s*:?\s*(\w+)")
REGISTERS = re.compile(r"\bREG:(\d+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)([^;]*);")
BRANCH_TARGET = re.compile(r"0x([0-9a-f]+)")
FORMAT = re.compile(r"Cost_(\w+?)Kernel")
# On the integer pipe, of half the rate.
INTEGER = re.compile(
    r"^(IADD3|IMAD|LOP3|LEA|SHF|PRMT|ISETP|IABS|POPC|SEL|IMNMX|VIADD|VIMNMX|I2F|I2FP|LOP|IADD)\b")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def registers(cuobjdump, library):
    part = function = None
    for line in run(cuobjdump, "-res-usage", library).splitlines():
        if match := ARCH.match(line):
            part = match.group(1)
        elif match := FUNCTION.search(line):
            function = match.group(1)
        elif (match := REGISTERS.search(line)) and function:
            yield f"registers {part} {function} {match.group(1)}"


def loops(instructions):
    """(first, last) addresses of each loop."""
    for at, name, rest in instructions:
        target = BRANCH_TARGET.search(rest)
        if name.startswith("BRA") and target and int(target.group(1), 16) < at:
            yield int(target.group(1), 16), at


def body(instructions, span):
    return [name for at, name, _ in instructions if span[0] <= at <= span[1]]


def cost(instructions, step):
    """Of a block of weights: the loop with the most products; `step` products a block."""
    with_products = []
    for span in loops(instructions):
        names = body(instructions, span)
        products = sum(name.startswith("HMMA") for name in names)
        if products:
            with_products.append((products, len(names), names))
    products, count, names = min(with_products, key=lambda found: found[1] / found[0])
    blocks = products / step
    return count / blocks, sum(bool(INTEGER.match(name)) for name in names) / blocks


def costs(cuobjdump, library):
    name, instructions = None, []
    found = {}
    for line in run(cuobjdump, "-sass", library).splitlines():
        if match := FUNCTION.search(line):
            name, instructions = match.group(1), []
            found[name] = instructions
        elif name and (match := INSTRUCTION.match(line)):
            instructions.append((int(match.group(1), 16), match.group(2), match.group(3)))
    for symbol, listing in found.items():
        label = FORMAT.search(symbol).group(1)
        # Formats with minima sum the rows by two products more.
        step = 4 if label in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else 2
        all_, integer = cost(listing, step)
        yield f"cost {label} {all_:.1f} {integer:.1f}"


def main():
    cuobjdump, out, library, probes = sys.argv[1:]
    lines = [*registers(cuobjdump, library), *costs(cuobjdump, probes)]
    pathlib.Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


main()
