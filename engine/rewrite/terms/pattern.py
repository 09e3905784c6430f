"""Patterns over Tensor IR terms, written out as Python tests.

Nested loops, one per choice (the order of a commutative function, the split of a run), and tests that skip to the next
choice. Only text that is written here is executed: every name and constant of a rule is an object in the function's
scope, and its variables are numbered locals.
"""

from __future__ import annotations

import math
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.functions import FUNCTIONS, HELD
from ....ir.monoid_texts import PARTS
from ....ir.tensor import Case, Const, Elementwise, Fold, Index, Mat, Reduce, Remap
from ...language import core as c
from ...language.rule import Rule
from .places import PlaceTests

Found = tuple[type | None, str | None]  # the class and the function that a term must have


class Patterns(PlaceTests):
    """Writes the tests of one rule's pattern. `bind`: a `mat` is a decision of fusion still open, not a node."""

    def __init__(self, rule: Rule, bind: bool = False):
        super().__init__(rule)
        self.bind = bind
        self.scope |= {
            "Const": Const, "Elementwise": Elementwise, "Reduce": Reduce, "Fold": Fold, "Remap": Remap, "Case": Case,
            "Index": Index, "Mat": Mat,
        }  # fmt: skip
        self.defined = rule.left

    # ---- patterns
    def pattern(self, term: c.ValueTerm, at: str, root: bool = False) -> Found:
        """Tests that the term in local `at` is of this form. Gives the class and function it must have."""
        match term:
            case c.NumberTerm():
                return self.number(term.value, at)
            case c.NameTerm():
                return self.name(term.name, at)
            case c.ReadTerm():
                self.places(term, at)
                return None, None
            case c.MappedTerm():
                return self.mapped(term, at)
            case c.MatTerm():
                return self.stored(term, at)
            case c.ReduceTerm():
                return self.reduction(term, at, root)
            case c.FoldTerm():
                return self.fold(term, at, root)
            case c.CaseTerm():
                return self.cases(term, at, root)
            case c.IndexTerm():
                self.test(f"{at}.__class__ is not Index")
                self.arithmetic(term.e, f"{at}.expr")
                return Index, None
            case c.FunctionTerm():
                return self.function(term, at, root)
        raise DplcError(f"rule `{self.rule.name}`: not a pattern over values", term.span)

    def number(self, value: Any, at: str) -> Found:
        if value != value:
            self.test(f"{at}.__class__ is not Const or {at}.value == {at}.value")
            return Const, None
        truth = "is not" if isinstance(value, bool) else "is"
        self.test(
            f"{at}.__class__ is not Const or {at}.value != {self.keep(value)} or {at}.value.__class__ {truth} bool"
        )
        if isinstance(value, float) and value == 0:  # 0.0 and -0.0 are two numbers, 0 is both
            negative = math.copysign(1.0, value) < 0
            self.test(f"repr({at}.value).startswith('-') is not {negative}")
        return Const, None

    def name(self, name: str, at: str) -> Found:
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

    def mapped(self, term: c.MappedTerm, at: str) -> Found:
        """`x[is..]`: x under any index map."""
        self.test(f"{at}.__class__ is not Remap")
        self.capture(term.map, f"{at}.map", "map")
        self.pattern(term.x, self.part(at, "x"))
        return Remap, None

    def stored(self, term: c.MatTerm, at: str) -> Found:
        if self.bind:  # on fusion's tables a `mat` is a decision still open, not a node
            inner = self.fresh()
            self.line(f"{inner} = site.stored({at})")
            self.test(f"{inner} is None")
        else:
            self.test(f"{at}.__class__ is not Mat")
            inner = self.part(at, "x")
        self.pattern(term.x, inner)
        return Mat, None

    def part(self, at: str, field: str) -> str:
        """A local for a field of a term."""
        inner = self.fresh()
        self.line(f"{inner} = {at}.{field}")
        return inner

    def reduction(self, term: c.ReduceTerm, at: str, root: bool) -> Found:
        if not root:
            self.test(f"{at}.__class__ is not Reduce")
        known = term.fn in FUNCTIONS
        if known:
            self.test(f"{at}.fn != {self.keep(term.fn)}")
        else:
            self.capture(term.fn, f"{at}.fn", "fn")
        self.sequence(term.over, f"{at}.over", "axis")
        self.pattern(term.x, self.part(at, "x"))
        return Reduce, term.fn if known else None

    def fold(self, term: c.FoldTerm, at: str, root: bool) -> Found:
        """`Fold(online.s, ks.., (x, v))`: a variable for the part matches any."""
        if not root:
            self.test(f"{at}.__class__ is not Fold")
        if term.part in PARTS:
            self.test(f"{at}.part != {self.keep(term.part)}")
        else:
            self.capture(term.part, f"{at}.part", "part")
        self.sequence(term.over, f"{at}.over", "axis")
        self.sequence(term.operands, f"{at}.args", "term")
        return Fold, None

    def cases(self, term: c.CaseTerm, at: str, root: bool) -> Found:
        if not root:
            self.test(f"{at}.__class__ is not Case")
        self.arithmetic(term.condition, f"{at}.cond")
        a, b = self.fresh(), self.fresh()
        self.line(f"{a} = {at}.a; {b} = {at}.b")
        self.several(((term.a, a), (term.b, b)))
        return Case, None

    def function(self, term: c.FunctionTerm, at: str, root: bool) -> Found:
        if term.number is not None:  # `f32(2.0)` is a number with its dtype, not a cast of one
            self.pattern(term.number, at)
            self.test(f"{at}.dtype != {self.keep(HELD.get(term.fn, term.fn))}")
            return Const, None
        if not root:
            wrong = f" or {at}.fn != {self.keep(term.fn)}" if term.known else ""
            self.test(f"{at}.__class__ is not Elementwise{wrong}")
        if not term.known:
            self.capture(term.fn, f"{at}.fn", "fn")
        if term.known and FUNCTIONS[term.fn].commutative and len(term.operands) == 2 and not term.runs:
            a, b, x, y = self.fresh(), self.fresh(), self.fresh(), self.fresh()
            self.line(f"{a}, {b} = {at}.args")
            self.loop(f"for {x}, {y} in (({a}, {b}), ({b}, {a})):")
            self.several(((term.operands[0], x), (term.operands[1], y)))
        else:
            self.sequence(term.operands, f"{at}.args", "term")
        return Elementwise, term.fn if term.known else None

    def several(self, pairs: tuple[tuple[c.ValueTerm, str], ...]) -> None:
        """Sub-patterns, the one that refuses soonest first: numbers and what is bound, operations, variables."""

        def eagerness(pair: tuple[c.ValueTerm, str]) -> int:
            term = pair[0]
            if isinstance(term, c.NameTerm):
                return 0 if term.name in self.bound else 1 if term.name in self.defined else 2
            return 0 if isinstance(term, c.NumberTerm) else 1

        for term, at in sorted(pairs, key=eagerness):
            self.pattern(term, at)

    def sequence(self, items: tuple[Any, ...], values: str, kind: str) -> None:
        """A list of items with runs among them: a loop over every run's end but the last one's, which is determined."""
        runs = [place for place, item in enumerate(items) if isinstance(item, c.RunTerm)]
        found = self.fresh()
        self.line(f"{found} = {values}")
        fixed = len(items) - len(runs)
        self.test(f"len({found}) {'<' if runs else '!='} {fixed}")
        position, waiting = "0", []
        for place, item in enumerate(items):
            if isinstance(item, c.RunTerm):
                after = len(items) - place - 1 - sum(1 for run in runs if run > place)
                end = self.fresh()
                if place == runs[-1]:
                    self.line(f"{end} = len({found}) - {after}")
                else:
                    self.loop(f"for {end} in range({position}, len({found}) - {after} + 1):")
                self.capture(item.name, f"{found}[{position}:{end}]", "terms" if kind == "term" else "axes")
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
