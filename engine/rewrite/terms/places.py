"""Places in patterns over Tensor IR terms: axes with their extents, left sides, values read at index expressions."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.expr import Axis, Binary, Not, Sum, invert, negate
from ....ir.facts.index import operate
from ....ir.tensor import Term, axes
from ...language import core as s
from ...language.evaluate import CONSTANTS
from ...language.positions import names
from ...language.rule import Rule

LOOPS, DEEPEST = 16, 85  # loops in a function; levels of indentation, of which Python reads a hundred
Build = Callable[[Sequence[Any]], Any]  # an index expression from its leaves


class PlaceTests(abc.ABC):
    """The text of one rule's tests, and the tests of axes and of index expressions."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.lines: list[str] = []
        self.depth = self.floor = 1
        self.inner: list[tuple[int, str]] = []  # functions inside of the function: where they stand, their names
        self.count = 0
        self.bound: dict[str, str] = {}
        self.kinds: dict[str, str] = {}  # variable -> term, axis, axes, fn, terms, map, expr, extent
        self.defined: dict[str, s.ValueTerm] = {}
        self.scope: dict[str, Any] = {"Axis": Axis, "axes": axes, "leaf": is_leaf, "leaves": leaves_of}
        self.scope |= {"orders": orders_of, "makes": makes}
        self.read = {name.text for name in names((*rule.clauses, *rule.rewrite))}
        self.own: dict[str, str] = {}  # value -> its axes in the order of its left side
        self.lefts = rule.left_axes

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def keep(self, value: Any) -> str:
        """An object of the rule, by a name of ours."""
        self.count += 1
        name = f"k{self.count}"
        self.scope[name] = value
        return name

    @property
    def fail(self) -> str:
        return "continue" if self.depth > self.floor else "return None"

    def test(self, condition: str) -> None:
        """Skip to the next choice if the condition holds."""
        self.line(f"if {condition}: {self.fail}")

    def loop(self, header: str) -> None:
        """A choice. Python nests twenty loops in a function: further ones are in a function of their own."""
        if self.depth > DEEPEST:
            what = "a pattern on tensor has at most 80 choices (operands in either order, runs)"
            raise DplcError(f"rule `{self.rule.name}`: {what}", self.rule.span, (), "match less of the program")
        if self.depth - self.floor >= LOOPS:
            name = self.fresh()
            self.line(f"def {name}():")
            self.inner.append((self.depth, name))
            self.depth += 1
            self.floor = self.depth
        self.line(header)
        self.depth += 1

    def close(self) -> None:
        """The end of the text: no choice was right."""
        for depth, name in reversed(self.inner):
            self.depth = depth + 1
            self.line("return None")
            self.depth = depth
            found = self.fresh()
            self.line(f"{found} = {name}()")
            self.line(f"if {found} is not None: return {found}")
        if self.depth > 1:
            self.depth = 1
            self.line("return None")

    def capture(self, name: str, value: str, kind: str) -> None:
        """Binds a variable that is not a term: equal if it was bound before."""
        if name == "_":
            return
        if name in self.bound:
            self.test(f"{value} != {self.bound[name]}")
            return
        local = self.fresh()
        self.line(f"{local} = {value}")
        self.bound[name], self.kinds[name] = local, kind

    @abc.abstractmethod
    def pattern(self, term: s.ValueTerm, at: str, root: bool = False) -> tuple[type | None, str | None]:
        """The compiler of patterns that this is a part of says how a term inside of a place is matched."""

    # ---- axes
    def axis(self, item: s.AxisTerm, at: str) -> None:
        """`k` or `k:8`: an axis, and its extent."""
        self.capture(item.name, at, "axis")
        self.extent(item, at)

    def extent(self, item: s.AxisTerm, at: str) -> None:
        if isinstance(item.extent, int):
            self.test(f"{at}.extent != {self.keep(item.extent)}")
        elif item.extent is not None:
            self.capture(item.extent, f"{at}.extent", "extent")

    def left(self, name: str, at: str, root: bool = False) -> None:
        """`y[i:4, j] = ..`, once its right side has matched: y varies along these axes, in whatever order.

        The root may be stored along more axes than it varies with: what only stands there is nothing, and matches.
        """
        items = self.lefts.get(name)
        if items is None:
            return
        known = {item: self.bound[item.name] for item in items if item.name in self.bound}
        free = [item for item in items if item not in known]
        rest = self.fresh()
        self.line(f"{rest} = [a for a in axes({at}) if a not in ({''.join(f'{v}, ' for v in known.values())})]")
        self.test(f"len({rest}) {'>' if root else '!='} {len(free)}")
        if not root:
            self.test(f"len(axes({at})) != {len(items)}")
        found = [self.fresh() for _ in free]
        if found:
            self.loop(f"for {', '.join(found)}, in orders({rest}, {len(free)}):")
        for item, local in zip(free, found, strict=True):
            if root and item.name not in self.read:
                self.capture(item.name, local, "axis")
                self.absent(item, local)
                continue
            if root:
                self.test(f"{local} is None")
            self.axis(item, local)
        for item, local in known.items():
            self.extent(item, local)
        locals_ = {**known, **dict(zip(free, found, strict=True))}
        self.own[name] = f"({''.join(f'{locals_[item]}, ' for item in items)})"

    def absent(self, item: s.AxisTerm, at: str) -> None:
        """The extent of an axis that may not be there."""
        if isinstance(item.extent, int):
            self.test(f"{at} is not None and {at}.extent != {self.keep(item.extent)}")
        elif item.extent is not None:
            self.test(f"{at} is None")
            self.extent(item, at)

    # ---- values read at places
    def places(self, term: s.ReadTerm, at: str) -> None:
        """`x[i, k + 1]`: every axis of x, in the order of its left side or its own, is read at these places."""
        if not isinstance(term.x, s.NameTerm):
            raise DplcError(f"rule `{self.rule.name}`: a value is read by its name: `x[i, k]`", term.span)
        inner, map_, own = self.fresh(), self.fresh(), self.fresh()
        self.line(f"{inner}, {map_} = ({at}.x, dict({at}.map)) if {at}.__class__ is Remap else ({at}, {{}})")
        self.pattern(term.x, inner)
        self.line(f"{own} = {self.own.get(term.x.name, f'axes({inner})')}")
        self.test(f"len({own}) != {len(term.places)}")
        for place, item in enumerate(term.places):
            entry = self.fresh()
            self.line(f"{entry} = {map_}.get({own}[{place}], {own}[{place}])")
            self.index(item, entry)

    def arithmetic(self, node: s.Syntax, at: str) -> None:
        """What `Index` or `Case` holds: a variable for all of it, or an expression."""
        if isinstance(node, s.NameOf) and node.text not in self.defined and node.text not in CONSTANTS:
            self.capture(node.text, at, "expr")
        else:
            local = self.fresh()
            self.line(f"{local} = {at}")
            self.index(node, local)

    def index(self, node: s.Syntax, at: str) -> None:
        """An index expression: a name is an axis or a value, anything else is what it comes to over its leaves."""
        if isinstance(node, s.NameOf) and node.text not in CONSTANTS:
            self.test(f"not leaf({at})")
            self.leaf(node, at)
            return
        found: list[s.Syntax] = []
        build = self.compiled(node, found)
        values = self.fresh()
        self.line(f"{values} = leaves({at})")
        self.test(f"len({values}) != {len(found)}")
        self.test(f"not makes({self.keep(build)}, {values}, {at})")
        for place, leaf in enumerate(found):
            local = self.fresh()
            self.line(f"{local} = {values}[{place}]")
            self.leaf(leaf, local)

    def leaf(self, node: s.Syntax, at: str) -> None:
        if not isinstance(node, s.NameOf) or node.text in self.defined:
            self.test(f"{at}.__class__ is Axis")
            self.pattern(s.term_of(node), at)
            return
        if node.text in self.read:  # a template that reads it takes it for an axis
            self.test(f"{at}.__class__ is not Axis")
        self.capture(node.text, at, "axis")

    def compiled(self, node: s.Syntax, leaves: list[s.Syntax]) -> Build:
        """An index expression as a function of its leaves, which are noted in the order of the text."""
        if isinstance(node, s.Number):
            return lambda _: node.value
        if isinstance(node, s.NameOf) and isinstance(CONSTANTS.get(node.text), bool):
            return lambda _: CONSTANTS[node.text]
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.compiled(node.items[0], leaves)
        if isinstance(node, s.Operation) and node.op not in ("in", "not in"):
            a, b = self.compiled(node.a, leaves), self.compiled(node.b, leaves)
            return lambda given: operate(node.op, a(given), b(given))
        if isinstance(node, s.Prefix):
            inner, change = self.compiled(node.a, leaves), negate if node.op == "-" else invert
            return lambda given: change(inner(given))
        if isinstance(node, s.NameOf | s.Subscript | s.Apply) and not _is_run(node):
            place = len(leaves)
            leaves.append(node)
            return lambda given: given[place]
        what = "an index in a pattern is arithmetic over axes and values, or `x[is..]` takes any"
        raise DplcError(f"rule `{self.rule.name}`: {what}", node.span)


def _is_run(node: s.Syntax) -> bool:
    return isinstance(node, s.Subscript) and any(isinstance(item, s.Run) for item in node.items)


def is_leaf(e: Any) -> bool:
    return isinstance(e, (Axis, Term))


def leaves_of(e: Any) -> list[Any]:
    """The axes and values of an index expression, in the order in which its text has them."""
    if is_leaf(e):
        return [e]
    if e.__class__ is Sum:
        return [leaf for atom, _ in e.terms for leaf in leaves_of(atom)]
    if e.__class__ is Binary:
        return leaves_of(e.a) + leaves_of(e.b)
    return leaves_of(e.a) if e.__class__ is Not else []


def makes(build: Build, leaves: Sequence[Any], e: Any) -> bool:
    """Whether an expression over these leaves comes to e."""
    try:
        found = build(leaves)
    except (DplcError, ArithmeticError, TypeError):
        return False
    return found.__class__ is e.__class__ and bool(found == e)


def orders_of(rest: list[Any], number: int) -> Any:
    """Ways to give the axes that are left to as many names, the order they stand in first; None for those missing."""
    return itertools.permutations([*rest, *[None] * (number - len(rest))])
