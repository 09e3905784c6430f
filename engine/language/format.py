"""Syntax to canonical text, for `dplc rules show NAME`. `parse(format(x))` is x, but for places and comments."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.text import equations as eq
from ...ir.text import syntax as s
from .rule import Rule
from .spelling import INDENT, SUM, block, expression, items, statement

REASONS = 48  # the column of `because`, where the guard is shorter


def format_rule(rule: Rule | s.Rule) -> str:
    """A rule as text, ending in a newline. A member of a family is written out."""
    if isinstance(rule, Rule):
        meant = (s.Match(rule.span, rule.match), *rule.clauses, s.Rewrite(rule.span, rule.rewrite))
        clauses = tuple(rule.written) or meant
        marks = tuple(sorted(rule.attributes))
        rule = s.Rule(
            rule.span, rule.docs, marks, rule.override, rule.name, rule.parameters, (), rule.level, clauses,
            rule.examples,
        )  # fmt: skip
    lines = [f"## {text}".rstrip() for text in rule.docs] + [f"@{attribute}" for attribute in rule.attributes]
    head = f"{'override ' if rule.override else ''}rule {rule.name}"
    if rule.parameters:
        head += f"({', '.join(map(_parameter, rule.parameters))})"
    if rule.rows:
        head += f" for {', '.join(map(expression, rule.rows))}"
    lines.append(f"{head} on {rule.level}")
    for clause in (*(rule.written or rule.clauses), *rule.examples):
        lines += _clause(clause)
    return "\n".join(lines) + "\n"


def format_file(declarations: Iterable[s.Syntax]) -> str:
    """A rule file as text: its rules, pipelines and `without`s, a blank line between them."""
    return "\n".join(_declaration(declaration) for declaration in declarations)


def format_fact(node: s.FactOf) -> str:
    """A fact that is an expression as text, ending in a newline."""
    docs = "".join(f"## {text}".rstrip() + "\n" for text in node.docs)
    given = ", ".join(f"{p.name}: {p.sort}" for p in node.parameters)
    return f"{docs}fact {node.name}({given}) -> {node.result} = {expression(node.value)}\n"


def format_number(node: s.NumberOf) -> str:
    """A number of the policy as text, ending in a newline."""
    docs = [f"## {text}".rstrip() for text in node.docs]
    head = f"{'override ' if node.override else ''}number {node.name} = {expression(node.value)}"
    return "\n".join([*docs, _because(head, node.reason)]) + "\n"


def _declaration(node: s.Syntax) -> str:
    if isinstance(node, s.Rule):
        return format_rule(node)
    if isinstance(node, eq.GuardGroup):
        lines = [f"## {text}".rstrip() for text in node.docs]
        lines.append(f"guards {node.name}({items(node.parameters)}):")
        return "\n".join([*lines, *(INDENT + line for guard in node.guards for line in _clause(guard))]) + "\n"
    if isinstance(node, eq.StatementForm):
        lines = [f"## {text}".rstrip() for text in node.docs]
        lines.append(f"form {node.name}({items(node.parameters)}):")
        return "\n".join([*lines, *block(node.body, 1)]) + "\n"
    if isinstance(node, s.ExamplesOf):
        return "\n".join([f"examples {node.rule}", *(line for one in node.examples for line in _clause(one))]) + "\n"
    if isinstance(node, s.NumberOf):
        return format_number(node)
    if isinstance(node, s.FactOf):
        return format_fact(node)
    if isinstance(node, s.Without):
        return f"without {node.name}\n"
    if isinstance(node, s.Pipeline):
        docs = [f"## {text}".rstrip() for text in node.docs]
        return (
            "\n".join([*docs, f"pipeline {node.name}", *(f"{INDENT}{_entry(entry)}" for entry in node.entries)]) + "\n"
        )
    return "\n".join(statement(node, 0)) + "\n"


def _entry(entry: s.Syntax) -> str:
    if isinstance(entry, s.OneOf):
        return _because(f"one of {', '.join(entry.names)}", entry.reason)
    assert isinstance(entry, s.PassEntry)
    text = f"pass {entry.rule}" + (f"({items(entry.arguments)})" if entry.arguments else "")
    text += f" as {entry.alias}" if entry.alias else ""
    text += "".join(f" {kind} {name}" if name else f" {kind}" for kind, name in entry.places)
    return _because(text, entry.reason)


def _because(text: str, reason: str | None) -> str:
    return text if reason is None else f'{text:{REASONS}} because "{reason}"'


def _parameter(node: s.Parameter) -> str:
    sort = f": {node.sort}" if node.sort else ""
    domain = f" in {expression(node.domain)}" if node.domain is not None else ""
    return f"{node.name}{sort}{domain}" + (f" = {expression(node.default)}" if node.default is not None else "")


def _clause(clause: s.Syntax) -> list[str]:
    if isinstance(clause, s.Match):
        return ["match", *block(clause.body, 1)]
    if isinstance(clause, s.Rewrite):
        return ["rewrite", *block(clause.body, 1)]
    if isinstance(clause, s.LetClause):
        return [f"let {clause.name} = {expression(clause.value)}"]
    if isinstance(clause, s.PickClause):
        return [f"pick {clause.name} in {expression(clause.domain)}"]
    if isinstance(clause, s.Guard):
        return [_because(f"{clause.kind} {expression(clause.condition)}", clause.reason)]
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
        edits = (f'{INDENT}"{edit.before}" => {", ".join(map(_quoted, edit.after))}' for edit in clause.edits)
        return [f'{first} as "{clause.other}"', *edits, f'gives no "{clause.gives}"']
    assert isinstance(clause, s.Example)
    arguments = f" ({items(clause.arguments)})" if clause.arguments else ""
    head = [f'example "{clause.title}"{arguments}', *block(clause.before, 1)]
    if isinstance(clause.gives, str):
        return [*head, f'gives no "{clause.gives}"']
    return [*head, "gives", *block(clause.gives, 1)]


def _quoted(text: str) -> str:
    return f'"{text}"'
