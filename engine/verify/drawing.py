"""Loop and Tile IR programs that a statement rule should reach: its own pattern, with values for its variables.

Written as text, parsed, completed (`whole_programs`). A run `xs..` becomes random statements: loads over the
loops in scope, products, sums, stores, reads of the enclosing shared-memory tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir import compose
from ...ir.diagnostic import DplcError, Source
from ...ir.expr import Axis, add, binary, floordiv, multiply, subtract
from ...ir.facts.index import operate
from ...ir.functions import CAST, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from ...ir.program import Kernel
from ...ir.tensor import Case, Const, Elementwise, Index, Input, Mat, Output, Reduce, TensorGraph, Term, axes, dtype
from ...ir.text.parse import parse
from ...ir.text.programs import read_unit
from ...ir.text.read_statements import CLOSED
from ..language import core as c
from ..language import core as s
from ..language.rule import Rule
from .meaning import COUNT
from .outcome import Dice, constant, numeral

EXTENTS = (4, 8, 2, 16, 3, 5, 1, 32, 7, 12)
LONGEST = 64  # of the extents that a rule names
ROLES = ("THREAD", "BLOCK", "REG")


@dataclass
class SubjectScope:
    """Names that the program can use at one position.

    extents: of loops and axes; storing: whether stores are allowed here.
    """

    extents: dict[str, int] = field(default_factory=dict)
    parallel: list[str] = field(default_factory=list)
    summed: list[str] = field(default_factory=list)
    storing: bool = True

    def inner(self, name: str, extent: int, role: str) -> SubjectScope:
        """Return the scope inside of a loop."""
        parallel = [*self.parallel, name] if role not in ("reduce", "serial") else self.parallel
        summed = [*self.summed, name] if role in ("reduce", "serial") else self.summed
        return SubjectScope({**self.extents, name: extent}, parallel, summed, self.storing and role == "free")


@dataclass
class DrawnSlab:
    name: str
    extents: tuple[int, ...]
    depth: int
    slot: str


class Instance:
    """One way to fill in the pattern of a rule."""

    def __init__(self, rule: Rule, dice: Dice):
        self.rule, self.dice = rule, dice
        self.values: dict[str, Any] = {}  # extents, roles, functions, runs of text by variable
        self.slabs: list[DrawnSlab] = []  # not read yet
        self.every: list[DrawnSlab] = []
        self.count = 0
        waits = "Wait(" in "".join(
            rule.span.source.line(n) for n in range(rule.span.line, rule.match[-1].span.end_line + 1)
        )
        self.transports = ("SYNC", "ASYNC") if waits else ("SYNC",)

    def program(self) -> tuple[Kernel, ...]:
        """Return the kernel, its buffers still undeclared. Raises DplcError for an unsupported pattern."""
        statements = self.rule.match
        if len(statements) == 1 and isinstance(statements[0], s.Unit):
            statements = statements[0].body
        scope, lines = SubjectScope(), []
        tiled = any(isinstance(x, s.Statement) and getattr(x.call, "fn", "") == "Tile" for x in statements)
        if not tiled and self.rule.level == "tile":
            head = self._frame(scope)
            inner = self.block(statements, scope)
            if self.dice.often(30):  # the pattern as a whole comes again
                inner = [f"for again in 0..{self.dice.number(2, 3)} serial:", *_indented(inner)]
            inner += self._after(scope)
            lines = [head, *_indented(inner)]
        else:
            lines = self.block(statements, scope)
        text = "\n".join(["kernel subject() -> subject_out: f32[1]:", *_indented(lines or ["pass"])])
        (unit,) = parse(Source("subject", text + "\n"))
        kernel: Any = read_unit(unit)
        return (Kernel(kernel.name, (), (), kernel.body),)

    def _frame(self, scope: SubjectScope) -> str:
        """Return a Tile around a pattern of statements."""
        names = self.dice.pick((("i", "j"), ("t",), ("i", "j", "r")))
        for name in names:
            scope.extents[name] = self.dice.pick((4, 8, 3, 16))
        scope.parallel = list(names)
        roles = [
            "REG" if name == "r" else "BLOCK" if name == "i" and self.dice.often(30) else "THREAD" for name in names
        ]
        axes = ", ".join(f"{name}:{scope.extents[name]}={role}" for name, role in zip(names, roles, strict=True))
        return f"Tile({axes}):"

    def _after(self, scope: SubjectScope) -> list[str]:
        """Return statements that follow the pattern; sometimes one of them reads a tile that the pattern copied."""
        lines = self.run(scope) if self.dice.often(30) else []
        if self.every and self.dice.often(40):
            slab = self.dice.pick(self.every)
            lines += self.read(replace(slab, slot="0"), scope)
        return lines

    # ---- the pattern
    def block(self, statements: s.Nodes, scope: SubjectScope) -> list[str]:
        out: list[str] = []
        for statement in statements:
            out += self.statement(statement, scope)
        return out

    def statement(self, node: Any, scope: SubjectScope) -> list[str]:
        if isinstance(node, s.ForLoop):
            return self.loop(node, scope)
        if isinstance(node, s.IfBlock):
            return [
                f"if {self.condition(node.condition, scope)}:",
                *_indented(self.block(node.body, scope) or ["pass"]),
            ]
        if isinstance(node, s.RunStatement):
            name = node.run.base.text  # type: ignore[attr-defined]
            if name not in self.values:
                self.values[name] = self.run(scope, spare=name in ("pre", "mid", "post"))
            return list(self.values[name])
        if isinstance(node, s.CaptureStatement):
            many = self.dice.number(1, 2) if node.repeat else 1
            return [line for _ in range(many) for line in self.operation(node.call, scope)]
        if isinstance(node, s.InsideBlock):
            return self.inside(node, scope)
        if isinstance(node, s.Statement) and isinstance(node.call, s.Apply):
            if node.call.fn == "Tile":
                return self.tile(node)
            return self.operation(node.call, scope)
        if isinstance(node, s.Assign):
            return self.assign(node, scope)
        if isinstance(node, s.AccumulateInto) and isinstance(node.target, s.NameOf) and isinstance(node.value, s.Apply):
            fn = self.function(node.value.fn, ("add", "maximum"))
            return [f"{node.target.text} <- {fn}({node.target.text}, {self.scalar(node.value.items[1], scope)})"]
        raise DplcError("beyond the generator", node.span)

    def loop(self, node: s.ForLoop, scope: SubjectScope) -> list[str]:
        role = next((a.text for a in node.attributes if isinstance(a, s.NameOf)), "serial")
        if role not in CLOSED["Role"]:
            role = self.values.setdefault(role, self.dice.pick(("reduce", "serial", "free")))
        start = "0" if isinstance(node.start, s.Number) else self.start(node.start, scope)
        stop = self.extent(node.stop)
        step = "" if node.step is None else f" by {self.extent(node.step)}"
        body = self.block(node.body, scope.inner(node.var, stop, role))
        return [f"for {node.var} in {start}..{stop}{step} {role}:", *_indented(body or ["pass"])]

    def start(self, node: s.Syntax, scope: SubjectScope) -> str:
        name = node.text if isinstance(node, s.NameOf) else "0"
        return name if name in scope.extents else str(s.constant_of(node) or 0)

    def extent(self, node: s.Syntax) -> int:
        """Return the number for an extent of the pattern."""
        number = s.constant_of(node)
        if number is not None:
            return int(number)
        name = node.text if isinstance(node, s.NameOf) else f"@{self.count}"
        if name == "_" or not isinstance(node, s.NameOf):
            return numeral(self.dice, EXTENTS, 1, LONGEST)
        if not isinstance(self.values.get(name), int):
            self.values[name] = numeral(self.dice, EXTENTS, 1, LONGEST)
        return int(self.values[name])

    def condition(self, node: s.Syntax, scope: SubjectScope) -> str:
        name = self.dice.pick(list(scope.extents) or ["i"])
        if isinstance(node, s.NameOf) and node.text in self.values:
            return str(self.values[node.text])
        made = f"{name} < {self.dice.number(1, max(2, scope.extents.get(name, 4) + 1))}"
        if isinstance(node, s.NameOf):
            self.values[node.text] = made
        return made

    def inside(self, node: s.InsideBlock, scope: SubjectScope) -> list[str]:
        body = self.block(node.body, scope)
        before = self.run(scope, spare=True) if self.dice.often(30) else []
        after = self.run(scope, spare=True) if self.dice.often(30) else []
        return [*before, *body, *after]

    def tile(self, node: s.Statement) -> list[str]:
        call: Any = node.call
        axes: list[tuple[str, int, str]] = []
        fields = []
        for item in call.items:
            if isinstance(item, s.Run):
                role = item.role if item.role in ROLES else None
                for _ in range(self.dice.number(0, 2) if len(call.items) > 1 else self.dice.number(1, 2)):
                    self.count += 1
                    axes.append(
                        (
                            f"{'abcde'[self.count % 5]}{self.count}",
                            self.dice.pick((2, 4, 3, 8)),
                            role or self.dice.pick(ROLES),
                        )
                    )
            elif isinstance(item, s.AxisItem):
                axes.append(
                    (item.name, self.extent(item.extent), item.role if item.role in ROLES else self.dice.pick(ROLES))
                )
            elif isinstance(item, s.Keyword):
                fields.append(f"{item.name}={s.constant_of(item.value)}")
        inner = SubjectScope({name: extent for name, extent, _ in axes}, [name for name, _, _ in axes], [], True)
        order = {"BLOCK": 0, "THREAD": 1, "REG": 2}
        if self.dice.often(50) and any(isinstance(item, s.Run) for item in call.items):
            axes.sort(key=lambda axis: order[axis[2]])
        head = ", ".join([*(f"{name}:{extent}={role}" for name, extent, role in axes), *fields])
        body = self.block(node.body or (), inner)
        return [f"Tile({head}):", *_indented(body or ["pass"])]

    # ---- statements of one line
    def operation(self, call: s.Apply, scope: SubjectScope) -> list[str]:
        if call.fn == "Stage":
            return [self.stage(call, scope)]
        if call.fn in ("Sync", "Wait"):
            return [f"{call.fn}()"]
        if call.fn == "Combine":
            names = list(scope.parallel) or ["t"]
            self.count += 1
            return [
                f"sum{self.count} <- add(sum{self.count}, 1.0)",
                f"Combine(sum{self.count}, add, over=[{self.dice.pick(names)}])",
            ]
        raise DplcError("beyond the generator", call.span)

    def stage(self, call: s.Apply, scope: SubjectScope) -> str:
        """Return a copy of one or two dimensions whose origin moves with the enclosing loop."""
        given = {item.name: item.value for item in call.items if isinstance(item, s.Keyword)}
        depth = self._field(given.get("depth"), (1, 2, 3))
        via = given.get("via")
        name = via.text if isinstance(via, s.NameOf) and via.text in CLOSED["Via"] else self.dice.pick(self.transports)
        axes = given.get("slab")
        count = len(axes.items) if isinstance(axes, s.Group) else self.dice.number(1, 2)
        extents = tuple(self.dice.pick((4, 8, 16, 32, 5)) for _ in range(count))
        self.count += 1
        slab = DrawnSlab(f"S{self.count}", extents, depth, "0")
        loop = scope.summed[-1] if scope.summed else None
        if depth > 1 and loop:
            slab.slot = f"{loop} % {depth}"
        self.slabs.append(slab)
        self.every.append(slab)
        origin = ", ".join(f"{loop}*{n}" if loop and d == len(extents) - 1 else "0" for d, n in enumerate(extents))
        labels = ", ".join(f"{'xyz'[d]}:{n}@{d}" for d, n in enumerate(extents))
        more = f", depth={depth}, slot={slab.slot}" if depth > 1 else ""
        return f"{slab.name} = Stage(G{self.count}, origin=[{origin}], slab=[{labels}]{more}, via={name})"

    def _field(self, node: s.Syntax | None, options: tuple[int, ...]) -> int:
        if node is None:
            return options[0]
        number = s.constant_of(node)
        if number is not None:
            return int(number)
        name = getattr(node, "text", "_")
        return int(self.values.setdefault(name, self.dice.pick(options[::-1])))

    def assign(self, node: s.Assign, scope: SubjectScope) -> list[str]:
        target = node.target.text if isinstance(node.target, s.NameOf) else "value"
        value = node.value
        if isinstance(value, s.LoadOf) and isinstance(value.access, s.Subscript):
            key = getattr(value.access.base, "text", "B")
            access = self.values.setdefault(f"@{key}", f"{key}[{self.index(scope)}]")
            guard = ""
            if value.condition is not None:
                other = None if value.other is None else s.constant_of(value.other)
                guard = f" if {self.condition(value.condition, scope)} else {0.0 if other is None else other}"
            return [f"{target} = load {access}{guard}"]
        if isinstance(value, s.Apply) and value.fn in ("Stage",):
            return [self.stage(value, scope)]
        return [f"{target} = {self.scalar(value, scope)}"]

    def scalar(self, node: s.Syntax, scope: SubjectScope) -> str:
        """Return a scalar expression: a function of names, or a random one for a variable."""
        if s.constant_of(node) is not None:
            return str(s.constant_of(node))
        if isinstance(node, s.Apply):
            fn = self.function(node.fn, ("exp", "abs"))
            return f"{fn}({', '.join(self.scalar(item, scope) for item in node.items)})"
        if isinstance(node, s.NameOf) and node.text == "e":
            return str(self.values.setdefault("@e", f"multiply({self.dice.pick(list(scope.extents) or ['i'])}, 2)"))
        return getattr(node, "text", "1.0")

    def function(self, name: str, options: tuple[str, ...]) -> str:
        return name if name in FUNCTIONS else str(self.values.setdefault(name, self.dice.pick(options)))

    # ---- runs
    def run(self, scope: SubjectScope, spare: bool = False) -> list[str]:
        """Return statements that are allowed here. spare: often none at all."""
        if spare and not self.dice.often(35):
            return []
        kind = self.dice.number(0, 5)
        waiting, self.slabs = self.slabs, []
        lines = [line for slab in waiting for line in self.read(slab, scope)]
        if waiting and kind < 3:
            return lines
        if kind == 0 or not scope.extents:
            return [*lines, *self.total(scope)]
        if kind == 1 and len(scope.parallel) > 1:
            return [*lines, *self.product(scope)]
        if kind == 2 and scope.storing:
            return [*lines, *self.pointwise(scope)]
        if kind == 3 and len(scope.parallel) > 1:
            return [*lines, *self.product(scope), *(self.pointwise(scope) if scope.storing else [])]
        if kind == 5 and scope.storing:
            return [*lines, *self.row(scope)]
        return [*lines, *self.total(scope)]

    def row(self, scope: SubjectScope) -> list[str]:
        """Return a free loop over a row, as long as a loop of the pattern."""
        known = [value for value in self.values.values() if isinstance(value, int) and value > 1]
        name, extent = self.fresh("l"), self.dice.pick([*known, 8, 5])
        inner = scope.inner(name, extent, "free")
        return [f"for {name} in 0..{extent} free:", *_indented(self.pointwise(inner))]

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def index(self, scope: SubjectScope) -> str:
        names = list(scope.extents)
        if not names:
            return "0"
        if len(names) > 1 and self.dice.often(35):  # one index of two names, the second one varying fastest
            a, b = self.dice.pick(names[:-1]), names[-1]
            return f"{a}*{scope.extents[b]} + {b}"
        chosen = [name for name in names if self.dice.often(60)] or names[-1:]
        return ", ".join(chosen)

    def total(self, scope: SubjectScope) -> list[str]:
        value, total = self.fresh("v"), self.fresh("acc")
        return [
            f"{value} = load X{self.count}[{self.index(scope)}]",
            f"{total} <- {self.dice.pick(('add', 'maximum'))}({total}, {value})",
        ]

    def product(self, scope: SubjectScope) -> list[str]:
        """Return a contraction over the reduced name in scope, or over a loop of its own."""
        i, j = scope.parallel[-2:]
        k = next((name for name in reversed(scope.summed)), None)
        a, b, p, total = (self.fresh(letter) for letter in ("a", "b", "p", "acc"))
        inner = k or self.fresh("k")
        lines = [
            f"{a} = load A{self.count}[{i}, {inner}]", f"{b} = load B{self.count}[{inner}, {j}]",
            f"{p} = multiply({a}, {b})", f"{total} <- add({total}, {p})",
        ]  # fmt: skip
        return lines if k else [f"for {inner} in 0..{self.dice.pick((4, 8, 6))} reduce:", *_indented(lines)]

    def pointwise(self, scope: SubjectScope) -> list[str]:
        value, out = self.fresh("v"), self.fresh("Y")
        flat = "0"
        names = list(scope.extents)
        if len(names) > 1 and self.dice.often(40):
            flat = names[0]
            for name in names[1:]:
                flat = f"({flat})*{scope.extents[name]} + {name}"
        else:
            flat = ", ".join(names) or "0"
        return [f"{value} = load X{self.count}[{self.index(scope)}]", f"{out}[{flat}] = {value}"]

    def read(self, slab: DrawnSlab, scope: SubjectScope) -> list[str]:
        """Return a sum over the contents of a shared-memory tile."""
        value, total = self.fresh("v"), self.fresh("acc")
        cells = []
        for extent in slab.extents:
            fitting = [name for name in scope.parallel if scope.extents[name] <= extent]
            cells.append(self.dice.pick([*fitting, str(self.dice.number(0, extent - 1))]))
        index = ", ".join(([slab.slot] if slab.depth > 1 else []) + cells)
        return [f"{value} = load {slab.name}[{index}]", f"{total} <- add({total}, {value})"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


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
        self.said = dict(extents_said(rule))  # axis -> extent

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
        items = [x for x in term.operands if not isinstance(x, c.RunTerm)]
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
        if isinstance(node, c.Operation) and node.op in ("+", "-", "*", "//", "%"):
            return operate(node.op, self.place_of(node.a), self.place_of(node.b))
        if isinstance(node, c.Group) and len(node.items) == 1:
            return self.place_of(node.items[0])
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


def extents_said(rule: Rule) -> Iterator[tuple[str, int]]:
    """Yield the axes of a pattern that it gives an extent."""
    for axis in (*c.terms(tuple(rule.left.values()), c.AxisTerm), *c.terms(tuple(rule.left_axes.values()), c.AxisTerm)):
        if isinstance(axis.extent, int):
            yield axis.name, axis.extent


def places(axis: Axis, other: Axis) -> list[Any]:
    """Return ways to read along one axis at indices computed from another one, none of them out of range."""
    most, room = other.extent - 1, axis.extent - other.extent
    ways: list[Any] = [floordiv(other, -(-other.extent // axis.extent))]
    ways += [other, add(other, room), subtract(axis.extent - 1, other)] if room >= 0 else []
    return ways + ([multiply(other, 2)] if 2 * most < axis.extent else [])
