"""Mutation testing of guards: the checks must report a rule without one; and programs that one guard refuses."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import Any

from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError, Source
from ...ir.node import immutable
from ...ir.text.parse import parse
from ..kernels.examples import run_example, run_examples
from ..language import core as s
from ..language.check import check
from ..language.format import formatted
from ..language.rule import Rule, RuleSet
from ..language.rule_files import refusals_of
from ..language.sorts import Advice
from ..language.spelling import INDENT, expression
from ..rewrite.statements.driver import Engine
from ..rewrite.terms.rewriter import CHANGES_DTYPE
from .outcome import ERRORS, PlainDice, RuleVerdict, Subject
from .run import Checkers, CheckOptions, check_rule, named_numbers, smallest, users_of

FIRES = "fires, but should refuse"  # of an example that a rule without its guard does not refuse


@immutable
class Result:
    """One mutant, and how it was detected.

    wrong: it means something else, or does not terminate. vacuous: no subject reaches it. refused: it does not compile,
    or the engine refuses its result. example: it means the same, and fires where an example of the rule says that it
    must not. survives: it was not detected.

    legal: firings that were compared beyond those of the rule itself, without a difference.
    """

    what: str
    how: str
    problem: str = ""
    legal: int = 0


@immutable
class Survey:
    """All mutants of a rule."""

    rule: str
    results: tuple[Result, ...]

    @property
    def caught(self) -> int:
        return sum(result.how != "survives" for result in self.results)

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        return {"rule": self.rule, "caught": self.caught, "mutants": [asdict(r) for r in self.results]}


def survey(
    rules: RuleSet,
    rule: Rule,
    options: CheckOptions,
    report: Callable[[str], None] = lambda text: None,
    mutants: Callable[[Rule], Iterator[tuple[str, Rule]]] | None = None,
) -> Survey:
    """Check every mutant of a rule, by default those without one guard. A local rule is checked by its users."""
    quick, known, results = replace(options, shrink=False, more=0), Checkers(rules), list[Result]()
    whole = functools.cache(lambda: list(_verdicts(known, rule, quick)))  # with all guards

    def judged(what: str, broken: Rule) -> Result:
        """Return how a mutant was detected.

        For a guard that no meaning needs: whether the engine does its work, and whether an example insists on it. The
        example may be of any rule in the file, for rules of a file share guards.
        """
        checkers, verdicts = Checkers(replaced(rules, broken), known), list[RuleVerdict]()
        try:
            for verdict in _verdicts(checkers, broken, quick):
                if verdict.wrong is not None:
                    return Result(what, "wrong", verdict.wrong.problem)
                if not verdict.firings:
                    return Result(what, "vacuous")
                verdicts.append(verdict)
            near = [other for other in checkers.rules.rules.values() if other.file == broken.file]
            _, failures = run_examples(Engine(checkers.rules, check=True), near)
        except DplcError as error:  # also of the template, where the guard would have kept it from a program
            return Result(what, "refused", error.what)
        legal = max(0, sum(v.firings for v in verdicts) - sum(v.firings for v in whole()))
        if sum(v.refusals[CHANGES_DTYPE] for v in verdicts) > sum(v.refusals[CHANGES_DTYPE] for v in whole()):
            return Result(what, "refused", CHANGES_DTYPE, legal)
        fires = [failure.problem for failure in failures if FIRES in failure.problem]
        return Result(what, "example", fires[0], legal) if fires else Result(what, "survives", legal=legal)

    for what, broken in (mutants or without_guards)(rule):
        results.append(judged(what, broken))
        report(f"{rule.name}: {what}: {results[-1].how}")
    return Survey(rule.name, tuple(results))


def _verdicts(checkers: Checkers, rule: Rule, options: CheckOptions) -> Iterator[RuleVerdict]:
    """Yield the verdicts on a rule; of a local one, on the rules that use it, also through other local rules."""
    if "local" not in rule.attributes:
        yield check_rule(rule, checkers, options)
        return
    for other in checkers.rules.rules.values():
        if rule.name in users_of(other) - {other.name}:
            yield from _verdicts(checkers, other, options)


def replaced(rules: RuleSet, broken: Rule) -> RuleSet:
    """Return the rule set with one rule in another form. A guard that it lost is out of all rules that share it."""
    lost = {guard.span for guard in rules.rules[broken.name].guards} - {guard.span for guard in broken.guards}

    def changed(rule: Rule) -> Rule:
        kept = tuple(clause for clause in rule.clauses if clause.span not in lost)
        return broken if rule.name == broken.name else rule if kept == rule.clauses else replace(rule, clauses=kept)

    files = [replace(file, rules=tuple(map(changed, file.rules))) for file in rules.files]
    return RuleSet(files)


def without_guards(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield the rule without one `require`, for each."""
    for guard in rule.required:
        yield f"without `require {expression(guard.condition)}` at line {guard.span.line}", _without(rule, guard)


