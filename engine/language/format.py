"""Syntax to canonical text, for `dplc rules show NAME`. `parse(format(x))` is x, but for places and comments."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.text import equations as eq
from ...ir.text import syntax as s
from .rule import Rule
from .spelling import INDENT, SUM, block, expression, items, statement

REASONS = 48  # the column of `because`, where all guards of a rule are shorter
FURTHEST = 72  # it moves on for longer ones, up to here
WIDTH = 140  # a reason of a guard that does not fit stands below it


def format_rule(rule: Rule) -> str:
    """A rule as text, ending in a newline. A member of a family is written out."""
    meant = (s.Match(rule.span, rule.match), *rule.clauses, s.Rewrite(rule.span, rule.rewrite))
    clauses = tuple(rule.written) or meant
    marks = tuple(sorted(rule.attributes))
    declared = s.Rule(
        rule.span, rule.docs, marks, rule.override, rule.name, rule.parameters, (), rule.level, clauses, rule.examples,
        device=rule.device,
    )  # fmt: skip
    return "\n".join(_rule(declared, (*clauses, *rule.examples))) + "\n"


def format_file(declarations: Iterable[s.Syntax]) -> str:
    """A rule file as text: its rules, pipelines and `without`s, a blank line between them."""
    return "\n".join("\n".join(lines_of(declaration)) + "\n" for declaration in declarations)


def lines_of(node: s.Syntax) -> list[str]:
    """The lines of a declaration, as it is parsed: not elaborated yet. One that ends in a long reason has a line break
    in it."""
    if isinstance(node, s.Rule):
        parts: tuple[s.Syntax, ...] = (*node.clauses, *node.examples)
        return _rule(node, sorted(parts, key=lambda part: part.span.line))
    if isinstance(node, eq.GuardGroup):
        column = _column(node.guards)
        guards = [line for guard in node.guards for line in _clause(guard, column)]
        return [*_docs(node.docs), f"guards {node.name}({items(node.parameters)}):", *map(_indented, guards)]
    if isinstance(node, eq.StatementForm):
        return [*_docs(node.docs), f"form {node.name}({items(node.parameters)}):", *block(node.body, 1)]
    if isinstance(node, s.ExamplesOf):
        return [f"examples {node.rule}", *(line for one in node.examples for line in _clause(one))]
    if isinstance(node, s.NumberOf):
        return format_number(node).splitlines()
    if isinstance(node, s.FactOf):
        return format_fact(node).splitlines()
    if isinstance(node, s.Without):
        return [_because(f"without {node.name}", node.reason)]
    if isinstance(node, s.Pipeline):
        return [*_docs(node.docs), f"pipeline {node.name}", *(_entry(entry) for entry in node.entries)]
    return statement(node, 0)


def _rule(rule: s.Rule, clauses: Iterable[s.Syntax]) -> list[str]:
    head = f"{'override ' if rule.override else ''}rule {rule.name}"
    if rule.parameters:
        head += f"({', '.join(map(_parameter, rule.parameters))})"
    if rule.rows:
        head += f" for {', '.join(map(expression, rule.rows))}"
    lines = [*_docs(rule.docs), *(f"@{attribute}" for attribute in rule.attributes)]
    lines.append(f"{head} on {rule.level}{_device(rule)}")
    clauses = tuple(clauses)
    column = _column(clauses)
    return [*lines, *(line for clause in clauses for line in _clause(clause, column))]


def _device(declared: s.Rule | s.NumberOf | s.FactOf) -> str:
    return "" if declared.device is None else f" for {declared.device.text}"


def _column(clauses: Iterable[s.Syntax]) -> int:
    """Where the reasons of some guards stand."""
    widths = (len(_guard(clause)) for clause in clauses if isinstance(clause, s.Guard))
    return max([REASONS, *(width for width in widths if width <= FURTHEST)])


def _guard(guard: s.Guard) -> str:
    return f"{guard.kind} {expression(guard.condition)}"


def _docs(docs: Iterable[str]) -> list[str]:
    return [f"## {text}".rstrip() for text in docs]


def _indented(lines: str) -> str:
    return INDENT + lines.replace("\n", f"\n{INDENT}")


def format_fact(node: s.FactOf) -> str:
    """A fact that is an expression as text, ending in a newline."""
    docs = "".join(f"## {text}".rstrip() + "\n" for text in node.docs)
    given = ", ".join(f"{p.name}: {p.sort}" for p in node.parameters)
    head = f"{'override ' if node.override else ''}fact {node.name}({given}) -> {node.result}"
    return f"{docs}{head} = {expression(node.value)}{_device(node)}\n"


def format_number(node: s.NumberOf) -> str:
    """A number of the policy as text, ending in a newline."""
    docs = [f"## {text}".rstrip() for text in node.docs]
    head = f"{'override ' if node.override else ''}number {node.name} = {expression(node.value)}{_device(node)}"
    return "\n".join([*docs, _because(head, node.reason)]) + "\n"


def _entry(entry: s.Syntax) -> str:
    if isinstance(entry, s.Without):
        return _because(f"{INDENT}without {entry.name}", entry.reason)
    if isinstance(entry, s.OneOf):
        return _because(f"{INDENT}one of {', '.join(entry.names)}", entry.reason)
    assert isinstance(entry, s.PassEntry)
    text = f"{INDENT}pass {entry.rule}" + (f"({items(entry.arguments)})" if entry.arguments else "")
    text += f" as {entry.alias}" if entry.alias else ""
    text += "".join(f" {kind} {name}" if name else f" {kind}" for kind, name in entry.places)
    return _because(text, entry.reason)


def _because(text: str, reason: str | None, column: int = REASONS) -> str:
    return text if reason is None else f'{text:{column}} because "{reason}"'


def _parameter(node: s.Parameter) -> str:
    sort = f": {node.sort}" if node.sort else ""
    domain = f" in {expression(node.domain)}" if node.domain is not None else ""
    return f"{node.name}{sort}{domain}" + (f" = {expression(node.default)}" if node.default is not None else "")


def _clause(clause: s.Syntax, column: int = REASONS) -> list[str]:
    if isinstance(clause, s.Match):
        return ["match", *block(clause.body, 1)]
    if isinstance(clause, s.Rewrite):
        return ["rewrite", *block(clause.body, 1)]
    if isinstance(clause, s.LetClause):
        return [f"let {clause.name} = {expression(clause.value)}"]
    if isinstance(clause, s.PickClause):
        return [f"pick {clause.name} in {expression(clause.domain)}"]
    if isinstance(clause, s.Guard):
        line = _because(_guard(clause), clause.reason, column)
        return [line if len(line) <= WIDTH else f'{_guard(clause)}\n{INDENT}because "{clause.reason}"']
    if isinstance(clause, eq.SplitClause):
        size = f":{expression(clause.size, SUM)}" if clause.size is not None else ""
        parts = " => ".join(map(items, (clause.parts, *clause.further)))
        return [f"split {', '.join(expression(node, SUM) for node in clause.what)}{size} => {parts}"]
    if isinstance(clause, eq.UseGuards):
        return [f"guards {expression(clause.call)}"]
    if isinstance(clause, eq.JoinClause):
        return [f"join {items(clause.names)} => {expression(clause.part)}"]
    if isinstance(clause, eq.VariedExample):
        first = f'example "{clause.title}"{f" ({items(clause.arguments)})" if clause.arguments else ""}'
        gives = (
            [f'gives no "{clause.gives}"'] if isinstance(clause.gives, str) else ["gives", *map(_edit, clause.gives)]
        )
        return [f'{first} as "{clause.other}"', *map(_edit, clause.edits), *gives]
    assert isinstance(clause, s.Example)
    arguments = f" ({items(clause.arguments)})" if clause.arguments else ""
    head = [f'example "{clause.title}"{arguments}', *block(clause.before, 1)]
    if isinstance(clause.gives, str):
        return [*head, f'gives no "{clause.gives}"']
    return [*head, "gives", *block(clause.gives, 1)]


def _edit(edit: eq.Edit) -> str:
    return f'{INDENT}"{edit.before}" => {", ".join(map(_quoted, edit.after))}'


def _quoted(text: str) -> str:
    return f'"{text}"'
