"""Checking a set of rules: examples first, then programs drawn near them and from the patterns.

A proof that fails is shown on a program. `programs_of` gives the drawn programs to the tests of users.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...ir.diagnostic import DplcError
from ...ir.node import immutable
from ..language import core as s
from ..language.check import load_facts, require
from ..language.core import walk
from ..language.rule import Rule, RuleSet, load
from ..language.typed_slots import every
from . import proofs
from .checkers import LEVELS, KernelChecker, StatementChecker, TermChecker, TorchChecker
from .outcome import ENOUGH, Dice, Outcome, PlainDice, RuleVerdict, Subject, Wrong

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


# ---- Drawing subjects with Hypothesis, and making the first wrong one small.
#
# Hypothesis draws, varies what it drew and shrinks by choosing simpler values; what is left is made smaller piece by
# piece (a statement less, a smaller extent) for as long as the rule is still wrong on it.


SHRINKING = 4.0  # seconds for one counterexample
SHRINKING_TRIES = 600


def available() -> None:
    """Raise DplcError if Hypothesis is missing."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise DplcError("checking rules needs Hypothesis", hint="pip install 'dplc[check]'") from None


def search(attempt: Callable[[Dice], None], examples: int, seed: int, named: Sequence[int | float]) -> Wrong | None:
    """Attempt to draw and check subjects; return the simplest counterexample, or None. The seed determines the draws.

    named: numbers to draw in addition to others.
    """
    if examples == 0:
        return None
    import hypothesis
    from hypothesis import strategies
    from hypothesis.internal.conjecture import providers

    found: list[Wrong] = []
    until = math.inf

    def once(data: Any) -> None:
        nonlocal until
        if monotonic() > until:
            return  # simple enough: Hypothesis sees that nothing fails any more and stops
        try:
            attempt(Dice(lambda low, high: data.draw(strategies.integers(low, high)), named))
        except Wrong as wrong:
            until = min(until, monotonic() + SHRINKING)
            found.append(wrong)
            raise

    settings = hypothesis.settings(
        max_examples=examples, database=None, deadline=None, report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink), suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run = hypothesis.seed(seed)(settings(hypothesis.given(strategies.data())(once)))
    # Hypothesis would draw constants of all modules of a checkout, too: an edit of any file would change the subjects
    constants = mock.patch.object(providers, "_get_local_constants", lambda: providers._local_constants, create=True)
    with warnings.catch_warnings(action="ignore"), constants:
        try:
            run()
        except Exception:
            if not found:
                raise
    return min(found, key=lambda wrong: len(wrong.subject.text), default=None)


def smallest(subject: Subject, checker: Any, holds: Callable[[Subject], bool]) -> Subject:
    """Return a smaller subject that holds, or the subject itself. Tries the smallest candidates first."""
    until, tries = monotonic() + SHRINKING, itertools.count(1)
    while True:
        for other in checker.smaller(subject):
            if next(tries) > SHRINKING_TRIES or monotonic() > until:
                return subject
            if len(other.text) <= len(subject.text) and other.text != subject.text and holds(other):
                subject = other
                break
        else:
            return subject


def smaller(wrong: Wrong, rule: Rule, checker: Any) -> Wrong:
    """Return a smaller counterexample for the same rule, if there is one."""
    found = [wrong]

    def holds(subject: Subject) -> bool:
        try:
            checker.check(rule, subject)
        except Wrong as other:
            found.append(other)
            return True
        return False

    smallest(wrong.subject, checker, holds)
    return found[-1]


def named_numbers(rule: Rule) -> tuple[int | float, ...]:
    """Return every number of the pattern, the guards and the domains; for an integer also n + 1, n - 1 and 2 * n.

    What its guards compare with is where a rule may be wrong.
    """
    written = map(s.constant_of, walk((rule.match, rule.clauses, rule.parameters)))
    found = (n for n in written if n is not None and not isinstance(n, bool) and math.isfinite(n))
    near = ((n, n + 1, n - 1, 2 * n) if isinstance(n, int) else (n,) for n in found)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(near)))


# ---- One rule, and several.


BORROWED = 24  # examples of other rules that a statement rule is tried on


@immutable
class CheckOptions:
    """Options of `dplc check`.

    examples: random subjects per rule; borrow: also try the examples of other rules; shrink: reduce counterexamples;
    more: subjects that are drawn beyond `examples` while too few were reached.
    """

    examples: int = 40
    seed: int = 0
    borrow: bool = True
    shrink: bool = True
    more: int = 400


class Checkers:
    """The checkers of one rule set, each made when first needed. like: those whose subjects are known."""

    def __init__(self, rules: RuleSet, like: Checkers | None = None):
        load_facts()
        self.rules, self.like = rules, like or self
        self._checker = functools.cache(lambda kind: kind(rules))

    def of(self, level: str) -> Any:
        """Return the checker of a level."""
        kind = {"tensor": TermChecker, "torch": TorchChecker, "kernel": KernelChecker}.get(level, StatementChecker)
        return self._checker(kind)

    def borrowed(self, rule: Rule, seed: int) -> Iterator[Subject]:
        """Yield examples of other statement rules, different ones for each rule, but the same in every run."""
        if rule.level in LEVELS and "local" not in rule.attributes:
            possible = self.of(rule.level).engine.rule(rule).possible
            known = [subject for subject in self.like.of("tile").known if any(map(possible, subject.value))]
            yield from random.Random(f"{rule.name} {seed}").sample(known, min(BORROWED, len(known)))


