"""The oracle of these tests: what Tile IR means, in float64 and with races found, against the emulated CUDA text."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from emulated import check as run_checked, run

from dplc.codegen.cuda import print_cuda
from dplc.codegen.judge import GATE, GATES, judge
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.interp import tile
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.kernel import problems


def read(text: str) -> tuple[Kernel, ...]:
    return read_program(text, "test")[1]  # type: ignore[return-value]


def lower(kernel: Kernel, arch: str = "sm_80") -> CudaKernel:
    """CUDA text by way of Kernel IR that verifies and survives its own text."""
    ir = materialise(kernel, target(arch))
    assert problems(ir) == ()
    assert read_program(print_program(ir, "kernel"))[1][0] is ir
    return print_cuda(ir)


def same(got: Any, want: Any, gate: float = GATE) -> None:
    """As the judge compares them, within the gate."""
    found = judge([torch.as_tensor(got)], [torch.as_tensor(want)], gates=dict.fromkeys(GATES, gate))
    assert found.ok, f"{found.verdict}, off by {found.relative:.1e} of the largest value"


def check(text: str, gate: float = GATE, **arrays: Any) -> list[CudaKernel]:
    """Lower a program, run it on the emulator in both modes, compare every output with its meaning."""
    units = read(text)
    wanted = tile.run(units, {name: np.asarray(value) for name, value in arrays.items()})
    kernels = [lower(unit) for unit in units]
    for runner in (
        run,
        partial(run_checked, counted=False),
    ):  # fast; then slow, where races and reads of unwritten memory are errors
        memory = dict(arrays)
        for kernel, unit in zip(kernels, units, strict=True):
            names = [p.name for p in (*unit.ins, *unit.outs)]
            pointers = [param for param in kernel.params if param.role != "tensor_map"]
            given = {p.name: memory[n] for p, n in zip(pointers, names, strict=True) if p.role == "in"}
            outcome = runner(kernel, given)
            made = getattr(outcome, "outputs", outcome)
            outs = {n: made[p.name] for p, n in zip(pointers, names, strict=True) if p.role == "out"}
            memory |= outs
            for name, got in outs.items():
                same(got, wanted[name], gate)
    return kernels
