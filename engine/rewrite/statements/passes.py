"""A pipeline over a program: the passes in their order, `one of` groups, `--only`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.program import Kernel
from ...language.pipeline import PassStep
from ...language.rule import pass_name
from ..trace import Trace
from .compiled import Program
from .driver import Engine


class Shaped(dict[str, list[str]]):
    """The labels of the passes that changed each kernel, by its name.

    parted: kernels that a pass made of one, those that it split off and what it left, as they stood then, by name.
    materialised: what became of kernels of Tile IR that were looked at as Kernel IR already.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parted: dict[str, Kernel] = {}
        self.materialised: dict[Kernel, Kernel] = {}

    def take(self, other: Shaped) -> None:
        """All that another one was told."""
        self.update(other)
        self.parted |= other.parted


Decide = Callable[[PassStep, Program], Program | None]  # what a pass makes of a program; None: what it does by default


def run_pipeline(
    engine: Engine,
    steps: Sequence[PassStep],
    program: Program,
    target: Target,
    trace: Trace | None = None,
    shaped: Shaped | None = None,
    decide: Decide | None = None,
) -> Program:
    """The program after all passes. Of a `one of`, the first pass that fires in a kernel keeps the others away.

    shaped: filled with the labels of the passes that changed each kernel, by the kernel's name. decide: asked of every
    pass, where a schedule is replayed or drawn.
    """
    taken: dict[str, set[str]] = {}
    for step in steps:
        before, decided = program, decide(step, program) if decide is not None else None
        if decided is None:
            done = taken.setdefault(step.group, set()) if step.group is not None else None
            program = engine.fire(step, program, target, trace=trace, done=done)
        else:
            program = decided
        if program is not before and shaped is not None:
            _note_shaped(shaped, step.label, before, program)
    return program


def _note_shaped(shaped: Shaped, label: str, before: Program, after: Program) -> None:
    """Write down that a pass changed kernels. A kernel that it split off has been through all that its parent was."""
    named = {kernel.name for kernel in before}
    parent = ""
    if len(after) > len(before):
        shaped.parted |= {kernel.name: kernel for kernel in after if kernel not in before}
    for kernel in reversed(after):  # templates write what is split off before the kernel that keeps the name
        inherited = [] if kernel.name in named else shaped.get(parent, [])
        parent = kernel.name if kernel.name in named else parent
        if kernel not in before:
            labels = shaped.setdefault(kernel.name, list(inherited))
            labels += [label] if labels[-1:] != [label] else []


def only(steps: Sequence[PassStep], names: Iterable[str]) -> tuple[PassStep, ...]:
    """The steps that `--only` names: by label, pass, file or rule. A rule alone runs without its neighbours."""
    out: list[PassStep] = []
    wanted = tuple(names)
    known = {name for step in steps for name in names_of(step)}
    for name in wanted:
        if name not in known:
            raise DplcError(f"--only: there is no pass or rule `{name}` here", hint=did_you_mean(name, known))
    for step in steps:
        if any(name in (step.label, step.name, step.numbered, *(r.file for r in step.rules)) for name in wanted):
            out.append(step)
            continue
        rules = tuple(rule for rule in step.rules if rule.name in wanted)
        if rules:
            out.append(replace(step, rules=rules))
    return tuple(out)


def names_of(step: PassStep) -> set[str]:
    """What a step may be called: its label, its pass, its files, its rules."""
    own = {step.label, step.name, step.numbered or step.label}
    return own.union(*({rule.name, rule.file, pass_name(rule.file)} for rule in step.rules))
