"""Tensor IR's text: `y[j, k] = multiply(total, w[k])`, one computed value a line.

Axes are on the left, with their extent where they are first bound (there, or in a `Reduce`). Computed values are read
by bare name, stored values (inputs, `mat`) with brackets; brackets on a computed value are an index map. An input's own
axes are those of its first plain read in the text. Otherwise the header lists them: `x: f32[j:32, k:64]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..compose import remap
from ..diagnostic import DplcError, did_you_mean
from ..expr import Axis, Order, Var, extents_of, only_sizes, rebuild
from ..facts.index import operate
from ..functions import CAST, DTYPES, FUNCTIONS, HELD, SELECT, category, literal_dtype
from ..interp.torch import operator
from ..monoid_texts import PARTS
from ..monoids import of_part
from ..node import Expr, Node, names_in, nodes
from ..program import Param
from ..schemas import LOOP
from ..tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Mat,
    Named,
    OperatorCall,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    delivered,
    dtype,
    operands,
    postorder,
    supplied,
)
from ..torch import TorchGraph
from .parse import arithmetic, extent
from .print_statements import print_expr, print_number
from .read_statements import NUMBERS
from .sizes import print_sizes
from .syntax import (
    Apply,
    Assign,
    AxisItem,
    Group,
    Keyword,
    Member,
    NameOf,
    Number,
    ParamItem,
    PassStatement,
    Prefix,
    SizeOf,
    Subscript,
    Syntax,
    TypeOf,
    Unit,
    walk,
)
from .torch import (
    check_references,
    print_bodies,
    print_field,
    print_torch_op,
    read_torch_graph,
    read_torch_op,
    read_value,
)

# ---- reading: terms are built as they are written; only index arithmetic is simplified


_FORMS = ("Reduce", "Fold", "Index", "Case", "mat")


def read_graph(unit: Unit) -> TensorGraph:
    """Read a graph. Raises DplcError with a caret."""
    return _Reader(unit).graph()


class _Reader:
    def __init__(self, unit: Unit):
        self.unit = unit
        self.axes: dict[str, Axis] = {}
        self.values: dict[str, Term] = {}
        self.orders: dict[str, Order] = {}
        self.bodies: dict[str, TorchGraph] = {}

    def graph(self) -> TensorGraph:
        self._declare_axes()
        ins = [*map(self._input, self.unit.ins)]
        outs = {item.name: item for item in map(self._param, self.unit.outs)}
        named, calls, stored = list[Named](), list[OperatorCall](), dict[str, Output]()
        for line in self.unit.body:
            if isinstance(line, PassStatement):
                continue
            if isinstance(line, Unit):
                self.bodies[line.name] = read_torch_graph(line)
                continue
            if isinstance(line, Assign) and line.types:
                call, operands = self._called(line, outs)
                ins += (self._result(param, line) for param in call.results)
                stored |= operands
                calls.append(call)
                continue
            name, term = self._line(line, outs)
            if name not in outs:
                named.append(Named(name, term))
        results = (*stored.values(), *map(self._output, outs.values()))
        names = tuple(one for one in named if one.name not in stored)
        return TensorGraph(self.unit.name, tuple(ins), results, names, tuple(calls))

    # ---- calls of torch: statements of Torch IR about what is stored
    def _called(self, line: Any, outs: Collection[str]) -> tuple[OperatorCall, dict[str, Output]]:
        """Read a call, and what is stored because the call reads it."""
        items, shapes = getattr(line.value, "items", ()), None
        if items and isinstance(items[-1], Keyword) and items[-1].name == SHAPES:
            shapes, line = read_value(items[-1].value), replace(line, value=replace(line.value, items=items[:-1]))
        statement, stored = read_torch_op(line, self.bodies), dict[str, Output]()
        check_references(statement, self.values, line)
        if statement.op != LOOP:
            operator(statement.op, statement.args)
        names = dict.fromkeys(x.name for x in nodes(statement.args, Var) if x.name in self.values)
        given = []
        for name, shape in zip(names, shapes or [None] * len(names), strict=False):
            term, order = self.values[name], self.orders[name]
            given.append(Param(name, dtype(term), shape or extents_of(order)))
            if name in outs:
                raise DplcError(f"`{name}` is a result of the graph, which no call reads", line, "let it read a copy")
            if not isinstance(term, Input) or term.name != name:
                stored[name] = Output(name, order, term)
        return OperatorCall(statement, tuple(given)), stored

    def _result(self, param: Param, line: Syntax) -> Input:
        """Define a result of a call, which is stored like an input."""
        dims = tuple(SizeOf(line.span, n) for n in param.shape if n != 1)
        return self._input(ParamItem(line.span, param.name, TypeOf(line.span, param.dtype, dims)))

    # ---- axes
    def _declare_axes(self) -> None:
        """Declare the axis of every `name:extent` of the text."""
        for item in walk(self.unit):
            if isinstance(item, AxisItem):
                what = "an axis of a graph is `name:extent`"
                if item.role is not None or item.dim is not None:
                    raise DplcError(what, item)
                axis = Axis(item.name, _extent(item, what, 1))
                if self.axes.setdefault(item.name, axis) is not axis:
                    raise DplcError(f"axis `{item.name}` has two extents", item)

    def _axis(self, item: Syntax) -> Axis:
        name = item.name if isinstance(item, AxisItem) else item.text if isinstance(item, NameOf) else None
        if name is None:
            raise DplcError("an axis is expected", item)
        if name not in self.axes:
            raise DplcError(
                f"axis `{name}` has no extent: write `{name}:8` where it first stands",
                item,
                did_you_mean(name, self.axes),
            )
        return self.axes[name]

    # ---- header
    def _param(self, item: Syntax) -> ParamItem:
        if not isinstance(item, ParamItem):
            raise DplcError("`..` stands in patterns only", item)
        if item.type.dtype not in DTYPES:
            raise DplcError(f"unknown dtype `{item.type.dtype}`", item.type, did_you_mean(item.type.dtype, DTYPES))
        return item

    def _input(self, item: Syntax) -> Input:
        param = self._param(item)
        dims = param.type.dims
        if all(isinstance(d, AxisItem) for d in dims):
            own = tuple(self._axis(d) for d in dims)
        else:
            own = self._first_read(param) or default_axes(param.name, tuple(map(_extent, dims)))
        term = Input(param.name, own, param.type.dtype)
        self._define(param.name, term, own, param)
        return term

    def _first_read(self, param: ParamItem) -> Order | None:
        """Return the axes of the first read of an input at distinct axes with the extents of its dimensions."""
        extents = [_extent(d) for d in param.type.dims]
        for node in walk(self.unit.body):
            if not isinstance(node, Subscript) or not isinstance(node.base, NameOf) or node.base.text != param.name:
                continue
            read = [self.axes.get(i.text) if isinstance(i, NameOf) else None for i in node.items]
            if [a.extent if a else None for a in read] == extents and len(set(read)) == len(read):
                return tuple(a for a in read if a is not None)
        return None

    def _output(self, item: ParamItem) -> Output:
        if item.name not in self.values:
            raise DplcError(
                f"the graph gives `{item.name}`, which nothing defines", item, did_you_mean(item.name, self.values)
            )
        term, order = self.values[item.name], self.orders[item.name]
        declared, found = tuple(_extent(d) for d in item.type.dims), extents_of(order)
        if declared != found or dtype(term) != item.type.dtype:
            was = f"{dtype(term)}[{', '.join(map(str, found))}]"
            raise DplcError(f"`{item.name}` is {was}, not {item.type.dtype}[{', '.join(map(str, declared))}]", item)
        return Output(item.name, order, term)

    def _define(self, name: str, term: Term, order: Order, place: Syntax) -> None:
        if name in self.values or name in self.axes:
            raise DplcError(f"`{name}` is {'defined twice' if name in self.values else 'an axis'}", place)
        self.values[name], self.orders[name] = term, order

    # ---- lines
    def _line(self, line: Syntax, outs: dict[str, Any]) -> tuple[str, Term]:
        target = line.target if isinstance(line, Assign) else None
        base = target.base if isinstance(target, Subscript) else target
        if not isinstance(line, Assign) or not isinstance(base, NameOf):
            raise DplcError("a line of a graph reads `name[axes] = value`", line)
        term = self._term(line.value)
        items = target.items if isinstance(target, Subscript) else None
        order = tuple(map(self._axis, items)) if items is not None else axes(term)
        extra = [a.name for a in axes(term) if a not in order]
        if extra:
            raise DplcError(f"`{base.text}` also varies along {', '.join(extra)}", base)
        if base.text not in outs and (lacking := [a.name for a in order if a not in axes(term)]):
            raise DplcError(f"`{base.text}` does not vary along {', '.join(lacking)}", base)
        self._define(base.text, term, order, base)
        return base.text, term

    def _term(self, node: Syntax) -> Term:
        value = self._operand(node)
        return value if isinstance(value, Term) else _literal(value, ())

    def _operand(self, node: Syntax) -> Any:
        """Return a term, or a bare number."""
        if isinstance(node, Number):
            return node.value
        if isinstance(node, NameOf):
            return NUMBERS[node.text] if node.text in NUMBERS else self._value(node)
        if isinstance(node, Prefix) and node.op == "-" and isinstance(node.a, NameOf) and node.a.text == "inf":
            return -NUMBERS["inf"]
        if isinstance(node, Group) and len(node.items) == 1:
            return self._operand(node.items[0])
        if isinstance(node, Subscript) and isinstance(node.base, NameOf):
            return self._access(node, node.base)
        if isinstance(node, Apply):
            return self._call(node)
        raise DplcError("this is not a value of a graph", node)

    def _value(self, node: NameOf) -> Term:
        term = self._known(node)
        if isinstance(term, (Input, Mat)) and axes(term):
            raise DplcError(f"`{node.text}` is stored: read it with brackets", node)
        return term

    def _known(self, node: NameOf) -> Term:
        if node.text not in self.values:
            raise DplcError(f"`{node.text}` is not defined above", node, did_you_mean(node.text, self.values))
        return self.values[node.text]

    def _access(self, node: Subscript, base: NameOf) -> Term:
        term = self._known(base)
        order = self.orders[base.text]
        if len(node.items) != len(order):
            raise DplcError(f"`{base.text}` has {len(order)} axes, not {len(node.items)}", node)
        return remap(term, {a: self._index(item) for a, item in zip(order, node.items, strict=True)})

    def _call(self, node: Apply) -> Term:
        if node.fn == "Reduce":
            return self._reduce(node)
        if node.fn == "Fold":
            return self._fold(node)
        if node.fn == "Index" and len(node.items) == 1:
            return Index(self._index(node.items[0]))
        if node.fn == "Case" and len(node.items) == 3:
            a, b = _typed((self._operand(node.items[1]), self._operand(node.items[2])))
            return Case(self._index(node.items[0]), a, b)
        if node.fn == "mat" and len(node.items) == 1:
            return Mat(self._term(node.items[0]))
        if node.fn not in FUNCTIONS:
            raise DplcError(f"unknown function `{node.fn}`", node, did_you_mean(node.fn, (*FUNCTIONS, *_FORMS)))
        function = FUNCTIONS[node.fn]
        if len(node.items) != function.arity:
            raise DplcError(f"`{node.fn}` takes {function.arity} operands, not {len(node.items)}", node)
        args = tuple(map(self._operand, node.items))
        if function.kind == CAST and not isinstance(args[0], Term):
            to = HELD.get(node.fn, node.fn)
            return Const(_as(args[0], to), to)
        first = _typed(args[:1]) if function.kind == SELECT else ()
        return Elementwise(node.fn, first + _typed(args[len(first) :]))

    def _reduce(self, node: Apply) -> Term:
        if len(node.items) < 3 or not isinstance(node.items[0], NameOf):
            raise DplcError("a reduction reads `Reduce(function, axes.., value)`", node)
        fn = node.items[0].text
        if fn not in FUNCTIONS or FUNCTIONS[fn].identity is None:
            raise cannot_reduce(node.items[0])
        return Reduce(fn, tuple(map(self._axis, node.items[1:-1])), self._term(node.items[-1]))

    def _fold(self, node: Apply) -> Term:
        part = part_name(node.items[0]) if node.items else None
        if part is None:
            raise DplcError("a fold reads `Fold(monoid.part, axes.., (operands..))`", node)
        if part not in PARTS:
            raise DplcError(f"there is no `{part}` to fold", node.items[0], did_you_mean(part, PARTS))
        monoid, _ = of_part(part)
        given = node.items[-1]
        if len(node.items) < 3 or not isinstance(given, Group) or len(given.items) != len(monoid.operands):
            raise DplcError(f"`{part}` takes axes and {len(monoid.operands)} operands in brackets", node)
        return Fold(part, tuple(map(self._axis, node.items[1:-1])), _typed(tuple(map(self._operand, given.items))))

    # ---- index expressions
    def _index(self, node: Syntax) -> Expr:
        return arithmetic(node, self._place, operate)

    def _place(self, node: Syntax) -> Expr:
        """Return an axis, a truth value, or a value that is read as an index."""
        if isinstance(node, NameOf) and node.text in ("true", "false"):
            return NUMBERS[node.text]
        if isinstance(node, NameOf) and node.text in self.axes:
            return self.axes[node.text]
        if isinstance(node, NameOf) and node.text not in self.values:
            names = (*self.axes, *self.values)
            raise DplcError(f"there is no axis or value `{node.text}`", node, did_you_mean(node.text, names))
        return self._operand(node)


def cannot_reduce(node: Any) -> DplcError:
    """Return the error about the name of a function that has no identity."""
    options = [name for name, function in FUNCTIONS.items() if function.identity is not None]
    return DplcError(f"`{node.text}` cannot reduce: it has no identity", node, did_you_mean(node.text, options))


def part_name(node: Syntax) -> str | None:
    """Return the name of a part, such as `online.s`, from its syntax."""
    if isinstance(node, Member) and isinstance(node.base, NameOf):
        return f"{node.base.text}.{node.field}"
    return None


def default_axes(name: str, dims: tuple[Any, ...]) -> Order:
    """Return the axes of an input that is never read plainly. dims: its extents, or axes that have them."""
    extents = (d.extent if isinstance(d, Axis) else d for d in dims)
    return tuple(Axis(f"{name}_{n}", extent) for n, extent in enumerate(extents))


def _extent(item: Syntax, what: str = "an extent is a number", least: int = 0) -> Expr:
    """Return an extent, which contains numbers and sizes only. Raises DplcError, which says `what`, for any other."""

    def wrong(_: object) -> Any:
        raise DplcError(what, item)

    node = item.extent if isinstance(item, AxisItem) else item
    found = arithmetic(node, wrong)
    return extent(node, found if only_sizes(found) else wrong(found), least)


def _as(value: Any, name: str) -> Any:
    return float(value) if category(name) == 2 else bool(value) if name == "b8" else int(value)


def _literal(value: Any, met: Iterable[str]) -> Const:
    name = literal_dtype(value, met)
    return Const(_as(value, name), name)


def _typed(args: tuple[Any, ...]) -> tuple[Term, ...]:
    """Return operands, in which bare numbers have the dtype of the other operands."""
    met = tuple(dtype(x) for x in args if isinstance(x, Term) and x.__class__ is not Const)
    return tuple(x if isinstance(x, Term) else _literal(x, met) for x in args)


SHAPES = "shapes"  # of what a call reads, as torch has them
LINES = (Elementwise, Reduce, Fold, Case, Mat)


def print_graph(graph: TensorGraph) -> str:
    """Print a graph, without a newline at the end."""
    printer = _Printer(graph)
    lines = printer.body()
    ins = ", ".join((*print_sizes(graph), *(printer.header(x) for x in supplied(graph))))
    outs = ", ".join(
        f"{o.name}: {dtype(o.value)}[{', '.join(print_expr(a.extent) for a in o.axes)}]" for o in delivered(graph)
    )
    return "\n".join((f"graph {graph.name}({ins}) -> {outs}:", *(f"    {line}" for line in lines or ("pass",))))


def values_of_lines(graph: TensorGraph) -> tuple[Term, ...]:
    """Return the value of each line below the head of a graph's text."""
    return tuple(term for term, _ in _Printer(graph).rows())


