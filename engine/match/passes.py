"""A pipeline over a program: the passes in their order, `one of` groups, `--only`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, did_you_mean
from ..rw.pipeline import PassStep
from ..rw.rule import pass_name
from .compiled import Program
from .driver import Engine
from .trace import Trace

Shaped = dict[str, list[str]]


def run_pipeline(
    engine: Engine,
    steps: Sequence[PassStep],
    program: Program,
    target: Target,
    trace: Trace | None = None,
    shaped: Shaped | None = None,
) -> Program:
    """The program after all passes. Of a `one of`, the first pass that fires in a kernel keeps the others away.

    shaped: filled with the labels of the passes that changed each kernel, by the kernel's name.
    """
    taken: dict[str, set[str]] = {}
    for step in steps:
        done = taken.setdefault(step.group, set()) if step.group is not None else None
        before, program = program, engine.fire(step, program, target, trace=trace, done=done)
        note_shaped(shaped, step.label, before, program)
    return program


def note_shaped(shaped: Shaped | None, label: str, before: Program, after: Program) -> None:
    """Write down that a pass changed kernels."""
    if shaped is not None and after is not before:
        for kernel in after:
            if kernel not in before:
                shaped.setdefault(kernel.name, []).append(label)


def only(steps: Sequence[PassStep], names: Iterable[str]) -> tuple[PassStep, ...]:
    """The steps that `--only` names: by label, pass, file or rule. A rule alone runs without its neighbours."""
    out: list[PassStep] = []
    wanted = tuple(names)
    known = {name for step in steps for name in names_of(step)}
    for name in wanted:
        if name not in known:
            raise DplcError(f"--only: there is no pass or rule `{name}` here", hint=did_you_mean(name, known))
    for step in steps:
        if any(name in (step.label, step.name, *(rule.file for rule in step.rules)) for name in wanted):
            out.append(step)
            continue
        rules = tuple(rule for rule in step.rules if rule.name in wanted)
        if rules:
            out.append(PassStep(step.name, rules, step.parameters, step.label, step.span, step.group, step.reason))
    return tuple(out)


def names_of(step: PassStep) -> set[str]:
    """What a step may be called: its label, its pass, its files, its rules."""
    own = {step.label, step.name}
    return own.union(*({rule.name, rule.file, pass_name(rule.file)} for rule in step.rules))
