"""Products of blocks that walk over tiles, a team copying ahead into the next one: right, clean, faster by the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from products_of_halves import EPILOGUES, TEAMS, Product, assembled_as_written, judged, operands, product

import dplc
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import Prediction, predict
from dplc.ir.node import nodes
from dplc.ir.tile import Team, Tile


def walking(
    f: Product,
    inputs: tuple[torch.Tensor, ...],
    block: tuple[int, int],
    tiles: int,
    slots: int,
    rules: str | None = TEAMS,
) -> dplc.Compiled:
    """Blocks that make so many tiles each, out of a ring of so many slots."""
    rows, columns = block
    sizes = {"blockify_launch": {"BM": rows, "BN": columns}, "chunk_matmul_k": {"BK": 64}}
    sizes |= {"walk_tiles": {"W": tiles}, "group_mma": {"N": slots}}
    made = dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=sizes, rules=rules)
    assert walks(made)
    return made


def walks(made: dplc.Compiled) -> bool:
    return any("walk_tiles" in kernel.text for kernel in made.compilation.cuda_kernels)


# pairs along rows, and turns of a tile that the ring does not divide; blocks of one tile less than others; pairs along
# columns; ragged in all three; a walk over the whole product, whose tiles begin in one slot
CASES = (
    ("nt", (256, 128, 320), (64, 64), 3, 4),
    ("nt", (320, 128, 320), (64, 128), 2, 3),
    ("nn", (97, 264, 264), (128, 64), 2, 4),
    ("tt", (200, 136, 328), (64, 64), 3, 5),
    ("tn", (128, 256, 256), (64, 128), 4, 4),
)


@pytest.mark.parametrize(("form", "shape", "block", "tiles", "slots"), CASES)
def test_products(form: str, shape: tuple[int, int, int], block: tuple[int, int], tiles: int, slots: int) -> None:
    inputs = operands(form, *shape)
    made = walking(product(form), inputs, block, tiles, slots)
    assert any(nodes(made.compilation.tile, Team))
    judged(made, product(form), inputs)


def test_a_walk_without_a_team() -> None:
    """Every tile begins a ring of its own then, and nobody is still reading the one before."""
    inputs = operands("nt", 256, 128, 320)
    judged(walking(product("nt"), inputs, (64, 64), 2, 4, None), product("nt"), inputs)


def test_an_epilogue_that_reads() -> None:
    inputs = operands("nt", 256, 128, 256)
    f = EPILOGUES["its operand again"]
    judged(walking(f, inputs, (64, 64), 2, 3), f, inputs)


def test_large_products(tmp_path: Path) -> None:
    """By default where a team copies: as many blocks as there are multiprocessors, each with as many tiles."""
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    without = tmp_path / "tiles_apart.rw"
    without.write_text(Path(TEAMS).read_text() + "without walk_tiles\n")
    made, apart = (
        dplc.compile(product("nt"), inputs, target="h200", device="emulator", db=False, rules=rules)
        for rules in (TEAMS, str(without))
    )
    (tile,) = nodes(made.compilation.tile, Tile)
    assert [axis.extent for axis in tile.axes if axis.role == "BLOCK"] == [64, 1, 2]  # type: ignore[attr-defined]
    here, before = told(made), told(apart)
    assert (here.waves, before.waves) == (1, 4)
    # the ends of three waves are hidden: a round trip and a half of memory each
    assert before.seconds - here.seconds == pytest.approx(3 * 1.5 * 0.65e-6, rel=0.02)
    assembled_as_written(made, 65)


def test_a_walk_saves_nothing_where_all_threads_copy() -> None:
    inputs = operands("nt", 4096, 512, 256)
    apart = dplc.compile(product("nt"), inputs, target="h200", device="emulator", db=False, rules=None)
    assert not walks(apart)


def told(made: dplc.Compiled) -> Prediction:
    return predict(instruction_counts(made.compilation.kernels[0]), target("h200"))
