"""Patterns over Tensor IR terms, written out as Python tests.

Nested loops, one per choice (the order of a commutative function, the split of a run), and tests that skip to the next
choice. Only text that is written here is executed: every name and constant of a rule is an object in the function's
scope, and its variables are numbered locals.
"""

from __future__ import annotations

import math
from typing import Any

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.functions import CAST, FUNCTIONS, HELD
from ....ir.monoid_texts import PARTS
from ....ir.tensor import Case, Const, Elementwise, Fold, Index, Mat, Reduce, Remap
from ....ir.text import syntax as s
from ....ir.text.tensor_read import part_name
from ...language.evaluate import CONSTANTS
from ...language.rule import Rule
from .places import PlaceTests

OPERATIONS = ("Reduce", "Fold", "Case", "Index", "mat")


def definitions(rule: Rule, block: tuple[s.Syntax, ...]) -> dict[str, s.Syntax]:
    """The statements of a pattern or template by the name that each defines, in order; the last one is the root."""
    found: dict[str, s.Syntax] = {}
    for statement in block:
        target = statement.target if isinstance(statement, s.Assign) else None
        if isinstance(target, s.Subscript):
            target = target.base
        if not isinstance(statement, s.Assign) or not isinstance(target, s.NameOf):
            raise DplcError(f"rule `{rule.name}`: a rule on tensor has statements `name = value`", statement.span)
        found[target.text] = statement.value
    return found


def fold_part(node: s.Apply) -> str | None:
    """What a `Fold` folds: `online.s`, or a variable for it. Raises DplcError for a monoid or a part that is none."""
    first = node.items[0] if node.items else None
    if isinstance(first, s.NameOf):
        return first.text
    part = part_name(first) if first is not None else None
    if part is not None and part not in PARTS:
        raise DplcError(f"there is no `{part}` to fold", node.span, (), did_you_mean(part, PARTS))
    return part


def constant_of(node: s.Syntax) -> Any:
    """The number that a literal is, else None."""
    if isinstance(node, s.Number):
        return node.value
    if isinstance(node, s.NameOf) and CONSTANTS.get(node.text) is not None:
        return CONSTANTS[node.text]
    if isinstance(node, s.NameOf) and node.text == "nan":
        return float("nan")
    if isinstance(node, s.Prefix) and node.op == "-":
        inner = constant_of(node.a)
        return None if inner is None else -inner
    return None


