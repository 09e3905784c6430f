"""Programs that a rule should reach: its own pattern, with values for its variables, and programs near its examples.

A statement of a pattern is filled in by the schema of its class, then completed (`whole_programs`). A run `xs..`
becomes random statements: loads over the loops in scope, products, sums, stores, reads of shared-memory tiles.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, TypeVar

from ...ir import compose
from ...ir.diagnostic import DplcError
from ...ir.expr import (
    Axis,
    Binary,
    Call,
    Not,
    Sum,
    Var,
    add,
    binary,
    both,
    floordiv,
    free_names,
    modulo,
    multiply,
    rebuild,
    subtract,
    total,
)
from ...ir.facts.index import interval
from ...ir.functions import CAST, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.kernel import THREAD, Branch, Launch, Replicate
from ...ir.loop import LOOP_ROLES, Accumulate, For, If, Let, Load, Store
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.node import Expr, Field, Node, nodes, replace
from ...ir.program import Block, Kernel, Module, Stmt
from ...ir.substitute import substitute
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Index,
    Input,
    Mat,
    Output,
    Reduce,
    TensorGraph,
    Term,
    axes,
    dtype,
    terms,
)
from ...ir.text.read_statements import CLOSED, Shape, read_expr
from ...ir.tile import VIAS, Combine, CombineTuple, Mma, Stage, Sync, Tile, Wait, WaitMma
from ...ir.verify.kernel import problems
from ..language import core as c
from ..language.evaluate import Value
from ..language.rule import Rule
from ..language.typed_slots import names_in, says, shape_of
from ..rewrite.statements.driver import bound_names
from ..rewrite.statements.pattern import defined
from ..rewrite.statements.site import Context, holes, places, splice, unused
from ..rewrite.terms.rewriter import mentions_mat
from .outcome import ERRORS, Dice, constant, numeral
from .whole_programs import COUNT, TooLarge, closed, completed, sized

EXTENTS = (4, 8, 2, 16, 3, 5, 1, 32, 7, 12, 6, 13)
LONGEST, SHORT = 64, 12  # of the extents that a rule names; in a term one long axis is enough
UNKNOWN = 4  # the extent of a loop whose end is computed
ROLES = ("BLOCK", "THREAD", "REG")
IN_TURNS = ("reduce", "serial")
FOLDS = ("add", "maximum", "minimum", "multiply")
UNARY = ("exp", "abs", "negative", "relu", "tanh", "copy", "sigmoid")
BINARY = ("multiply", "add", "subtract", "maximum", "minimum", "divide")
FRAMES = (  # the axes around a pattern without a Tile, with their roles
    {"i": "THREAD", "j": "THREAD"}, {"t": "THREAD"}, {"i": "THREAD", "j": "THREAD", "r": "REG"},
    {"i": "BLOCK", "j": "THREAD"}, {"i": "BLOCK", "j": "THREAD", "r": "REG"},
)  # fmt: skip
# What a field is that the pattern leaves open, by its sort.
OPTIONS: dict[str, tuple[Value, ...]] = {
    **CLOSED, "Fn": FOLDS[:2], "Dtype": ("f32",), "Int": (3, 2, 1), "Num": (0.0, 1.0), "Via": ("SYNC",),
    "Role": (*IN_TURNS, "free"),
}  # fmt: skip
Scope = tuple[Axis, ...]  # the axes and loops around a position, outermost first


class Drawing:
    """The variables of the pattern of a rule with the values that they got, by name; and choices of the dice."""

    def __init__(self, rule: Rule, dice: Dice):
        self.rule, self.dice = rule, dice
        self.number, self.often, self.pick = dice.number, dice.often, dice.pick
        self.values: dict[str, Value] = {}

    def known(self, name: str | None, draw: Callable[..., Any], *args: Any) -> Any:
        """Return the value of a variable, drawn at its first mention; None and `_` have another one each time."""
        if name is None or name == "_":
            return draw(*args)
        if name not in self.values:
            self.values[name] = draw(*args)
        return self.values[name]

    def one_of(self, name: str, options: Sequence[Value], constants: Container[str] = ()) -> Any:
        """Return the value of a variable that is one of some options. constants: the names that are no variables."""
        return name if name in constants else self.known(name, self.pick, options)


class Instance(Drawing):
    """One way to fill in the pattern of a rule: each statement by the schema of its class."""

    def __init__(self, rule: Rule, dice: Dice):
        super().__init__(rule, dice)
        self.defined = defined(rule.match, frozenset())
        self.copies: list[Stage] = []
        self.unread: list[Stage] = []
        self.count = 0
        waits = says(rule.match, "Wait")
        self.options = OPTIONS | ({"Via": ("SYNC", "ASYNC")} if waits else {})

    def program(self) -> Module:
        """Return the kernel, its buffers still undeclared. Raises DplcError for an unsupported pattern."""
        pattern = self.rule.match
        if isinstance(pattern[0], c.Unit):
            pattern = pattern[0].body
        if self.rule.level != "tile" or says(pattern, "Tile"):
            return (Kernel("subject", (), (), self.block(pattern, ())),)
        scope = tuple(Axis(name, self.pick((4, 8, 3, 16)), role) for name, role in self.pick(FRAMES).items())
        body = self.block(pattern, scope)
        if self.often(30):  # the pattern as a whole comes again
            body = (For("again", 0, self.number(2, 3), body),)
        body += self.run(scope) if self.often(30) else ()
        if self.copies and self.often(40):
            body += self.read(replace(self.pick(self.copies), slot=0), scope)
        return (Kernel("subject", (), (), (Tile(scope, body),)),)

    # ---- the pattern
    def block(self, statements: c.Nodes, scope: Scope) -> Block:
        return tuple(made for node in statements for made in self.statement(node, scope))

    def statement(self, node: c.Syntax, scope: Scope) -> Block:
        if isinstance(node, c.RunStatement):
            name = name_of(node.run)
            return self.known(name, self.run, scope, name in ("pre", "mid", "post"))  # type: ignore[no-any-return]
        if isinstance(node, c.InsideBlock):
            return (*self.run(scope, True), *self.block(node.body, scope), *self.run(scope, True))
        shape = shape_of(node)
        if shape is None:
            raise DplcError("beyond the generator", node)
        many = self.number(1, 2) if getattr(node, "repeat", None) else 1
        return tuple(made for _ in range(many) for made in self.filled(shape, scope))

    def filled(self, shape: Shape, scope: Scope) -> Block:
        """Return a statement with values for what the pattern leaves open; a Combine follows its accumulation."""
        made = self.node(shape, scope)
        match made:
            case Tile():
                scope = tuple(replace(axis, role=axis.role or self.pick(ROLES)) for axis in made.axes)
                if self.often(50):
                    scope = tuple(sorted(scope, key=lambda axis: ROLES.index(axis.role)))
                made = replace(made, axes=scope)
            case For():
                scope += (Axis(made.var, made.stop if isinstance(made.stop, int) else UNKNOWN, made.role),)
            case Stage():
                made = self.copied(made, scope)
                self.unread.append(made)
                self.copies.append(made)
            case Combine():
                return Accumulate(made.acc, made.fn, 1.0), made
        return (replace(made, body=self.block(shape.body or (), scope)) if hasattr(made, "body") else made,)

    def node(self, shape: Shape, scope: Scope) -> Any:
        """Return a node without its block, with values for the fields that a pattern mentions or that it must have."""
        given: dict[str, Value] = {}
        for field in shape.cls.fields:
            value = shape.fields.get(field.name)
            if field.sort == "Block":
                given[field.name] = ()
            elif value is not None or field.required or field.name == "via":
                given[field.name] = (self.listed if field.many else self.value)(field, value, scope)
        return shape.cls(**given)

    def listed(self, field: Field, value: Any, scope: Scope) -> tuple[Value, ...]:
        """Return the elements of a list: of a run of it, and of a name for all of it, several."""
        found: list[Value] = []
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, c.Run) or item is value:
                found += self.known(name_of(item), self.several, field, scope, getattr(item, "role", None))
            else:
                found.append(self.value(field, item, scope))
        return tuple(found)

    def several(self, field: Field, scope: Scope, role: str | None) -> tuple[Value, ...]:
        """Return the elements of a run in a list: axes of a tile, an index, axes of a reduction."""
        if field.sort != "Axis":
            return self.index(scope) if field.name == "idx" else (Var(self.pick(parallel(scope) or ("t",))),)
        roles = (role,) if role in ROLES else ROLES
        number = range(self.pick((1, 2, 1, 2, 1, 2, 0)))
        return tuple(Axis(self.fresh(self.pick("abcde")), self.pick((2, 4, 3, 8)), self.pick(roles)) for _ in number)

    def value(self, field: Field, node: Any, scope: Scope) -> Value:
        """Return the value of a field, or of an element of a list."""
        node = c.bare(node)
        number, nested, name = c.constant_of(node), shape_of(node), name_of(node)
        if number is not None:
            return number
        if nested is not None:
            return self.node(nested, scope)
        if name and (field.sort == "Name" or name in CLOSED.get(field.sort, ())):
            return name
        if field.sort in ("Expr", "Over"):
            if name in (*self.defined, *(axis.name for axis in scope)):
                return Var(name)
            if isinstance(node, c.Operation):
                sides = field if node.op in ("and", "or") else For.by_name["stop"]
                return binary(node.op, self.value(sides, node.a, scope), self.value(sides, node.b, scope))
            if isinstance(node, c.Apply):
                fn = self.one_of(node.fn, UNARY[:2], FUNCTIONS)
                return Call(fn, tuple(self.value(field, item, scope) for item in node.items))
        return self.known(name, self.draw, field, scope)

    def draw(self, field: Field, scope: Scope) -> Value:
        """Return a value for a field that the pattern leaves open."""
        if field.sort == "Name":
            return self.fresh("n")
        if options := ROLES if field == Axis.by_name["role"] else self.options.get(field.sort):
            return self.pick(options)
        axis = self.pick(scope or (Axis("i", UNKNOWN),))
        match field.name:
            case "cond" | "when":
                return binary("<", Var(axis.name), self.number(1, max(2, axis.extent + 1)))
            case "stop" | "step" | "extent":
                return numeral(self.dice, EXTENTS, 1, LONGEST)
            case "val" | "vals":
                return Call("multiply", (Var(axis.name), 2)) if self.often(50) else Var(self.fresh("x"))
            case "start" | "slot" | "origin":
                return 0
        return Var(axis.name)

    def copied(self, stage: Stage, scope: Scope) -> Stage:
        """Return a copy of a box of one or two dimensions, whose origin moves with the enclosing loop."""
        count = len(stage.box) or self.number(1, 2)
        box = tuple(Axis(f"x{d}", self.pick((4, 8, 16, 32, 5)), None, d) for d in range(count))
        loops = in_turns(scope)
        turn = Var(loops[-1]) if loops else 0
        origin = (*(0,) * (count - 1), multiply(turn, box[-1].extent))
        return replace(stage, box=box, origin=origin, slot=modulo(turn, stage.depth) if loops else stage.slot)

    # ---- runs
    def run(self, scope: Scope, spare: bool = False) -> Block:
        """Return statements that are allowed here. spare: often none at all."""
        if spare and not self.often(35):
            return ()
        waiting, self.unread = self.unread, []
        body = tuple(made for stage in waiting for made in self.read(stage, scope))
        makers = [self.total, self.product] if len(parallel(scope)) > 1 else [self.total]
        makers += [] if in_turns(scope) else [self.pointwise, self.row]
        for _ in range(self.pick((0, 1, 1) if waiting else (1, 1, 1, 2))):
            body += self.pick(makers)(scope)
        return body

    def row(self, scope: Scope) -> Block:
        """Return a free loop over a row, as long as a loop of the pattern."""
        known = [value for value in self.values.values() if isinstance(value, int) and value > 1]
        axis = Axis(self.fresh("l"), self.pick([*known, 8, 5]), "free")
        return (For(axis.name, 0, axis.extent, self.pointwise((*scope, axis)), "free"),)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def index(self, scope: Scope, whole: bool = False) -> tuple[Value, ...]:
        """Return an index of some names in scope, or of all of them: one by one, or as one number."""
        if len(scope) > 1 and self.often(35):  # the second one varies fastest
            flat: Expr = 0
            for axis in scope if whole else (self.pick(scope[:-1]), scope[-1]):
                flat = add(multiply(flat, axis.extent), Var(axis.name))
            return (flat,)
        some = () if whole else tuple(axis for axis in scope if self.often(60)) or scope[-1:]
        return tuple(Var(axis.name) for axis in some or scope) or (0,)

    def computed(self, *indices: tuple[Expr, ...], buffer: str | None = None, to: tuple[Expr, ...] = ()) -> Block:
        """Return a sum of elements of memory, or of products of two. to: the index that they are stored at instead."""
        loads = [Load(self.fresh("v"), buffer or self.fresh("X"), index) for index in indices]
        values = [Var(load.dst) for load in loads]
        lets = [Let(self.fresh("p"), Call("multiply", tuple(values)))] if len(values) > 1 else []
        value, fn = (Var(lets[0].dst), "add") if lets else (values[0], self.pick(FOLDS[:2]))
        return (*loads, *lets, Store(self.fresh("Y"), to, value) if to else Accumulate(self.fresh("acc"), fn, value))

    def total(self, scope: Scope) -> Block:
        return self.computed(self.index(scope))

    def pointwise(self, scope: Scope) -> Block:
        return self.computed(self.index(scope), to=self.index(scope, whole=True))

    def read(self, stage: Stage, scope: Scope) -> Block:
        """Return a sum over the contents of a shared-memory tile."""
        cells = [stage.slot] if stage.depth > 1 else []
        for axis in stage.box:
            fitting = [Var(x.name) for x in scope if x.role not in IN_TURNS and x.extent <= axis.extent]
            cells.append(self.pick([*fitting, self.number(0, axis.extent - 1)]))
        return self.computed(tuple(cells), buffer=stage.dst)

    def product(self, scope: Scope) -> Block:
        """Return a contraction over the reduced name in scope, or over a loop of its own."""
        loops = in_turns(scope)
        i, j, k = map(Var, (*parallel(scope)[-2:], loops[-1] if loops else self.fresh("k")))
        body = self.computed((i, k), (k, j))
        return body if loops else (For(k.name, 0, self.pick((4, 8, 6)), body, "reduce"),)


def name_of(node: object) -> str | None:
    """Return the name that a piece of a pattern is, or a run of it; None for anything else, and for `_`."""
    node = node.base if isinstance(node, c.Run) else node
    return node.text if isinstance(node, c.NameOf) and node.text != "_" else None


def in_turns(scope: Scope) -> list[str]:
    """Return the loops of a scope that reduce or are serial: nothing is stored in them."""
    return [axis.name for axis in scope if axis.role in IN_TURNS]


def parallel(scope: Scope) -> list[str]:
    """Return the axes and free loops of a scope."""
    return [axis.name for axis in scope if axis.role not in IN_TURNS]


# ---- Tensor IR programs that a rule on tensor should reach: its own pattern, with values put in for its variables.


NUMBERS = (2.0, 0.5, 3.0, 1.0, 0.0, -1.0, 8.0, 0.25, 6.0, -2.0)
PARTIAL = ("sqrt", "log", "less", "logical_and", "equal", "logical_not")  # of some numbers, or truth values
TERM_EXTENTS = (3, 4, 2, 5, 7)
# What reads the root of a pattern, by its dtype.
AROUND = {"f32": ("copy", "add", "exp"), "i64": ("copy", "add"), "b8": ("copy", "logical_or")}


class TermInstance(Drawing):
    """One way to fill in a pattern. fusion: the rule moves a `mat`, so that leaves are computed values."""

    def __init__(self, rule: Rule, dice: Dice):
        super().__init__(rule, dice)
        self.fusion = mentions_mat(rule)
        most = (LONGEST, SHORT, SHORT, SHORT)
        self.axes = tuple(Axis(name, numeral(dice, TERM_EXTENTS, 1, n)) for name, n in zip("ijkl", most, strict=True))
        self.ins: list[Input] = []

    def graph(self) -> TensorGraph:
        """Return a program around the pattern's root: stored, read by something, or read twice."""
        last = self.rule.rewrite[-1] if self.rule.rewrite else None
        several = isinstance(last, c.Assign) and isinstance(last.target, c.Group)
        outs = []
        for name in [*self.rule.left][0 if several else -1 :]:
            root = self.variable(name, "f32")
            around = AROUND.get(dtype(root), AROUND["i64"])
            fn = self.pick(around if isinstance(root, Input | Const | Index | Mat) else ("", *around))
            if fn:
                root = Elementwise(fn, (root,) * FUNCTIONS[fn].arity)
            outs.append(root)
            if self.fusion and self.often(50):
                outs.append(Elementwise(self.pick(("sqrt", "relu", "tanh")), (root,)))
        if self.often(25):
            outs.append(Elementwise("copy", (self.leaf("f32"),)))
        shown = tuple(Output(f"out{n}", axes(value), value) for n, value in enumerate(dict.fromkeys(outs)))
        return TensorGraph(f"g{self.number(0, 99)}", tuple(self.ins), shown)  # the name decides the inputs too

    # ---- the pattern
    def value(self, term: c.ValueTerm | None, kind: str) -> Term:
        """Return the term of a piece of the pattern. kind: the dtype that its position requires, or COUNT."""
        match term:
            case c.NumberTerm():
                return compose.const(term.value, "f32" if kind == COUNT else kind)
            case c.NameTerm():
                return self.variable(term.name, kind)
            case c.ReadTerm(x=c.NameTerm(name=name)) if name not in self.rule.left:
                return self.read(name, term.places)
            case c.MappedTerm() | c.ReadTerm():
                return self.remapped(self.value(term.x, kind))
            case c.MatTerm():
                return Mat(self.computed(self.value(term.x, kind)))
            case c.ReduceTerm():
                x = self.value(term.x, kind)
                return Reduce(self.one_of(term.fn, FOLDS, FUNCTIONS), self.over(term.over, x), x)
            case c.FoldTerm():
                part = self.one_of(term.part, tuple(PARTS), PARTS)
                items = [x for x in term.args if not isinstance(x, c.RunTerm)]
                pairs = itertools.zip_longest(of_part(part)[0].operands, items)
                args = [self.value(item, COUNT if operand == COUNT else "f32") for operand, item in pairs]
                return compose.fold(part, self.over(term.over, args[0]), args)
            case c.CaseTerm():
                a, b = self.value(term.a, kind), self.value(term.b, kind)
                return Case(binary("<", self.pick(self.axes), self.number(1, 3)), a, b)
            case c.IndexTerm():
                return Index(self.pick(self.axes))
            case c.FunctionTerm():
                return self.applied(term, kind)
        return self.leaf(kind)

    def variable(self, name: str, kind: str) -> Term:
        return self.known(name, self.value, self.rule.left.get(name), kind)  # type: ignore[no-any-return]

    def applied(self, term: c.FunctionTerm, kind: str) -> Term:
        """Return the value of a function; the runs take the operands that it has more than the items."""
        runs = [n for n, operand in enumerate(term.operands) if isinstance(operand, c.RunTerm)]
        fixed = len(term.operands) - len(runs)
        most = 2 if runs else fixed
        fitting = [fn for fn in (*UNARY, *BINARY, *PARTIAL) if fixed <= FUNCTIONS[fn].arity <= most]
        fn = self.one_of(term.fn, fitting or BINARY, FUNCTIONS)
        arity = FUNCTIONS[fn].arity
        taking = [self.pick(runs) for _ in range(arity - fixed)] if runs else []
        args: list[Term] = []
        for n, operand in enumerate(term.operands):
            for _ in range(taking.count(n) if n in runs else 1):
                args.append(self.value(operand, self.place(fn, len(args), kind)))
        return Elementwise(fn, compose.agreed(fn, args[:arity]))

    def place(self, fn: str, position: int, kind: str) -> str:
        """Return the dtype that an argument should have."""
        works = FUNCTIONS[fn].kind
        if works == LOGICAL or (works == SELECT and position == 0):
            return "b8"
        if works == CAST:
            return "f32" if fn in HELD else self.pick((fn, "f32", "i64"))
        return "f32" if kind == "b8" else kind

    def over(self, wanted: tuple[c.AxisTerm | c.RunTerm, ...], x: Term) -> tuple[Axis, ...]:
        """Return an axis of x for each axis that a reduction names."""
        over: dict[Axis, None] = {}
        for item in wanted:
            free = [axis for axis in axes(x) if axis not in over] or [axis for axis in self.axes if axis not in over]
            over[self.one_of(item.name, free)] = None
        return tuple(over)

    def read(self, name: str, indices: c.Nodes) -> Term:
        """Return `x[i, k + 1]`: an input that is longer than the axes of the pattern, the same for every read of x."""
        extent = LONGEST if len(indices) < 3 else SHORT
        own = tuple(Axis(f"{name}_{n}", extent) for n in range(len(indices)))
        x = self.known(name, self.stored, Input(name, own))
        named = {axis: self.axis(axis) for axis in sorted(names_in(indices))}
        return compose.remap(x, dict(zip(axes(x), (substitute(read_expr(e), named) for e in indices))))

    def axis(self, name: str) -> Axis:
        """Return an axis that the pattern names, with the extent that the pattern gives."""
        said = c.terms((*self.rule.left.values(), *self.rule.left_axes.values()), c.AxisTerm)
        extents = [axis.extent for axis in said if axis.name == name and isinstance(axis.extent, int)]
        return self.one_of(name, [Axis(f"{name}_", extent) for extent in extents or TERM_EXTENTS])  # type: ignore[no-any-return]

    def remapped(self, x: Term) -> Term:
        """Return a value under some index map that is never out of range: along another axis, or backwards."""
        own = axes(x)
        if not own:
            return x
        axis = self.pick(own)
        others = [other for other in self.axes if other not in own]
        other = self.pick(others) if others and self.often(50) else axis
        shorter = -(-other.extent // axis.extent)
        ways = [
            subtract(axis.extent - 1, other), other, add(other, axis.extent - other.extent), multiply(other, 2),
            floordiv(other, shorter), floordiv(other, 2),
        ]  # fmt: skip
        inside = [e for e in ways if e is not axis and interval(e)[0] >= 0 and interval(e)[1] < axis.extent]
        return compose.remap(x, {axis: self.pick(inside)})

    # ---- leaves
    def leaf(self, kind: str) -> Term:
        """Return an input over some axes; sometimes a number, a computed value, or an input of another dtype."""
        if kind == COUNT:  # of elements: 1 or more
            return Elementwise("add", (Elementwise("abs", (self.input("f32"),)), compose.const(1.0)))
        choice = self.number(0, 9)
        if choice > 7 and kind != "b8" and not self.fusion:
            return compose.const(constant(self.dice, NUMBERS), kind)
        if kind == "f32" and (self.fusion or choice == 6):
            return self.computed(self.input(kind))
        if kind == "f32" and choice == 7:
            kind = self.pick(("f16", "i64"))
        known = [x for x in self.ins if x.dtype == kind]
        return self.pick(known) if choice == 5 and known else self.input(kind)

    def input(self, kind: str) -> Input:
        some = tuple(axis for axis in self.axes if self.often(50)) or self.axes[:1]
        prefix = "weight" if self.often(30) else "x"
        return self.stored(Input(f"{prefix}{len(self.ins)}", some, kind))

    def stored(self, x: Input) -> Input:
        self.ins.append(x)
        return x

    def computed(self, x: Term) -> Term:
        """Return a value that is not an input: a product, a sum or a function of x."""
        if not isinstance(x, Input | Const) or dtype(x) == "b8":
            return x
        if self.often(30):
            x = Elementwise("multiply", (x, self.input(dtype(x))))
        if axes(x) and self.often(40):
            return Reduce("add", (self.pick(axes(x)),), x)
        return Elementwise(self.pick(("exp", "negative", "copy")), (x,))


# ---- Programs near a given one: with other extents, functions, roles or guards, a statement more or less, or smaller.


T = TypeVar("T")


def perturbed(program: Module, dice: Dice) -> Module:
    """Return the program after one to three changes, completed again. Raises what `completed` raises."""
    resized = 100 if dice.often(30) else 20  # of a hundred changes
    for _ in range(dice.number(1, 3)):
        program = dice.change_one(
            program, lambda kernel: (other_extent if dice.often(resized) else other_statement)(kernel, dice)
        )
    return completed(program)


# ---- numbers


def other_extent(kernel: Kernel, dice: Dice) -> Kernel:
    """Replace one extent by another, and sometimes its multiples too."""
    extents = _extents(kernel.body)
    if not extents:
        return kernel
    change = resized(dice.pick(extents), numeral(dice, EXTENTS, 1, LONGEST), dice.often(60))
    return sized(replace(kernel, body=renumbered(kernel.body, change)), kernel.body)


def resized(old: int, new: int, multiples: bool = True) -> Callable[[int], int]:
    """Return the change of numbers for a changed extent. multiples: multiples of the extent change too."""

    def change(number: int) -> int:
        multiple = multiples and old > 2 and number % old == 0 and number // old <= 512
        return number // old * new if multiple or number == old else number

    return change


def _extents(body: Block) -> list[int]:
    """Return the extents of axes and loops above 1, and the steps of loops."""
    found = {axis.extent for axis in nodes(body, Axis)}
    found.update(n for loop in nodes(body, For) for n in (loop.stop, loop.step))
    return sorted(n for n in found if type(n) is int and n > 1)


def renumbered(value: T, change: Callable[[int], Expr]) -> T:
    """Return a program, or a part of one, with its whole numbers changed; what is not a number of an index stays."""

    def visit(value: Any) -> Any:
        if type(value) is int:
            return change(value)
        if isinstance(value, tuple):
            return tuple(map(visit, value))
        return of_node(value) if isinstance(value, Node) else value

    @functools.cache
    def of_node(node: Any) -> Any:
        if isinstance(node, Sum):
            factors = [change(factor) if factor > 1 else factor for _, factor in node.terms]
            constant = change(node.constant) if node.constant > 0 else node.constant
            return total((*(visit(atom) for atom, _ in node.terms), constant), (*factors, 1))
        if isinstance(node, Binary | Call | Not):
            return rebuild(node, visit)
        fields = [name for name in type(node).inner if name != "slot"]  # the slot of a ring is not an extent
        return replace(node, **{name: visit(getattr(node, name)) for name in fields})

    changed: T = visit(value)
    return changed


# ---- one statement


Edited = Stmt | Block  # another statement, several or none
Edit = Callable[[Any, Context, Dice], Edited]  # of a statement; the context is its place


def other_statement(kernel: Kernel, dice: Dice) -> Kernel:
    """Return the kernel with one statement of some kinds edited."""
    kinds, edit = dice.pick(EDITS)
    places_of_kind = [(path, block[at], at) for path, block, at in places(kernel)[None] if isinstance(block[at], kinds)]
    if not places_of_kind:
        return kernel
    path, statement, at = dice.pick(places_of_kind)
    context = Context(kernel.body, path, at, at + 1)
    made = edit(statement, context, dice)
    return replace(kernel, body=context.plug(made if isinstance(made, tuple) else (made,)))


# Values of fields, by the class of the node.
ALTERNATIVES: dict[type, dict[str, tuple[Value, ...]]] = {
    For: {"role": LOOP_ROLES}, Axis: {"role": ("THREAD", "BLOCK", "REG")}, Accumulate: {"fn": FOLDS},
    Stage: {"via": VIAS, "pad": (0, 1, 4), "lanes": (0, 2, 4)},
}  # fmt: skip


def other_field(node: Any, context: Context, dice: Dice) -> Any:
    """Change the role of a loop or an axis, a reduction, the scalar function of a value, or how a copy is done."""
    match node:
        case Tile(axes=axes) if axes:
            return replace(node, axes=dice.change_one(axes, lambda axis: other_field(axis, context, dice)))
        case Let(val=Call(args=args)) if len(args) <= 2:
            fn = dice.pick((*BINARY, *UNARY))
            return replace(node, val=Call(fn, (args * 2)[: FUNCTIONS[fn].arity]))
    if type(node) not in ALTERNATIVES:
        return node
    field, options = dice.pick([*ALTERNATIVES[type(node)].items()])
    return replace(node, **{field: dice.pick(options)})


def guarded(statement: Stmt, context: Context, dice: Dice) -> Stmt:
    """Put a statement under a guard on an axis or a loop around it."""
    names = [name for outer in context.around for name in bound_names(outer)]
    return If(Binary("<", Var(dice.pick(names)), dice.number(1, 9)), (statement,)) if names else statement


def other_guard(statement: If | Load, context: Context, dice: Dice) -> Stmt:
    """Narrow a guard, or put a load under one."""
    names = sorted(free_names(statement.cond if isinstance(statement, If) else statement.idx))
    if not names:
        return statement
    name = Var(dice.pick(names))
    if isinstance(statement, If):
        return replace(statement, cond=both(statement.cond, Binary(">=", name, dice.number(0, 3))))
    return replace(statement, when=Binary("<", name, dice.number(1, 9)), other=float(dice.number(0, 1)))


def repeated(statement: Stmt, context: Context, dice: Dice) -> Stmt:
    """Put a loop around a statement: serial or a reduction."""
    name = unused("again", {loop.var for loop in nodes(context.statements, For)})
    return For(name, 0, dice.number(2, 3), (statement,), dice.pick(("serial", "reduce")))


def extended(statement: Stmt, context: Context, dice: Dice) -> Block:
    """Add a statement before or after another one: a sum of a value that is read or computed again, or a barrier."""
    values: list[Any] = [*nodes(context.statements, Load, Let)]
    more: Block = (Sync(),)
    if values and dice.often(75):
        value = dice.pick(values)
        again = dice.pick((value, replace(value, dst="extra"), Let("extra", Call("multiply", (Var(value.dst), 2.0)))))
        total = Accumulate("total", dice.pick(FOLDS), Var(again.dst))
        more = (total,) if again is value else (again, total)
    return (statement, *more) if dice.often(70) else (*more, statement)


def other_index(load: Load, context: Context, dice: Dice) -> Stmt:
    """Scale or shift an index of a load, or reverse the order of its indices."""
    if len(load.idx) > 1 and dice.often(50):
        return replace(load, idx=load.idx[::-1])
    moved = dice.change_one(load.idx, lambda e: add(multiply(e, dice.pick((1, 2))), dice.number(0, 1)))
    return replace(load, idx=moved)


def copied_again(load: Load, context: Context, dice: Dice) -> Edited:
    """Fill a shared-memory tile with other elements, and read it once more."""
    stage = {stage.dst: stage for stage in nodes(context.statements, Stage)}.get(load.buf)
    if stage is None:
        return load
    further = replace(stage, origin=dice.change_one(stage.origin, lambda e: add(e, 1)), via="SYNC")
    return load, Sync(), further, Sync(), replace(load, dst="copied"), Accumulate("sum_copied", "add", Var("copied"))


EDITS: tuple[tuple[tuple[type, ...], Edit], ...] = (
    ((For, Tile), other_field), ((Let, Accumulate), other_field), ((Stage,), other_field),
    ((For, Load, Store, Let, If), guarded), ((If, Load), other_guard), ((For, Accumulate, Stage, If), repeated),
    ((Load, Let, Accumulate, Store, Sync, Wait, Combine, CombineTuple, Mma, WaitMma), lambda statement, *_: ()),
    ((Accumulate, Sync, Stage, For, If), lambda statement, *_: (statement, statement)),
    ((Load, Let, Accumulate, For, Sync), extended), ((Load, Let, Accumulate, For, Sync), extended),
    ((Load,), other_index), ((Load,), copied_again),
)  # fmt: skip


# ---- neighbours of a Kernel IR program


GUARD_TRIES = 6  # to put a guard where nothing that it hides is needed


def guarded_kernel(kernel: Kernel, dice: Dice) -> Kernel:
    """Put some statements under a guard: one that the kernel has already, or one on a thread or a replica."""
    sizes = {THREAD: next(nodes(kernel.body, Launch)).block}
    sizes |= {replicate.var: replicate.extent for replicate in nodes(kernel.body, Replicate)}
    conditions = [Binary("<", Var(name), size) for name, extent in sizes.items() for size in (extent, extent, 2)]
    conditions += [branch.cond for branch in nodes(kernel.body, Branch)]
    blocks = [(path, block) for path, block in holes(kernel.body) if path and block]
    for _ in range(GUARD_TRIES):
        path, block = dice.pick(blocks)
        first, last = 0, len(block) - 1
        if dice.often(50):
            first = dice.number(0, last)
            last = dice.number(first, last)
        branch = Branch(dice.pick(conditions), block[first : last + 1])
        made = replace(kernel, body=splice(kernel.body, path, first, last + 1, (branch,)))
        if not problems(made):
            return made
    return kernel


# ---- Neighbours of a Tensor IR program: other extents, functions and inputs, values that are read once more.


def perturbed_term(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Return the program after one to three changes; the result need not be well formed."""
    return _lean(dice.changed(graph, TERM_CHANGES))


def other_axis_extent(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Replace one extent by another, in axes, indices and equal numbers; its multiples change with it."""
    extents = sorted({axis.extent for x in graph.ins for axis in x.axes})
    if not extents:
        return graph
    old, new = dice.pick(extents), numeral(dice, TERM_EXTENTS, 1, SHORT)
    equal = [x for x in terms(graph) if isinstance(x, Const) and x.value == old]
    changed = _replaced(graph, {x: compose.const(new, x.dtype) for x in equal})
    return renumbered(changed, resized(old, new))


def with_numbers(graph: TensorGraph, change: Callable[[int], Expr]) -> TensorGraph:
    """Return the program with the whole numbers of axes and indices changed; constants stay."""
    return _lean(renumbered(graph, change))


def other_term(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Change a function to a similar one, a constant, or an input to a function of it."""
    kind, field, among, edit = dice.pick(TERM_EDITS)
    found = [x for x in terms(graph) if isinstance(x, kind) and getattr(x, field) in among]
    if not found:
        return graph
    chosen = dice.pick(found)
    return _replaced(graph, {chosen: edit(chosen, dice)})


def read_again(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Add a function of a value to the results."""
    found = [x for x in terms(graph) if dtype(x) == "f32" and axes(x)]
    if not found:
        return graph
    shown = Elementwise(dice.pick(("copy", "negative", "relu", "exp")), (dice.pick(found),))
    more = Output(f"more{len(graph.outs)}", axes(shown), shown)
    return TensorGraph(graph.name, graph.ins, (*graph.outs, more))


TERM_CHANGES = (other_axis_extent, other_axis_extent, other_term, other_term, other_term, read_again)
ALIKE = {fn: tuple(other for other in group if other != fn) for group in (UNARY, BINARY) for fn in group}
# Which terms may change, by their class and one of their fields, and to what.
TERM_EDITS: tuple[tuple[type[Term], str, Container[str], Callable[[Any, Dice], Term]], ...] = (
    (Elementwise, "fn", ALIKE, lambda x, dice: Elementwise(dice.pick(ALIKE[x.fn]), x.args)),
    (Const, "dtype", ("f32", "i64"), lambda x, dice: compose.const(constant(dice, NUMBERS), x.dtype)),
    (Input, "dtype", ("f32",), lambda x, dice: Elementwise(dice.pick(UNARY), (x,))),
)


def _replaced(graph: TensorGraph, others: dict[Term, Term]) -> TensorGraph:
    """Return the program with some terms replaced."""
    made = dict(others)
    for term in terms(graph):
        made.setdefault(term, compose.rebuilt(term, made.__getitem__))
    outs = tuple(replace(out, value=made[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


def _lean(graph: TensorGraph) -> TensorGraph:
    """Keep the inputs that are still read, and give results all their axes."""
    ins = sorted((x for x in terms(graph) if isinstance(x, Input)), key=lambda x: x.name)
    outs = (replace(out, axes=tuple(dict.fromkeys((*out.axes, *axes(out.value))))) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins), tuple(outs))


# ---- Smaller subjects: kernels, statements, axes and extents less, buffers in the sizes that are left.


def smaller_programs(program: Module) -> Iterator[Module]:
    """Yield programs that are a little smaller, the smallest first."""
    if len(program) > 1:
        yield from _one_less(program)
    for n, kernel in enumerate(program):
        for body in _smaller(kernel):
            with contextlib.suppress(*ERRORS, TooLarge):
                yield (*program[:n], closed(replace(kernel, body=body), kernel.body), *program[n + 1 :])


def _one_less(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield the items without each of them."""
    return ((*items[:n], *items[n + 1 :]) for n in range(len(items)))


def _smaller(kernel: Kernel) -> Iterator[Block]:
    """Yield the body with one statement gone, or replaced by what is inside of it, with an axis or an extent less."""
    for path, block, at in places(kernel)[None]:
        statement: Any = block[at]
        fewer: list[Block] = [(), statement.body] if isinstance(statement, For | If) else [()]
        if isinstance(statement, Tile):
            fewer += [(replace(statement, axes=axes),) for axes in _one_less(statement.axes)]
        yield from map(Context(kernel.body, path, at, at + 1).plug, fewer)
    for old in reversed(_extents(kernel.body)):
        for new in dict.fromkeys((1, 2, 3, old // 2)):
            if new < old:
                for multiples in (True, False):
                    yield renumbered(kernel.body, resized(old, new, multiples))
