"""Values of a program may have any names, those too that the lowering gives to what it makes itself."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from lowering_oracle import read, same

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.materialise import materialise
from dplc.codegen.materialise.lowering import RESERVED
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.ir.expr import Var
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.node import Node, nodes
from dplc.ir.program import Kernel
from dplc.ir.substitute import substitute
from dplc.ir.tile import SharedTile, Stage
from dplc.ir.verify.kernel import problems
from dplc.ir.verify.tile import problems as tile_problems

PROGRAMS = (
    "torch.randn(40, 36) @ torch.randn(36, 50)", "torch.softmax(torch.randn(3, 300), 1)", "torch.var(torch.randn(2, 600), 1)",
    "torch.cumsum(torch.randn(3, 300), 1)", "torch.randn(5, 300).argmax(1)", "F.layer_norm(torch.randn(4, 260), (260,))",
    "F.linear(F.rms_norm(torch.randn(20, 64), (64,)), torch.randn(48, 64))",
    "F.scaled_dot_product_attention(*(torch.randn(1, 1, 40, 64) for _ in range(3)))",
    "torch.randn(48, 32, dtype=torch.bfloat16) @ torch.randn(32, 64, dtype=torch.bfloat16)",
)  # fmt: skip
MACHINE = target("sm_80")


@functools.cache
def tiles(program: str) -> tuple[Kernel, ...]:
    found = compiler_with(MACHINE).compile(capture_text(program, 0)).tile
    return tuple(kernel for kernel in found if isinstance(kernel, Kernel))


def values(kernel: Kernel) -> list[str]:
    """The names of what is computed: no axis, buffer or shared tile."""
    defined = (s for s in nodes(kernel, Node) if not isinstance(s, Stage | SharedTile))
    names = (getattr(s, field, None) for s in defined for field in ("dst", "acc"))
    return sorted({name for name in names if isinstance(name, str)})


def made_names(kernel: Kernel) -> list[str]:
    """The names that the lowering of a kernel makes."""
    lowered = nodes(materialise(kernel, MACHINE), Node)
    return sorted({n for s in lowered for f in ("dst", "var") if isinstance(n := getattr(s, f, None), str)})


def drawn(kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    rng, made = np.random.default_rng(0), {p.name for kernel in kernels for p in kernel.outs}
    return {
        p.name: rng.standard_normal(p.shape) for kernel in kernels for p in kernel.ins if p.name not in made
    }  # fmt: skip


@settings(max_examples=draws(8), deadline=None)
@given(st.sampled_from(PROGRAMS), st.integers(0, 10**6))
def test_values_called_as_what_is_made(program: str, seed: int) -> None:
    """Kernel IR of the renamed program verifies, and means what the program meant."""
    kernels, dice = tiles(program), random.Random(seed)
    renamed = []
    for kernel in kernels:
        own = values(kernel)
        free = [name for name in dict.fromkeys((*made_names(kernel), "r_", "c_", *RESERVED)) if name not in own]
        chosen = dice.sample(own, min(len(own), len(free)))
        image: Any = dict(zip(chosen, map(Var, dice.sample(free, len(chosen))), strict=True))
        image = {name: new for name, new in image.items() if not tile_problems(substitute(kernel, {name: new}))}
        renamed.append(substitute(kernel, image))
    lowered = tuple(materialise(kernel, MACHINE) for kernel in renamed)
    assert [problems(kernel) for kernel in lowered] == [()] * len(lowered)
    data = drawn(kernels)
    wanted, got = tile_meaning.run(kernels, data), run_kernels(lowered, data)
    for param in kernels[-1].outs:
        same(got[param.name], wanted[param.name])


@pytest.mark.parametrize("value", ["r", "c"])
def test_a_value_called_as_a_turn_of_a_copy(value: str) -> None:
    """It is not a register, but what stands for an expression."""
    (kernel,) = read(
        f"""
kernel k(x: f32[64], y: f32[512]) -> z: f32[4, 32]:
    Tile(q:4=REG, t:32=THREAD):
        a = load x[q*16 + t // 2]
        {value} = reciprocal(a)
        y_smem = Stage(y, origin=(0), box=(k:512@0))
        Sync()
        b = load y_smem[q*32 + t]
        d = multiply(b, {value})
        z[q, t] = d
"""
    )
    made = materialise(kernel, MACHINE)
    assert problems(made) == ()
    data = {"x": np.linspace(1, 2, 64), "y": np.arange(512.0)}
    same(run_kernels((made,), data)["z"], tile_meaning.run((kernel,), data)["z"])
