"""The typed statements of the core: a statement of a pattern or a template, seen through the schema of its node class.

Matchers, templates and checks are made from shapes, so what a field means is said once: in the node class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from operator import attrgetter, is_not
from typing import Any, NamedTuple

from ...ir import loop, schemas
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.expr import Axis
from ...ir.functions import FUNCTIONS
from ...ir.monoid_texts import PARTS
from ...ir.node import Field, Node
from ...ir.program import Kernel, Param
from ...ir.text.read_statements import READERS, VALUE_CLASSES, Shape, axis_shape, listed, named, op_shape, owners
from . import core as s
from .evaluate import CONSTANTS, RESERVED, facts_of
from .sorts import ANY, AXES, AXIS, BOOL, CONTEXT, EXPR, INDEX, LIST, NAME, RUN, SPLICE, TERM, Sort, field_sort

# Fields whose value is text in the node and a name (`Var`) in the rule language.
NAMES = frozenset(("Name", "Role", "Via", "Fn", "MonoidName", "AtomName", "Dtype"))


def shape_of(node: s.Syntax) -> Shape | None:
    """Return the shape of a statement, an axis, a parameter or a nested node; None for anything else."""
    reader = _READERS.get(type(node))
    return reader(node) if reader else None


def _unit(node: Any) -> Shape:
    if node.kind != "kernel":
        raise DplcError("rules on this level speak of kernels, not graphs", node.span)
    for item in node.ins:
        if isinstance(item, s.SizeItem):
            raise DplcError("sizes stand in the heads of programs, not of rules", item.span)
    return Shape(Kernel, {"name": named(node.name, node), "ins": node.ins, "outs": node.outs, "body": node.body}, node)


def _param(node: Any) -> Shape:
    dtype = named(node.type.dtype, node.type)
    return Shape(Param, {"name": named(node.name, node), "dtype": dtype, "shape": node.type.dims}, node)


_READERS: dict[type, Any] = {
    **READERS, s.AxisItem: axis_shape, s.Unit: _unit, s.ParamItem: _param,
    s.CaptureStatement: lambda node: replace(op_shape(node.call, owners()), place=node),
    s.Apply: lambda node: op_shape(node, VALUE_CLASSES) if node.fn in VALUE_CLASSES else None,
}  # fmt: skip

# What a header says nothing about has its default, in patterns too: otherwise a template silently drops a stride.
EXACT: dict[type[Node], tuple[str, ...]] = {
    loop.For: ("role", "step", "unroll"), loop.Load: ("when", "other"), Axis: ("stride",),
}  # fmt: skip


# The positions of a pattern or a template: every position of an expression or a name, with its sort.
#
# They follow from the node classes (on torch from the ATen schemas), so the checks of scopes and sorts know no op by
# name. An unknown op, or a field that an op does not have, is reported on the way.


class SortedPosition(NamedTuple):
    """Value at a position that requires `sort`.

    makes: a new name at this position in a template is defined here. around: the enclosing `each` blocks and `=>` arms,
    outermost first. what: the position in words.
    """

    value: s.Syntax
    sort: Sort
    what: str
    makes: bool = False
    around: s.Nodes = ()


Report = Callable[..., None]  # what, span, notes, hint


class Positions:
    """Walker of the statements of one level. `slots` is its result, in text order."""

    def __init__(self, level: str, pattern: bool, report: Report):
        self.level, self.pattern, self.report = level, pattern, report
        self.slots: list[SortedPosition] = []
        self.around: s.Nodes = ()

    def add(self, value: s.Syntax | None, sort: Sort, what: str, makes: bool = False) -> None:
        if value is not None:
            self.slots.append(SortedPosition(value, sort, what, makes, self.around))

    def block(self, statements: s.Nodes) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: s.Syntax) -> None:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            self.report("this is not a statement", node.span)
        else:
            method(node)

    # ---- statements of every level
    def _passstatement(self, node: s.PassStatement) -> None:
        pass

    def _dropstatement(self, node: s.DropStatement) -> None:
        self.add(node.run.base, ANY, "what is dropped")

    def _runstatement(self, node: s.RunStatement) -> None:
        self.add(node.run.base, RUN if self.pattern else SPLICE, "a run of statements")
        for change in node.changes:
            self._change(change)

    def _change(self, change: s.Syntax) -> None:
        if isinstance(change, s.Arm):
            self._arm(change)
        elif isinstance(change, s.UseRule):
            for item in change.call.items:
                self.add(item, ANY, "an argument")
        elif isinstance(change, s.Keyword):
            field = next((cls.by_name[change.name] for cls in owners().values() if change.name in cls.by_name), None)
            if field is None:
                self.add(change.value, ANY, f"`{change.name}`")
            else:
                self._field(field, listed(field, change.value), f"`{change.name}`")

    def _arm(self, node: s.Arm) -> None:
        self.add(node.domain, LIST, "the domain of `for`")
        outer, self.around = self.around, (*self.around, node)
        self._arm_side(node.pattern)
        self._arm_side(node.template)
        self.add(node.condition, BOOL, "the condition of `require`")
        self.around = outer

    def _arm_side(self, node: s.Syntax) -> None:
        access = node.access if isinstance(node, s.LoadOf) else node
        if isinstance(node, s.LoadOf) and isinstance(access, s.Subscript):
            self.add(access.base, NAME, "a buffer")
            self._list(access.items, EXPR, "an index")
        else:
            self.report("`=>` rewrites a load: `load B[i..] => load C[i..]`", node.span)

    def _insideblock(self, node: s.InsideBlock) -> None:
        self.add(named(node.name, node), CONTEXT, "a context")
        self.block(node.body)

    def _eachblock(self, node: s.EachBlock) -> None:
        if isinstance(node.domain, s.Between):
            self.add(node.domain.a, Sort("int"), "the bound of `each`")
            self.add(node.domain.b, Sort("int"), "the bound of `each`")
        else:
            self.add(node.domain, LIST, "the domain of `each`")
        outer, self.around = self.around, (*self.around, node)
        self.block(node.body)
        self.around = outer

    def _capturestatement(self, node: s.CaptureStatement) -> None:
        sort = Sort("stmt", node.repeat is not None, node.call.fn if node.call.fn in owners() else None)
        self.add(named(node.name, node), sort, "a captured statement")
        self._shaped(node)

    def _accumulateinto(self, node: s.AccumulateInto) -> None:
        self._shaped(node)
        if isinstance(node.value, s.Apply) and not isinstance(node.target, s.Group):
            self._list(node.value.items[:1], NAME, "an accumulator")  # it is written twice

    # ---- statements of Loop, Tile and Kernel IR, by the schemas of their classes
    def _shaped(self, node: s.Syntax) -> None:
        try:
            shape = shape_of(node)
        except DplcError as error:
            self.report(error.what, error.span, error.notes, error.hint)
            body = getattr(node, "body", None) or ()
            for name in names(tuple(part for part in children(node) if part is not body)):
                self.add(name, ANY, "a field", makes=True)
            self.block(body)
            return
        if shape is None:
            self.report("this is not a statement", node.span)
        else:
            self._shape(shape)

    _unit = _forloop = _ifblock = _assign = _statement = _shaped

    def _shape(self, shape: Shape) -> None:
        """Visit the fields of a node that are written, and its block."""
        words = WORDS.get(shape.cls, {})
        for field in shape.cls.fields:
            if field.name in shape.fields and field.sort != "Block":
                key = shape.cls, field.name
                what = words.get(field.name) or f"`{field.name}` of `{shape.cls.__name__}`"
                makes = field.name == "dst" or key in MAKES
                self._field(field, shape.fields[field.name], what, NARROWER.get(key), makes)
        self.block(shape.body or ())

    def _field(self, field: Field, value: Any, what: str, sort: Sort | None = None, makes: bool = False) -> None:
        sort = sort or field_sort(field.sort, field.many)
        if isinstance(value, s.Prefix) and value.op == "not" and self.pattern:
            value = value.a  # `via=not TMA`
        if isinstance(value, tuple):
            self._list(value, sort.one, what, makes)
        elif what == VALUE_OF_LET and isinstance(value, s.Apply) and (value.fn in FUNCTIONS or self.pattern):
            self.add(named(value.fn, value), Sort("fn"), "a function")
            self._list(value.items, EXPR, f"an argument of `{value.fn}`")
        elif field.many and not self.pattern:
            self._item(value, ANY, what)  # a name alone: the list, or its one element
        else:
            self._item(value, sort, what, makes)

    def _list(self, items: s.Nodes, sort: Sort, what: str, makes: bool = False) -> None:
        for item in items:
            self._item(item, sort, what, makes)

    def _item(self, item: s.Syntax, sort: Sort, what: str, makes: bool = False) -> None:
        """Visit an element of a list, or a run of them; a node within a node."""
        nested = shape_of(item) if isinstance(item, s.AxisItem | s.ParamItem | s.Apply) else None
        if nested is not None:
            self._shape(nested)
        elif isinstance(item, s.Run):
            self.add(item.base, Sort(sort.kind, True), what)
            if item.role is not None:
                self.add(named(item.role, item), Sort("role"), "a role")
        else:
            self.add(item, sort, what, makes)


VALUE_OF_LET = "a value"
# What a field is in words.
WORDS: dict[type[Node], dict[str, str]] = {
    Kernel: {"name": "the name of a kernel", "ins": "a run of parameters", "outs": "a run of parameters"},
    Param: {"name": "a buffer", "dtype": "a dtype", "shape": "an extent"},
    Axis: {
        "name": "an axis", "extent": "an extent", "role": "a role", "dim": "a dimension", "stride": "a stride",
    },
    loop.For: {
        "var": "a loop variable", "start": "the start of a loop", "stop": "the end of a loop",
        "step": "the step of a loop", "role": "a role", "unroll": "`unroll`",
    },
    loop.If: {"cond": "the condition of `if`"},
    loop.Load: {
        "buf": "a buffer", "idx": "an index", "when": "the condition of a load",
        "other": "the value where a load is not done",
    },
    loop.Let: {"val": VALUE_OF_LET}, loop.Store: {"buf": "a buffer", "idx": "an index", "val": VALUE_OF_LET},
    loop.Accumulate: {"acc": "an accumulator", "fn": "a function", "val": "an accumulated value"},
    loop.Merge: {"accs": "an accumulator", "fn": "a monoid", "vals": "an operand"},
}  # fmt: skip
# The sort that a field wants where that is narrower than its schema's.
NARROWER: dict[tuple[type[Node], str], Sort] = {
    (Kernel, "ins"): LIST, (Kernel, "outs"): LIST, (loop.If, "cond"): BOOL, (loop.Load, "when"): BOOL,
    (loop.Load, "other"): EXPR,
}  # fmt: skip
# Fields that hold a name which a template makes, if it is new; every `dst` does.
MAKES = {
    (Kernel, "name"), (Param, "name"), (Axis, "name"), (loop.For, "var"), (loop.Accumulate, "acc"),
    (loop.Merge, "accs"),
}  # fmt: skip


_CHILDREN: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def parts(cls: type) -> tuple[str, ...]:
    """Return the fields of a class of syntax, except its span."""
    return tuple(f.name for f in fields(cls) if f.name != "span")


def children(node: s.Syntax) -> tuple[Any, ...]:
    """Return the values of all fields of a node, except its span."""
    read = _CHILDREN.get(node.__class__)
    if read is None:  # of two names or more, it returns a tuple
        read = _CHILDREN[node.__class__] = attrgetter("span", "span", *parts(node.__class__))
    return read(node)[2:]


def names(node: Any, hidden: frozenset[str] = frozenset()) -> Iterator[s.NameOf]:
    """Yield the names that an expression reads from its surroundings: not those that it binds, not names of calls."""
    stack, seen = [(node, hidden)], set[Any]()
    while stack:
        node, hidden = stack.pop()
        if node.__class__ is tuple:
            stack.extend([(item, hidden) for item in reversed(node)])
        elif isinstance(node, s.NameOf):
            if node.text not in hidden:
                yield node
        elif (id(node), hidden) in seen:  # a fact that is written out is one object, at several places
            continue
        elif isinstance(node, s.Comprehension):
            stack += [((node.element, node.condition), hidden | {node.variable}), (node.domain, hidden)]
        elif isinstance(node, s.Syntax):
            seen.add((id(node), hidden))
            stack.extend([(part, hidden) for part in reversed(children(node))])


def walk(value: Any) -> Iterator[Any]:
    """Yield each syntax node below a node or a tuple once, itself first, in text order."""
    stack, seen = [value], set[int]()
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            stack.extend(reversed(node))
        elif isinstance(node, s.Syntax) and id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(reversed(children(node)))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tuple or a node with every part of it changed; itself where nothing has changed."""
    if value.__class__ is tuple:
        items = [change(item) for item in value]
        return tuple(items) if any(map(is_not, items, value)) else value
    if not isinstance(value, s.Syntax):
        return value
    before = children(value)
    after = [change(part) for part in before]
    cls: Any = value.__class__
    return cls(value.span, *after) if any(map(is_not, after, before)) else value


