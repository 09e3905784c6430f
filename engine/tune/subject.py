"""What a candidate is held against: inputs for a program of Loop IR, and the values that it should give.

The reference is the program's own meaning in float64 (`ir/interp/loop.py`). Where that would take too long, only some
iterations of its free loops are computed: every schedule is then compared at the elements that they store.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...codegen.arrays import torch_dtype
from ...ir.dtypes import FLOATS
from ...ir.interp.loop import run
from ...ir.loop import For
from ...ir.node import nodes
from ...ir.program import Kernel, Param, delivered, supplied

WHOLE = 1 << 22  # innermost iterations that are computed in a few seconds at most
FEWEST = 8  # iterations of a free loop that are looked at, at least
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TuningSubject:
    """A program with inputs and reference values. tensors: inputs by name, on the CPU; expected: (values, where) by
    output, float64 and the mask of what was computed."""

    program: tuple[Kernel, ...]
    tensors: dict[str, Any]
    expected: dict[str, tuple[Array, Array]]

    @property
    def checked(self) -> str:
        """How much is compared, for people."""
        compared = sum(int(where.sum()) for _, where in self.expected.values())
        every = sum(where.size for _, where in self.expected.values())
        return "whole" if compared == every else f"{compared} of {every} elements"


def draw(param: Param, seed: int = 0) -> Any:
    """Values for a buffer, the same every time: normal; 0 or 1 for integers, which may be positions in another
    buffer."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {param.name}".encode()))
    if param.dtype not in FLOATS:
        return torch.randint(0, 2, param.shape, generator=generator).to(torch_dtype(param.dtype))
    return torch.randn(param.shape, generator=generator).to(torch_dtype(param.dtype))


def subject_of(program: tuple[Kernel, ...], seed: int = 0) -> TuningSubject:
    """Inputs and reference values of a program. Raises ScheduleError for one that means nothing."""
    tensors = {param.name: draw(param, seed) for param in supplied(program)}
    known = {name: _exact(tensor) for name, tensor in tensors.items()}
    only = _sample(program[0], seed) if len(program) == 1 else {}
    stores: dict[str, Array] = {}
    memory = run(program, known, stores, only)
    outputs = delivered(program)
    return TuningSubject(program, tensors, {p.name: (memory[p.name], stores[p.name] > 0) for p in outputs})


def _exact(tensor: Any) -> Array:
    return np.asarray((tensor.double() if tensor.dtype.is_floating_point else tensor).numpy())


def _sample(kernel: Kernel, seed: int) -> dict[str, Array]:
    """The iterations of free loops to look at: the longest loops are thinned out until the rest is quick."""
    extents = {loop.var: int(loop.stop) for loop in nodes(kernel.body, For) if loop.role == "free"}
    kept = dict(extents)
    dice = np.random.default_rng(seed)
    while _iterations(kernel, extents, kept) > WHOLE and any(n > FEWEST for n in kept.values()):
        longest = max(kept, key=lambda var: kept[var])
        kept[longest] = max(kept[longest] // 4, FEWEST)
    chosen = {}
    for var, count in kept.items():
        if count < extents[var]:  # the first, the last, and some between
            between = dice.choice(extents[var], count, replace=False)
            chosen[var] = np.unique(np.array([0, extents[var] - 1, *between]))
    return chosen


def _iterations(kernel: Kernel, extents: dict[str, int], kept: dict[str, int]) -> float:
    """Innermost iterations of the deepest nest."""

    def below(block: Any) -> float:
        found = [below(s.body) * _turns(s, extents, kept) for s in block if hasattr(s, "body")]
        return max([1.0, *found])

    return below(kernel.body)


def _turns(statement: Any, extents: dict[str, int], kept: dict[str, int]) -> float:
    if not isinstance(statement, For):
        return 1.0
    length = statement.stop - statement.start if isinstance(statement.stop, int) else math.inf
    return min(length, kept.get(statement.var, length)) if statement.role == "free" else length
