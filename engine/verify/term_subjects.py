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
from ...ir.text import syntax as s
from ..language.positions import walk
from ..language.rule import Rule
from ..rewrite.terms.pattern import constant_of, definitions, fold_part
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
        self.defined = definitions(rule, rule.match[-1:] if _grouped(rule) else rule.match)
        self.axes = tuple(Axis(name, numeral(dice, EXTENTS, 1, LONGEST if name == "i" else SHORT)) for name in "ijkl")
        self.ins: list[Input] = []
        self.values: dict[str, Term] = {}
        self.names: dict[str, Any] = {}
        self.counting = False
        self.said = dict(extents_said(rule))  # axis -> extent

    def graph(self) -> TensorGraph:
        """A program around the pattern's root: stored, read by something, or read twice."""
        roots = [self.value(s.NameOf(self.rule.span, name), "f32") for name in self._roots()]
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
        if self.rule.rewrite and _grouped(self.rule):
            return tuple(definitions(self.rule, self.rule.match))
        return (list(definitions(self.rule, self.rule.match))[-1],)

    # ---- the pattern
    def value(self, node: s.Syntax, kind: str) -> Term:
        """The term of a piece of the pattern. kind: the dtype that its place wants."""
        number = constant_of(node)
        if isinstance(node, s.NameOf) and number is None:
            return self.variable(node.text, kind)
        if number is not None:
            return compose.const(number, kind if kind != "b8" or isinstance(number, bool) else "f32")
        if isinstance(node, s.Subscript):
            return self.remapped(node)
        if isinstance(node, s.Apply):
            return self.applied(node, kind)
        return self.leaf(kind)

    def variable(self, name: str, kind: str) -> Term:
        if name == "_":
            return self.leaf(kind)
        if name not in self.values:
            made = definitions(self.rule, self.rule.match).get(name)
            self.values[name] = self.leaf(kind) if made is None else self.value(made, kind)
        return self.values[name]

    def applied(self, node: s.Apply, kind: str) -> Term:
        if node.fn == "mat":
            return Mat(self.computed(self.value(node.items[0], kind)))
        if node.fn == "Reduce":
            return self.reduced(node, kind)
        if node.fn == "Fold":
            return self.folded(node, kind)
        if node.fn == "Case":
            a, b = self.value(node.items[-2], kind), self.value(node.items[-1], kind)
            axis = self.dice.pick(self.axes)
            return Case(binary("<", axis, self.dice.number(1, 3)), a, b)
        if node.fn == "Index":
            return Index(self.dice.pick(self.axes))
        fn = node.fn if node.fn in FUNCTIONS else self.function(node)
        args: list[Term] = []
        wanted = len([item for item in node.items if not isinstance(item, s.Run)])
        arity = FUNCTIONS[fn].arity
        for item in node.items:
            if isinstance(item, s.Run):  # the runs take what the function has more than the items
                free = max(0, arity - wanted - len(args))
                missing = free if item is node.items[-1] else self.dice.number(0, free)
                args += [self.leaf(self.place(fn, len(args), kind)) for _ in range(missing)]
            else:
                args.append(self.value(item, self.place(fn, len(args), kind)))
                wanted -= 1
        while len(args) < arity:
            args.append(self.leaf(self.place(fn, len(args), kind)))
        return Elementwise(fn, compose.agreed(fn, args[:arity]))

    def function(self, node: s.Apply) -> str:
        """A function for a variable, of an arity that fits the items."""
        if node.fn not in self.names or node.fn == "_":
            fixed = len([item for item in node.items if not isinstance(item, s.Run)])
            runs = len(node.items) > fixed
            options = [
                fn for fn in (*UNARY, *BINARY) if FUNCTIONS[fn].arity == fixed or (runs and FUNCTIONS[fn].arity > fixed)
            ]
            self.names[node.fn] = self.dice.pick(options or BINARY)
        return str(self.names[node.fn])

    def place(self, fn: str, position: int, kind: str) -> str:
        """The dtype that an argument should have."""
        function = FUNCTIONS[fn]
        if function.kind == LOGICAL or (function.kind == SELECT and position == 0):
            return "b8"
        if function.kind == CAST:
            return "f32" if fn in HELD else self.dice.pick((fn, "f32", "i64"))
        return "f32" if kind == "b8" else kind

    def reduced(self, node: s.Apply, kind: str) -> Term:
        fold = node.items[0].text if isinstance(node.items[0], s.NameOf) else "add"
        if fold not in FUNCTIONS:
            fold = self.names.setdefault(fold, self.dice.pick(FOLDS))
        x = self.value(node.items[-1], kind)
        over: list[Axis] = []
        for item in node.items[1:-1]:
            name = (
                item.base.text
                if isinstance(item, s.Run) and isinstance(item.base, s.NameOf)
                else getattr(item, "name", getattr(item, "text", "_"))
            )
            options = [axis for axis in axes(x) if axis not in over] or [a for a in self.axes if a not in over]
            axis = self.names.setdefault(name, self.dice.pick(options))
            over += [axis] if axis not in over else []
        return Reduce(fold, tuple(over), x)

    def folded(self, node: s.Apply, kind: str) -> Term:
        part, given = fold_part(node), node.items[-1]
        if part not in PARTS:
            part = self.names.setdefault(str(part), self.dice.pick(tuple(PARTS)))
        monoid, _ = of_part(part)
        items = [item for item in given.items if not isinstance(item, s.Run)]  # type: ignore[attr-defined]
        args: list[Term] = []
        for place, operand in enumerate(monoid.operands):
            self.counting = operand == COUNT
            args.append(self.value(items[place], "f32") if place < len(items) else self.leaf("f32"))
            self.counting = False
        over: list[Axis] = []
        for item in node.items[1:-1]:
            name = item.base.text if isinstance(item, s.Run) else getattr(item, "text", "_")  # type: ignore[attr-defined]
            options = [axis for axis in axes(args[0]) if axis not in over] or [a for a in self.axes if a not in over]
            axis = self.names.setdefault(name, self.dice.pick(options))
            over += [axis] if axis not in over else []
        return compose.fold(part, over, args)

    def axis(self, name: str) -> Axis:
        """An axis that the pattern names, as long as the pattern says."""
        extent = self.said.get(name) or self.dice.pick(EXTENTS)
        made: Axis = self.names.setdefault(name, Axis(f"{name}_", extent))
        return made

    def read(self, node: s.Subscript) -> Term:
        """`x[i, k]`: an input over these axes, the same when it is read again; at places that are sums it is longer."""
        assert isinstance(node.base, s.NameOf)
        name = node.base.text
        if name not in self.values:
            reads = [items for items in self.reads(name) if len(items) == len(node.items)]
            own = [
                self.axis(at[0].text) if all(isinstance(i, s.NameOf) for i in at) else Axis(f"{name}_{n}", LONGEST)  # type: ignore[attr-defined]
                for n, at in enumerate(zip(*reads, strict=True))
            ]
            if len(set(own)) < len(own):
                own = [Axis(f"{name}_{n}", axis.extent) for n, axis in enumerate(own)]
            self.values[name] = Input(name, tuple(own), "f32")
            self.ins.append(self.values[name])  # type: ignore[arg-type]
        x = self.variable(name, "f32")
        return compose.remap(x, dict(zip(axes(x), map(self.place_of, node.items), strict=False)))

    def reads(self, name: str) -> list[tuple[s.Syntax, ...]]:
        """The brackets in which the pattern reads a value."""
        every = (one for one in walk(self.rule.match) if isinstance(one, s.Subscript))
        return [one.items for one in every if isinstance(one.base, s.NameOf) and one.base.text == name]

    def place_of(self, node: s.Syntax) -> Any:
        """An index expression over the axes that it names."""
        if isinstance(node, s.Operation) and node.op in ("+", "-", "*", "//", "%"):
            return operate(node.op, self.place_of(node.a), self.place_of(node.b))
        if isinstance(node, s.Group) and len(node.items) == 1:
            return self.place_of(node.items[0])
        return self.axis(node.text) if isinstance(node, s.NameOf) else getattr(node, "value", 0)

    def remapped(self, node: s.Subscript) -> Term:
        runs = any(isinstance(item, s.Run) for item in node.items)
        if isinstance(node.base, s.NameOf) and node.base.text not in self.defined and not runs:
            return self.read(node)
        x = self.value(node.base, "f32")
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
    for item in walk(rule.match):
        if isinstance(item, s.AxisItem) and isinstance(item.extent, s.Number):
            yield item.name, int(item.extent.value)


def places(axis: Axis, other: Axis) -> list[Any]:
    """Ways to read along one axis at places of another one, none of them outside."""
    most, room = other.extent - 1, axis.extent - other.extent
    ways: list[Any] = [floordiv(other, -(-other.extent // axis.extent))]
    ways += [other, add(other, room), subtract(axis.extent - 1, other)] if room >= 0 else []
    return ways + ([multiply(other, 2)] if 2 * most < axis.extent else [])


def _grouped(rule: Rule) -> bool:
    """Whether the rule has two roots."""
    last = rule.rewrite[-1] if rule.rewrite else None
    return isinstance(last, s.Assign) and isinstance(last.target, s.Group)