class Patterns(PlaceTests):
    """Writes the tests of one rule's pattern. `bind`: a `mat` is a decision of fusion still open, not a node."""

    def __init__(self, rule: Rule, bind: bool = False):
        super().__init__(rule)
        self.bind = bind
        self.scope |= {
            "Const": Const, "Elementwise": Elementwise, "Reduce": Reduce, "Fold": Fold, "Remap": Remap, "Case": Case,
            "Index": Index, "Mat": Mat,
        }  # fmt: skip
        self.defined = definitions(rule, rule.match)

    # ---- patterns
    def pattern(self, node: s.Syntax, at: str, root: bool = False) -> tuple[type | None, str | None]:
        """Tests that the term in local `at` is of this form. Gives the class and function it must have."""
        value = constant_of(node)
        if value is not None and value != value:
            self.test(f"{at}.__class__ is not Const or {at}.value == {at}.value")
            return Const, None
        if value is not None:
            truth = "is not" if isinstance(value, bool) else "is"
            self.test(
                f"{at}.__class__ is not Const or {at}.value != {self.keep(value)} or {at}.value.__class__ {truth} bool"
            )
            if isinstance(value, float) and value == 0:  # 0.0 and -0.0 are two numbers, 0 is both
                negative = math.copysign(1.0, value) < 0
                self.test(f"repr({at}.value).startswith('-') is not {negative}")
            return Const, None
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.pattern(node.items[0], at, root)
        if isinstance(node, s.NameOf):
            return self.name(node.text, at)
        if isinstance(node, s.Subscript):
            return self.reading(node, at)
        if isinstance(node, s.Apply):
            return self.operation(node, at, root)
        raise DplcError(f"rule `{self.rule.name}`: not a pattern over values", node.span)

    def name(self, name: str, at: str) -> tuple[type | None, str | None]:
        if name == "_":
            return None, None
        if name in self.bound:
            self.test(f"{at} is not {self.bound[name]}")
            return None, None
        self.bound[name], self.kinds[name] = at, "term"
        if name not in self.defined:
            return None, None
        found = self.pattern(self.defined[name], at)
        self.left(name, at)
        return found

    def reading(self, node: s.Subscript, at: str) -> tuple[type | None, str | None]:
        """`x[is..]`: x under any index map. `x[i, k + 1]`: x at these places."""
        if not any(isinstance(item, s.Run) for item in node.items):
            self.places(node, at)
            return None, None
        if len(node.items) != 1 or not isinstance(node.items[0].base, s.NameOf):  # type: ignore[attr-defined]
            raise DplcError(f"rule `{self.rule.name}`: write `x[is..]` for a value read under an index map", node.span)
        self.test(f"{at}.__class__ is not Remap")
        self.capture(node.items[0].base.text, f"{at}.map", "map")  # type: ignore[attr-defined]
        inner = self.fresh()
        self.line(f"{inner} = {at}.x")
        self.pattern(node.base, inner)
        return Remap, None

    def operation(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if node.fn == "mat":
            inner = self.fresh()
            if self.bind:  # on fusion's tables a `mat` is a decision still open, not a node
                self.line(f"{inner} = site.stored({at})")
                self.test(f"{inner} is None")
            else:
                self.test(f"{at}.__class__ is not Mat")
                self.line(f"{inner} = {at}.x")
            self.pattern(self.single(node), inner)
            return Mat, None
        if node.fn == "Reduce":
            return self.reduction(node, at, root)
        if node.fn == "Fold":
            return self.fold(node, at, root)
        if node.fn == "Case":
            return self.cases(node, at, root)
        if node.fn == "Index":
            self.test(f"{at}.__class__ is not Index")
            self.arithmetic(self.single(node), f"{at}.expr")
            return Index, None
        if node.fn[:1].isupper():
            raise DplcError(
                f"rule `{self.rule.name}`: no operation `{node.fn}` on tensor",
                node.span,
                (),
                did_you_mean(node.fn, OPERATIONS),
            )
        return self.function(node, at, root)

    def single(self, node: s.Apply) -> s.Syntax:
        if len(node.items) != 1:
            raise DplcError(f"rule `{self.rule.name}`: `{node.fn}` takes one operand", node.span)
        return node.items[0]

    def reduction(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if len(node.items) < 3 or not isinstance(node.items[0], s.NameOf):
            raise DplcError(f"rule `{self.rule.name}`: write `Reduce(fn, axes.., value)`", node.span)
        if not root:
            self.test(f"{at}.__class__ is not Reduce")
        fn = node.items[0].text
        if fn in FUNCTIONS:
            self.test(f"{at}.fn != {self.keep(fn)}")
        else:
            self.capture(fn, f"{at}.fn", "fn")
        self.sequence(node.items[1:-1], f"{at}.over", "axis", node)
        inner = self.fresh()
        self.line(f"{inner} = {at}.x")
        self.pattern(node.items[-1], inner)
        return Reduce, fn if fn in FUNCTIONS else None

    def fold(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        """`Fold(online.s, ks.., (x, v))`: a variable for the part matches any."""
        part, given = fold_part(node), node.items[-1] if node.items else None
        if part is None or not isinstance(given, s.Group) or len(node.items) < 3:
            raise DplcError(f"rule `{self.rule.name}`: write `Fold(monoid.part, axes.., (operands..))`", node.span)
        if not root:
            self.test(f"{at}.__class__ is not Fold")
        if part in PARTS:
            self.test(f"{at}.part != {self.keep(part)}")
        else:
            self.capture(part, f"{at}.part", "part")
        self.sequence(node.items[1:-1], f"{at}.over", "axis", node)
        self.sequence(given.items, f"{at}.args", "term", node)
        return Fold, None

    def cases(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if len(node.items) != 3:
            raise DplcError(f"rule `{self.rule.name}`: write `Case(condition, a, b)`", node.span)
        if not root:
            self.test(f"{at}.__class__ is not Case")
        self.arithmetic(node.items[0], f"{at}.cond")
        a, b = self.fresh(), self.fresh()
        self.line(f"{a} = {at}.a; {b} = {at}.b")
        self.several(((node.items[1], a), (node.items[2], b)))
        return Case, None

    def function(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        known = node.fn in FUNCTIONS
        number = constant_of(node.items[0]) if known and FUNCTIONS[node.fn].kind == CAST and node.items else None
        if number is not None:  # `f32(2.0)` is a number with its dtype, not a cast of one
            self.pattern(node.items[0], at)
            self.test(f"{at}.dtype != {self.keep(HELD.get(node.fn, node.fn))}")
            return Const, None
        if not root:
            self.test(f"{at}.__class__ is not Elementwise" + (f" or {at}.fn != {self.keep(node.fn)}" if known else ""))
        if not known:
            self.capture(node.fn, f"{at}.fn", "fn")
        fn = node.fn if known else None
        if (
            known
            and not any(isinstance(item, s.Run) for item in node.items)
            and len(node.items) != FUNCTIONS[node.fn].arity
        ):
            raise DplcError(
                f"rule `{self.rule.name}`: `{node.fn}` takes {FUNCTIONS[node.fn].arity} operands", node.span
            )
        if (
            known
            and FUNCTIONS[node.fn].commutative
            and len(node.items) == 2
            and not any(isinstance(i, s.Run) for i in node.items)
        ):
            a, b, x, y = self.fresh(), self.fresh(), self.fresh(), self.fresh()
            self.line(f"{a}, {b} = {at}.args")
            self.loop(f"for {x}, {y} in (({a}, {b}), ({b}, {a})):")
            self.several(((node.items[0], x), (node.items[1], y)))
        else:
            self.sequence(node.items, f"{at}.args", "term", node)
        return Elementwise, fn

    def specific(self, node: s.Syntax) -> bool:
        return (
            not isinstance(node, s.NameOf)
            or node.text in self.defined
            or node.text in self.bound
            or constant_of(node) is not None
        )

    def several(self, pairs: tuple[tuple[s.Syntax, str], ...]) -> None:
        """Sub-patterns, the one that refuses soonest first: numbers and what is bound, operations, variables."""

        def eagerness(pair: tuple[s.Syntax, str]) -> int:
            node = pair[0]
            if constant_of(node) is not None or (isinstance(node, s.NameOf) and node.text in self.bound):
                return 0
            return 1 if self.specific(node) else 2

        for node, at in sorted(pairs, key=eagerness):
            self.pattern(node, at)

    def sequence(self, items: tuple[s.Syntax, ...], values: str, kind: str, node: s.Apply) -> None:
        """A list of items with runs among them: a loop over every run's end but the last one's, which is determined."""
        runs = [place for place, item in enumerate(items) if isinstance(item, s.Run)]
        found = self.fresh()
        self.line(f"{found} = {values}")
        fixed = len(items) - len(runs)
        self.test(f"len({found}) {'<' if runs else '!='} {fixed}")
        position, waiting = "0", []
        for place, item in enumerate(items):
            if isinstance(item, s.Run):
                after = len(items) - place - 1 - sum(1 for run in runs if run > place)
                end = self.fresh()
                if place == runs[-1]:
                    self.line(f"{end} = len({found}) - {after}")
                else:
                    self.loop(f"for {end} in range({position}, len({found}) - {after} + 1):")
                if not isinstance(item.base, s.NameOf):
                    raise DplcError(f"rule `{self.rule.name}`: a run is a variable", item.span)
                self.capture(item.base.text, f"{found}[{position}:{end}]", "terms" if kind == "term" else "axes")
                position = end
                continue
            local = self.fresh()
            self.line(f"{local} = {found}[{position}]")
            position = str(int(position) + 1) if position.isdigit() else f"{position} + 1"
            waiting.append((item, local))
        if kind == "term":
            self.several(tuple(waiting))
            return
        for item, local in waiting:
            self.axis(item, local)
