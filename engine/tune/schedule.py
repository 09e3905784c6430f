"""Schedules as data, and their replay: what a search found is carried out again without any search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.node import Node, contents
from ...ir.program import Kernel
from ...ir.text.print import print_value
from ...ir.tile import Tile
from ..match.choices import Choice, Spot, spot_at
from ..match.compiled import Program
from ..match.passes import Shaped, note_shaped, run_pipeline
from ..match.trace import Firing, Trace
from ..rw.pipeline import PassStep
from ..rw.rule import pass_name
from ..toolchain import Toolchain
from .protocol import Decision, Schedule

Numbers = Mapping[str, str]  # {parameter of a kernel: `#n`}


def numbers_of(program: Iterable[Kernel]) -> dict[str, str]:
    """How the parameters of the kernels to be scheduled are written, whatever they are called."""
    names = dict.fromkeys(param.name for kernel in program for param in (*kernel.ins, *kernel.outs))
    return {name: f"#{number}" for number, name in enumerate(names)}


def written(value: Any, numbers: Numbers) -> Any:
    """A value of a parameter as JSON: numbers, texts, lists. A record is written as the first name among its fields."""
    if isinstance(value, Var):
        return _plain_name(value.name, numbers)
    if isinstance(value, Node):
        return print_value(value)
    if hasattr(value, "_fields"):
        names = (field for field in value if isinstance(field, Var))
        return written(next(names, value[0]), numbers)
    if isinstance(value, set | frozenset):
        return sorted((written(item, numbers) for item in value), key=str)
    return [written(item, numbers) for item in value] if isinstance(value, tuple | list) else value


def _plain_name(name: str, numbers: Numbers) -> str:
    """`#0` for the first parameter, `#0_smem` for what is named after it."""
    base, _, suffix = name.rpartition("_")
    return numbers.get(name) or (f"{numbers[base]}_{suffix}" if base in numbers else name)


def decision(step: PassStep, choice: Choice, numbers: Numbers) -> Decision:
    """A choice as it is remembered."""
    values = {name: written(value, numbers) for name, value in choice.parameters.items()}
    return Decision(step.label or step.name, choice.rule.rule.name, choice.where, values)


def chosen(spot: Spot, values: Mapping[str, Any], numbers: Numbers) -> Spot | None:
    """A spot with the values that were written down; None where one is not there or not legal."""
    found: Spot | None = spot
    while found is not None and found.open is not None:
        wanted = values.get(found.open.name)
        value = next((v for v in found.open.values if written(v, numbers) == wanted), None)
        found = None if value is None else found.choose(value)
    if found is None or any(written(v, numbers) != values.get(n, v) for n, v in found.choice.parameters.items()):
        return None
    return found


def untiled(program: Program) -> bool:
    """Whether some kernel is still a loop nest: passes that make its Tile are no decision."""
    return not all(contents(kernel) & Tile.mark for kernel in program)


def replay(
    tools: Toolchain, kernel: Kernel, schedule: Schedule, target: Target, trace: Trace | None = None,
    shaped: Shaped | None = None,
) -> Program:  # fmt: skip
    """A kernel of Loop IR as kernels of Tile IR, scheduled as written down.

    trace, shaped: as of `run_pipeline`. Raises DplcError where a decision is not legal any more.
    """
    numbers = numbers_of((kernel,))
    program = run_pipeline(tools.engine, tools.pipelines["loop"], (kernel,), target, trace, shaped)
    waiting = list(reversed(schedule))
    for step in tools.pipelines["tile"]:
        before = program
        if untiled(program):
            program = tools.engine.fire(step, program, target, trace=trace)
        while waiting and waiting[-1].step == step.label:
            program = carried_out(tools, step, program, waiting.pop(), target, numbers, trace)
        note_shaped(shaped, step.label, before, program)
    if waiting:
        raise DplcError(f"the schedule of kernel `{kernel.name}` names pass `{waiting[-1].step}`, which does not run")
    return program


def carried_out(
    tools: Toolchain, step: PassStep, program: Program, wanted: Decision, target: Target, numbers: Numbers,
    trace: Trace | None = None,
) -> Program:  # fmt: skip
    """A program after a decision. Raises DplcError where it is not legal."""
    spot = spot_at(tools.engine, step, wanted.rule, program, target, wanted.site)
    found = None if spot is None else chosen(spot, wanted.parameters, numbers)
    if found is None:
        what = f"the remembered schedule does not fit: `{wanted.rule}` cannot fire at {wanted.site}"
        raise DplcError(what, notes=(f"parameters {wanted.parameters}",), hint="tune the kernel again")
    return fired(step, found.choice, trace)


def fired(step: PassStep, choice: Choice, trace: Trace | None) -> Program:
    """The program after a choice, which the trace hears of."""
    made = choice.apply()
    if trace is not None:
        before, after = (tuple(k for k in one if k not in other) for one, other in _both(choice.program, made))
        rule, label = choice.rule.rule, step.label or step.name
        marker = rule.file if pass_name(rule.file) == label else label
        where = (marker, rule.name, rule.location, choice.kernel, choice.where)
        trace.add(Firing(trace.prefix, *where, choice.parameters, before, after))
    return made


def _both(one: Program, other: Program) -> tuple[tuple[Program, Program], tuple[Program, Program]]:
    return (one, other), (other, one)
