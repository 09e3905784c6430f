"""A schedule that was found for other sizes, tried on these: every firing where it is legal, the pass's default where
not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..match.choices import spots
from ..match.compiled import Program
from ..match.passes import Shaped, note_shaped, run_pipeline
from ..match.trace import Trace
from ..rw.pipeline import PassStep
from ..toolchain import Toolchain
from .protocol import Decision, Schedule
from .schedule import Numbers, carried_out, chosen, fired, numbers_of, untiled


@dataclass
class Adapted:
    """A program, and how many of the remembered firings were carried out, of how many."""

    program: Program
    kept: int
    of: int


def adapt(
    tools: Toolchain, kernel: Kernel, schedule: Schedule, target: Target, trace: Trace | None = None,
    shaped: Shaped | None = None,
) -> Adapted:  # fmt: skip
    """A kernel of Loop IR under a schedule of its family. A pass that did nothing there does nothing here."""
    numbers = numbers_of((kernel,))
    program = run_pipeline(tools.engine, tools.pipelines["loop"], (kernel,), target, trace, shaped)
    kept = 0
    for step in tools.pipelines["tile"]:
        before = program
        if untiled(program):
            program = tools.engine.fire(step, program, target, trace=trace)
        wanted = [decision for decision in schedule if decision.step == step.label]
        if wanted:
            program, done = _pass(tools, step, program, wanted, target, numbers, trace)
            kept += done
        note_shaped(shaped, step.label, before, program)
    return Adapted(program, kept, len(schedule))


def _pass(
    tools: Toolchain, step: PassStep, program: Program, wanted: Sequence[Decision], target: Target, numbers: Numbers,
    trace: Trace | None,
) -> tuple[Program, int]:  # fmt: skip
    """One pass: the remembered firings as long as they are legal, then the default for the rest of it."""
    for place, decision in enumerate(wanted):
        made = _elsewhere(tools, step, program, decision, target, numbers, trace)
        if made is None:
            fresh = place == 0 or any("repeat" in rule.attributes for rule in step.rules)
            return (tools.engine.fire(step, program, target, trace=trace) if fresh else program), place
        program = made
    return program, len(wanted)


def _elsewhere(
    tools: Toolchain, step: PassStep, program: Program, decision: Decision, target: Target, numbers: Numbers,
    trace: Trace | None,
) -> Program | None:  # fmt: skip
    """The same rule with the same values, at its old site or else at the first one; None where it is legal at
    neither."""
    try:
        return carried_out(tools, step, program, decision, target, numbers, trace)
    except DplcError:
        pass
    for spot in spots(tools.engine, step, program, target):
        found = chosen(spot, decision.parameters, numbers) if spot.rule == decision.rule else None
        if found is not None:
            return fired(step, found.choice, trace)
    return None
