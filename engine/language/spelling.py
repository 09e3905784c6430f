"""Statements and expressions of syntax to canonical text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.text import equations as eq
from ...ir.text import syntax as s

INDENT = "    "
# Binding strength, loosest first.
_TERNARY, _OR, _AND, _NOT, _COMPARE, SUM, _TERM, _UNARY, _POST = range(9)
_STRENGTH = {
    "or": _OR, "and": _AND, "in": _COMPARE, "not in": _COMPARE,
    "+": SUM, "-": SUM, "*": _TERM, "//": _TERM, "%": _TERM, "^": _TERM,
}  # fmt: skip


# Statements.


def block(statements: s.Nodes, depth: int) -> list[str]:
    return [line for node in statements for line in statement(node, depth)]


def statement(node: s.Syntax, depth: int) -> list[str]:
    """Return the lines of a statement."""
    head = _HEADS[type(node)](node)
    body = getattr(node, "body", None)
    lead = INDENT * depth
    return [f"{lead}{head}"] if body is None else [f"{lead}{head}:", *block(body, depth + 1)]


def _assign(node: s.Assign) -> str:
    types = ", ".join(map(_type, node.types))
    target = expression(node.target)
    if node.types:
        target += f": {types}" if len(node.types) == 1 else f": ({types})"
    return f"{target} = {expression(node.value)}"


def _type(node: s.TypeOf) -> str:
    return f"{node.dtype}[{items(node.dims)}]"


def _unit(node: s.Unit) -> str:
    return f"{node.kind} {node.name}({items(node.ins)}) -> {items(node.outs)}"


def _for(node: s.ForLoop) -> str:
    step = f" by {expression(node.step, SUM)}" if node.step is not None else ""
    attributes = "".join(f" {expression(attribute)}" for attribute in node.attributes)
    return f"for {node.var} in {expression(node.start, SUM)}..{expression(node.stop, SUM)}{step}{attributes}"


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


def _fold(node: eq.FoldAssign) -> str:
    lanes = f" over {expression(node.lanes)}" if node.lanes is not None else ""
    scaled = f" scaling {items(node.scaled)}" if node.scaled else ""
    what = f"{node.monoid}{lanes} of {expression(node.value)} into ({items(node.parts)})"
    return f"{expression(node.target)} = fold {what}{scaled}"


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
    eq.LetStatement: lambda node: f"let {node.name} = {expression(node.value)}",
    eq.FoldAssign: _fold,
    eq.UseForm: lambda node: f"form {expression(node.call)}",
    eq.PartLoop: lambda node: " ".join(["for", node.var, *map(expression, node.attributes)]),
}


# Expressions and items.


def expression(node: s.Syntax, strength: int = _TERNARY) -> str:
    """Return an expression or item, in parentheses if it binds looser than `strength`."""
    text = _EXPRESSIONS[type(node)](node)
    return f"({text})" if _strength(node, text) < strength else text


def _strength(node: s.Syntax, text: str) -> int:
    if isinstance(node, s.Operation):
        return _STRENGTH.get(node.op, _COMPARE)
    if isinstance(node, s.Choice | s.Chosen):
        return _TERNARY
    if isinstance(node, s.Prefix | s.Number):
        return _NOT if text.startswith("not ") else _UNARY if text.startswith("-") else _POST
    return _POST


def items(nodes: s.Nodes) -> str:
    return ", ".join(map(expression, nodes))


def _operation(node: s.Operation) -> str:
    own = _STRENGTH.get(node.op, _COMPARE)
    left = expression(node.a, own + 1 if own == _COMPARE else own)
    right = expression(node.b, own + 1)
    return f"{left}*{right}" if node.op == "*" else f"{left} {node.op} {right}"


def _prefix(node: s.Prefix) -> str:
    return f"not {expression(node.a, _NOT)}" if node.op == "not" else f"-{expression(node.a, _UNARY)}"


def _choice(node: s.Choice) -> str:
    parts = (expression(node.a, _OR), expression(node.condition, _OR), expression(node.b))
    return "{} if {} else {}".format(*parts)


def _group(node: s.Group) -> str:
    close = {"(": ")", "[": "]", "{": "}"}[node.bracket]
    return f"{node.bracket}{items(node.items)}{close}"


def _comprehension(node: s.Comprehension) -> str:
    condition = f" if {expression(node.condition, _OR)}" if node.condition is not None else ""
    text = f"{expression(node.element)} for {node.variable} in {expression(node.domain, _OR)}{condition}"
    return f"[{text}]" if node.bracket == "[" else f"{{{text}}}"


def _chosen(node: s.Chosen) -> str:
    costs, sense = node.costs, "maximising" if node.most else "minimising"
    condition = f" if {expression(costs.condition, _OR)}" if costs.condition is not None else ""
    named = f"choose {costs.variable} in {expression(costs.domain, _OR)}{condition}"
    return f"{named} {sense} {expression(costs.element)}"


def _axis(node: s.AxisItem) -> str:
    text = f"{node.name}:{expression(node.extent, SUM)}" + (f"={node.role}" if node.role else "")
    if node.dim is not None:
        text += f"@{expression(node.dim, SUM)}"
        text += f" by {expression(node.stride, SUM)}" if node.stride is not None else ""
    return text


def _size(node: s.SizeItem) -> str:
    step = f" by {node.multiple}" if node.multiple != 1 else ""
    hint = f" hint {node.hint}" if node.hint is not None else ""
    return f"{node.name}: {node.low}..{node.high}{step}{hint}"


def _part(node: eq.SplitPart) -> str:
    size = f":{expression(node.size, SUM)}" if node.size is not None else ""
    return node.name + size + (f"={node.role}" if node.role else "")


def _load(node: s.LoadOf) -> str:
    text = f"load {expression(node.access)}"
    if node.condition is not None and node.other is not None:
        text += f" if {expression(node.condition, _OR)} else {expression(node.other)}"
    return text


_EXPRESSIONS: dict[type, Callable[[Any], str]] = {
    s.NameOf: lambda node: node.text,
    s.Number: lambda node: repr(node.value),
    s.Text: lambda node: f'"{node.value}"',
    s.Apply: lambda node: f"{node.fn}({items(node.items)})",
    s.Subscript: lambda node: f"{expression(node.base, _POST)}[{items(node.items)}]",
    s.Member: lambda node: f"{expression(node.base, _POST)}.{node.field}",
    s.Operation: _operation,
    s.Prefix: _prefix,
    s.Choice: _choice,
    s.Group: _group,
    s.Comprehension: _comprehension,
    s.Chosen: _chosen,
    s.Between: lambda node: f"{expression(node.a, SUM)}..{expression(node.b, SUM)}",
    s.Keyword: lambda node: f"{node.name}={expression(node.value)}",
    s.Run: lambda node: expression(node.base, _POST) + ".." + (f"={node.role}" if node.role else ""),
    s.AxisItem: _axis,
    s.Substitution: lambda node: f"{expression(node.left)} := {expression(node.right)}",
    s.LoadOf: _load,
    eq.SplitPart: _part,
    s.TypeOf: lambda node: _type(node),
    s.SizeItem: _size,
    s.ParamItem: lambda node: f"{node.name}: {_type(node.type)}",
}
