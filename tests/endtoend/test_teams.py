"""Products whose copies a team of threads makes: right, clean, left as they are by the assembler; faults are all found."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from products_of_halves import EPILOGUES, TEAMS, assembled_as_written, compiled, judged, operands, product

import dplc
from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.node import nodes
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Ring, Team, Tile
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems


def with_a_team(made: dplc.Compiled) -> dplc.Compiled:
    assert any(nodes(made.compilation.tile, Team))
    return made


# whole tiles; clusters along rows, along columns; slabs in several boxes; ragged in all three; primes on the side that is
# no row of TMA; two groups that multiply, and one; fewer chunks than slots would be asked of a ring that is filled ahead
CASES = (
    ("nt", (128, 256, 256), (128, 256)),
    ("nt", (256, 128, 512), (64, 128)),
    ("nt", (128, 256, 448), (128, 64)),
    ("nn", (256, 256, 256), (64, 128)),
    ("tn", (128, 128, 192), (128, 128)),
    ("tt", (200, 136, 328), (64, 64)),
    ("nn", (97, 136, 264), (64, 64)),
    ("nt", (97, 131, 256), (64, 64)),
)


@pytest.mark.parametrize(("form", "shape", "block"), CASES)
@pytest.mark.sampled(3)
def test_products(form: str, shape: tuple[int, int, int], block: tuple[int, int]) -> None:
    inputs = operands(form, *shape)
    judged(with_a_team(compiled(product(form), inputs, *block, TEAMS)), product(form), inputs)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.sampled(3)
def test_epilogues(name: str) -> None:
    inputs = operands("nt", 100, 128, 256, torch.float16 if "f16" in name else torch.bfloat16)
    judged(with_a_team(compiled(EPILOGUES[name], inputs, 64, 128, TEAMS)), EPILOGUES[name], inputs)


@pytest.mark.parametrize(("shape", "block"), [((128, 64, 320), (64, 64)), ((128, 128, 320), (128, 64))])
def test_all_levels_mean_the_same(shape: tuple[int, int, int], block: tuple[int, int]) -> None:
    """Tile IR in any order of threads, Kernel IR in any landing of copies, their texts read again."""
    inputs = operands("nt", *shape)
    made = compiled(product("nt"), inputs, *block, TEAMS)
    (tiled,), (lowered,) = made.compilation.tile, made.compilation.kernels
    for kernel, check in ((tiled, problems), (lowered, kernel_problems)):
        assert check(kernel) == ()
        assert read_program(print_program((kernel,)))[1] == (kernel,)
    arrays = {param.name: x.double().numpy() for param, x in zip(tiled.ins, inputs, strict=True)}
    want = (inputs[0].double() @ inputs[1].double().mT).numpy()
    for seed in range(3):
        np.testing.assert_allclose(tile_meaning.run((tiled,), arrays, seed)[tiled.outs[0].name], want, atol=1e-9)
        got = run_kernels((lowered,), arrays, seed)[lowered.outs[0].name]
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_large_products(form: str) -> None:
    """No slower than with all threads copying, by the model; assembled without spills or products that wait (C7510)."""
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    single, made = (
        dplc.compile(product(form), inputs, target="h200", device="emulator", db=False, rules=rules)
        for rules in (None, TEAMS)
    )
    assert [tile.cluster for tile in nodes(made.compilation.tile, Tile)] == [2]
    assert [(team.threads, team.registers) for team in nodes(made.compilation.tile, Team)] == [(128, 40)]
    counts = [instruction_counts(one.compilation.kernels[0]) for one in (single, made)]
    told = [predict(count, target("h200")) for count in counts]
    assert told[1].seconds <= told[0].seconds
    assert told[1].bounds["latency"] < 0.8 * told[0].bounds["latency"]
    (ring,) = nodes(made.compilation.tile, Ring)
    assert ring.depth == 3  # a slot fewer than fit: the results leave through a slab beside the ring
    # every second of 64 chunks is waited for: the waits of the producer threads do not count
    assert counts[1].waits.ring == pytest.approx(64 / (ring.depth - 1))
    assert set(re.findall(r"\bstg\d+", made.compilation.cuda_kernels[0].text)) == {"stg128"}
    assembled_as_written(made, 68)


def test_a_team_of_one_warp() -> None:
    inputs = operands("nt", 128, 128, 320)
    sizes = {"blockify_launch": {"BM": 64, "BN": 64}, "chunk_matmul_k": {"BK": 64}, "specialise": {"T": 32}}
    made = dplc.compile(product("nt"), inputs, target="h200", device="emulator", db=False, settings=sizes, rules=TEAMS)
    assert [team.threads for team in nodes(made.compilation.tile, Team)] == [32]
    judged(made, product("nt"), inputs)


def test_any_number_of_rows() -> None:
    x, y = operands("nt", 200, 128, 256)
    sizes = {"blockify_launch": {"BM": 64, "BN": 64}, "chunk_matmul_k": {"BK": 64}}
    made = dplc.compile(
        product("nt"), (x, y), target="h200", device="emulator", db=False, settings=sizes, rules=TEAMS,
        dynamic={"x": {0: dplc.Dim("s", 1, 4096, hint=200)}},
    )  # fmt: skip
    assert any(nodes(made.compilation.tile, Team))
    for rows in (1, 97, 200):
        want = x[:rows].double() @ y.double().mT
        own = (x[:rows] @ y.mT - want).abs().max().item()
        assert (made(x[:rows], y).double() - want).abs().max().item() <= 2 * own