LEAVES = {s.Number, s.Text, bool, int, float, type(None)}
_ONE_PART = {s.Member: "base", s.Keyword: "value", s.Guard: "condition"}  # the others are names of fields, and texts


def substituted(node: Any, known: Mapping[str, s.Syntax], words: bool = True, here: bool = False) -> Any:
    """Replace names by other syntax. A comprehension does not capture a name of the inserted syntax.

    words: replace also names that are plain text, such as those of loops, axes, roles and functions. here: for a family
    of rules: replace also the names of fields, and give the inserted syntax the span of the name.
    """
    made: dict[int, Any] = {}  # by identity: what was inserted at several places is one object, and is looked at once

    def change(node: Any) -> Any:
        kind: Any = node.__class__
        if kind is str:
            given = known.get(node) if words else None
            return given.text if isinstance(given, s.NameOf) else node
        if kind in LEAVES:
            return node
        found = made.get(id(node))
        if found is None:
            found = made[id(node)] = changed(node, kind)
        return found

    def changed(node: Any, kind: Any) -> Any:
        if kind is s.NameOf:
            given = known.get(node.text)
            return node if given is None else replace(given, span=node.span) if here else given
        if kind in _ONE_PART and words and not here:
            before = getattr(node, _ONE_PART[kind])
            after = change(before)
            return node if after is before else replace(node, **{_ONE_PART[kind]: after})
        if kind is s.Comprehension:
            variable, read = node.variable, names_in((node.element, node.condition))
            inner = {name: value for name, value in known.items() if name != variable}
            taken = names_in(tuple(value for name, value in inner.items() if name in read))
            while variable in taken:
                variable += "_"
                inner[node.variable] = s.NameOf(node.span, variable)
            element, condition = substituted((node.element, node.condition), inner, words, here)
            return s.Comprehension(node.span, node.bracket, element, variable, change(node.domain), condition)
        return rebuilt(node, change)

    return change(node)


