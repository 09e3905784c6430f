"""Code for values inside a pattern: names, numbers, axes, expressions. Statements and runs are in pattern.py."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError
from ....ir.kernel import Element
from ....ir.node import Node
from ....ir.text.read_statements import value_classes
from ...language import core as s
from ...language.evaluate import CONSTANTS, RESERVED
from ...language.statements import EXACT, NAMES, Shape, shape_of
from .affine import OpenExpressions, names_in, same
from .context import Context, holes
from .expressions import RuleExpressions
from .source import Writer

_NESTING = 18  # CPython allows twenty nested blocks in a function


@dataclass
class Symbol:
    """What a variable stands for. kind: "name" (text in the node, a `Var` in the rule) or "value"."""

    text: str
    kind: str
    maybe: bool = False  # bound by a `*` capture that may be empty


class _Unbound:
    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND = _Unbound()


def _role_end(items: tuple[Any, ...], start: int, role: str) -> int:
    """The end of the run of axes with this role."""
    while start < len(items) and items[start].role == role:
        start += 1
    return start


_indexed: dict[tuple[type[Node], str], tuple[tuple[Any, ...], dict[Any, list[int]]]] = {}


def _statements_with(
    block: tuple[Any, ...], start: int, stop: int, cls: type[Node], field: str, value: Any
) -> Iterator[int]:
    """Index statements of a class by a field that may have a value. The last block is cached: a pattern is tried
    at each of its statements.
    """
    known = _indexed.get((cls, field))
    if known is None or known[0] is not block:
        places: dict[Any, list[int]] = {}
        for place, statement in enumerate(block):
            if statement.__class__ is cls:
                places.setdefault(_alike(getattr(statement, field)), []).append(place)
        known = _indexed[cls, field] = block, places
    return (place for place in known[1].get(_alike(value), ()) if start <= place < stop)


def _alike(value: Any) -> Any:
    """Return one key for all values that are `same`."""
    return (value.constant, frozenset(value.terms)) if value.__class__ is e.Sum else value


def _named(name: Any) -> Any:
    return e.Var(name) if name is not None else None


class ValueWriter(Writer, abc.ABC):
    """Writes tests of values. What a variable stands for is text until it is needed."""

    def __init__(self, expressions: RuleExpressions, evidence: bool):
        super().__init__({
            "Var": e.Var, "Call": e.Call, "Binary": e.Binary, "Element": Element, "same": same, "holes": holes,
            "Context": Context, "role_end": _role_end, "statements_with": _statements_with, "named": _named,
            "UNBOUND": UNBOUND,
        })  # fmt: skip
        self.expressions, self.evidence = expressions, evidence
        self.symbolic = RuleExpressions(expressions.level, symbolic=True)  # `if t < 1:` has a condition, not an answer
        self.symbols: dict[str, Symbol] = {}
        self.matched = 0  # statements of the pattern that have matched so far
        self.here: tuple[s.Syntax, str] | None = None  # the statement being matched, and what it is compared with

    @abc.abstractmethod
    def items(
        self, whole: str, base: str, items: tuple[Any, ...], closed: bool, one: Callable[[Any, str], None]
    ) -> str:
        """Match a list of items against `whole[base:]`."""

    # ---- failing and binding
    def reject(self, condition: str, expected: s.Syntax | None = None, found: str = "None") -> None:
        if self.evidence and expected is None and self.here is not None:
            expected, found = self.here
        report = ""
        if self.evidence and expected is not None:
            report = f"near({self.matched}, {self.constant(_ById(expected))}.node, {found}); "
        self.put(f"if {condition}: {report}{self.fail}")

    def loop(self, header: str, place: s.Syntax) -> None:
        if self.depth > _NESTING:
            raise DplcError("too many runs in one pattern", place.span)
        self.open(header, "continue")

    def bind(self, name: str, text: str, kind: str) -> None:
        if name == "_":
            return
        symbol = self.symbols.get(name)
        if symbol is None:
            self.symbols[name] = Symbol(text, kind)
            return
        differs = _differs(symbol, text, kind)
        if symbol.maybe:
            self.put(f"if {symbol.text} is UNBOUND: {symbol.text} = {text}")
            differs = f"{symbol.text} is not {text} and ({differs})"
        self.reject(differs)

    def environment(self, names: Iterable[str]) -> str:
        parts = []
        for name in names:
            symbol = self.symbols[name]
            text = f"named({symbol.text})" if symbol.kind == "name" else symbol.text
            parts.append(f"{self.constant(name)}: {text}")
        return "{**env, " + ", ".join(parts) + "}"

    # ---- nodes and fields
    def node(self, shape: Shape, x: str) -> None:
        cls: Any = shape.cls
        self.reject(f"{x}.__class__ is not {self.constant(cls)}")
        for name in EXACT.get(cls, ()):
            if name not in shape.fields:
                self.equal(f"{x}.{name}", cls.by_name[name].default)
        mentioned = [(field, shape.fields[field.name]) for field in cls.fields if field.name in shape.fields]
        for field, value in sorted(mentioned, key=lambda pair: _cost(*pair)):
            if field.sort != "Block":
                self.field(field, value, f"{x}.{field.name}")

    def field(self, field: Any, value: Any, x: str) -> None:
        if isinstance(value, tuple):
            whole = self.local("t")
            self.put(f"{whole} = {x}")
            self.items(whole, "0", value, True, lambda item, text: self.value(field.sort, item, text))
        elif field.many and isinstance(value, s.NameOf) and value.text not in RESERVED:
            self.bind(value.text, x, "value")
        else:
            self.value(field.sort, value, x)

    # ---- values
    def value(self, sort: str, node: s.Syntax, x: str) -> None:
        nested = shape_of(node) if isinstance(node, s.AxisItem | s.ParamItem | s.Apply) else None
        if nested is not None:
            self.node(nested, x)
        elif isinstance(node, s.NameOf):
            self.name(sort, node.text, x)
        elif isinstance(node, s.Number | s.Text):
            self.equal(x, node.value)
        elif isinstance(node, s.Prefix) and node.op == "not":
            self.negation(sort, node.a, x)
        else:
            self.expression(sort, node, x)

    def name(self, sort: str, text: str, x: str) -> None:
        if text == "_":
            return
        if text in CONSTANTS:
            self.equal(x, CONSTANTS[text])
        elif text in RESERVED:
            self.equal(x, text if sort in NAMES else e.Var(text))
        else:
            self.bind(text, x, "name" if sort in NAMES else "value")

    def equal(self, x: str, value: Any) -> None:
        constant = self.constant(value)
        if value is None or value.__class__ is bool or isinstance(value, Node):
            self.reject(f"{x} is not {constant}")
        elif value.__class__ is str:
            self.reject(f"{x} != {constant}")
        elif value.__class__ is int:
            self.reject(f"{x} != {constant} or {x}.__class__ is not {self.constant(int)}")
        else:
            self.reject(f"not same({x}, {constant})")

    def negation(self, sort: str, node: s.Syntax, x: str) -> None:
        test = self.local("e")
        depth, fail, bound, evidence = self.depth, self.fail, dict(self.symbols), self.evidence
        self.evidence = False
        self.open(f"def {test}():", "return False")
        self.value(sort, node, x)
        self.put("return True")
        self.depth, self.fail, self.symbols, self.evidence = depth, fail, bound, evidence
        self.reject(f"{test}()")

    def expression(self, sort: str, node: Any, x: str) -> None:
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.value(sort, node.items[0], x)
        names = names_in(node, self.expressions.facts)
        known = {name for name, symbol in self.symbols.items() if not symbol.maybe}
        if isinstance(node, s.Subscript) and self.register(node):
            return self.element(node, x)
        if names <= known | {"target"} or isinstance(node, s.Member | s.Subscript | s.Comprehension):
            return self.closed(sort, node, x, sorted(names & known))
        if isinstance(node, s.Apply) and node.fn not in self.expressions.facts and node.fn not in value_classes():
            return self.call(node, x)
        return self.open_sum(node, x, sorted(names & known), sorted(names - known - {"target"}))

    def closed(self, sort: str, node: s.Syntax, x: str, names: list[str]) -> None:
        """An expression of bound variables is a value."""
        compute, value = self.constant(self.symbolic.compile(node)), self.local("v")
        self.put(f"{value} = {compute}({self.environment(names)})")
        self.reject(_differs(Symbol(value, "value"), x, "name" if sort in NAMES else "value"))

    def register(self, node: s.Subscript) -> bool:
        """Whether `acc[i]` is an element of a register array, and not of a list that the pattern binds."""
        base = node.base
        if self.expressions.level != "kernel" or not isinstance(base, s.NameOf):
            return False
        return base.text not in self.symbols or self.symbols[base.text].kind == "name"

    def element(self, node: s.Subscript, x: str) -> None:
        self.reject(f"{x}.__class__ is not Element")
        self.value("Name", node.base, f"{x}.name")
        whole = self.local("t")
        self.put(f"{whole} = {x}.index")
        self.items(whole, "0", node.items, True, lambda item, text: self.value("Expr", item, text))

    def call(self, node: s.Apply, x: str) -> None:
        self.reject(f"{x}.__class__ is not Call")
        self.name("Fn", node.fn, f"{x}.fn")
        whole = self.local("t")
        self.put(f"{whole} = {x}.args")
        self.items(whole, "0", node.items, True, lambda item, text: self.value("Expr", item, text))

    def open_sum(self, node: s.Syntax, x: str, known: list[str], unknown: list[str]) -> None:
        matcher, found = self.constant(OpenExpressions(self.expressions).compile(node)), self.local("m")
        self.loop(f"for {found} in {matcher}({x}, {self.environment(known)}):", node)
        for name in unknown:
            self.bind(name, f"{found}[{self.constant(name)}]", "value")


class _ById:
    """A syntax node as a constant: compared by identity, for spans make comparing slow."""

    __slots__ = ("node",)

    def __init__(self, node: s.Syntax):
        self.node = node


def _differs(symbol: Symbol, text: str, kind: str) -> str:
    if symbol.kind == kind == "name":
        return f"{symbol.text} != {text}"
    if symbol.kind == "name":
        return f"{text}.__class__ is not Var or {text}.name != {symbol.text}"
    if kind == "name":
        return f"{symbol.text}.__class__ is not Var or {symbol.text}.name != {text}"
    return f"{symbol.text} is not {text} and not same({symbol.text}, {text})"


def _cost(field: Any, value: Any) -> int:
    """Tests first, then binders, then lists: what fails cheaply fails early. Values come after what they read."""
    if isinstance(value, s.NameOf):
        return 0 if value.text in RESERVED or value.text in CONSTANTS else 1
    if isinstance(value, s.Number | s.Text | s.Prefix):
        return 0
    if isinstance(value, s.Member | s.Subscript):
        return 5
    return 3 if isinstance(value, tuple) else 2
