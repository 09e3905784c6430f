"""The scope of a rule, for its checks, and the findings that checks report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from ...ir.diagnostic import DplcError, Span
from ...ir.text import syntax as s
from .evaluate import Fact, facts_of
from .rule import Rule, RuleSet
from .sorts import ANY, BOOL, INT, LIST, PARAMETER_SORTS, TARGET, Inference, Scope, Sort
from .typed_slots import DataflowPositions, Positions, SortedPosition, calls, is_variable, names

ERROR, WARNING = "error", "warning"


class Finding(DplcError):
    """One problem of one rule. check: the name of the check that found it; rule: the rule's name, or its family's.

    An error stops a file from loading, a warning does not.
    """

    def __init__(
        self,
        what: str,
        span: Span,
        notes: Iterable[str] = (),
        hint: str | None = None,
        severity: str = ERROR,
        check: str = "",
        rule: str = "",
    ):
        super().__init__(what, span, notes, hint)
        self.severity, self.check, self.rule = severity, check, rule

    def render(self) -> str:
        text = super().render()
        return text if self.severity == ERROR else text.replace(": error: ", f": {self.severity}: ", 1)


Findings = Iterator[Finding]

# A rule laid out for checking: the names that its pattern binds, and every expression with the names in scope there.


class Expression(NamedTuple):
    """Expression with the sort that its position requires, that position in words, and the names in scope.

    makes: a template may define the name at this position.
    """

    node: s.Syntax
    want: Sort
    what: str
    scope: Scope
    makes: bool = False


class CheckedRule:
    """One rule, its rule set, and everything the checks share. `problems` is what could not even be placed."""

    def __init__(self, rule: Rule, rules: RuleSet):
        self.rule, self.rules = rule, rules
        self.facts: dict[str, Fact] = facts_of(rule.level)
        self.dataflow = rule.level in ("torch", "tensor")
        self.problems: list[Finding] = []
        self.pattern, pattern_axes = self._positions(rule.match, True)
        self.template, template_axes = self._positions(rule.rewrite, False)
        self.axes: dict[str, Sort] = template_axes | pattern_axes
        self.local = "local" in rule.attributes
        self.expressions: list[Expression] = []
        self.lets: dict[str, s.Syntax] = {}
        self.scope = self._clauses()
        base = {**self.scope, **self.made}
        for slot in self.template:
            scope = self._around(slot, base)
            self.expressions.append(Expression(slot.value, slot.sort, slot.what, scope, slot.makes))

    def finding(
        self, what: str, span: Span, notes: Iterable[str] = (), hint: str | None = None, severity: str = ERROR
    ) -> Finding:
        return Finding(f"rule `{self.rule.name}`: {what}", span, notes, hint, severity)

    def _positions(self, statements: s.Nodes, pattern: bool) -> tuple[list[SortedPosition], dict[str, Sort]]:
        def report(what: str, *told: Any) -> None:
            self.problems.append(self.finding(what, *told))

        walker = (DataflowPositions if self.dataflow else Positions)(self.rule.level, pattern, report)
        walker.block(statements)
        return walker.slots, getattr(walker, "axes", {})

    # ---- what the pattern binds
    @cached_property
    def occurrences(self) -> list[tuple[s.NameOf, Sort]]:
        """Each occurrence of a variable in the pattern, with the sort of its position."""
        return [found for slot in self.pattern if not slot.around for found in _variables(slot.value, slot.sort)]

    @cached_property
    def bound(self) -> dict[str, Sort]:
        """Variables of the pattern. The most specific occurrence determines the sort."""
        found: dict[str, Sort] = {}
        for name, sort in self.occurrences:
            known = found.get(name.text)
            if known is None or (known.kind in ("any", "expr", "value") and sort.kind not in ("any", "value")):
                found[name.text] = sort
        return found

    # ---- clauses, in order
    def _clauses(self) -> dict[str, Sort]:
        scope: dict[str, Sort] = {
            **self.axes,
            **self.bound,
            **({} if self.rule.level == "torch" else {"target": TARGET}),  # what an op means is the same on all devices
        }
        self.waiting = {p.name: p for p in self.rule.parameters}
        if self.local:
            for parameter in self.rule.parameters:
                self._parameter(parameter, scope)
        for clause in self.rule.clauses:
            node = (
                clause.value
                if isinstance(clause, s.LetClause)
                else clause.domain
                if isinstance(clause, s.PickClause)
                else clause.condition
            )
            self._mentioned(node, scope)
            if isinstance(clause, s.Guard):
                self._add(node, BOOL, f"the condition of `{clause.kind}`", scope)
            elif isinstance(clause, s.LetClause):
                self._add(node, ANY, "a value", scope)
                self.lets[clause.name] = node
                scope[clause.name] = self.quiet.sort(node, scope)
            else:
                self._add(node, LIST, "the domain of `pick`", scope)
                scope[clause.name] = self.quiet.element(node, scope)
        for parameter in list(self.waiting.values()):
            self._parameter(parameter, scope)
        return scope

    def _mentioned(self, node: s.Syntax, scope: dict[str, Sort]) -> None:
        """Bind parameters just before the first clause that mentions them."""
        for name in list(names(node)):
            if name.text in self.waiting:
                self._parameter(self.waiting[name.text], scope)

    def _parameter(self, parameter: s.Parameter, scope: dict[str, Sort]) -> None:
        self.waiting.pop(parameter.name, None)
        sort = PARAMETER_SORTS.get(parameter.sort or "any", ANY)
        for node in (parameter.domain, parameter.default):
            if node is not None:
                self._mentioned(node, scope)
        if parameter.domain is not None:
            self._add(parameter.domain, LIST, f"the domain of `{parameter.name}`", scope)
            if sort == ANY:
                sort = self.quiet.element(parameter.domain, scope)
        if parameter.default is not None:
            self._add(parameter.default, sort, f"the default of `{parameter.name}`", scope)
        scope[parameter.name] = sort

    def _add(self, node: s.Syntax, want: Sort, what: str, scope: Scope) -> None:
        self.expressions.append(Expression(node, want, what, dict(scope)))

    @cached_property
    def quiet(self) -> Inference:
        """The sorts of expressions, without a report of the clashes inside them."""
        return Inference(self.facts, lambda *report: None)

    # ---- the template
    @cached_property
    def made(self) -> dict[str, Sort]:
        """The names that the template makes: fresh ones."""
        return {
            slot.value.text: slot.sort
            for slot in self.template
            if slot.makes
            and isinstance(slot.value, s.NameOf)
            and is_variable(slot.value.text)
            and slot.value.text not in self.scope
        }

    def _around(self, slot: SortedPosition, base: Scope) -> Scope:
        """Return the scope with the names that `each` blocks and arms add."""
        if not slot.around:
            return base
        scope = dict(base)
        for block in slot.around:
            if isinstance(block, s.EachBlock):
                element = INT if isinstance(block.domain, s.Between) else self.quiet.element(block.domain, scope)
                scope |= dict.fromkeys(block.names, element if len(block.names) == 1 else ANY)
            elif isinstance(block, s.Arm):
                if block.variable is not None and block.domain is not None:
                    scope[block.variable] = self.quiet.element(block.domain, scope)
                for name, sort in _variables(block.pattern, ANY):
                    scope.setdefault(name.text, sort)
        return scope

    @cached_property
    def used(self) -> set[str]:
        """Every name that a clause, a domain, a default or the template reads or writes again."""
        found = {name.text for e in self.expressions for name in names(e.node)}
        found |= {call.fn for e in self.expressions for call in calls(e.node)}
        return found

    @cached_property
    def parts(self) -> s.Nodes:
        """Everything the rule says, but its examples."""
        return (*self.rule.parameters, *self.rule.match, *self.rule.clauses, *self.rule.rewrite)


def _variables(node: object, sort: Sort) -> Iterator[tuple[s.NameOf, Sort]]:
    """Yield the variables that a piece of a pattern binds. `x.field` is a value: it binds nothing."""
    if isinstance(node, tuple):
        for item in node:
            yield from _variables(item, sort)
    elif isinstance(node, s.NameOf):
        if is_variable(node.text):
            yield node, sort
    elif isinstance(node, s.Run):
        yield from _variables(node.base, Sort(sort.kind, True))
    elif isinstance(node, s.Syntax) and not isinstance(node, s.Member | s.Text | s.Number):
        for name in names(node):
            if is_variable(name.text):
                yield name, ANY
