"""Checking a set of rules: examples first, then programs drawn near them and from the patterns."""

from __future__ import annotations

import dataclasses
import random
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import DplcError
from ..language import core as s
from ..language.check import load_facts
from ..language.positions import every
from ..language.rule import Rule, RuleSet
from .named_numbers import named_numbers
from .outcome import ENOUGH, Dice, Outcome, RuleVerdict, Subject, Wrong
from .proofs.rules import available as proving
from .search import available, draw_until, search, smaller
from .statements import LEVELS as STATEMENTS
from .statements import StatementChecker
from .terms import TermChecker
from .witness import proved

BORROWED = 24  # examples of other rules that a statement rule is tried on


@dataclass(frozen=True)
class CheckOptions:
    """examples: drawn subjects per rule; borrow: also try the examples of other rules; shrink: make findings small;
    prove: also prove its arithmetic of indices, where Z3 is installed; more: subjects that are drawn beyond `examples`
    while too few were reached."""

    examples: int = 40
    seed: int = 0
    borrow: bool = True
    shrink: bool = True
    prove: bool = True
    more: int = 400


class Checkers:
    """The checkers of one rule set, each made when first needed. like: whose subjects and meanings are known."""

    def __init__(self, rules: RuleSet, like: Checkers | None = None):
        load_facts()
        self.rules = rules
        self._made: dict[str, Any] = {}
        self._borrowed: list[Subject] | None = like._borrowed if like else None
        self._baselines: dict[Any, Any] = like._baselines if like else {}

    def of(self, level: str) -> Any:
        """The checker of a level."""
        kind = "statements" if level in STATEMENTS else level
        if kind not in self._made:
            if kind == "statements":
                self._made[kind] = StatementChecker(self.rules, self._baselines)
            elif kind == "tensor":
                self._made[kind] = TermChecker(self.rules)
            elif kind == "torch":
                from .torch_rules import TorchChecker

                self._made[kind] = TorchChecker(self.rules)
            elif kind == "kernel":
                from .kernels import KernelChecker

                self._made[kind] = KernelChecker(self.rules, self.of("tile"))
            else:
                raise DplcError(f"programs on {level} have no meaning here")
        return self._made[kind]

    def borrowed(self, rule: Rule, seed: int) -> Iterator[Subject]:
        """Examples of other statement rules, other ones for each rule, the same every time."""
        if rule.level not in STATEMENTS:
            return
        if self._borrowed is None:
            others = [r for r in self.rules.rules.values() if r.level in STATEMENTS]
            self._borrowed = list(self.of("tile").examples(others))
        dice = random.Random(f"{rule.name} {seed}")
        checker = self.of("tile")
        possible = [subject for subject in self._borrowed if checker.possible(rule, subject)]
        yield from dice.sample(possible, min(BORROWED, len(possible)))


class _Attempts:
    """The subjects that a rule was tried on, each once: what is the same says nothing new."""

    def __init__(self, rule: Rule, checker: Any, verdict: RuleVerdict):
        self.rule, self.checker, self.verdict = rule, checker, verdict
        self.seen: dict[str, Wrong | None] = {}
        self.fired: set[str] = set()

    def __call__(self, subject: Subject) -> None:
        """Try one. Raises Wrong, again for a subject that it was raised for."""
        if subject.key not in self.seen:
            self.seen[subject.key] = None
            try:
                outcome = self.checker.check(self.rule, subject)
                self.verdict.add(outcome)
                if outcome.firings:
                    self.fired.add(subject.key)
            except Wrong as wrong:
                self.seen[subject.key] = wrong
        known = self.seen[subject.key]
        if known is not None:
            raise known


