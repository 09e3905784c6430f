"""Programs that a rule should reach: its own pattern, with values for its variables.

A statement of a pattern is filled in by the schema of its class, then completed (`whole_programs`). A run `xs..`
becomes random statements: loads over the loops in scope, products, sums, stores, reads of shared-memory tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from ...ir import compose
from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Call, Var, add, binary, floordiv, modulo, multiply, subtract
from ...ir.facts.index import operate
from ...ir.functions import CAST, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.loop import Accumulate, For, Let, Load, Store
from ...ir.monoid_texts import NAMES as MONOIDS
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.node import Field, replace
from ...ir.program import Block, Kernel
from ...ir.tensor import Case, Const, Elementwise, Index, Input, Mat, Output, Reduce, TensorGraph, Term, axes, dtype
from ...ir.text.read_statements import CLOSED, Shape, named
from ...ir.tile import Combine, Stage, Tile
from ..language import core as c
from ..language import core as s
from ..language.rule import Rule
from ..language.typed_slots import calls, shape_of
from ..rewrite.statements.template import defined
from .meaning import COUNT
from .outcome import Dice, constant, numeral

EXTENTS = (4, 8, 2, 16, 3, 5, 1, 32, 7, 12)
LONGEST = 64  # of the extents that a rule names
UNKNOWN = 4  # the extent of a loop whose end is computed
ROLES = ("BLOCK", "THREAD", "REG")
CALLED = ("exp", "abs")
Program = tuple[Kernel, ...]


@dataclass(frozen=True)
class SubjectScope:
    """Names that the program can use at one position.

    extents: of loops and axes; storing: whether stores are allowed here.
    """

    extents: dict[str, int] = field(default_factory=dict)
    parallel: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    storing: bool = True

    def inner(self, name: str, extent: Any, role: str) -> SubjectScope:
        """Return the scope inside of a loop, or below an axis."""
        extents = {**self.extents, name: extent if isinstance(extent, int) else UNKNOWN}
        if role in ("reduce", "serial"):
            return SubjectScope(extents, self.parallel, (*self.summed, name), False)
        return SubjectScope(extents, (*self.parallel, name), self.summed, self.storing)


class Instance:
    """One way to fill in the pattern of a rule: each statement by the schema of its class."""

    def __init__(self, rule: Rule, dice: Dice):
        self.rule, self.dice = rule, dice
        self.values: dict[str, Any] = {}  # by variable of the pattern
        self.defined = frozenset(defined(rule.match, frozenset()))
        self.unread: list[Stage] = []  # copies that nothing has read yet
        self.every: list[Stage] = []
        self.count = 0
        self.options: dict[str, Any] = {
            "Fn": ("add", "maximum"), "MonoidName": MONOIDS, "AtomName": tuple(ATOMS), "Dtype": ("f32",),
            "Int": (3, 2, 1), "Num": (0.0, 1.0),
            "Via": ("SYNC", "ASYNC") if any(call.fn == "Wait" for call in calls(rule.match)) else ("SYNC",),
        }  # fmt: skip

    def program(self) -> Program:
        """Return the kernel, its buffers still undeclared. Raises DplcError for an unsupported pattern."""
        statements, scope = self.rule.match, SubjectScope()
        if isinstance(statements[0], s.Unit):
            statements = statements[0].body
        framed = self.rule.level == "tile" and all(call.fn != "Tile" for call in calls(statements))
        axes = []
        for name in self.dice.pick((("i", "j"), ("t",), ("i", "j", "r"))) if framed else ():
            role = "REG" if name == "r" else "BLOCK" if name == "i" and self.dice.often(30) else "THREAD"
            axes.append(Axis(name, self.dice.pick((4, 8, 3, 16)), role))
            scope = scope.inner(name, axes[-1].extent, role)
        body = self.block(statements, scope)
        if framed:
            if self.dice.often(30):  # the pattern as a whole comes again
                body = (For("again", 0, self.dice.number(2, 3), body),)
            body += self.run(scope) if self.dice.often(30) else ()
            if self.every and self.dice.often(40):
                body += self.read(replace(self.dice.pick(self.every), slot=0), scope)
            body = (Tile(tuple(axes), body),)
        return (Kernel("subject", (), (), body),)

    # ---- the pattern
    def block(self, statements: s.Nodes, scope: SubjectScope) -> Block:
        return tuple(made for node in statements for made in self.statement(node, scope))

    def statement(self, node: s.Syntax, scope: SubjectScope) -> Block:
        if isinstance(node, s.RunStatement):
            spare = getattr(node.run.base, "text", "") in ("pre", "mid", "post")
            return self.known(node.run.base, lambda: self.run(scope, spare))  # type: ignore[no-any-return]
        if isinstance(node, s.InsideBlock):
            return (*self.run(scope, True), *self.block(node.body, scope), *self.run(scope, True))
        shape = shape_of(node)
        if shape is None:
            raise DplcError("beyond the generator", node.span)
        many = self.dice.number(1, 2) if getattr(node, "repeat", None) else 1
        return tuple(made for _ in range(many) for made in self.filled(shape, scope))

    def filled(self, shape: Shape, scope: SubjectScope) -> Block:
        """Return a statement with values for what the pattern leaves open; a Combine follows its accumulation."""
        given, cls = self.fields(shape, scope), cast(Any, shape.cls)
        if cls is Tile:
            axes = [replace(axis, role=axis.role or self.dice.pick(ROLES)) for axis in given["axes"]]
            given["axes"] = tuple(
                sorted(axes, key=lambda axis: ROLES.index(axis.role)) if self.dice.often(50) else axes
            )
            scope = SubjectScope()
            for axis in given["axes"]:
                scope = scope.inner(axis.name, axis.extent, axis.role)
        elif cls is For:
            scope = scope.inner(given["var"], given["stop"], given.get("role", "serial"))
        elif cls is Stage:
            given |= self.copied(given, scope)
        if "body" in cls.by_name:
            given["body"] = self.block(shape.body or (), scope)
        made = cls(**given)
        if cls is Combine:
            return (Accumulate(made.acc, made.fn, 1.0), made)
        if cls is Stage:
            self.unread.append(made)
            self.every.append(made)
        return (made,)

    def fields(self, shape: Shape, scope: SubjectScope) -> dict[str, Any]:
        """Return values for the fields that a pattern mentions, and for those that a node must have."""
        given: dict[str, Any] = {}
        for one in shape.cls.fields:
            value = shape.fields.get(one.name)
            if one.sort == "Block" or (value is None and not one.required):
                continue
            if isinstance(value, tuple):
                given[one.name] = tuple(made for item in value for made in self.item(one, item, scope))
            elif one.many:
                given[one.name] = self.known(value, functools.partial(self.several, one, None, scope))
            else:
                given[one.name] = self.value(one, value, scope)
        return given

    def known(self, variable: Any, draw: Callable[[], Any]) -> Any:
        """Return the value of a variable, drawn at its first mention; `_` has another value each time."""
        if not isinstance(variable, s.NameOf) or variable.text == "_":
            return draw()
        if variable.text not in self.values:
            self.values[variable.text] = draw()
        return self.values[variable.text]

    def item(self, one: Field, item: s.Syntax, scope: SubjectScope) -> tuple[Any, ...]:
        if not isinstance(item, s.Run):
            return (self.value(one, item, scope),)
        return self.known(item.base, lambda: self.several(one, item.role, scope))  # type: ignore[no-any-return]

    def several(self, one: Field, role: str | None, scope: SubjectScope) -> tuple[Any, ...]:
        """Return the elements of a run in a list: axes of a tile, an index, axes of a reduction."""
        if one.sort == "Axis":
            roles = (role,) if role in ROLES else ROLES
            return tuple(
                Axis(self.fresh(self.dice.pick("abcde")), self.dice.pick((2, 4, 3, 8)), self.dice.pick(roles))
                for _ in range(self.dice.pick((1, 2, 1, 2, 1, 2, 0)))
            )
        return self.index(scope) if one.name == "idx" else (Var(self.dice.pick(scope.parallel or ("t",))),)

    def value(self, one: Field, node: Any, scope: SubjectScope) -> Any:
        """Return the value of a field, or of an element of a list."""
        node = s.bare(node)
        if node is not None and (number := s.constant_of(node)) is not None:
            return number
        nested = shape_of(node) if isinstance(node, s.AxisItem | s.ParamItem | s.Apply) else None
        if nested is not None:
            return cast(Any, nested.cls)(**self.fields(nested, scope))
        if (
            isinstance(node, s.NameOf)
            and (one.sort == "Name" or node.text in CLOSED.get(one.sort, ()))
            and node.text != "_"
        ):
            return node.text
        if one.sort not in ("Expr", "Over"):
            return self.known(node, lambda: self.draw(one, scope))
        if isinstance(node, s.Operation):
            sides = one if node.op in ("and", "or") else For.by_name["stop"]
            return binary(node.op, self.value(sides, node.a, scope), self.value(sides, node.b, scope))
        if isinstance(node, s.Apply):
            fn = node.fn if node.fn in FUNCTIONS else self.known(named(node.fn, node), lambda: self.dice.pick(CALLED))
            return Call(fn, tuple(self.value(one, item, scope) for item in node.items))
        if isinstance(node, s.NameOf) and node.text in self.defined | scope.extents.keys():
            return Var(node.text)
        return self.known(node, lambda: self.draw(one, scope))

    def draw(self, one: Field, scope: SubjectScope) -> Any:
        """Return a value for a field that the pattern leaves open."""
        if one.sort in self.options:
            return self.dice.pick(self.options[one.sort])
        if one.sort == "Role":
            return self.dice.pick(ROLES if one.default is None else ("reduce", "serial", "free"))
        if one.sort == "Name":
            return self.fresh("n")
        name = self.dice.pick(list(scope.extents) or ["i"])
        if one.name in ("cond", "when"):
            return binary("<", Var(name), self.dice.number(1, max(2, scope.extents.get(name, 4) + 1)))
        if one.name in ("stop", "step", "extent"):
            return numeral(self.dice, EXTENTS, 1, LONGEST)
        if one.name in ("val", "vals"):
            return Call("multiply", (Var(name), 2)) if self.dice.often(50) else Var(self.fresh("x"))
        return 0 if one.name in ("start", "slot", "origin") else Var(name)

    def copied(self, given: dict[str, Any], scope: SubjectScope) -> dict[str, Any]:
        """Return the box of a copy: one or two dimensions, whose origin moves with the enclosing loop."""
        count = len(given["box"]) or self.dice.number(1, 2)
        box = tuple(Axis(f"x{d}", self.dice.pick((4, 8, 16, 32, 5)), None, d) for d in range(count))
        origin, loop = [0] * count, scope.summed[-1:]
        made: dict[str, Any] = {"box": box, "via": given.get("via") or self.dice.pick(self.options["Via"])}
        if loop:
            origin[-1] = multiply(Var(loop[0]), box[-1].extent)
            made["slot"] = modulo(Var(loop[0]), given.get("depth", 1))
        return made | {"origin": tuple(origin)}

    # ---- runs
    def run(self, scope: SubjectScope, spare: bool = False) -> Block:
        """Return statements that are allowed here. spare: often none at all."""
        if spare and not self.dice.often(35):
            return ()
        kind = self.dice.number(0, 5) if scope.extents else 0
        waiting, self.unread = self.unread, []
        body: Block = tuple(made for stage in waiting for made in self.read(stage, scope))
        makers = [self.product] if kind in (1, 3) and len(scope.parallel) > 1 else []
        if kind in (2, 3, 5) and scope.storing:
            makers.append(self.row if kind == 5 else self.pointwise)
        for make in makers or [self.total] * (not waiting or kind > 2):
            body += make(scope)
        return body

    def row(self, scope: SubjectScope) -> Block:
        """Return a free loop over a row, as long as a loop of the pattern."""
        known = [value for value in self.values.values() if isinstance(value, int) and value > 1]
        name, extent = self.fresh("l"), self.dice.pick([*known, 8, 5])
        return (For(name, 0, extent, self.pointwise(scope.inner(name, extent, "free")), "free"),)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def index(self, scope: SubjectScope, whole: bool = False) -> tuple[Any, ...]:
        """Return an index of some names in scope, or of all of them: one by one, or as one number."""
        names = list(scope.extents)
        if len(names) > 1 and self.dice.often(35):  # the second one varies fastest
            chosen = names if whole else [self.dice.pick(names[:-1]), names[-1]]
            flat: Any = 0
            for name in chosen:
                flat = add(multiply(flat, scope.extents[name]), Var(name))
            return (flat,)
        chosen = names if whole else [name for name in names if self.dice.often(60)] or names[-1:]
        return tuple(map(Var, chosen)) or (0,)

    def loaded(self, buffer: str, index: tuple[Any, ...], fn: str = "add") -> Block:
        """Return a sum of the elements of a buffer."""
        value, total = self.fresh("v"), self.fresh("acc")
        return Load(value, buffer, index), Accumulate(total, fn, Var(value))

    def total(self, scope: SubjectScope) -> Block:
        return self.loaded(self.fresh("X"), self.index(scope), self.dice.pick(self.options["Fn"]))

    def read(self, stage: Stage, scope: SubjectScope) -> Block:
        """Return a sum over the contents of a shared-memory tile."""
        cells = []
        for axis in stage.box:
            fitting = [Var(name) for name in scope.parallel if scope.extents[name] <= axis.extent]
            cells.append(self.dice.pick([*fitting, self.dice.number(0, axis.extent - 1)]))
        return self.loaded(stage.dst, (*((stage.slot,) if stage.depth > 1 else ()), *cells))

    def product(self, scope: SubjectScope) -> Block:
        """Return a contraction over the reduced name in scope, or over a loop of its own."""
        i, j = map(Var, scope.parallel[-2:])
        k = Var(scope.summed[-1] if scope.summed else self.fresh("k"))
        a, b, p = (self.fresh(letter) for letter in "abp")
        body = (
            Load(a, f"A{self.count}", (i, k)), Load(b, f"B{self.count}", (k, j)),
            Let(p, Call("multiply", (Var(a), Var(b)))), Accumulate(self.fresh("acc"), "add", Var(p)),
        )  # fmt: skip
        return body if scope.summed else (For(k.name, 0, self.dice.pick((4, 8, 6)), body, "reduce"),)

    def pointwise(self, scope: SubjectScope) -> Block:
        value = self.fresh("v")
        return (
            Load(value, self.fresh("X"), self.index(scope)),
            Store(self.fresh("Y"), self.index(scope, whole=True), Var(value)),
        )


# ---- Tensor IR programs that a rule on tensor should reach: its own pattern, with values put in for its variables.


NUMBERS = (2.0, 0.5, 3.0, 1.0, 0.0, -1.0, 8.0, 0.25, 6.0, -2.0)
UNARY = ("exp", "abs", "negative", "relu", "sqrt", "tanh", "copy", "logical_not", "sigmoid", "log")
BINARY = ("multiply", "add", "subtract", "maximum", "divide", "minimum", "less", "logical_and", "equal")
FOLDS = ("add", "maximum", "minimum", "multiply")
TERM_EXTENTS = (3, 4, 2, 5, 7)
LONGEST_TERM, SHORT = 64, 12  # of the extents that a rule names: one long axis is enough


class TermInstance:
    """One way to fill in a pattern. fusion: leaves are computed values, for a rule that moves a `mat`."""

    def __init__(self, rule: Rule, dice: Dice, fusion: bool = False):
        self.rule, self.dice, self.fusion = rule, dice, fusion
        self.axes = tuple(
            Axis(name, numeral(dice, TERM_EXTENTS, 1, LONGEST_TERM if name == "i" else SHORT)) for name in "ijkl"
        )
        self.ins: list[Input] = []
        self.values: dict[str, Term] = {}
        self.names: dict[str, Any] = {}
        self.counting = False
        said = c.terms((*rule.left.values(), *rule.left_axes.values()), c.AxisTerm)
        self.said = {axis.name: axis.extent for axis in said if isinstance(axis.extent, int)}

    def graph(self) -> TensorGraph:
        """Return a program around the pattern's root: stored, read by something, or read twice."""
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
        last = self.rule.rewrite[-1] if self.rule.rewrite else None
        return names if (isinstance(last, c.Assign) and isinstance(last.target, c.Group)) else names[-1:]

    # ---- the pattern
    def value(self, term: c.ValueTerm, kind: str) -> Term:
        """Return the term of a piece of the pattern. kind: the dtype that its position requires."""
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
        """Return a function for a variable, of an arity that fits the items."""
        if term.fn not in self.names or term.fn == "_":
            fixed = len([x for x in term.operands if not isinstance(x, c.RunTerm)])
            options = [
                fn for fn in (*UNARY, *BINARY)
                if FUNCTIONS[fn].arity == fixed or (term.runs and FUNCTIONS[fn].arity > fixed)
            ]  # fmt: skip
            self.names[term.fn] = self.dice.pick(options or BINARY)
        return str(self.names[term.fn])

    def place(self, fn: str, position: int, kind: str) -> str:
        """Return the dtype that an argument should have."""
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
        """Return an axis of x for each axis that a reduction names."""
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
        items = [x for x in term.args if not isinstance(x, c.RunTerm)]
        args: list[Term] = []
        for place, operand in enumerate(monoid.operands):
            self.counting = operand == COUNT
            args.append(self.value(items[place], "f32") if place < len(items) else self.leaf("f32"))
            self.counting = False
        return compose.fold(part, self.over(term.over, args[0]), args)

    def axis(self, name: str) -> Axis:
        """Return an axis that the pattern names, with the extent that the pattern gives."""
        extent = self.said.get(name) or self.dice.pick(TERM_EXTENTS)
        made: Axis = self.names.setdefault(name, Axis(f"{name}_", extent))
        return made

    def read(self, term: c.ReadTerm, name: str) -> Term:
        """Return `x[i, k]`: an input over these axes, the same for every read of x.

        The input is longer than the axes if the indices are sums.
        """
        if name not in self.values:
            reads = [r.places for r in c.terms(tuple(self.rule.left.values()), c.ReadTerm) if r.x == term.x]
            reads = [places for places in reads if len(places) == len(term.places)]
            own = [
                self.axis(at[0].text) if all(isinstance(i, c.NameOf) for i in at) else Axis(f"{name}_{n}", LONGEST_TERM)  # type: ignore[attr-defined]
                for n, at in enumerate(zip(*reads, strict=True))
            ]
            if len(set(own)) < len(own):
                own = [Axis(f"{name}_{n}", axis.extent) for n, axis in enumerate(own)]
            self.values[name] = Input(name, tuple(own), "f32")
            self.ins.append(self.values[name])  # type: ignore[arg-type]
        x = self.variable(name, "f32")
        return compose.remap(x, dict(zip(axes(x), map(self.place_of, term.places), strict=False)))

    def place_of(self, node: c.Syntax) -> Any:
        """Return an index expression over the axes that it names."""
        node = c.bare(node)
        if isinstance(node, c.Operation) and node.op in ("+", "-", "*", "//", "%"):
            return operate(node.op, self.place_of(node.a), self.place_of(node.b))
        return self.axis(node.text) if isinstance(node, c.NameOf) else getattr(node, "value", 0)

    def remapped(self, x: Term) -> Term:
        """Return a value under some index map."""
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
        """Return an input over some axes; sometimes a number, a computed value, or an input of another dtype."""
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
        """Return a value that is not an input: a product, a sum or a function of x."""
        if x.__class__ not in (Input, Const) or dtype(x) == "b8":
            return x
        choice = self.dice.number(0, 3)
        if choice == 0 and len(axes(x)) > 1:
            return Reduce("add", (self.dice.pick(axes(x)),), x)
        if choice == 1:
            product = Elementwise("multiply", (x, self.input(dtype(x))))
            return Reduce("add", (self.dice.pick(axes(product)),), product)
        return Elementwise(self.dice.pick(("exp", "negative", "copy")), (x,))


def places(axis: Axis, other: Axis) -> list[Any]:
    """Return ways to read along one axis at indices computed from another one, none of them out of range."""
    most, room = other.extent - 1, axis.extent - other.extent
    ways: list[Any] = [floordiv(other, -(-other.extent // axis.extent))]
    ways += [other, add(other, room), subtract(axis.extent - 1, other)] if room >= 0 else []
    return ways + ([multiply(other, 2)] if 2 * most < axis.extent else [])
