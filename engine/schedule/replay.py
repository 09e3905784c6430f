"""Schedules as data, and their replay: what a search found is carried out again without any search, at the sizes it was
found for or, as far as that is legal, at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.node import Node, contents
from ...ir.program import Kernel
from ...ir.text.print_statements import print_value
from ...ir.tile import Tile
from ..language.pipeline import PassStep
from ..rewrite.statements.choices import FiringChoice, RuleSite, spot_at, spots
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.passes import Shaped, run_pipeline
from ..rewrite.trace import Firing, Trace
from ..ruleset import Toolchain
from ..store.protocol import Decision, Schedule

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


def decision(step: PassStep, choice: FiringChoice, numbers: Numbers) -> Decision:
    """A choice as it is remembered."""
    values = {name: written(value, numbers) for name, value in choice.parameters.items()}
    return Decision(step.label or step.name, choice.rule.rule.name, choice.where, values)


def chosen(spot: RuleSite, values: Mapping[str, Any], numbers: Numbers) -> RuleSite | None:
    """A spot with the values that were written down; None where one is not there or not legal."""
    found: RuleSite | None = spot
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
    waiting = list(reversed(schedule))

    def as_written(step: PassStep, program: Program) -> Program:
        while waiting and waiting[-1].step == step.label:
            program = carried_out(tools, step, program, waiting.pop(), target, numbers, trace)
        return program

    program = _walked(tools, kernel, target, as_written, trace, shaped)
    if waiting:
        raise DplcError(f"the schedule of kernel `{kernel.name}` names pass `{waiting[-1].step}`, which does not run")
    return program


@dataclass
class Adapted:
    """A program, and how many of the remembered firings were carried out, of how many."""

    program: Program
    kept: int
    of: int


def replay_nearest(
    tools: Toolchain, kernel: Kernel, schedule: Schedule, target: Target, trace: Trace | None, shaped: Shaped
) -> Adapted:
    """A kernel of Loop IR under a schedule that was found for other sizes: every firing where it is legal, the pass's
    default where not. A pass that did nothing there does nothing here."""
    numbers = numbers_of((kernel,))
    kept = 0

    def where_legal(step: PassStep, program: Program) -> Program:
        """The remembered firings as long as they are legal, then the default for the rest of the pass."""
        nonlocal kept
        wanted = [decision for decision in schedule if decision.step == step.label]
        for place, decision in enumerate(wanted):
            made = _elsewhere(tools, step, program, decision, target, numbers, trace)
            if made is None:
                fresh = place == 0 or any("repeat" in rule.attributes for rule in step.rules)
                return tools.engine.fire(step, program, target, trace=trace) if fresh else program
            program, kept = made, kept + 1
        return program

    return Adapted(_walked(tools, kernel, target, where_legal, trace, shaped), kept, len(schedule))


def _walked(
    tools: Toolchain, kernel: Kernel, target: Target, decide: Callable[[PassStep, Program], Program],
    trace: Trace | None, shaped: Shaped | None,
) -> Program:  # fmt: skip
    """A kernel of Loop IR after all passes of the schedule, decided once it has its Tile."""
    program = run_pipeline(tools.engine, tools.pipelines["loop"], (kernel,), target, trace, shaped)
    return run_pipeline(
        tools.engine, tools.pipelines["tile"], program, target, trace, shaped,
        lambda step, program: None if untiled(program) else decide(step, program),
    )  # fmt: skip


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


def carried_out(
    tools: Toolchain, step: PassStep, program: Program, wanted: Decision, target: Target, numbers: Numbers,
    trace: Trace | None,
) -> Program:  # fmt: skip
    """A program after a decision. Raises DplcError where it is not legal."""
    spot = spot_at(tools.engine, step, wanted.rule, program, target, wanted.site)
    found = None if spot is None else chosen(spot, wanted.parameters, numbers)
    if found is None:
        what = f"the remembered schedule does not fit: `{wanted.rule}` cannot fire at {wanted.site}"
        raise DplcError(what, notes=(f"parameters {wanted.parameters}",), hint="tune the kernel again")
    return fired(step, found.choice, trace)


def fired(step: PassStep, choice: FiringChoice, trace: Trace | None) -> Program:
    """The program after a choice, which the trace hears of."""
    made = choice.apply()
    if trace is not None:
        before, after = (tuple(k for k in one if k not in other) for one, other in _both(choice.program, made))
        rule = choice.rule.rule
        where = (step.shown(rule), rule.name, rule.location, choice.kernel, choice.where)
        trace.add(Firing(trace.prefix, *where, choice.parameters, before, after))
    return made


def _both(one: Program, other: Program) -> tuple[tuple[Program, Program], tuple[Program, Program]]:
    return (one, other), (other, one)
