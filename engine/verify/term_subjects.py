"""Tensor IR programs that a rule on tensor should reach: its own pattern, with values put in for its variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir import compose
from ...ir.expr import Axis, add, binary, floordiv, multiply, subtract
from ...ir.facts.index import operate
from ...ir.functions import CAST, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.tensor import Case, Const, Elementwise, Index, Input, Mat, Output, Reduce, TensorGraph, Term, axes, dtype
from ..language import core as c
from ..language.rule import Rule
from .outcome import Dice, constant, numeral
from .reals import COUNT

NUMBERS = (2.0, 0.5, 3.0, 1.0, 0.0, -1.0, 8.0, 0.25, 6.0, -2.0)
UNARY = ("exp", "abs", "negative", "relu", "sqrt", "tanh", "copy", "logical_not", "sigmoid", "log")
BINARY = ("multiply", "add", "subtract", "maximum", "divide", "minimum", "less", "logical_and", "equal")
FOLDS = ("add", "maximum", "minimum", "multiply")
EXTENTS = (3, 4, 2, 5, 7)
LONGEST, SHORT = 64, 12  # of the extents that a rule names: one long axis is enough


class TermInstance:
    """One way to fill in a pattern. fusion: leaves are computed values, for a rule that moves a `mat`."""

    def __init__(self, rule: Rule, dice: Dice, fusion: bool = False):
        self.rule, self.dice, self.fusion = rule, dice, fusion
        self.axes = tuple(Axis(name, numeral(dice, EXTENTS, 1, LONGEST if name == "i" else SHORT)) for name in "ijkl")
        self.ins: list[Input] = []
        self.values: dict[str, Term] = {}
        self.names: dict[str, Any] = {}
        self.counting = False
        self.said = dict(extents_said(rule))  # axis -> extent

    def graph(self) -> TensorGraph:
        """A program around the pattern's root: stored, read by something, or read twice."""
        roots = [self.variable(name, "f32") for name in self._roots()]
        outs = []
        for root in roots:
            around = self.dice.number(0, 3)
            if around == 1 or root.__class__ in (Input, Const, Index, Mat):
                root = Elementwise("copy", (root,))
            elif around == 2 and dtype(root) == "f32":
                root = Elementwise("exp", (root,))
            elif around == 3:
                root = Elementwise("add" if dtype(root) != "b8" else "logical_or", (root, root))
            outs.append(root)
            if self.fusion and self.dice.often(50):
                outs.append(Elementwise(self.dice.pick(("sqrt", "relu", "tanh")), (root,)))
        if self.dice.often(25):
            outs.append(Elementwise("copy", (self.leaf("f32"),)))
        named = tuple(Output(f"out{n}", axes(value), value) for n, value in enumerate(dict.fromkeys(outs)))
        return TensorGraph(f"g{self.dice.number(0, 99)}", tuple(self.ins), named)  # the name decides the inputs too

    def _roots(self) -> tuple[str, ...]:
        names = tuple(self.rule.left)
        return names if _grouped(self.rule) else names[-1:]

    # ---- the pattern
    def value(self, term: c.ValueTerm, kind: str) -> Term:
        """The term of a piece of the pattern. kind: the dtype that its place wants."""
        match term:
            case c.NumberTerm():
                return compose.const(term.value, kind if kind != "b8" or isinstance(term.value, bool) else "f32")
            case c.NameTerm():
                return self.variable(term.name, kind)
            case c.ReadTerm() if isinstance(term.x, c.NameTerm) and term.x.name not in self.rule.left:
                return self.read(term, term.x.name)
            case c.MappedTerm() | c.ReadTerm():
                return self.remapped(self.value(term.x, "f32"))
            case c.MatTerm():
                return Mat(self.computed(self.value(term.x, kind)))
            case c.ReduceTerm():
                return self.reduced(term, kind)
            case c.FoldTerm():
                return self.folded(term)
            case c.CaseTerm():
                a, b = self.value(term.a, kind), self.value(term.b, kind)
                axis = self.dice.pick(self.axes)
                return Case(binary("<", axis, self.dice.number(1, 3)), a, b)
            case c.IndexTerm():
                return Index(self.dice.pick(self.axes))
            case c.FunctionTerm():
                return self.applied(term, kind)
        return self.leaf(kind)

    def variable(self, name: str, kind: str) -> Term:
        if name == "_":
            return self.leaf(kind)
        if name not in self.values:
            made = self.rule.left.get(name)
            self.values[name] = self.leaf(kind) if made is None else self.value(made, kind)
        return self.values[name]

    def applied(self, term: c.FunctionTerm, kind: str) -> Term:
        fn = term.fn if term.known else self.function(term)
        args: list[Term] = []
        wanted = len([x for x in term.operands if not isinstance(x, c.RunTerm)])
        arity = FUNCTIONS[fn].arity
        for operand in term.operands:
            if isinstance(operand, c.RunTerm):  # the runs take what the function has more than the items
                free = max(0, arity - wanted - len(args))
                missing = free if operand is term.operands[-1] else self.dice.number(0, free)
                args += [self.leaf(self.place(fn, len(args), kind)) for _ in range(missing)]
            else:
                args.append(self.value(operand, self.place(fn, len(args), kind)))
                wanted -= 1
        while len(args) < arity:
            args.append(self.leaf(self.place(fn, len(args), kind)))
        return Elementwise(fn, compose.agreed(fn, args[:arity]))

    def function(self, term: c.FunctionTerm) -> str:
        """A function for a variable, of an arity that fits the items."""
        if term.fn not in self.names or term.fn == "_":
            fixed = len([x for x in term.operands if not isinstance(x, c.RunTerm)])
            options = [
                fn for fn in (*UNARY, *BINARY)
                if FUNCTIONS[fn].arity == fixed or (term.runs and FUNCTIONS[fn].arity > fixed)
            ]  # fmt: skip
            self.names[term.fn] = self.dice.pick(options or BINARY)
        return str(self.names[term.fn])

    def place(self, fn: str, position: int, kind: str) -> str:
        """The dtype that an argument should have."""
        function = FUNCTIONS[fn]
        if function.kind == LOGICAL or (function.kind == SELECT and position == 0):
            return "b8"
        if function.kind == CAST:
            return "f32" if fn in HELD else self.dice.pick((fn, "f32", "i64"))
        return "f32" if kind == "b8" else kind

    def reduced(self, term: c.ReduceTerm, kind: str) -> Term:
        fold = term.fn
        if fold not in FUNCTIONS:
            fold = self.names.setdefault(fold, self.dice.pick(FOLDS))
        x = self.value(term.x, kind)
        return Reduce(fold, tuple(self.over(term.over, x)), x)

    def over(self, wanted: tuple[c.AxisTerm | c.RunTerm, ...], x: Term) -> list[Axis]:
        """An axis of x for each that a reduction names."""
        over: list[Axis] = []
        for item in wanted:
            options = [axis for axis in axes(x) if axis not in over] or [a for a in self.axes if a not in over]
            axis = self.names.setdefault(item.name, self.dice.pick(options))
            over += [axis] if axis not in over else []
        return over

    def folded(self, term: c.FoldTerm) -> Term:
        part = term.part
        if part not in PARTS:
            part = self.names.setdefault(part, self.dice.pick(tuple(PARTS)))
        monoid, _ = of_part(part)
        items = [x for x in term.operands if not isinstance(x, c.RunTerm)]
        args: list[Term] = []
        for place, operand in enumerate(monoid.operands):
            self.counting = operand == COUNT
            args.append(self.value(items[place], "f32") if place < len(items) else self.leaf("f32"))
            self.counting = False
        return compose.fold(part, self.over(term.over, args[0]), args)

    def axis(self, name: str) -> Axis:
        """An axis that the pattern names, as long as the pattern says."""
        extent = self.said.get(name) or self.dice.pick(EXTENTS)
        made: Axis = self.names.setdefault(name, Axis(f"{name}_", extent))
        return made

    def read(self, term: c.ReadTerm, name: str) -> Term:
        """`x[i, k]`: an input over these axes, the same when it is read again; at places that are sums it is longer."""
        if name not in self.values:
            reads = [r.places for r in c.terms(tuple(self.rule.left.values()), c.ReadTerm) if r.x == term.x]
            reads = [places for places in reads if len(places) == len(term.places)]
            own = [
                self.axis(at[0].text) if all(isinstance(i, c.NameOf) for i in at) else Axis(f"{name}_{n}", LONGEST)  # type: ignore[attr-defined]
                for n, at in enumerate(zip(*reads, strict=True))
            ]
            if len(set(own)) < len(own):
                own = [Axis(f"{name}_{n}", axis.extent) for n, axis in enumerate(own)]
            self.values[name] = Input(name, tuple(own), "f32")
            self.ins.append(self.values[name])  # type: ignore[arg-type]
        x = self.variable(name, "f32")
        return compose.remap(x, dict(zip(axes(x), map(self.place_of, term.places), strict=False)))

    def place_of(self, node: c.Syntax) -> Any:
        """An index expression over the axes that it names."""
        if isinstance(node, c.Operation) and node.op in ("+", "-", "*", "//", "%"):
            return operate(node.op, self.place_of(node.a), self.place_of(node.b))
        if isinstance(node, c.Group) and len(node.items) == 1:
            return self.place_of(node.items[0])
        return self.axis(node.text) if isinstance(node, c.NameOf) else getattr(node, "value", 0)

    def remapped(self, x: Term) -> Term:
        """A value under some index map."""
        own = axes(x)
        if not own:
            return x
        axis = self.dice.pick(own)
        others = [other for other in self.axes if other not in own]
        if others and self.dice.often(50):
            return compose.remap(x, {axis: self.dice.pick(places(axis, self.dice.pick(others)))})
        backwards = {axis: subtract(axis.extent - 1, axis)}
        return compose.remap(x, backwards)

    # ---- leaves
    def leaf(self, kind: str) -> Term:
        """An input over some axes; a number, a computed value, or an input of another dtype now and then."""
        if self.counting:  # of elements: 1 or more
            return Elementwise("add", (Elementwise("abs", (self.input("f32"),)), compose.const(1.0)))
        choice = self.dice.number(0, 9)
        if choice > 7 and not self.fusion and kind != "b8":
            return compose.const(constant(self.dice, NUMBERS), kind)
        if choice == 7 and kind == "f32" and not self.fusion:
            return self.input(self.dice.pick(("f16", "i64")))
        if (choice >= 6 or self.fusion) and kind == "f32":
            return self.computed(self.input(kind))
        if choice == 5 and len(self.ins) > 1:
            return self.dice.pick([x for x in self.ins if x.dtype == kind] or [self.input(kind)])
        return self.input(kind)

    def input(self, kind: str) -> Term:
        some = tuple(axis for axis in self.axes if self.dice.often(50)) or self.axes[:1]
        prefix = "weight" if self.dice.often(30) else "x"
        made = Input(f"{prefix}{len(self.ins)}", some, kind)
        self.ins.append(made)
        return made

    def computed(self, x: Term) -> Term:
        """A value that is not an input: a product, a sum or a function of x."""
        if x.__class__ not in (Input, Const) or dtype(x) == "b8":
            return x
        choice = self.dice.number(0, 3)
        if choice == 0 and len(axes(x)) > 1:
            return Reduce("add", (self.dice.pick(axes(x)),), x)
        if choice == 1:
            product = Elementwise("multiply", (x, self.input(dtype(x))))
            return Reduce("add", (self.dice.pick(axes(product)),), product)
        return Elementwise(self.dice.pick(("exp", "negative", "copy")), (x,))


def extents_said(rule: Rule) -> Iterator[tuple[str, int]]:
    """The axes of a pattern that it gives an extent."""
    for axis in (*c.terms(tuple(rule.left.values()), c.AxisTerm), *c.terms(tuple(rule.left_axes.values()), c.AxisTerm)):
        if isinstance(axis.extent, int):
            yield axis.name, axis.extent


def places(axis: Axis, other: Axis) -> list[Any]:
    """Ways to read along one axis at places of another one, none of them outside."""
    most, room = other.extent - 1, axis.extent - other.extent
    ways: list[Any] = [floordiv(other, -(-other.extent // axis.extent))]
    ways += [other, add(other, room), subtract(axis.extent - 1, other)] if room >= 0 else []
    return ways + ([multiply(other, 2)] if 2 * most < axis.extent else [])


def _grouped(rule: Rule) -> bool:
    """Whether the rule has two roots."""
    last = rule.rewrite[-1] if rule.rewrite else None
    return isinstance(last, c.Assign) and isinstance(last.target, c.Group)
