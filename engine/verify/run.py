"""Checking a set of rules: examples first, then programs drawn near them and from the patterns.

A proof that fails is shown on a program. `programs_of` gives the drawn programs to the tests of users.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.tensor import Const
from ..language import core as s
from ..language.check import load_facts, require
from ..language.rule import Rule, RuleSet, load
from ..language.typed_slots import every, walk
from .drawing import Instance, TermInstance
from .neighbours import renumbered
from .outcome import ENOUGH, ERRORS, Dice, HypothesisDice, Outcome, PlainDice, RuleVerdict, Subject, Wrong
from .proofs.integers import Proof, Refuted
from .proofs.rules import available as proving
from .proofs.rules import prove
from .statements import LEVELS as STATEMENTS
from .statements import KernelChecker, StatementChecker
from .terms import TermChecker
from .whole_programs import TooLarge, completed, runnable

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


def search(
    draw: Callable[[Any], Subject | None], check: Callable[[Subject], None], examples: int, seed: int,
    named: Sequence[int | float] = (),
) -> Wrong | None:  # fmt: skip
    """Draw subjects and check them; return the simplest counterexample, or None. The seed determines the subjects.

    named: numbers to draw in addition to others.
    """
    if examples == 0:
        return None
    import hypothesis
    from hypothesis import strategies
    from hypothesis.internal.conjecture import providers

    found: list[Wrong] = []
    started: list[float] = []

    def attempt(data: Any) -> None:
        if started and time.monotonic() - started[0] > SHRINKING:
            return  # simple enough: Hypothesis sees that nothing fails any more and stops
        subject = draw(HypothesisDice(data, named))
        if subject is None:
            return
        try:
            check(subject)
        except Wrong as wrong:
            started.append(time.monotonic())
            found.append(wrong)
            raise

    settings = hypothesis.settings(
        max_examples=examples, database=None, deadline=None, print_blob=False, report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink), suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run = hypothesis.seed(seed)(settings(hypothesis.given(strategies.data())(attempt)))
    # Hypothesis would draw constants of all modules of a checkout, too: an edit of any file would change the subjects
    constants = mock.patch.object(providers, "_get_local_constants", lambda: providers._local_constants, create=True)
    with warnings.catch_warnings(), constants:
        warnings.simplefilter("ignore")
        try:
            run()
        except Wrong:
            pass
        except Exception:
            if not found:
                raise
    return min(found, key=lambda wrong: len(wrong.subject.text)) if found else None


def draw_until(
    enough: Callable[[], bool], draw: Callable[[Any], Subject | None], check: Callable[[Subject], None], most: int,
    seed: int, named: Sequence[int | float] = (),
) -> None:  # fmt: skip
    """Draw more subjects and check them until there are enough, `most` at most. Raises Wrong."""
    for turn in range(most):
        if enough():
            return
        subject = draw(PlainDice((seed, turn), named))
        if subject is not None:
            check(subject)


def smaller(
    wrong: Wrong, candidates: Callable[[Subject], Iterable[Subject]], check: Callable[[Subject], object]
) -> Wrong:
    """Return a smaller counterexample for the same rule, if there is one.

    candidates: subjects that are a little smaller, the smallest first.
    """
    until = time.monotonic() + SHRINKING
    tries = 0
    progress = True
    while progress:
        progress = False
        for subject in candidates(wrong.subject):
            tries += 1
            if tries > SHRINKING_TRIES or time.monotonic() > until:
                return wrong
            if len(subject.text) > len(wrong.subject.text) or subject.text == wrong.subject.text:
                continue
            try:
                check(subject)
            except Wrong as other:
                wrong = other
                progress = True
                break
    return wrong


# ---- The numbers that the text of a rule names: what its guards compare with is where it may be wrong.


def named_numbers(rule: Rule) -> tuple[int | float, ...]:
    """Return every number of the pattern, the guards and the domains; for an integer also n + 1, n - 1 and 2 * n."""
    found: dict[int | float, None] = {}
    for value in _numbers((rule.match, rule.clauses, rule.parameters)):
        near = (value, value + 1, value - 1, 2 * value) if type(value) is int else (value,)
        found |= dict.fromkeys(near)
    return tuple(found)


def _numbers(node: Any) -> Iterator[int | float]:
    nodes = list(walk(node))
    negative = {id(one.a) for one in nodes if isinstance(one, s.Prefix) and one.op == "-"}
    for one in nodes:
        if isinstance(one, s.Number) and type(one.value) in (int, float) and math.isfinite(one.value):
            yield -one.value if id(one) in negative else one.value


# ---- Programs with the numbers of a refuted proof: what is wrong on paper is shown on a program, or not believed.


TRIES = 60  # programs drawn from the pattern with the extents of the proof
ANYWHERE = "h200"


def proved(rule: Rule, checker: Any, own: Sequence[Subject]) -> tuple[Proof, Wrong | None]:
    """Return the proof of a rule, and a program that shows the refuted claim.

    A refuted claim that no program shows is left open: for example, a run that is moved for a reason beyond arithmetic.
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
    """Yield programs that a rule matches with the numbers of a proof."""
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
        except (*ERRORS, TooLarge):
            continue