def plain(node: Any) -> Any:
    """Return a piece of syntax without its spans, for comparison."""
    if isinstance(node, tuple | list):
        return tuple(map(plain, node))
    if isinstance(node, s.NameOf):
        return node.text
    if isinstance(node, s.Syntax):
        return (type(node).__name__, *map(plain, children(node)))
    return node if isinstance(node, str) else repr(node)


def every(node: Any, kind: Any) -> Iterator[Any]:
    """Return the nodes of a kind in a node or a tuple, outermost first."""
    return (found for found in walk(node) if isinstance(found, kind))


def calls(node: Any) -> Iterator[s.Apply]:
    """Return the calls in an expression, outermost first."""
    return every(node, s.Apply)


def names_in(node: Any) -> set[str]:
    """Return the names that an expression mentions."""
    return {found.text for found in every(node, s.NameOf)}


def is_variable(name: str) -> bool:
    """Return whether a name of a rule is not reserved."""
    return name != "_" and name not in RESERVED and name not in CONSTANTS


# Positions of rules on `torch` and `tensor`, where a statement defines a value and brackets name axes.


OTHER_FIELDS = "the other fields"  # `rest..` on torch, which opens a pattern
VALUE = "a value"  # what a function of values is given
# Kinds of ATen arguments that have a sort of their own; everything else may be several things.
TERMS = Sort("term", True)
_KINDS = {
    "int": Sort("int"), "float": Sort("num"), "bool": BOOL, "str": Sort("text"), "dtype": Sort("dtype"),
    "int[]": Sort("int", True), "Tensor": TERM, "Tensor[]": TERMS,
}  # fmt: skip


