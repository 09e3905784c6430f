"""The launches of a program once its kernels are scheduled, and the buffers that they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.program import Kernel, Param
from .kernels import Plan
from .sharing import Sharing, Steps, steps


@dataclass(frozen=True)
class Buffers:
    """The buffers of a program; their extents may be made of sizes."""

    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    constants: tuple[Param, ...]
    temporaries: tuple[Param, ...]


def launches_of(plan: Plan, shared: Sharing, kernels: tuple[Kernel, ...]) -> Steps:
    """The launches of a program in order, each kernel of Loop IR a chain of them."""
    return steps(shared, kernels, [param.name for param in (*plan.inputs, *plan.outputs, *plan.temporaries)])


def buffers_of(plan: Plan, made: Steps, kinds: Mapping[str, str]) -> Buffers:
    """The buffers of a program's launches."""
    known = {param.name for param in (*plan.inputs, *plan.outputs)}
    read = {name for step in made.steps for name in step.buffers.values()} - known
    inputs = tuple(p for p in plan.inputs if kinds.get(p.name) == "input")
    constants = tuple(p for p in plan.inputs if kinds.get(p.name) != "input")
    between = tuple(param for param in (*plan.temporaries, *made.between) if param.name in read)
    return Buffers(inputs, tuple(plan.outputs), constants, between)