def _renumbered(
    rule: Rule, numbers: dict[str, int], checker: Any, subject: Subject, pinned: dict[str, Any]
) -> Iterator[Subject]:
    """Yield an example with the extents of the proof instead of its own."""
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
    except (*ERRORS, TooLarge):
        return


def _changed(kernel: Kernel, change: dict[int, int]) -> Kernel:
    """Return a kernel with other numbers and undeclared buffers."""
    return Kernel(kernel.name, (), (), tuple(renumbered(x, lambda n: change.get(n, n)) for x in kernel.body))


def _terms(rule: Rule, refuted: Refuted, checker: Any) -> Iterator[Subject]:
    """Yield the programs of a pattern with the numbers of a proof."""
    for n in range(TRIES // 10):
        try:
            instance = TermInstance(rule, PlainDice((rule.name, n)))
            instance.values.update({name: Const(value, "i64") for name, value in refuted.numbers.items()})
            yield checker.subject(instance.graph(), f"the pattern of `{rule.name}`, refuted")
        except (*ERRORS, TooLarge):
            continue


BORROWED = 24  # examples of other rules that a statement rule is tried on


@dataclass(frozen=True)
class CheckOptions:
    """Options of `dplc check`.

    examples: random subjects per rule; borrow: also try the examples of other rules; shrink: reduce counterexamples;
    prove: also prove its arithmetic of indices, where Z3 is installed; more: subjects that are drawn beyond `examples`
    while too few were reached.
    """

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
        """Return the checker of a level."""
        kind = "statements" if level in STATEMENTS else level
        if kind not in self._made:
            if kind == "statements":
                made: Any = StatementChecker(self.rules, self._baselines)
            elif kind == "tensor":
                made = TermChecker(self.rules)
            elif kind == "torch":
                from .torch_rules import TorchChecker

                made = TorchChecker(self.rules)
            else:
                made = KernelChecker(self.rules, self.of("tile"))
            self._made[kind] = made
        return self._made[kind]

    def borrowed(self, rule: Rule, seed: int) -> Iterator[Subject]:
        """Yield examples of other statement rules, different ones for each rule, but the same in every run."""
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
    """Check one rule on its own examples, borrowed ones, and random programs; a counterexample is shrunk."""
    guards = tuple(guard.reason for guard in rule.guards if guard.kind == "require")
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
        verdict.wrong = smaller(verdict.wrong, checker.smaller, lambda subject: checker.check(rule, subject))
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
            report(verdict)
    for rule in local:
        verdict = RuleVerdict(rule.name, rule.level, rule.location, through=used.get(rule.name))
        verdicts.append(verdict)
        report(verdict)
    order = {rule.name: n for n, rule in enumerate(chosen)}
    return sorted(verdicts, key=lambda verdict: order[verdict.rule])


def users_of(rule: Rule) -> set[str]:
    """Return the local rules that a rule's template names."""
    return {node.call.fn for node in every(rule.rewrite, s.UseRule)}


def check_subject(rules: RuleSet, rule: Rule, text: str, name: str, pinned: dict[str, Any] | None = None) -> Outcome:
    """Check one rule on the program in a file. Raises Wrong, or DplcError for a program that cannot be read."""
    checker = Checkers(rules).of(rule.level)
    subject = dataclasses.replace(checker.read(text, name), pinned=pinned or {})
    outcome: Outcome = checker.check(rule, subject)
    return outcome


class _All(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True


ALL = _All()  # the rules that may be thin: every one


def failed(verdicts: Iterable[RuleVerdict], thin: Collection[str] = ()) -> list[RuleVerdict]:
    """Return the verdicts on rules that are wrong, or that no subject or too few subjects reached.

    thin: the rules that few subjects may reach.
    """
    found = [verdict for verdict in verdicts if verdict.result != "ok"]
    return [verdict for verdict in found if verdict.result != "thin" or verdict.rule not in thin]


# Programs drawn for a rule, as a strategy of Hypothesis: for own tests, in addition to `dplc check`.
#
# @given(dplc.programs_of("my_rules.rw", "product_of_exponentials")) def test_mine(text): ...


class _Drawing:
    """Part of Hypothesis's data that dice need."""

    def __init__(self, draw: Any):
        self.draw = draw


def programs_of(file: str | Path, rule: str) -> SearchStrategy[str]:
    """Return a strategy for texts of programs at a rule's level: the subjects of `dplc check`.

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
        subject = checker.draw(chosen, HypothesisDice(_Drawing(draw), named), known)
        assume(subject is not None)
        return str(subject.text)

    return drawn()