def targets(node: s.Assign) -> s.Nodes:
    """Return the names that a statement defines: one, or several as in `(a, b) = mat(v, w)`."""
    if s.says_slices(node):
        return ()
    target = node.target.base if isinstance(node.target, s.Subscript) else node.target
    return target.items if isinstance(target, s.Group) else (target,)


class DataflowPositions(Positions):
    """Positions in lines such as `y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`.

    axes: the names at positions of axes, with their sorts.
    """

    def __init__(self, level: str, pattern: bool, report: Report):
        super().__init__(level, pattern, report)
        self.axes: dict[str, Sort] = {}
        self.facts = facts_of(level)

    def _assign(self, node: s.Assign) -> None:  # type: ignore[override]
        if s.says_slices(node):  # `Stacked(j, xs[os..]) = y[os..]`: both sides are read
            self._term(node.target)
        elif isinstance(node.target, s.Subscript):
            self.add(node.target.base, NAME, "a value", makes=True)
            self._bracket(node.target.items)
        else:
            for target in targets(node):
                self.add(target, NAME, "a value", makes=True)
        for declared in node.types:  # `v: t[shape(y)..] = Var(x)`: a torch op of the template
            self.add(named(declared.dtype, declared), Sort("dtype"), "a dtype")
            self._list(declared.dims, EXPR, "an extent")
        value = node.value
        if isinstance(value, s.LoadOf):
            self.report(f"`load` is not a part of level {self.level}", value.span)
        elif self.level == "torch" and (self.pattern or node.types) and isinstance(value, s.Apply):
            self._aten(value)
        else:
            self._term(value)

    def _statement(self, node: s.Syntax) -> None:
        self.report(f"a statement on {self.level} is `y = value`", node.span)

    _forloop = _ifblock = _accumulateinto = _statement

    # ---- values
    def _term(self, node: s.Syntax) -> None:
        torch = self.level == "torch"
        op = node.fn if isinstance(node, s.Apply) and torch and node.fn not in s.OPERATIONS else ""
        if op[:1].isupper() or schemas.overloads(op):
            self._aten(node)  # type: ignore[arg-type]
            return
        if isinstance(node, s.Apply) and node.fn == "mat" and len(node.items) > 1:  # `(a, b) = mat(v, w)`
            for item in node.items:
                self._term(item)
            return
        try:
            self._of(s.term_of(node, torch))
        except DplcError as error:
            self.report(error.what, error.span, error.notes, error.hint)

    def _of(self, term: s.ValueTerm) -> None:
        match term:
            case s.ReadTerm(x=s.NameTerm()) | s.MappedTerm(x=s.NameTerm()):
                self.add(term.x.node, TERM, "a tensor")
                self._bracket(term.node.items)  # type: ignore[attr-defined]
            case s.EitherTerm():
                self.add(term.condition, BOOL, "the condition of `if`")
                self._all(term.a, term.b)
            case s.ReduceTerm():
                fn, *over, _ = term.node.items  # type: ignore[attr-defined]
                self.add(fn, Sort("fn"), "the function of `Reduce`")
                self._bracket(tuple(over))
                self._of(term.x)
            case s.FoldTerm():
                part, *over, _ = term.node.items  # type: ignore[attr-defined]
                if term.part not in PARTS:
                    self.add(part, Sort("fn"), "the part of `Fold`")
                self._bracket(tuple(over))
                self._all(*term.args)
            case s.IndexTerm():
                self.add(term.expr, ANY, "the index")
            case s.CaseTerm():
                self.add(term.cond, ANY, "the condition of `Case`")
                self._all(term.a, term.b)
            case s.CastTerm():
                self._of(term.x)
                self.add(term.dtype, Sort("dtype"), "a dtype")
            case s.PlaceTerm():
                self._of(term.x)
                for bound in (term.low, term.end):
                    self.add(bound, Sort("int"), "a bound of `place`")
            case s.StackedTerm():
                self.add(term.place, AXIS, "the axis of `Stacked`")
                self.add(term.x.x.node, TERMS, "a list of tensors")
                self._bracket(term.x.places)
            case s.MatTerm():
                self._of(term.x)
            case s.RunTerm():
                self.add(term.node.base, ANY, "a run of values")  # type: ignore[attr-defined]
            case s.FunctionTerm() if term.known or term.fn not in self.facts:
                self._function(term)
            case _:
                self.add(term.node, TERM, VALUE)

    def _all(self, *terms: s.ValueTerm) -> None:
        for term in terms:
            self._of(term)

    def _function(self, term: s.FunctionTerm) -> None:
        """Visit a scalar function of values; in a pattern also a variable, or `_`, for one."""
        self.add(named(term.fn, term.node), Sort("fn"), "a function")
        for operand in term.operands:
            if self.level == "torch" and term.known and isinstance(operand, s.RunTerm):
                self.report(f"`{term.fn}` takes values, not a run of them", operand.span)
            else:
                self._of(operand)

    # ---- axes
    def _bracket(self, items: s.Nodes) -> None:
        for item in items:
            if isinstance(item, s.Run):
                self._born(item.base, AXES)
                self.add(item.base, AXES, "a run of axes")
            elif isinstance(item, s.AxisItem):
                self.axes[item.name] = AXIS
                if self.pattern:
                    self.add(named(item.name, item), AXIS, "an axis")
                self.add(item.extent, EXPR, "an extent")
            elif isinstance(item, s.Subscript) or (
                isinstance(item, s.Apply) and (item.fn in FUNCTIONS or item.fn == "place")
            ):
                self._term(item)  # a gather
            elif isinstance(item, s.NameOf):
                self._born(item, AXIS)
                self.add(item, AXIS if self.pattern else INDEX, "an index")
            elif isinstance(item, s.Group):
                self._bracket(item.items)
            else:
                self.add(item, EXPR, "an index")

    def _born(self, node: s.Syntax, sort: Sort) -> None:
        """Visit a name, or a run of names, that introduces an axis if alone; inside arithmetic it is only read."""
        if isinstance(node, s.NameOf) and is_variable(node.text):
            self.axes.setdefault(node.text, sort)

    # ---- torch
    def _aten(self, call: s.Apply) -> None:
        """Visit `Op(tensors.., field=value)` by the ATen schemas."""
        if call.fn == "_":
            return
        known = schemas.overloads(call.fn)
        if not known:
            self.report(f"torch has no op `{call.fn}`", call.span, (), did_you_mean(call.fn, schemas.names()))
        kinds: dict[str, set[str]] = {}
        for overload in known:
            for argument in overload.arguments:
                kinds.setdefault(argument.name, set()).add(argument.kind)
        given = {item.name for item in call.items if isinstance(item, s.Keyword)}
        places = iter(_places(known, given))
        for item in call.items:
            if isinstance(item, s.Run):
                self.add(item.base, LIST, OTHER_FIELDS)
            elif not isinstance(item, s.Keyword):
                self._attribute(item, _one_kind(next(places, set())), "a field")
            elif item.name in kinds or not known:
                self._attribute(item.value, _one_kind(kinds.get(item.name, set())), f"`{item.name}` of `{call.fn}`")
            else:
                notes = (f"its fields are {', '.join(kinds)}",)
                what = f"`{call.fn}` has no field `{item.name}`"
                self.report(what, item.span, notes, did_you_mean(item.name, kinds))
        number = sum(not isinstance(item, s.Run) for item in call.items)
        if known and number > max(len(overload.arguments) for overload in known) and given <= kinds.keys():
            self.report(f"no form of `{call.fn}` has {number} fields", call.span)

    def _attribute(self, node: s.Syntax, sort: Sort, what: str) -> None:
        if isinstance(node, s.Prefix) and isinstance(node.a, s.NameOf) and node.a.text == "inf":
            node = node.a
        if self.pattern and not isinstance(node, s.NameOf | s.Number | s.Text | s.Group):
            self.report("a field of a pattern on torch is a variable, a constant or a list of them", node.span)
        if isinstance(node, s.Group):
            for item in node.items:
                inner = sort.one if sort.many else ANY
                if isinstance(item, s.Run):
                    self._attribute(item.base, Sort(inner.kind, True), what)
                else:
                    self._attribute(item, inner, what)
        elif isinstance(node, s.NameOf) and (node.text in CONSTANTS or sort == TERMS):
            self.add(node, ANY, what)  # where tensors are listed, an op that gives several has one name for them
        else:
            self.add(node, sort, what)


def _one_kind(kinds: set[str]) -> Sort:
    """Return the sort of a field if it is the same in every overload; anything otherwise."""
    return _KINDS.get(next(iter(kinds)), ANY) if len(kinds) == 1 else ANY


def _places(known: tuple[schemas.Overload, ...], given: set[str]) -> list[set[str]]:
    """Return the kinds of the fields without a name, by position, over the overloads that have the named ones."""
    places: list[set[str]] = []
    for overload in known:
        free = [argument.kind for argument in overload.arguments if argument.name not in given]
        if given <= {argument.name for argument in overload.arguments}:
            places += [set() for _ in range(len(free) - len(places))]
            for place, kind in zip(places, free, strict=False):
                place.add(kind)
    return places