def _without(rule: Rule, guard: s.Guard) -> Rule:
    return replace(rule, clauses=tuple(clause for clause in rule.clauses if clause is not guard))


# ---- Refusals: small programs that one guard alone keeps a rule from.


DRAWS = 300  # programs that are drawn for a refusal


HEAD = (
    "# Programs that the rules reject. "
    "`dplc rules test FILE --accept` draws one for each `require` without an example.\n"
)


def drawn_refusals(rules: RuleSet, sources: set[str]) -> Iterator[tuple[Path, str]]:
    """Yield files of refusals, and their texts with an example for each guard that had none.

    sources: the names of the rule files. An example is left out if none is drawn.
    """
    checkers, found, drawn = Checkers(rules), check(rules, sources), defaultdict[str, list[str]](list)
    broken = {finding.rule for finding in found if not isinstance(finding, Advice)}
    for finding in found:
        if finding.check == "examples_enough" and finding.rule in rules.rules.keys() - broken:
            rule = rules.rules[finding.rule]
            for guard in rule.guards:
                if guard.span == finding.span and (text := refusal(checkers, rule, guard)):
                    drawn[rule.span.source.name].append(f"\nexamples {rule.name}\n{text}")
    for name, texts in drawn.items():
        path = refusals_of(Path(name))
        known = path.read_text() if path.is_file() else HEAD
        yield path, formatted(Source(str(path), known + "".join(texts)))


def refusal(checkers: Checkers, rule: Rule, guard: s.Guard) -> str | None:
    """Return an example that a guard refuses, as text; one on which the rule fires without the guard, if possible."""
    checker, seen, found, second = checkers.of(rule.level), set[str](), "", ""
    own, engine = list(checker.examples([rule])), Engine(checkers.rules, check=True)
    broken = _without(rule, guard)
    without = Engine(replaced(checkers.rules, broken), check=True)
    machine = target_named(rule.device.text if rule.device else None)

    def holds(subject: Subject) -> bool:
        """Return whether the rule refuses a new program for this reason, and fires on it without the guard."""
        nonlocal found, second
        text = _example(subject, guard.reason)
        if text in seen:
            return False
        seen.add(text)
        with contextlib.suppress(*ERRORS):
            declared: Any = parse(Source("drawn", f"examples {rule.name}\n{text}"))[0]
            if run_example(engine, rule, declared.examples[0], machine) is None:
                second = second or text
                failure = run_example(without, broken, declared.examples[0], machine)
                if failure is not None and FIRES in failure.problem:
                    found = text
                    return True
        return False

    dice = (PlainDice((rule.name, guard.reason, turn), named_numbers(rule)) for turn in range(DRAWS))
    drawn = (checker.draw(rule, one, own) for one in dice)
    if first := next(filter(holds, filter(None, chain(own, drawn))), None):
        smallest(first, checker, holds)
    return found or second or None


def _example(subject: Subject, reason: str) -> str:
    """Return a subject as the text of an example that a rule refuses."""
    values = ((name.rpartition(".")[2], value) for name, value in subject.pinned.items())
    pinned = ", ".join(f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in values)
    program = subject.text.partition("\n")[2]  # the level comes first
    head = f'example "{reason}"' + (f" ({pinned})" if pinned else "")
    return f'{head}\n{indent(program, INDENT)}gives no "{reason}"\n'
