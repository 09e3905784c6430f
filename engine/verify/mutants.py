"""Mutation testing of the checks: they must report a rule with one piece left out or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..kernels.examples import TRIES, run_example, run_examples
from ..language import core as s
from ..language.rule import Rule, RuleSet
from ..language.rule_scope import WARNING, Finding
from ..language.spelling import expression
from ..language.typed_slots import parts
from ..rewrite.statements.driver import Engine
from ..rewrite.terms.rewriter import CHANGES_DTYPE
from .outcome import RuleVerdict
from .run import Checkers, CheckOptions, check_rule, users_of


@dataclass(frozen=True)
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

    @property
    def caught(self) -> bool:
        return self.how != "survives"


@dataclass(frozen=True)
class Survey:
    """All mutants of a rule."""

    rule: str
    results: tuple[Result, ...]

    @property
    def caught(self) -> int:
        return sum(result.caught for result in self.results)

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        return {"rule": self.rule, "caught": self.caught, "mutants": [asdict(r) for r in self.results]}


def survey(
    rules: RuleSet,
    rule: Rule,
    options: CheckOptions,
    report: Callable[[str], None] = lambda text: None,
    guards: bool = False,
) -> Survey:
    """Check every mutant of a rule. A local rule is checked by its users. guards: only mutants without a guard."""
    results: list[Result] = []
    quick = replace(options, shrink=False, more=0)
    known = Checkers(rules)
    list(known.borrowed(rule, 0))
    whole: list[RuleVerdict] = []
    for what, broken in without_guards(rule) if guards else mutants(rule):
        changed = replaced(rules, broken)
        result = _judged(Checkers(changed, known), broken, what, quick)
        if not result.caught and broken.clauses != rule.clauses:
            whole = whole or _verdicts(known, rule, quick)
            result = _unnoticed(Checkers(changed, known), broken, result, whole, quick)
        report(f"{rule.name}: {what}: {result.how}")
        results.append(result)
    return Survey(rule.name, tuple(results))


def _verdicts(checkers: Checkers, rule: Rule, options: CheckOptions) -> list[RuleVerdict]:
    """Return the verdicts on a rule, or on the rules that use it."""
    tried = [rule]
    if "local" in rule.attributes:
        tried = [other for other in checkers.rules.rules.values() if rule.name in users_of(other)]
    return [check_rule(one, checkers, options) for one in tried]


def _judged(checkers: Checkers, broken: Rule, what: str, options: CheckOptions) -> Result:
    try:
        for verdict in _verdicts(checkers, broken, options):
            if verdict.wrong is not None:
                return Result(what, "wrong", verdict.wrong.problem)
            if not verdict.firings:
                return Result(what, "vacuous")
    except DplcError as error:
        return Result(what, "refused", error.what)
    return Result(what, "survives")


def _unnoticed(
    checkers: Checkers, broken: Rule, result: Result, whole: list[RuleVerdict], options: CheckOptions
) -> Result:
    """Return a guard that no meaning needs: whether the engine does its work, and whether an example insists on it.

    The example may be of any rule in the file, for rules of a file share guards. whole: the verdicts with the guard.
    """
    near = [rule for rule in checkers.rules.rules.values() if rule.file == broken.file]
    try:
        without = _verdicts(checkers, broken, options)
        _, failures = run_examples(Engine(checkers.rules, check=True), near)
    except DplcError as error:  # of the template, where the guard would have kept it from a program
        return replace(result, how="refused", problem=error.what)
    legal = sum(v.firings for v in without) - sum(v.firings for v in whole)
    result = replace(result, legal=max(0, legal))
    stopped = [sum(verdict.refusals[CHANGES_DTYPE] for verdict in verdicts) for verdicts in (whole, without)]
    if stopped[1] > stopped[0]:
        return replace(result, how="refused", problem=CHANGES_DTYPE)
    fires = [failure for failure in failures if "fires, but should refuse" in failure.problem]
    return replace(result, how="example", problem=fires[0].problem) if fires else result


def replaced(rules: RuleSet, broken: Rule) -> RuleSet:
    """Return the rule set with one rule in another form. A guard that it lost is out of all rules that share it."""
    lost = {guard.span for guard in rules.rules[broken.name].guards} - {guard.span for guard in broken.guards}

    def changed(rule: Rule) -> Rule:
        kept = tuple(clause for clause in rule.clauses if clause.span not in lost)
        return broken if rule.name == broken.name else rule if kept == rule.clauses else replace(rule, clauses=kept)

    files = [replace(file, rules=tuple(map(changed, file.rules))) for file in rules.files]
    made = RuleSet(files)
    made.digest = f"{rules.digest} {id(broken)} {hash(repr(broken.rewrite))} {hash(repr(broken.clauses))}"
    return made


# ---- one change each


def without_guards(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield the rule without one `require`, for each."""
    for n, clause in enumerate(rule.clauses):
        if isinstance(clause, s.Guard) and clause.kind == "require":
            kept = (*rule.clauses[:n], *rule.clauses[n + 1 :])
            yield f"without `require {expression(clause.condition)}`", replace(rule, clauses=kept)


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield rules without a guard, statement, field, substitution or arm, or with another sign or number."""
    yield from without_guards(rule)
    for what, rewrite in _changed(rule.rewrite):
        yield what, replace(rule, rewrite=rewrite)


Changed = Iterator[tuple[str, Any]]


def _changed(node: Any) -> Changed:
    """Yield each possible change of a template, with its description."""
    if isinstance(node, tuple):
        for n, item in enumerate(node):
            if len(node) > 1 and isinstance(item, DROPPABLE):
                yield f"without `{_first_line(item)}`", (*node[:n], *node[n + 1 :])
            for what, other in _changed(item):
                yield what, (*node[:n], other, *node[n + 1 :])
        return
    if not isinstance(node, s.Syntax):
        return
    yield from _own(node)
    for part in parts(type(node)):
        for what, other in _changed(getattr(node, part)):
            yield what, replace(node, **{part: other})


DROPPABLE = (
    s.Statement, s.IfBlock, s.EachBlock, s.RunStatement, s.ForLoop, s.Keyword, s.Substitution, s.Arm, s.UseRule,
)  # fmt: skip


def _own(node: Any) -> Changed:
    """Yield changes of a node itself."""
    if isinstance(node, s.IfBlock):
        yield f"`{_first_line(node)}` always", replace(node, condition=s.NameOf(node.span, "true"))
    if isinstance(node, s.RunStatement) and node.changes and len(node.changes) == 1:
        yield f"without the changes of `{_first_line(node)}`", replace(node, changes=())
    if isinstance(node, s.Operation) and node.op in OTHER:
        other = OTHER[node.op]
        yield f"`{other}` for `{node.op}` in `{expression(node)}`", replace(node, op=other)
    if isinstance(node, s.Apply) and node.fn in OTHER_FUNCTIONS:
        other = OTHER_FUNCTIONS[node.fn]
        yield f"`{other}` for `{node.fn}` in `{expression(node)}`", replace(node, fn=other)
    if isinstance(node, s.Apply) and node.fn in ORDERED and len(node.items) == 2:
        yield f"operands of `{expression(node)}` exchanged", replace(node, items=node.items[::-1])
    if isinstance(node, s.Number) and type(node.value) in (int, float):
        yield (
            f"{node.value + 1} for {node.value} at line {node.span.line}",
            replace(node, value=node.value + 1),
        )


OTHER = {"+": "-", "-": "+", "*": "+", "//": "%", "%": "//", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OTHER_FUNCTIONS = {
    "add": "subtract", "subtract": "add", "multiply": "add", "maximum": "minimum", "minimum": "maximum",
    "exp": "expm1", "sqrt": "rsqrt", "less": "less_equal", "greater": "greater_equal", "logical_and": "logical_or",
}  # fmt: skip
ORDERED = ("subtract", "divide", "less", "greater", "pow", "floor_divide", "remainder")


def _first_line(node: s.Syntax) -> str:
    return node.span.source.line(node.span.line).split("#")[0].strip()


# ---- Guards that no known program violates: they may be redundant, or lack an example.


def unviolated(engine: Engine, rules: Iterable[Rule], target: Target) -> Iterator[Finding]:
    """Yield the guards that refuse none of the example programs of the level, also those of other rules."""
    programs = {level: _programs(engine, level) for level in TRIES}
    for rule in rules:
        if "local" in rule.attributes or rule.family is not None:
            continue
        for guard in rule.guards:
            if engine.rules.shows_refusal(guard) or _refused(engine, rule, guard, programs, target):
                continue
            what = f'no known program is refused because "{guard.reason}"'
            note = f"{len(programs[rule.level])} programs of examples were tried"
            hint = f'add an example that `gives no "{guard.reason}"`, or take the guard out'
            what = f"rule `{rule.name}`: {what}"
            yield Finding(what, guard.span, (note,), hint, WARNING, "unviolated")


def _programs(engine: Engine, level: str) -> list[tuple[Rule, s.Example]]:
    """Return the examples that the runner of a level can read."""
    alike = [rule for rule in engine.rules.rules.values() if TRIES[rule.level] is TRIES[level]]
    return [(rule, example) for rule in alike for example in rule.examples]


def _refused(
    engine: Engine,
    rule: Rule,
    guard: s.Guard,
    programs: dict[str, list[tuple[Rule, s.Example]]],
    target: Target,
) -> bool:
    """Return whether the guard refuses the program of an example, the nearest ones first."""
    near = sorted(programs[rule.level], key=lambda known: (known[0] is not rule, known[0].file != rule.file))
    for owner, example in near:
        tried = replace(example, gives=guard.reason, arguments=example.arguments if owner is rule else ())
        try:
            if run_example(engine, rule, tried, target) is None:
                return True
        except DplcError:  # the program of another rule, which this one cannot start from
            continue
    return False