def print_lines(graph: TensorGraph, root: Term, below: Iterable[Term]) -> str:
    """Print the lines that compute a term from the values below it, under the names that they have in the graph."""
    printer = _Printer(graph)
    printer.body()
    stop = set(postorder(below))
    lines = [printer.line(term) for term in postorder((root,)) if printer.has_line(term) and term not in stop]
    return "\n".join(lines) or printer.reference(root)


class _Printer:
    def __init__(self, graph: TensorGraph):
        self.graph = graph
        self.names: dict[Term, str] = {x: x.name for x in graph.ins}
        self.orders: dict[Term, Order] = {}
        for out in graph.outs:
            if isinstance(out.value, LINES) and out.value not in self.names:
                self.names[out.value], self.orders[out.value] = out.name, out.axes
        for named in graph.names:
            self.names.setdefault(named.value, named.name)
        values = postorder(graph.roots)
        # a view of a view that is none of the first value: its index would be too long
        self.viewed = {x.x for x in values if isinstance(x, Remap) and isinstance(x.x, Remap)}
        self.born: set[Axis] = set()
        self.reads: dict[str, Order] = {}  # an input's axes as its first plain read has them
        self.count = 0

    def body(self) -> list[str]:
        return [line for _, line in self.rows()]

    def rows(self) -> list[tuple[Term, str]]:
        """Return the value of each line, and the line."""
        outs = {out.name: out for out in self.graph.outs}
        rows, done = list[tuple[Term, str]](), set[Term]()

        def compute(stored: Sequence[Output]) -> None:
            for term in postorder((out.value for out in stored), lambda term: () if term in done else operands(term)):
                if self.has_line(term) and term not in done:
                    rows.append((term, self.line(term)))
                done.add(term)
            for out in stored:
                if self.names.get(out.value) != out.name:
                    rows.append((out.value, f"{self.left(out.name, out.axes)} = {self.reference(out.value)}"))

        for call in self.graph.calls:
            compute([outs.pop(param.name) for param in call.given if param.name in outs])
            # no values of the graph
            rows += ((Const(0), line) for line in (*print_bodies(call.statement), self.call(call)))
        compute([*outs.values()])
        return rows

    def call(self, call: OperatorCall) -> str:
        """Print a call: a statement of Torch IR, with the shapes of what it reads if the graph has others."""
        stored = {x.name: x.axes for x in self.graph.ins} | {out.name: out.axes for out in self.graph.outs}
        text, shapes = print_torch_op(call.statement), tuple(param.shape for param in call.given)
        if shapes == tuple(extents_of(stored[param.name]) for param in call.given):
            return text
        return f"{text[:-1]}, {SHAPES}={print_field(shapes)})"

    def has_line(self, term: Term) -> bool:
        return isinstance(term, LINES) or term in self.viewed

    def header(self, x: Input) -> str:
        plain = self.reads.get(x.name, default_axes(x.name, x.axes)) == x.axes
        dims = (print_expr(a.extent) if plain else f"{a.name}:{print_expr(a.extent)}" for a in x.axes)
        return f"{x.name}: {x.dtype}[{', '.join(dims)}]"

    def name(self, term: Term) -> str:
        if term not in self.names:
            taken = names_in(self.graph).union(self.names.values())  # an axis may be called so, too
            self.count += 1
            while f"v{self.count}" in taken:
                self.count += 1
            self.names[term] = f"v{self.count}"
        return self.names[term]

    def order(self, term: Term) -> Order:
        return self.orders.get(term) or axes(term)

    def axis(self, axis: Axis) -> str:
        if axis in self.born:
            return axis.name
        self.born.add(axis)
        return f"{axis.name}:{print_expr(axis.extent)}"

    def left(self, name: str, over: Order) -> str:
        return f"{name}[{', '.join(map(self.axis, over))}]" if over else name

    def line(self, term: Any) -> str:
        left = self.left(self.name(term), self.order(term))
        if isinstance(term, Reduce):
            return f"{left} = Reduce({term.fn}, {', '.join(map(self.axis, term.over))}, {self.reference(term.x)})"
        if isinstance(term, Fold):
            over, args = map(self.axis, term.over), (self.operand(x, _others(term.args, x)) for x in term.args)
            return f"{left} = Fold({', '.join((term.part, *over))}, ({', '.join(args)}))"
        if isinstance(term, Case):
            condition = self.index(term.cond)
            return f"{left} = Case({condition}, {self.operand(term.a, (term.b,))}, {self.operand(term.b, (term.a,))})"
        if isinstance(term, Mat):
            return f"{left} = mat({self.reference(term.x)})"
        if isinstance(term, Remap):
            return f"{left} = {self.reference(term)}"
        return f"{left} = {term.fn}({', '.join(self.operands(term))})"

    def operands(self, term: Elementwise) -> Iterable[str]:
        kind = FUNCTIONS[term.fn].kind
        for n, x in enumerate(term.args):
            if kind == CAST and isinstance(x, Const):
                yield f"{x.dtype}({_number(x)})"
            elif kind == SELECT and n == 0:
                yield self.operand(x, ())
            else:
                yield self.operand(
                    x, tuple(y for m, y in enumerate(term.args) if m != n and not (kind == SELECT and m == 0))
                )

    def operand(self, x: Term, others: tuple[Term, ...]) -> str:
        """Print an operand. A number in the dtype of the other operands is bare."""
        if isinstance(x, Const):
            met = [dtype(y) for y in others if not isinstance(y, Const)]
            return _number(x) if literal_dtype(x.value, met) == x.dtype else f"{x.dtype}({_number(x)})"
        return self.reference(x)

    def reference(self, term: Any) -> str:
        """Print a term as an operand."""
        if isinstance(term, Const):
            return self.operand(term, ())
        if isinstance(term, Index):
            return f"Index({self.index(term.expr)})"
        if isinstance(term, Remap):
            return self.access(term.x, dict(term.map))
        stored = isinstance(term, (Input, Mat)) and self.order(term)
        return self.access(term, {}) if stored else self.name(term)

    def access(self, x: Any, mapping: dict[Axis, Expr]) -> str:
        entries = [mapping.get(a, a) for a in self.order(x)]
        if isinstance(x, Input) and x.name not in self.reads and _plain(entries, x.axes):
            self.reads[x.name] = tuple(entries)
        return f"{self.name(x)}[{', '.join(map(self.index, entries))}]"

    def index(self, e: Expr) -> str:
        return print_expr(self._leaves(e))

    def _leaves(self, e: Expr) -> Expr:
        if isinstance(e, Axis):
            return Var(e.name)
        if isinstance(e, Term):
            return Var(self.reference(e))
        return rebuild(e, self._leaves) if isinstance(e, Node) else e


def _others(args: tuple[Term, ...], x: Term) -> tuple[Term, ...]:
    return tuple(y for y in args if y is not x)


def _plain(entries: list[Any], own: Order) -> bool:
    """Return whether a bracket holds distinct axes with the extents of the dimensions."""
    whole = all(isinstance(e, Axis) and e.extent == a.extent for e, a in zip(entries, own, strict=True))
    return whole and len(set(entries)) == len(entries)


def _number(x: Const) -> str:
    if isinstance(x.value, bool):
        return "true" if x.value else "false"
    return print_number(x.value)
