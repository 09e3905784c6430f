"""A compile with sizes as it is at one binding: numbers at every stage, the kernels as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...ir.program import TensorType
from ...ir.substitute import with_sizes
from ..capture.capture import Capture
from ..compiler import Compilation
from ..kernels.kernels import Plan
from ..rewrite.torch_rules.pattern import Bound


def at_binding(made: Compilation, sizes: Mapping[str, int], captured: Capture | None = None) -> Compilation:
    """What serves a call with such sizes. captured: the program with the inputs of the call, else those it has."""
    program, given = made.at(sizes), captured or made.captured
    return replace(
        made,
        captured=replace(given, graph=with_sizes(given.graph, sizes)),
        tensor=with_sizes(made.tensor, sizes),
        plan=_plan(made.plan, sizes),
        tile=with_sizes(made.tile, sizes),
        kernels=with_sizes(made.kernels, sizes),
        cuda_kernels=program.distinct_kernels(),
        program=program,
        bounds=tuple(replace(bound, **_at(bound, sizes)) for bound in made.bounds),
    )


def _at(bound: Bound, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {name: with_sizes(getattr(bound, name), sizes) for name in ("term", "low", "end")}


def _plan(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    fields: dict[str, Any] = {
        name: with_sizes(getattr(plan, name), sizes) for name in ("kernels", "inputs", "outputs", "temporaries")
    }
    results = tuple(TensorType(kind.dtype, with_sizes(kind.shape, sizes)) for kind in plan.results)
    return replace(plan, **fields, results=results)
