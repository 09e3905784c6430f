"""Patterns to Python: the part that the matchers of statements and of values share.

A pattern becomes nested `for` loops, one per choice (the split of a run, the order of two operands, the hole of a
context), and straight-line tests in between; a failed test goes on with the next iteration of the innermost loop. A
variable is represented by a piece of text (`s3.start`, `b2[0:j5]`) until the pattern has matched as a whole. Two
variants are generated: the second one reports every near miss.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import linecache
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ...ir import expr as e
from ...ir.diagnostic import DplcError
from ...ir.node import Expr, Node
from ..language.core import CaptureStatement, Number, Operation, PassStatement, Prefix, Syntax, bare
from ..language.evaluate import Value

LOOPS, DEEPEST = 18, 85  # loops in a function, of which Python nests twenty; levels of indentation: a hundred


@dataclass
class Symbol:
    """Meaning of a variable in the generated function.

    kind: how values compare, and what the rule sees. "name": text in the node, a `Var` in the rule; "term": an interned
    value; "value": anything else. maybe: bound by a `*` capture that may be empty.
    """

    text: str
    kind: str
    maybe: bool = False


Item = TypeVar("Item")  # of a list that a pattern matches: syntax of a statement, or a term
Rest = int | tuple[int, Any]  # how many items follow a run; a pair says that their number is fixed, and the first


class Matcher(abc.ABC, Generic[Item]):
    """Writer of one matcher. It emits code in the order in which a match proceeds; loops stay open to the end.

    No text of a rule ever becomes text of the program: names of a rule are keys of dictionaries, passed in as
    constants. `fail` is the statement that gives up the current attempt.

    sort: of the values of the list that is matched; empty for a block of statements.
    """

    sort = "Term"

    def __init__(self, scope: dict[str, object], reports: str = ""):
        """Create a matcher. The second argument selects the near misses that it reports.

        "steps" reports the statements of a pattern, "parts" every piece of it, and the empty text none.
        """
        self.scope = {
            "Var": e.Var, "Binary": e.Binary, "multiply": e.multiply, "summands": _summands, "factors": _factors,
            "is_sum": _is_sum, "same": same,
            "named": lambda name: None if name is None else e.Var(name), "role_end": _role_end, **scope,
        }  # fmt: skip
        self.lines: list[str] = []
        self.depth = self.loops = self.count = 0
        self.fail = "return"
        self.inner: list[tuple[int, str]] | None = None  # functions in the function: their positions and names
        self._constants: dict[tuple[type, object], str] = {}
        self.reports = reports
        self.symbols: dict[str, Symbol] = {}
        self.matched = 0  # steps of the pattern that have matched so far
        self.here: tuple[Syntax, str] | None = None  # the step being matched, and what it is compared with

    # ---- lines
    def put(self, *lines: str) -> None:
        self.lines += ("    " * self.depth + line for line in lines)

    def local(self, letter: str) -> str:
        """Return a new variable of the generated function."""
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, value: object) -> str:
        """Return the name of an object in the scope of the generated function.

        Objects other than texts and numbers are told apart by identity: to compare rule syntax with its spans is slow.
        """
        plain = value.__class__ in (str, int, float, bool)
        key = value.__class__, repr(value) if plain else id(value)
        name = self._constants.setdefault(key, f"c{len(self._constants)}")
        self.scope[name] = value
        return name

    def open(self, header: str, fail: str | None = None) -> None:
        """Start a block: what follows is inside it."""
        self.put(header)
        self.depth += 1
        if fail is not None:
            self.fail = fail

    def loop(self, header: str, place: Syntax) -> None:
        """Open a loop for a choice. At Python's nesting limit, the rest goes into a function of its own."""
        if self.loops >= LOOPS:
            if self.inner is None:
                raise DplcError("too many runs in one pattern", place)
            name = self.local("f")
            self.put(f"def {name}():")
            self.inner.append((self.depth, name))
            self.depth, self.loops = self.depth + 1, 0
        if self.depth > DEEPEST:
            raise DplcError(
                "a pattern on tensor has at most 80 choices (operands in either order, runs)",
                place,
                "match less of the program",
            )
        self.open(header, "continue")
        self.loops += 1

    @contextlib.contextmanager
    def function(self, header: str, fail: str) -> Iterator[None]:
        """Open a function inside of the function."""
        before = self.depth, self.loops, self.fail
        self.open(header, fail)
        yield
        self.depth, self.loops, self.fail = before

    def close(self) -> None:
        """End the text: no choice matched."""
        for depth, name in reversed(self.inner or ()):
            self.depth = depth
            found = self.held(f"{name}()", "f")
            self.put(f"if {found} is not None: return {found}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, name: str, title: str) -> Any:
        """Return the function `name` of the text. The title shows in tracebacks."""
        text = self.text()
        file = f"<dplc {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.scope)  # our own text: see the docstring of the class
        return self.scope[name]

    # ---- failing and binding
    def reject(self, condition: str, expected: Syntax | None = None, found: str = "None") -> None:
        """Give this attempt up if the condition holds."""
        place = self.here if expected is None else (expected, found)
        report = f"near({self.matched}, {self.constant(place[0])}, {place[1]}); " if self.reports and place else ""
        self.put(f"if {condition}: {report}{self.fail}")

    @contextlib.contextmanager
    def at(self, place: Syntax, x: str) -> Iterator[str]:
        """Yield a local that holds the value matched against a piece of the pattern; near misses name that piece."""
        before, x = self.here, self.held(x)
        if self.reports == "parts":
            self.here = place, x
        yield x
        self.here = before

    def held(self, text: str, letter: str = "v") -> str:
        """Return a local for a text that is read several times."""
        if text.isidentifier():
            return text
        local = self.local(letter)
        self.put(f"{local} = {text}")
        return local

    def bind(self, name: str, text: str, kind: str = "value") -> None:
        """Bind a name to a text, or require the same value if the name is bound already; `_` matches anything."""
        if name == "_":
            return
        symbol = self.symbols.get(name)
        if symbol is not None:
            condition = differs(symbol, text, kind)
            self.reject(f"{symbol.text} is not UNBOUND and ({condition})" if symbol.maybe else condition)
        if symbol is None or symbol.maybe:
            self.symbols[name] = Symbol(text, kind)

    def environment(self, names: Iterable[str]) -> str:
        """Return the items of a dictionary: the variables, as the rule sees them."""
        symbols = ((self.constant(name), self.symbols[name]) for name in names)
        return ", ".join(f"{key}: named({x.text})" if x.kind == "name" else f"{key}: {x.text}" for key, x in symbols)

    # ---- constants
    def unlike(self, x: str, value: object) -> str:
        """Return the condition that a value is not a constant, with 1, 1.0 and True apart."""
        if value is None or value.__class__ is bool or isinstance(value, Node):
            return f"{x} is not {self.constant(value)}"
        if value.__class__ is str:
            return f"{x} != {self.constant(value)}"
        if value.__class__ is int:
            return f"{x} != {self.constant(value)} or {x}.__class__ is not {self.constant(int)}"
        return f"not same({x}, {self.constant(value)})"

    def no_number(self, x: str, value: float) -> str:
        """Return the condition that a value is not this number, in whatever class: `0` equals `0.0`, too."""
        if value != value:
            return f"{x} == {x}"
        truth = "is not" if isinstance(value, bool) else "is"
        differs = f"{x} != {self.constant(value)} or {x}.__class__ {truth} {self.constant(bool)}"
        if not isinstance(value, float) or value != 0:
            return differs
        sign = f"{x}.__class__ is {self.constant(float)} and {self.constant(math.copysign)}(1, {x}) < 0"
        negative = self.constant(math.copysign(1, value) < 0)
        return f"{differs} or ({sign}) is not {negative}"  # two zeros; `0` is both

    # ---- index expressions
    @abc.abstractmethod
    def operand(self, node: Syntax, x: str) -> None:
        """Match an operand of an index expression."""

    def computed(self, node: Syntax, x: str) -> None:
        """Match an operation on index expressions, a sum in any order of its terms."""
        if isinstance(node, Prefix) or (isinstance(node, Operation) and node.op in ("+", "-", "*")):
            return self.total(node, x)
        if not isinstance(node, Operation) or node.op not in e.OPERATORS:
            raise DplcError("this is not a pattern of an expression", node)
        self.reject(f"{x}.__class__ is not Binary or {x}.op != {self.constant(node.op)}")
        return self.operands(node, f"{x}.a", f"{x}.b")

    def operands(self, node: Operation, a: str, b: str) -> None:
        self.operand(node.a, a)
        self.operand(node.b, b)

    def total(self, node: Syntax, x: str) -> None:
        """Match a sum: each of its terms against any remaining term of the value, numbers last."""
        addends = _addends(node, 1)
        known = [self.multiple(sign, part) for sign, part in addends]
        if None not in known:  # no choice: all its terms are known
            self.reject(f"not is_sum({x}, ({', '.join(map(str, known))},))")
            return
        parts = sorted(addends, key=lambda part: isinstance(part[1], Number))
        terms = [self.local("p") for _ in parts]
        self.loop(f"for {', '.join(terms)}, in summands({x}, {len(parts)}):", node)
        for (sign, part), term in zip(parts, terms, strict=True):
            given = f"({term}[0], {sign}*{term}[1])"
            if isinstance(part, Operation) and part.op == "*":
                a, b = self.local("a"), self.local("b")
                self.loop(f"for {a}, {b} in factors{given}:", node)
                self.operands(part, a, b)
            else:
                self.operand(part, self.held(f"multiply{given}"))

    def multiple(self, sign: int, part: Syntax) -> str | None:
        """Return the text of a term and its coefficient, if it is a number, or a known name times a number."""
        if isinstance(part, Operation) and part.op == "*" and isinstance(part.b, Number):
            if not isinstance(part.b.value, int):
                return None
            sign, part = sign * part.b.value, part.a
        if isinstance(part, Number):
            return f"(1, {sign * part.value})"
        symbol = self.symbols.get(getattr(part, "text", ""))
        return f"({symbol.text}, {sign})" if symbol and symbol.kind == "value" else None

    # ---- lists
    def items(self, items: tuple[Any, ...], whole: str, base: str, closed: bool = True) -> str:
        """Match the items against `whole[base:]`; `closed`: they must reach its end. Gives the end as text."""
        size, in_block = f"len({whole})", self.reports and not self.sort
        least, flexible = [*map(self.least, items)], [*map(self.flexible, items)]
        if closed and not any(flexible) and not in_block:
            self.reject(f"{size} != {sum(least)}")
            closed = False
        else:
            size = self.held(size, "n")
            if any(least) and not in_block:
                self.reject(f"{size} - {base} < {sum(least)}")
        offset, waiting = 0, list[tuple[Item, str]]()
        for position, item in enumerate(items):
            at = _sum(base, offset)
            if flexible[position]:
                rest, following = sum(least[position + 1 :]), (*items, None)[position + 1]
                last = not any(flexible[position + 1 :]) and (closed or following is None)
                base = self.stretch(item, whole, at, size, (rest, following) if last else rest)
                offset = 0
                closed = closed and (not last or isinstance(item, CaptureStatement))
                continue
            if in_block:
                self.reject(f"{at} >= {size}", item)
            waiting += self.item(item, self.held(f"{whole}[{at}]", "x"))
            offset += 1
        self.several(waiting)
        end = _sum(base, offset)
        if closed:
            there = f"{whole}[{end}] if {end} < {size} else None"
            self.reject(f"{end} != {size}", PassStatement(items[-1].span) if items and not self.sort else None, there)
        return end

    def run(self, item: Syntax, name: str, role: str | None, whole: str, at: str, size: str, rest: Rest) -> str:
        """Match `xs..`, before `rest` more; a pair says that the rest is fixed: the run ends where it begins."""
        end, role = self.local("j"), role and self.constant(role)
        if isinstance(rest, tuple):
            self.put(f"{end} = {size} - {rest[0]}")
            if not self.sort:
                self.reject(f"{end} < {at}", rest[1])
            if role:
                self.reject(f"role_end({whole}, {at}, {role}) < {end}")
        else:
            stop = f"{size} + {1 - rest}"
            stop = f"min({stop}, role_end({whole}, {at}, {role}) + 1)" if role else stop
            self.loop(f"for {end} in range({at}, {stop}):", item)
        self.bind(name, f"{whole}[{at}:{end}]")
        return end

    def least(self, item: Item) -> int:
        """Return the number of positions that an item spans at least."""
        return not self.flexible(item) or getattr(item, "repeat", None) == "+"

    @abc.abstractmethod
    def flexible(self, item: Item) -> bool: ...

    @abc.abstractmethod
    def stretch(self, item: Item, whole: str, at: str, size: str, rest: Rest) -> str:
        """Match an item that spans a varying number of positions. Returns its end as text."""

    @abc.abstractmethod
    def item(self, item: Item, x: str) -> Iterable[tuple[Item, str]]:
        """Match an item of a list, or give it back: it is looked at when all runs are known."""

    def several(self, waiting: list[tuple[Item, str]]) -> None:
        """Match the items that were given back."""
        assert not waiting


def _summands(value: Expr, number: int) -> Iterable[tuple[tuple[Expr, int], ...]]:
    """Return the orders of the terms of a value, each with its coefficient; none if it has another number of terms."""
    terms, constant = e.linear(value) if not isinstance(value, float) else ({}, 0)
    pool = [*terms.items(), *([(1, constant)] if constant else [])]
    return itertools.permutations(pool) if len(pool) == number else ()


def _is_sum(value: Expr, terms: Iterable[tuple[Expr, int]]) -> bool:
    """Return whether a value is the sum of some terms, each with its coefficient."""
    total = functools.reduce(e.add, (e.multiply(*term) for term in terms))
    return not isinstance(value, float) and e.linear(value) == e.linear(total)


def _factors(atom: Expr, n: int) -> Iterator[tuple[Expr, Expr]]:
    """Yield the ways to read a term as a product. A pattern may have the coefficient on either side."""
    if n == 1 and atom.__class__ is e.Binary and atom.op == "*":
        yield atom.a, atom.b
    if atom.__class__ is not int:
        yield from ((atom, n), (n, atom))


def _addends(node: Syntax, sign: int) -> list[tuple[int, Syntax]]:
    match bare(node):
        case Operation(op="+" | "-" as op, a=a, b=b):
            return _addends(a, sign) + _addends(b, sign if op == "+" else -sign)
        case Prefix(op="-", a=a):
            return _addends(a, -sign)
        case Operation(op="*", a=a) as product if isinstance(negated := bare(a), Prefix) and negated.op == "-":
            return _addends(replace(product, a=negated.a), -sign)
        case other:
            return [(sign, other)]


def differs(symbol: Symbol, text: str, kind: str) -> str:
    """Return the condition that a value, which compares as its kind says, is not that of a variable."""
    if symbol.kind == kind == "name":
        return f"{symbol.text} != {text}"
    if symbol.kind == "name":
        return f"{text}.__class__ is not Var or {text}.name != {symbol.text}"
    if kind == "name":
        return f"{symbol.text}.__class__ is not Var or {symbol.text}.name != {text}"
    if kind == "term":
        return f"{text} is not {symbol.text}"
    return f"{symbol.text} is not {text} and not same({symbol.text}, {text})"


def _sum(base: str, offset: int) -> str:
    if base == "0":
        return str(offset)
    return f"{base} + {offset}" if offset else base


def _role_end(items: tuple[e.Axis, ...], start: int, role: str) -> int:
    """Return the end of the run of axes with this role."""
    while start < len(items) and items[start].role == role:
        start += 1
    return start


def same(a: Value, b: Value) -> bool:
    """Return whether values are equal, with 1, 1.0 and True apart, and both zeros; nan is nan. Sums have any order."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is e.Sum:
        return e.linear(a) == e.linear(b)
    if a.__class__ is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) if a.__class__ is float else bool(a == b)
