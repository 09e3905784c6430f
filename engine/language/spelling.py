"""Statements and expressions of syntax to canonical text."""

from __future__ import annotations

from ...ir.text import equations as eq
from ...ir.text import syntax as s

INDENT = "    "
# Binding strength, loosest first.
_TERNARY, _OR, _AND, _NOT, _COMPARE, SUM, _TERM, _UNARY, _POST = range(9)
_STRENGTH = {
    "or": _OR, "and": _AND, "in": _COMPARE, "not in": _COMPARE,
    "+": SUM, "-": SUM, "*": _TERM, "//": _TERM, "%": _TERM, "^": _TERM,
}  # fmt: skip


def block(statements: s.Nodes) -> list[str]:
    """Return the lines of statements, indented by one level."""
    return [INDENT + line for node in statements for line in statement(node)]


def statement(node: s.Syntax) -> list[str]:
    """Return the lines of a statement."""
    head, body = _head(node), getattr(node, "body", None)
    return [head] if body is None else [f"{head}:", *block(body)]


def _head(node: s.Syntax) -> str:
    match node:
        case s.Assign():
            types = ", ".join(map(expression, node.types))
            of = f": ({types})" if len(node.types) > 1 else f": {types}" if node.types else ""
            return f"{expression(node.target)}{of} = {expression(node.value)}"
        case s.Statement():
            return expression(node.call)
        case s.ForLoop() | eq.PartLoop():
            head = f"for {node.var}"
            if isinstance(node, s.ForLoop):
                bounds = f"{expression(node.start, SUM)}..{expression(node.stop, SUM)}"
                head += f" in {bounds}{after(' by ', node.step, SUM)}"
            return " ".join([head, *map(expression, node.attributes)])
        case s.IfBlock():
            return f"if {expression(node.condition)}"
        case s.AccumulateInto():
            return f"{expression(node.target)} <- {expression(node.value)}"
        case s.CaptureStatement():
            return f"{node.name}: {expression(node.call)}{node.repeat or ''}"
        case s.RunStatement():
            return expression(node.run) + (f" with {items(node.changes)}" if node.changes else "")
        case s.InsideBlock():
            return f"inside {node.name}"
        case s.EachBlock():
            return f"each {node.variable} in {expression(node.domain)}"
        case s.PassStatement():
            return "pass"
        case s.DropStatement():
            return f"drop {expression(node.run)}"
        case s.Unit():
            precision = f" in {node.precision}" if node.precision else ""
            return f"{node.kind} {node.name}({items(node.ins)}) -> {items(node.outs)}{precision}"
        case eq.LetStatement():
            return f"let {node.name} = {expression(node.value)}"
        case eq.UseForm():
            return f"form {expression(node.call)}"
    raise TypeError(f"{type(node).__name__} is not a statement")


def after(word: str, node: s.Syntax | None, strength: int = _TERNARY) -> str:
    """Return an optional part behind its word, or nothing."""
    return "" if node is None else word + expression(node, strength)


def items(nodes: s.Nodes) -> str:
    return ", ".join(map(expression, nodes))


def expression(node: s.Syntax, strength: int = _TERNARY) -> str:
    """Return an expression or item, in parentheses if it binds looser than `strength`."""
    text = _text(node)
    if strength == _TERNARY:
        return text
    match node:
        case s.Operation():
            own = _STRENGTH.get(node.op, _COMPARE)
        case s.Choice() | s.Chosen() | s.LetExpression():
            own = _TERNARY
        case s.Prefix() | s.Number():
            own = _NOT if text.startswith("not ") else _UNARY if text.startswith("-") else _POST
        case _:
            return text
    return f"({text})" if own < strength else text


def _text(node: s.Syntax) -> str:
    match node:
        case s.NameOf():
            return node.text
        case s.Number():
            return repr(node.value)
        case s.Text():
            return f'"{node.value}"'
        case s.Apply():
            return f"{node.fn}({items(node.items)})"
        case s.Subscript():
            return f"{expression(node.base, _POST)}[{items(node.items)}]"
        case s.Member():
            return f"{expression(node.base, _POST)}.{node.field}"
        case s.Operation():
            own = _STRENGTH.get(node.op, _COMPARE)
            left, right = expression(node.a, own + (own == _COMPARE)), expression(node.b, own + 1)
            return f"{left}*{right}" if node.op == "*" else f"{left} {node.op} {right}"
        case s.Prefix():
            return f"not {expression(node.a, _NOT)}" if node.op == "not" else f"-{expression(node.a, _UNARY)}"
        case s.Choice():
            return f"{expression(node.a, _OR)} if {expression(node.condition, _OR)} else {expression(node.b)}"
        case s.Group():
            return f"{node.bracket}{items(node.items)}{_CLOSE[node.bracket]}"
        case s.Comprehension():
            return f"{node.bracket}{expression(node.element)} for {_each(node)}{_CLOSE[node.bracket]}"
        case s.Chosen():
            return f"choose {_each(node.costs)} {node.word} {expression(node.costs.element)}"
        case s.LetExpression():
            return f"let {items(node.lets)} in {expression(node.value)}"
        case s.Between():
            return f"{expression(node.a, SUM)}..{expression(node.b, SUM)}"
        case s.Keyword() | s.LetClause():
            return f"{node.name}={expression(node.value)}"
        case s.Run():
            return f"{expression(node.base, _POST)}..{_role(node.role)}"
        case s.AxisItem():
            place = after("@", node.dim, SUM) + after(" by ", node.stride, SUM)
            return f"{node.name}:{expression(node.extent, SUM)}{_role(node.role)}{place}"
        case s.Substitution():
            return f"{expression(node.left)} := {expression(node.right)}"
        case s.LoadOf():
            return f"load {expression(node.access)}{after(' if ', node.condition, _OR)}{after(' else ', node.other)}"
        case s.UseRule():
            return f"rule {expression(node.call)}"
        case s.Arm():
            each = after(f" for {node.variable} in ", node.domain, _OR)
            sides = f"{expression(node.pattern)} => {expression(node.template)}"
            return f"{sides}{each}{after(' where ', node.condition)}"
        case eq.SplitPart():
            return f"{node.name}{after(':', node.size, SUM)}{_role(node.role)}"
        case s.TypeOf():
            return f"{node.dtype}[{items(node.dims)}]"
        case s.ParamItem():
            return f"{node.name}: {expression(node.type)}"
        case s.SizeItem():
            step = f" by {node.multiple}" if node.multiple != 1 else ""
            hint = f" hint {node.hint}" if node.hint is not None else ""
            return f"{node.name}: {node.low}..{node.high}{step}{hint}"
    raise TypeError(f"{type(node).__name__} is not an expression")


def _each(node: s.Comprehension) -> str:
    return f"{node.variable} in {expression(node.domain, _OR)}{after(' if ', node.condition, _OR)}"


_CLOSE = {"(": ")", "[": "]", "{": "}"}


def _role(role: str | None) -> str:
    return f"={role}" if role else ""
