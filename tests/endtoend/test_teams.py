"""Products whose copies a team of threads makes: right, clean, left as they are by the assembler; faults are all found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import dplc
from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_program
from dplc.codegen.emulator.checking import CheckingExecutor
from dplc.codegen.nvrtc import find_nvrtc
from dplc.codegen.sass import disassemble
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.interp import kernel as kernel_meaning
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.node import nodes
from dplc.ir.text.print import print_program
from dplc.ir.text.read import read_program
from dplc.ir.tile import Team, Tile
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems

TEAMS = str(Path(__file__).resolve().parents[2] / "examples/overrides/teams.rw")
FOUR_WARPS = str(Path(__file__).resolve().parents[2] / "examples/overrides/four_warps.rw")


def product(form: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x if form[0] == "n" else x.mT) @ (y if form[1] == "n" else y.mT)


def operands(form: str, m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    dice = torch.Generator().manual_seed(m + n + k)
    shapes = (m, k) if form[0] == "n" else (k, m), (k, n) if form[1] == "n" else (n, k)
    return tuple(torch.randn(shape, generator=dice).to(dtype) for shape in shapes)


def compiled(f, inputs: tuple[torch.Tensor, ...], bm: int, bn: int, rules: list[str] | str = TEAMS) -> dplc.Compiled:  # type: ignore[no-untyped-def]
    sizes = {"blockify_launch": {"BM": bm, "BN": bn}, "chunk_matmul_k": {"BK": 64}}
    return dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=sizes, rules=rules)


def judged(made: dplc.Compiled, f, inputs: tuple[torch.Tensor, ...]) -> None:  # type: ignore[no-untyped-def]
    """Within twice PyTorch's own error of float64, in fast mode and in checked mode, which finds nothing."""
    assert any(nodes(made.compilation.tile, Team))
    want = f(*(x.double() for x in inputs))
    own = (f(*inputs).double() - want).abs().max().item()
    assert (made(*inputs).double() - want).abs().max().item() <= 2 * own
    made.executor = checker = CheckingExecutor(("all",))
    assert (made(*inputs).double() - want).abs().max().item() <= 2 * own
    assert checker.launches
    assert checker.findings == ()


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
def test_products(form: str, shape: tuple[int, int, int], block: tuple[int, int]) -> None:
    inputs = operands(form, *shape)
    f = lambda x, y: product(form, x, y)  # noqa: E731
    judged(compiled(f, inputs, *block), f, inputs)


EPILOGUES = {
    "relu": lambda x, y: torch.relu(x @ y.mT),
    "a bias and gelu, f16": lambda x, y: torch.nn.functional.gelu(x @ y.mT + y[:, 0]),
    "its operand again": lambda x, y: (x @ y.mT) * x[:, :128],
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name: str) -> None:
    inputs = operands("nt", 100, 128, 256, torch.float16 if "f16" in name else torch.bfloat16)
    judged(compiled(EPILOGUES[name], inputs, 64, 128), EPILOGUES[name], inputs)


@pytest.mark.parametrize(("shape", "block"), [((128, 64, 320), (64, 64)), ((128, 128, 320), (128, 64))])
def test_all_levels_mean_the_same(shape: tuple[int, int, int], block: tuple[int, int]) -> None:
    """Tile IR in any order of threads, Kernel IR in any landing of copies, their texts read again."""
    inputs = operands("nt", *shape)
    made = compiled(lambda x, y: x @ y.mT, inputs, *block)
    (tiled,), (lowered,) = made.compilation.tile, made.compilation.kernels
    for kernel, check in ((tiled, problems), (lowered, kernel_problems)):
        assert check(kernel) == ()
        assert read_program(print_program((kernel,)))[1] == (kernel,)
    arrays = {param.name: x.double().numpy() for param, x in zip(tiled.ins, inputs, strict=True)}
    want = (inputs[0].double() @ inputs[1].double().mT).numpy()
    for seed in range(3):
        np.testing.assert_allclose(tile_meaning.run((tiled,), arrays, seed)[tiled.outs[0].name], want, atol=1e-9)
        got = kernel_meaning.run((lowered,), arrays, seed)[lowered.outs[0].name]
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_large_products(form: str) -> None:
    """No slower than with all threads copying, by the model; assembled without spills or products that wait (C7510)."""
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    single, made = (
        dplc.compile(lambda x, y: product(form, x, y), inputs, target="h200", device="emulator", db=False, rules=rules)
        for rules in (FOUR_WARPS, TEAMS)
    )
    assert [tile.cluster for tile in nodes(made.compilation.tile, Tile)] == [2]
    assert [(team.threads, team.registers) for team in nodes(made.compilation.tile, Team)] == [(128, 40)]
    seconds = [
        predict(instruction_counts(one.compilation.kernels[0]), target("h200")).seconds for one in (single, made)
    ]
    assert seconds[1] <= seconds[0]
    if find_program("nvcc") is None and find_nvrtc() is None:
        pytest.skip("neither NVRTC nor nvcc is here")
    (kernel,) = made.compilation.cuda_kernels
    assembly = assemble(device_text([kernel]), "sm_90a")
    found, hot = assembly.kernels[kernel.name], disassemble(assembly.cubin)[kernel.name].hot
    assert assembly.warnings == ()
    assert found.spill_stores + found.spill_loads == 0
    assert found.registers <= 168
    assert Counter(op.split(".")[0] for op in hot)["HGMMA"] == 4
    assert len(hot) <= 65


def test_a_team_of_one_warp() -> None:
    inputs = operands("nt", 128, 128, 320)
    sizes = {"blockify_launch": {"BM": 64, "BN": 64}, "chunk_matmul_k": {"BK": 64}, "specialise": {"T": 32}}
    f = lambda x, y: x @ y.mT  # noqa: E731
    made = dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=sizes, rules=TEAMS)
    assert [team.threads for team in nodes(made.compilation.tile, Team)] == [32]
    judged(made, f, inputs)


def test_any_number_of_rows() -> None:
    x, y = operands("nt", 200, 128, 256)
    sizes = {"blockify_launch": {"BM": 64, "BN": 64}, "chunk_matmul_k": {"BK": 64}}
    made = dplc.compile(
        lambda x, y: x @ y.mT, (x, y), target="h200", device="emulator", db=False, settings=sizes, rules=TEAMS,
        dynamic={"x": {0: dplc.Dim("s", 1, 4096, hint=200)}},
    )  # fmt: skip
    assert any(nodes(made.compilation.tile, Team))
    for rows in (1, 97, 200):
        want = x[:rows].double() @ y.double().mT
        own = (x[:rows] @ y.mT - want).abs().max().item()
        assert (made(x[:rows], y).double() - want).abs().max().item() <= 2 * own
