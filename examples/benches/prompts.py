"""What `dplc generate` makes of prompts of every length, beside a compile for each: predicted times.

    python examples/benches/prompts.py [--config FILE] [--dtype bf16] [--layers 1] [--target h200] [LENGTH ..]
    python examples/benches/prompts.py --tokens [..] [POSITION ..]

The call that reads a prompt, compiled once for 1..2047 tokens, with its rows (what `dplc generate` runs; a row is
compiled when a prompt needs it), and for each length. --tokens: the call that reads one token, by its position, which
says how many rows of the cache it is given, beside a compile for so many alone. All times are the model's; all launches
of the call count.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.models.compiling import ModelShape
from dplc.engine.models.generating import Generation, all_lengths, compile_generation
from dplc.engine.models.sources import find
from dplc.engine.run.calls import at_binding

LENGTHS = (1, 7, 16, 32, 33, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 1500, 2000, 2047)
POSITIONS = (50, 500, 1000, 2046)
MAXIMUM = 2048
TINYLLAMA = Path(__file__).parents[1] / "models" / "tinyllama-1.1b.json"


def seconds(made: Compilation) -> float:
    """Predicted, of all launches."""
    each = [predict(instruction_counts(kernel), made.target).seconds for kernel in made.kernels]
    return sum(each[place] for place in made.launched)


def bound(made: Compilation, length: int) -> Compilation:
    return at_binding(made, dict.fromkeys(made.sizes, length)) if made.sizes else made


def token_table(found: Generation, positions: Sequence[int], alone: Callable[[int], Generation]) -> None:
    """What a token takes at each position. alone: what is compiled for so many rows of the cache, and no others."""
    print("| position | rows of the cache | us | a compile of its own, us |\n|---:|---:|---:|---:|")
    for position in positions:
        rows = found.rows_up_to(position + 1)
        every, own = seconds(bound(found.token.compilation, rows)), seconds(alone(rows).token.compilation)
        print(f"| {position} | {rows} | {every * 1e6:.1f} | {own * 1e6:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=int, metavar="LENGTH")
    parser.add_argument("--tokens", action="store_true")
    parser.add_argument("--config", default=str(TINYLLAMA))
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--target", default="h200")
    options = parser.parse_args()
    how = compiler_with(target(options.target))
    source, shape = find(options.config), ModelShape(dtype=options.dtype, layers=options.layers)
    found = compile_generation(source, all_lengths(MAXIMUM), MAXIMUM, shape, how)
    if options.tokens:
        single = Dim("s", 1, 1)
        token_table(
            found,
            options.lengths or POSITIONS,
            lambda rows: compile_generation(source, single, rows, shape, how, step=rows),
        )
        return
    prompt = found.prompt
    assert prompt.rows is not None
    print("| tokens | a compile of its own, us | one compile | rows |\n|---:|---:|---:|---:|")
    ratios = []
    for length in options.lengths or LENGTHS:
        own = seconds(compile_generation(source, Dim("s", length, length), MAXIMUM, shape, how).prompt.compilation)
        row = prompt.rows.at(dict.fromkeys(prompt.sizes, length))
        one, rows = (seconds(bound(made, length)) / own for made in (prompt.compilation, row))
        ratios.append((one, rows))
        print(f"| {length} | {own * 1e6:.1f} | {one:.2f} | {rows:.2f} |", flush=True)
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios, strict=True)]
    worst = [max(column) for column in zip(*ratios, strict=True)]
    print(f"| geomean; worst | | {means[0]:.2f}; {worst[0]:.2f} | {means[1]:.2f}; {worst[1]:.2f} |")


if __name__ == "__main__":
    main()
