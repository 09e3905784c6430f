"""What one layer of a model takes, predicted for an H200 in f32: what two layers take more than one.

python examples/benches/layers.py
python examples/benches/layers.py --kernels 512

`--kernels`: every launch of TinyLlama's layer, with what its multiply-adds alone take at the rate that products reach
(`issue_share` of the schedulers' slots), and all its instructions, if no multiprocessor were idle.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.memory_model import LANES
from dplc.engine.cost.predict import predict
from dplc.engine.models.compiling import ModelShape, compile_model
from dplc.engine.models.sources import find

MODELS = {"TinyLlama": "tinyllama-1.1b", "Qwen2.5-7B": "qwen2.5-7b"}
LENGTHS = (1, 32, 128, 512)
TARGET = target("h200")
FOLDER = Path(__file__).resolve().parents[1] / "models"


def compiled(config: str, length: int, layers: int) -> Compilation:
    shape = ModelShape(length, layers=layers)
    return compile_model(find(str(FOLDER / f"{config}.json")), shape, compiler_with(TARGET)).compilation


def microseconds(config: str, length: int, layers: int) -> float:
    """All launches of so many layers, with what stands before and behind them."""
    made = compiled(config, length, layers)
    each = [predict(instruction_counts(kernel), TARGET).seconds * 1e6 for kernel in made.kernels]
    return sum(each[index] for index in made.launched)


def launches(config: str, length: int, layers: int) -> Counter[tuple[float, float, float]]:
    """The launches by (predicted, multiply-adds alone, all instructions): microseconds."""
    made, found = compiled(config, length, layers), list[tuple[float, float, float]]()
    slots = TARGET.multiprocessors * TARGET.clock * TARGET.issue_share / 1e6
    for counted in map(instruction_counts, made.kernels):
        alone = counted.fma * counted.blocks * LANES / (TARGET.fp32_per_clock * slots)
        issued = counted.issued * counted.blocks / (TARGET.schedulers * slots)
        found.append((round(predict(counted, TARGET).seconds * 1e6, 1), round(alone, 1), round(issued, 1)))
    return Counter(found[index] for index in made.launched)


def of_a_layer(length: int) -> None:
    """Print what a second layer adds, launch by launch: those of the first have other names there."""
    more = launches("tinyllama-1.1b", length, 2) - launches("tinyllama-1.1b", length, 1)
    rows = sorted(more.elements(), reverse=True)
    print("| launch | predicted us | multiply-adds alone | all instructions |\n|---|---:|---:|---:|")
    for number, row in enumerate(rows, 1):
        print(f"| {number} | {' | '.join(map(str, row))} |")
    print(f"| all | {' | '.join(f'{sum(column):.0f}' for column in zip(*rows, strict=True))} |")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, metavar="TOKENS", help="the launches of one layer at this length")
    options = parser.parse_args()
    if options.kernels:
        of_a_layer(options.kernels)
    else:
        of_lengths()


def of_lengths() -> None:
    """Print what a layer of each model takes at each length."""
    print(f"| tokens | {' | '.join(map(str, LENGTHS))} |\n|---|{'---:|' * len(LENGTHS)}")
    for name, config in MODELS.items():
        each = [microseconds(config, length, 2) - microseconds(config, length, 1) for length in LENGTHS]
        print(f"| {name}, us | {' | '.join(f'{layer:.0f}' for layer in each)} |", flush=True)


if __name__ == "__main__":
    main()