def check_rule(rule: Rule, checkers: Checkers, options: CheckOptions) -> RuleVerdict:
    """Check one rule on its own examples, borrowed ones, and random programs; a counterexample is shrunk."""
    guards = tuple(guard.reason for guard in rule.required)
    verdict = RuleVerdict(rule.name, rule.level, rule.location, drawn=options.examples > 0, guards=guards)
    checker, started = checkers.of(rule.level), monotonic()
    tried: dict[str, Outcome | Wrong] = {}

    def attempt(subject: Subject | None) -> None:
        """Try a subject once: what is the same says nothing new. Raises Wrong, again for one it was raised for."""
        if subject is None:
            return
        known = tried.get(subject.key)
        if known is None:
            try:
                known = checker.check(rule, subject)
                verdict.add(known)
            except Wrong as wrong:
                known = wrong
            tried[subject.key] = known
        if isinstance(known, Wrong):
            raise known

    try:
        used = users_of(rule)
        own = list(checker.examples([rule, *(local for local in checkers.rules.locals if local.name in used)]))
        for subject in itertools.chain(own, checkers.borrowed(rule, options.seed) if options.borrow else ()):
            attempt(subject)
        if "local" not in rule.attributes:
            seed, named = options.seed + zlib.crc32(rule.name.encode()), named_numbers(rule)
            verdict.wrong = search(lambda dice: attempt(checker.draw(rule, dice, own)), options.examples, seed, named)
            # then near the examples that the rule fires on: little else may be in reach
            near = [subject for subject in own if getattr(tried[subject.key], "firings", 0)] or own
            for turn in range(options.more if verdict.drawn and verdict.wrong is None else 0):
                if verdict.reached < ENOUGH:
                    attempt(checker.draw(rule, PlainDice((seed, turn), named), near))
        if proofs.solver_module() is not None:
            verdict.proof = proof = proofs.prove(rule)
            if proof.refuted is not None:  # what is wrong on paper is shown on a program, or not believed
                for subject in checker.refuting(rule, proof.refuted.numbers, own):
                    checker.check(rule, subject)
                doubt = f"{proof.refuted.problem}; no program shows that this is wrong"
                verdict.proof = proofs.Proof(proof.proved, None, (*proof.open, doubt))
    except Wrong as wrong:
        verdict.wrong = verdict.wrong or wrong
    if verdict.wrong is not None and options.shrink:
        verdict.wrong = smaller(verdict.wrong, rule, checker)
    verdict.seconds = monotonic() - started
    return verdict


def check_rules(
    rules: RuleSet,
    chosen: Sequence[Rule],
    options: CheckOptions,
    report: Callable[[RuleVerdict], None] = lambda verdict: None,
) -> list[RuleVerdict]:
    """Check every rule, and return the verdicts. The last argument is called with each verdict as soon as it is known.

    A local rule is checked by the rules that use it.
    """
    available()
    checkers = Checkers(rules)
    local = {rule.name for rule in chosen if "local" in rule.attributes}
    users = [rule for rule in rules.rules.values() if rule not in chosen and users_of(rule) & local]
    verdicts: dict[str, RuleVerdict] = {}
    for rule in sorted((*chosen, *users), key=lambda rule: rule.name in local):
        if rule.name in local:
            through = next((v.rule for v in reversed(verdicts.values()) if rule.name in v.locals), None)
            verdict = RuleVerdict(rule.name, rule.level, rule.location, through=through)
        else:
            verdict = check_rule(rule, checkers, options)
        verdicts[rule.name] = verdict
        if rule in chosen:
            report(verdict)
    return [verdicts[rule.name] for rule in chosen]


def users_of(rule: Rule) -> set[str]:
    """Return the local rules that a rule's template names."""
    return {node.call.fn for node in every(rule.rewrite, s.UseRule)}


def check_subject(rules: RuleSet, rule: Rule, text: str, name: str, pinned: dict[str, Any] | None = None) -> Outcome:
    """Check one rule on the program in a file. Raises Wrong, or DplcError for a program that cannot be read."""
    checker = Checkers(rules).of(rule.level)
    subject = dataclasses.replace(checker.read(text, name), pinned=pinned or {})
    return checker.check(rule, subject)  # type: ignore[no-any-return]


ALL = None  # the rules that may be thin: every one


def failed(verdicts: Iterable[RuleVerdict], thin: Collection[str] | None = ()) -> list[RuleVerdict]:
    """Return the verdicts on rules that are wrong, or that no subject or too few subjects reached.

    thin: the rules that few subjects may reach.
    """
    found = [verdict for verdict in verdicts if verdict.result != "ok"]
    return [verdict for verdict in found if verdict.result != "thin" or not (thin is ALL or verdict.rule in thin)]


def programs_of(file: str | Path, rule: str) -> SearchStrategy[str]:
    """Return a strategy of Hypothesis for texts of programs at a rule's level: the subjects of `dplc check`.

    For own tests: `@given(dplc.programs_of("my_rules.rw", "product_of_exponentials"))`.

    They are drawn from the rule's pattern, near its examples and from near misses. They shrink. The rule fires on many
    of them, not on all.

    file: a rule file, laid over the built-in ones; rule: one of its rules, or of ours. Raises DplcError for a file that
    does not check, for an unknown rule, or if Hypothesis is missing.
    """
    available()
    from hypothesis import assume, strategies

    rules = load([Path(file)])
    require(rules, {str(Path(file))})
    chosen = rules.rule(rule)
    checker, named = Checkers(rules).of(chosen.level), named_numbers(chosen)
    known = list(checker.examples([chosen]))

    @strategies.composite
    def drawn(draw: Any) -> str:
        subject = checker.draw(chosen, Dice(lambda low, high: draw(strategies.integers(low, high)), named), known)
        assume(subject is not None)
        return str(subject.text)

    return drawn()
