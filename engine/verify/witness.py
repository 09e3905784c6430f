"""Programs with the numbers of a refuted proof: what is wrong on paper is shown on a program, or not believed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.tensor import Const
from ..language.rule import Rule
from .extents import TooLarge
from .outcome import Subject, Wrong
from .proofs.outcome import Proof, Refuted
from .proofs.rules import prove
from .search import PlainDice
from .statement_neighbours import renumbered
from .statement_subjects import Instance
from .term_subjects import TermInstance
from .whole_programs import completed, runnable

TRIES = 60  # programs drawn from the pattern with the extents of the proof
ERRORS = (DplcError, TooLarge, LookupError, ValueError, ArithmeticError, TypeError, AttributeError)
ANYWHERE = "h200"


def proved(rule: Rule, checker: Any, own: Sequence[Subject]) -> tuple[Proof, Wrong | None]:
    """What is proved of a rule, and a program that shows what is refuted. What none shows is left open: of a run that
    stands elsewhere for a reason that is not arithmetic, say.
    """
    proof = prove(rule)
    if proof.refuted is None:
        return proof, None
    for subject in subjects(rule, proof.refuted, checker, own):
        try:
            checker.check(rule, subject)
        except Wrong as wrong:
            return proof, wrong
    doubt = f"{proof.refuted.problem}; no program shows that this is wrong"
    return Proof(proof.proved, None, (*proof.open, doubt)), None


def subjects(rule: Rule, refuted: Refuted, checker: Any, own: Sequence[Subject]) -> Iterator[Subject]:
    """Programs that a rule matches with the numbers of a proof."""
    if rule.level == "tensor":
        yield from _terms(rule, refuted, checker)
        return
    numbers = refuted.numbers
    pinned = {p.name: numbers[p.name] for p in rule.parameters if p.name in numbers}
    for subject in own:
        yield from _renumbered(rule, numbers, checker, subject, pinned)
    for n in range(TRIES):
        try:
            instance = Instance(rule, PlainDice((rule.name, n)))
            instance.values.update({name: value for name, value in numbers.items() if name not in pinned})
            program = completed(instance.program(), rule.level == "tile")
            if runnable(program):
                yield checker.subject(program, f"the pattern of `{rule.name}`, refuted", pinned)
        except ERRORS:
            continue


def _renumbered(
    rule: Rule, numbers: dict[str, int], checker: Any, subject: Subject, pinned: dict[str, Any]
) -> Iterator[Subject]:
    """An example with the extents of the proof in place of its own."""
    compiled, machine = checker.engine.rule(rule), target_named(ANYWHERE)
    program = subject.value
    seen: set[Any] = set()
    try:
        starts = compiled.starts(compiled.pattern, program, range(len(program)), True)
        for path, block, start in itertools.islice(starts, 100):
            for match in compiled.matches_at(compiled.pattern, (program, path, machine), block, start):
                change = {match.env[n]: v for n, v in numbers.items() if type(match.env.get(n)) is int}
                key = tuple(sorted(change.items()))
                if not change or key in seen:
                    continue
                seen.add(key)
                made = completed(tuple(_changed(kernel, change) for kernel in program))
                yield checker.subject(made, f"{subject.origin}, refuted", pinned)
    except ERRORS:
        return


def _changed(kernel: Kernel, change: dict[int, int]) -> Kernel:
    """A kernel with other numbers, its buffers undeclared."""
    return Kernel(kernel.name, (), (), tuple(renumbered(x, lambda n: change.get(n, n)) for x in kernel.body))


def _terms(rule: Rule, refuted: Refuted, checker: Any) -> Iterator[Subject]:
    """The pattern of numbers."""
    for n in range(TRIES // 10):
        try:
            instance = TermInstance(rule, PlainDice((rule.name, n)))
            instance.values.update({name: Const(value, "i64") for name, value in refuted.numbers.items()})
            yield checker.subject(instance.graph(), f"the pattern of `{rule.name}`, refuted")
        except ERRORS:
            continue