def check_rule(rule: Rule, checkers: Checkers, options: CheckOptions) -> RuleVerdict:
    """One rule on its own examples, borrowed ones, and drawn programs; a counterexample is made small."""
    guards = tuple(guard.reason for guard in rule.guards if guard.kind == "where")
    verdict = RuleVerdict(rule.name, rule.level, rule.location, guards=guards)
    verdict.drawn = options.examples > 0
    checker = checkers.of(rule.level)
    started = time.monotonic()
    attempt = _Attempts(rule, checker, verdict)
    try:
        used = users_of(rule)
        own = list(checker.examples([rule, *(r for name, r in checkers.rules.rules.items() if name in used)]))
        for subject in own:
            attempt(subject)
        for subject in checkers.borrowed(rule, options.seed) if options.borrow else ():
            attempt(subject)
        if "local" not in rule.attributes:
            _draw(attempt, own, options)
        if options.prove and proving():
            verdict.proof, shown = proved(rule, checker, own)
            verdict.wrong = verdict.wrong or shown
    except Wrong as wrong:
        verdict.wrong = wrong
    if verdict.wrong is not None and options.shrink:
        verdict.wrong = smaller(verdict.wrong, checker.smaller, lambda subject: _again(checker, rule, subject))
    verdict.seconds = time.monotonic() - started
    return verdict


def _draw(attempt: _Attempts, own: list[Subject], options: CheckOptions) -> None:
    """Try drawn programs, then more near the examples that the rule fires on: little else may be in reach."""
    rule, verdict = attempt.rule, attempt.verdict
    seed, named = options.seed + zlib.crc32(rule.name.encode()), named_numbers(rule)

    def near(known: list[Subject]) -> Callable[[Dice], Subject | None]:
        return lambda dice: attempt.checker.draw(rule, dice, known)  # type: ignore[no-any-return]

    verdict.wrong = search(near(own), attempt, options.examples, seed, named)
    if verdict.wrong is None and verdict.drawn:
        good = [subject for subject in own if subject.key in attempt.fired] or own
        draw_until(lambda: verdict.reached >= ENOUGH, near(good), attempt, options.more, seed, named)


def _again(checker: Any, rule: Rule, subject: Subject) -> Outcome:
    outcome: Outcome = checker.check(rule, subject)
    return outcome


def check_rules(
    rules: RuleSet,
    chosen: Sequence[Rule],
    options: CheckOptions,
    heard: Callable[[RuleVerdict], None] = lambda verdict: None,
) -> list[RuleVerdict]:
    """Every rule in turn. heard: told of each as it is done. A local rule is judged by the rules that use it."""
    available()
    checkers = Checkers(rules)
    names = {rule.name for rule in chosen}
    verdicts: list[RuleVerdict] = []
    used: dict[str, str] = {}
    plain = [rule for rule in chosen if "local" not in rule.attributes]
    local = [rule for rule in chosen if "local" in rule.attributes]
    users = [r for r in rules.rules.values() if r.name not in names and users_of(r) & {rule.name for rule in local}]
    for rule in (*plain, *users):
        verdict = check_rule(rule, checkers, options)
        used.update(dict.fromkeys(verdict.locals, rule.name))
        if rule.name in names:
            verdicts.append(verdict)
            heard(verdict)
    for rule in local:
        verdict = RuleVerdict(rule.name, rule.level, rule.location, through=used.get(rule.name))
        verdicts.append(verdict)
        heard(verdict)
    order = {rule.name: n for n, rule in enumerate(chosen)}
    return sorted(verdicts, key=lambda verdict: order[verdict.rule])


def users_of(rule: Rule) -> set[str]:
    """The local rules that a rule's template names."""
    return {node.call.fn for node in every(rule.rewrite, s.UseRule)}


def check_subject(rules: RuleSet, rule: Rule, text: str, name: str, pinned: dict[str, Any] | None = None) -> Outcome:
    """One rule on the program in a file. Raises Wrong, or DplcError for a program that cannot be read."""
    checker = Checkers(rules).of(rule.level)
    subject = dataclasses.replace(checker.read(text, name), pinned=pinned or {})
    outcome: Outcome = checker.check(rule, subject)
    return outcome


class _All(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True


ALL = _All()  # the rules that may be thin: every one


def failed(verdicts: Iterable[RuleVerdict], thin: Collection[str] = ()) -> list[RuleVerdict]:
    """Those that are wrong, that no subject reached, or too few. thin: the rules that may be reached by few."""
    found = [verdict for verdict in verdicts if verdict.result != "ok"]
    return [verdict for verdict in found if verdict.result != "thin" or verdict.rule not in thin]
