"""Running schedules in the emulator's checked mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from emulated import check

from dplc.codegen.arrays import as_numpy
from dplc.codegen.cuda import print_cuda
from dplc.codegen.judge import judge
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.materialise import materialise
from dplc.codegen.target import Target
from dplc.ir.diagnostic import DplcError
from dplc.ir.program import Kernel


def fault(
    program: tuple[Kernel, ...], inputs: dict[str, Any], wanted: dict[str, Any], machine: Target,
    orders: Iterable[int] = (0, 1, 2),
) -> str | None:  # fmt: skip
    """What lowering, checked mode or the comparison with the meaning says against a schedule; None if nothing does."""
    try:
        kernels = [print_cuda(materialise(kernel, machine)) for kernel in program]
        for order in orders:
            memory = dict(inputs)
            for unit, kernel in zip(program, kernels, strict=True):
                memory |= launched(unit, kernel, memory, order)
            wrong = [name for name, value in wanted.items() if not same(memory[name], value)]
            if wrong:
                return f"{', '.join(wrong)} has wrong values, threads in order {order}"
    except DplcError as error:
        return str(error.what)
    return None


def launched(unit: Kernel, kernel: CudaKernel, memory: dict[str, Any], order: int) -> dict[str, Any]:
    """What a launch in checked mode leaves, by the names of the program."""
    names = [param.name for param in (*unit.ins, *unit.outs)]
    pointers = [param for param in kernel.params if param.role != "tensor_map"]
    given = {}
    for param, name in zip(pointers, names, strict=True):
        if param.role == "in":
            kind = np.dtype({"f32": "float32", "b8": "bool", "i32": "int32", "i64": "int64"}[param.dtype])
            given[param.name] = as_numpy(param, np.asarray(memory[name]).astype(kind).reshape(param.shape))
    made = check(kernel, given, order=order, counted=False).outputs
    return {name: made[p.name] for p, name in zip(pointers, names, strict=True) if p.role == "out"}


def same(got: Any, want: Any) -> bool:
    """As the judge compares them."""
    return judge([torch.as_tensor(got)], [torch.as_tensor(want)]).ok
