"""Syntax to canonical text, for `dplc rules show NAME`. `parse(format(x))` is x, but for places and comments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.text import syntax as s
from .rule import Rule

INDENT = "    "
REASONS = 48  # the column of `because`, where the guard is shorter
# Binding strength, loosest first.
_TERNARY, _OR, _AND, _NOT, _COMPARE, _SUM, _TERM, _UNARY, _POST = range(9)
_STRENGTH = {
    "or": _OR, "and": _AND, "in": _COMPARE, "not in": _COMPARE,
    "+": _SUM, "-": _SUM, "*": _TERM, "//": _TERM, "%": _TERM, "^": _TERM,
}  # fmt: skip


def format_rule(rule: Rule | s.Rule) -> str:
    """A rule as text, ending in a newline. A member of a family is written out."""
    if isinstance(rule, Rule):
        clauses = (s.Match(rule.span, rule.match), *rule.clauses, s.Rewrite(rule.span, rule.rewrite))
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
    for clause in (*rule.clauses, *rule.examples):
        lines += _clause(clause)
    return "\n".join(lines) + "\n"


def format_file(declarations: Iterable[s.Syntax]) -> str:
    """A rule file as text: its rules, pipelines and `without`s, a blank line between them."""
    return "\n".join(_declaration(declaration) for declaration in declarations)


def _declaration(node: s.Syntax) -> str:
    if isinstance(node, s.Rule):
        return format_rule(node)
    if isinstance(node, s.Without):
        return f"without {node.name}\n"
    if isinstance(node, s.Pipeline):
        docs = [f"## {text}".rstrip() for text in node.docs]
        return (
            "\n".join([*docs, f"pipeline {node.name}", *(f"{INDENT}{_entry(entry)}" for entry in node.entries)]) + "\n"
        )
    return "\n".join(_statement(node, 0)) + "\n"


def _entry(entry: s.Syntax) -> str:
    if isinstance(entry, s.OneOf):
        return _because(f"one of {', '.join(entry.names)}", entry.reason)
    assert isinstance(entry, s.PassEntry)
    text = f"pass {entry.rule}" + (f"({_items(entry.arguments)})" if entry.arguments else "")
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
        return ["match", *_block(clause.body, 1)]
    if isinstance(clause, s.Rewrite):
        return ["rewrite", *_block(clause.body, 1)]
    if isinstance(clause, s.LetClause):
        return [f"let {clause.name} = {expression(clause.value)}"]
    if isinstance(clause, s.PickClause):
        return [f"pick {clause.name} in {expression(clause.domain)}"]
    if isinstance(clause, s.Guard):
        return [_because(f"{clause.kind} {expression(clause.condition)}", clause.reason)]
    assert isinstance(clause, s.Example)
    arguments = f" ({_items(clause.arguments)})" if clause.arguments else ""
    head = [f'example "{clause.title}"{arguments}', *_block(clause.before, 1)]
    if isinstance(clause.gives, str):
        return [*head, f'gives no "{clause.gives}"']
    return [*head, "gives", *_block(clause.gives, 1)]


# ---- statements


def _block(statements: tuple[s.Syntax, ...], depth: int) -> list[str]:
    return [line for statement in statements for line in _statement(statement, depth)]


def _statement(node: s.Syntax, depth: int) -> list[str]:
    """The lines of a statement."""
    head = _HEADS[type(node)](node)
    body = getattr(node, "body", None)
    lead = INDENT * depth
    return [f"{lead}{head}"] if body is None else [f"{lead}{head}:", *_block(body, depth + 1)]


def _assign(node: s.Assign) -> str:
    types = ", ".join(map(_type, node.types))
    target = expression(node.target)
    if node.types:
        target += f": {types}" if len(node.types) == 1 else f": ({types})"
    return f"{target} = {expression(node.value)}"


def _type(node: s.TypeOf) -> str:
    return f"{node.dtype}[{_items(node.dims)}]"


def _unit(node: s.Unit) -> str:
    return f"{node.kind} {node.name}({_items(node.ins)}) -> {_items(node.outs)}"


def _for(node: s.ForLoop) -> str:
    step = f" by {expression(node.step, _SUM)}" if node.step is not None else ""
    attributes = "".join(f" {expression(attribute)}" for attribute in node.attributes)
    return f"for {node.var} in {expression(node.start, _SUM)}..{expression(node.stop, _SUM)}{step}{attributes}"


def _run_statement(node: s.RunStatement) -> str:
    return expression(node.run) + (f" with {', '.join(map(_change, node.changes))}" if node.changes else "")


def _change(node: s.Syntax) -> str:
    if isinstance(node, s.UseRule):
        return f"rule {expression(node.call)}"
    if isinstance(node, s.Arm):
        loop = f" for {node.variable} in {expression(node.domain, _OR)}" if node.domain is not None else ""
        condition = f" where {expression(node.condition)}" if node.condition is not None else ""
        return f"{expression(node.pattern)} => {expression(node.template)}{loop}{condition}"
    return expression(node)


_HEADS: dict[type, Callable[[Any], str]] = {
    s.PassStatement: lambda node: "pass",
    s.DropStatement: lambda node: f"drop {expression(node.run)}",
    s.Statement: lambda node: expression(node.call),
    s.Assign: _assign,
    s.AccumulateInto: lambda node: f"{expression(node.target)} <- {expression(node.value)}",
    s.CaptureStatement: lambda node: f"{node.name}: {expression(node.call)}{node.repeat or ''}",
    s.RunStatement: _run_statement,
    s.ForLoop: _for,
    s.IfBlock: lambda node: f"if {expression(node.condition)}",
    s.InsideBlock: lambda node: f"inside {node.name}",
    s.EachBlock: lambda node: f"each {', '.join(node.names)} in {expression(node.domain)}",
    s.Unit: _unit,
}


# ---- expressions and items


def expression(node: s.Syntax, strength: int = _TERNARY) -> str:
    """An expression or item, in parentheses if it binds looser than `strength`."""
    text, own = _EXPRESSIONS[type(node)](node)
    return f"({text})" if own < strength else text


def _items(nodes: tuple[s.Syntax, ...]) -> str:
    return ", ".join(map(expression, nodes))


def _number(node: s.Number) -> tuple[str, int]:
    text = repr(node.value).replace("inf", "1e999")  # a literal beyond the range of floats reads as inf
    return text, _UNARY if text.startswith("-") else _POST


def _operation(node: s.Operation) -> tuple[str, int]:
    own = _STRENGTH.get(node.op, _COMPARE)
    left = expression(node.a, own + 1 if own == _COMPARE else own)
    right = expression(node.b, own + 1)
    return (f"{left}*{right}" if node.op == "*" else f"{left} {node.op} {right}"), own


def _prefix(node: s.Prefix) -> tuple[str, int]:
    return (f"not {expression(node.a, _NOT)}", _NOT) if node.op == "not" else (f"-{expression(node.a, _UNARY)}", _UNARY)


def _choice(node: s.Choice) -> tuple[str, int]:
    parts = (expression(node.a, _OR), expression(node.condition, _OR), expression(node.b))
    return "{} if {} else {}".format(*parts), _TERNARY


def _group(node: s.Group) -> tuple[str, int]:
    close = {"(": ")", "[": "]", "{": "}"}[node.bracket]
    return f"{node.bracket}{_items(node.items)}{close}", _POST


def _comprehension(node: s.Comprehension) -> tuple[str, int]:
    condition = f" if {expression(node.condition, _OR)}" if node.condition is not None else ""
    text = f"{expression(node.element)} for {node.variable} in {expression(node.domain, _OR)}{condition}"
    return (f"[{text}]" if node.bracket == "[" else f"{{{text}}}"), _POST


def _axis(node: s.AxisItem) -> tuple[str, int]:
    text = f"{node.name}:{expression(node.extent, _SUM)}" + (f"={node.role}" if node.role else "")
    if node.dim is not None:
        text += f"@{expression(node.dim, _SUM)}"
        text += f" by {expression(node.stride, _SUM)}" if node.stride is not None else ""
    return text, _POST


def _load(node: s.LoadOf) -> tuple[str, int]:
    text = f"load {expression(node.access)}"
    if node.condition is not None and node.other is not None:
        text += f" if {expression(node.condition, _OR)} else {expression(node.other)}"
    return text, _POST


_EXPRESSIONS: dict[type, Callable[[Any], tuple[str, int]]] = {
    s.NameOf: lambda node: (node.text, _POST),
    s.Number: _number,
    s.Text: lambda node: (f'"{node.value}"', _POST),
    s.Apply: lambda node: (f"{node.fn}({_items(node.items)})", _POST),
    s.Subscript: lambda node: (f"{expression(node.base, _POST)}[{_items(node.items)}]", _POST),
    s.Member: lambda node: (f"{expression(node.base, _POST)}.{node.field}", _POST),
    s.Operation: _operation,
    s.Prefix: _prefix,
    s.Choice: _choice,
    s.Group: _group,
    s.Comprehension: _comprehension,
    s.Between: lambda node: (f"{expression(node.a, _SUM)}..{expression(node.b, _SUM)}", _POST),
    s.Keyword: lambda node: (f"{node.name}={expression(node.value)}", _POST),
    s.Run: lambda node: (expression(node.base, _POST) + ".." + (f"={node.role}" if node.role else ""), _POST),
    s.AxisItem: _axis,
    s.Substitution: lambda node: (f"{expression(node.left)} := {expression(node.right)}", _POST),
    s.LoadOf: _load,
    s.TypeOf: lambda node: (_type(node), _POST),
    s.ParamItem: lambda node: (f"{node.name}: {_type(node.type)}", _POST),
}
