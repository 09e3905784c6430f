"""Products of 16-bit matrices on tensor cores: operands, what must hold of each, what the assembler must leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import dplc
from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.sass import disassemble
from dplc.ir.node import nodes
from dplc.ir.tile import Mma

Product = Callable[..., torch.Tensor]

OVERRIDES = Path(__file__).resolve().parents[2] / "examples/overrides"
SINGLE_WARPS = str(OVERRIDES / "single_warps.rw")

EPILOGUES: dict[str, Product] = {
    "relu": lambda x, y: torch.relu(x @ y.mT),
    "a bias and gelu, f16": lambda x, y: torch.nn.functional.gelu(x @ y.mT + y[:, 0]),
    "its operand again": lambda x, y: (x @ y.mT) * x[:, :128],
}


def product(form: str) -> Product:
    """x @ y with either of them as it is (n) or transposed (t)."""
    return lambda x, y: (x if form[0] == "n" else x.mT) @ (y if form[1] == "n" else y.mT)


def operands(form: str, m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    dice = torch.Generator().manual_seed(m + n + k)
    shapes = (m, k) if form[0] == "n" else (k, m), (k, n) if form[1] == "n" else (n, k)
    return tuple(torch.randn(shape, generator=dice).to(dtype) for shape in shapes)


def heads(rows: tuple[int, ...], columns: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values."""
    dice = torch.Generator().manual_seed(sum(rows) + sum(columns))
    return tuple(torch.randn(1, *shape, generator=dice).to(dtype) for shape in (rows, columns, columns))


def atoms(made: dplc.Compiled) -> set[str]:
    return {stmt.atom for kernel in made.compilation.tile for stmt in nodes(kernel, Mma)}


def compiled(f: Product, inputs: tuple[torch.Tensor, ...], bm: int, bn: int, rules: str | None) -> dplc.Compiled:
    sizes = {"blockify_launch": {"BM": bm, "BN": bn}, "chunk_matmul_k": {"BK": 64}}
    return dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=sizes, rules=rules)


def judged(made: dplc.Compiled, f: Product, inputs: tuple[torch.Tensor, ...]) -> None:
    """Within twice PyTorch's own error of float64, in fast mode and in checked mode, which finds nothing."""
    near(made, f, inputs, f(*(x.double() for x in inputs)))


def near(made: dplc.Compiled, f: Product, inputs: Sequence[torch.Tensor], want: torch.Tensor) -> None:
    """The same of a product whose float64 is known: PyTorch may make it of nothing so wide."""
    own = (f(*inputs).double() - want).abs().max().item()
    assert (made(*inputs).double() - want).abs().max().item() <= 2 * own
    made.executor = checker = CheckingExecutor(("all",))
    assert (made(*inputs).double() - want).abs().max().item() <= 2 * own
    assert checker.launches
    assert checker.findings == ()


def same_places(got: torch.Tensor, want: torch.Tensor) -> None:
    """What is not a number, and what is infinite, are where they should be."""
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())


def assembled_as_written(made: dplc.Compiled, most: int, products: int = 4) -> None:
    """No spills, no products that wait for each other (C7510), so many in a turn of at most so many instructions."""
    if find_program("nvcc") is None and find_nvrtc() is None:
        pytest.skip("neither NVRTC nor nvcc is here")
    (kernel,) = made.compilation.cuda_kernels
    assembly = assemble(device_text([kernel]), "sm_90a")
    found, hot = assembly.kernels[kernel.name], disassemble(assembly.cubin)[kernel.name].hot
    assert assembly.warnings == ()
    assert found.spill_stores + found.spill_loads == 0
    assert found.registers <= 168
    assert Counter(op.split(".")[0] for op in hot)["HGMMA"] == products
    assert len(hot) <= most
