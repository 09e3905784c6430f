"""Candidates that run: a chosen one compiled as a program, on the emulator in checked mode, held against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from exploring import H100, shared_lowering, tools

from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import GATE, judge
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compiler, Values
from dplc.engine.explore.explore import ExplorationOptions, exploration
from dplc.engine.kernels.kernels import Candidate
from dplc.engine.run.calls import Original, run_reference


def fewest_kernels(found: Sequence[Candidate]) -> Candidate:
    """The candidate with the fewest launches; of several, the one that is predicted to be fastest."""
    return min((c for c in found if not c.problem), key=lambda c: (c.kernels, c.predicted_us))


def checked(
    program: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    pick: Callable[[Sequence[Candidate]], Candidate] = fewest_kernels,
    blocks: tuple[str, ...] = ("all",),
) -> tuple[Candidate, Compiled]:
    """A candidate of a program over random arrays, and the program that it became, which ran without a finding and
    gave what float64 gives.
    """
    generator = torch.Generator().manual_seed(0)
    tensors = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    chosen: list[Candidate] = []

    def explore(values: Values) -> Candidate:
        made = exploration(values, ExplorationOptions(top=12))
        made.lowering = shared_lowering()
        chosen.append(pick(made.candidates()))
        return chosen[0]

    captured = capture(program, tensors)
    compilation = Compiler(tools(), H100, explore=explore).compile(captured)
    made = Compiled(compilation, "emulator", Original(program, captured, compilation.captured))
    checker = made.executor = CheckingExecutor(blocks)  # type: ignore[misc]
    results = made.run(made.compilation.captured.tensors)
    assert judge(results, run_reference(captured, captured.tensors)).relative <= GATE
    assert not checker.findings
    return chosen[0], made
