"""The positions of a pattern or a template: every place where an expression or a name stands, and its sort there.

Read off the node classes (on torch, the ATen schemas), so that the checks of scopes and of sorts know no op by name.
What cannot be placed (an unknown op, a field that an op does not have) is reported on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...ir import loop
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis
from ...ir.functions import FUNCTIONS
from ...ir.node import Field, Node
from ...ir.program import Kernel, Param
from ...ir.text import syntax as s
from .evaluate import CONSTANTS, RESERVED
from .sorts import ANY, BOOL, CONTEXT, EXPR, LIST, NAME, RUN, SPLICE, Sort, field_sort, owners
from .statements import Shape, listed, shape_of


class SortedPosition(NamedTuple):
    """value stands where `sort` is wanted. makes: a name that stands here in a template is made here, if it is new.

    around: the `each` blocks and `=>` arms around it, outermost first; what: the position in words.
    """

    value: s.Syntax
    sort: Sort
    what: str
    makes: bool = False
    around: tuple[s.Syntax, ...] = ()


Report = Callable[..., None]  # what, span, notes, hint


def named(text: str, place: s.Syntax) -> s.NameOf:
    """A name that the grammar keeps as bare text, as an expression."""
    return s.NameOf(place.span, text)


class Positions:
    """Walks statements of one level. `slots` is what it found, in text order."""

    def __init__(self, level: str, pattern: bool, report: Report):
        self.level, self.pattern, self.report = level, pattern, report
        self.slots: list[SortedPosition] = []
        self.around: tuple[s.Syntax, ...] = ()

    def add(self, value: s.Syntax | None, sort: Sort, what: str, makes: bool = False) -> None:
        if value is not None:
            self.slots.append(SortedPosition(value, sort, what, makes, self.around))

    def block(self, statements: tuple[s.Syntax, ...]) -> None:
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
            field = _any_field(change.name)
            if field is None:
                self.add(change.value, ANY, f"`{change.name}`")
            else:
                self._field(field, listed(field, change.value), f"`{change.name}`")

    def _arm(self, node: s.Arm) -> None:
        self.add(node.domain, LIST, "the domain of `for`")
        outer, self.around = self.around, (*self.around, node)
        self._arm_side(node.pattern)
        self._arm_side(node.template)
        self.add(node.condition, BOOL, "the condition of `where`")
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
            for name in names(tuple(getattr(node, part) for part in parts(type(node)) if part != "body")):
                self.add(name, ANY, "a field", makes=True)
            self.block(getattr(node, "body", None) or ())
            return
        if shape is None:
            self.report("this is not a statement", node.span)
        else:
            self._shape(shape)

    _unit = _forloop = _ifblock = _assign = _statement = _shaped

    def _shape(self, shape: Shape) -> None:
        """The fields of a node that are written, and its block."""
        for field in shape.cls.fields:
            if field.name in shape.fields and field.sort != "Block":
                what, sort = WORDS.get((shape.cls, field.name)) or (f"`{field.name}` of `{shape.cls.__name__}`", None)
                self._field(field, shape.fields[field.name], what, sort, (shape.cls, field.name) in MAKES)
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

    def _list(self, items: tuple[s.Syntax, ...], sort: Sort, what: str, makes: bool = False) -> None:
        for item in items:
            self._item(item, sort, what, makes)

    def _item(self, item: s.Syntax, sort: Sort, what: str, makes: bool = False) -> None:
        """An element of a list, or a run of them; a node within a node."""
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
# What a field is in words, and the sort that it wants where that is narrower than its schema's.
WORDS: dict[tuple[type[Node], str], tuple[str, Sort | None]] = {
    (Kernel, "name"): ("the name of a kernel", None), (Kernel, "ins"): ("a run of parameters", LIST),
    (Kernel, "outs"): ("a run of parameters", LIST), (Param, "name"): ("a buffer", None),
    (Param, "dtype"): ("a dtype", None), (Param, "shape"): ("an extent", None), (Axis, "name"): ("an axis", None),
    (Axis, "extent"): ("an extent", None), (Axis, "role"): ("a role", None), (Axis, "dim"): ("a dimension", None),
    (Axis, "stride"): ("a stride", None), (loop.For, "var"): ("a loop variable", None),
    (loop.For, "start"): ("the start of a loop", None), (loop.For, "stop"): ("the end of a loop", None),
    (loop.For, "step"): ("the step of a loop", None), (loop.For, "role"): ("a role", None),
    (loop.For, "unroll"): ("`unroll`", None), (loop.If, "cond"): ("the condition of `if`", BOOL),
    (loop.Load, "buf"): ("a buffer", None), (loop.Load, "idx"): ("an index", None),
    (loop.Load, "when"): ("the condition of a load", BOOL),
    (loop.Load, "other"): ("the value where a load is not done", EXPR), (loop.Let, "val"): (VALUE_OF_LET, None),
    (loop.Store, "buf"): ("a buffer", None), (loop.Store, "idx"): ("an index", None),
    (loop.Store, "val"): (VALUE_OF_LET, None), (loop.Accumulate, "acc"): ("an accumulator", None),
    (loop.Accumulate, "fn"): ("a function", None), (loop.Accumulate, "val"): ("an accumulated value", None),
    (loop.Merge, "accs"): ("an accumulator", None), (loop.Merge, "fn"): ("a monoid", None),
    (loop.Merge, "vals"): ("an operand", None),
}  # fmt: skip
# Fields that hold a name which a template makes, if it is new.
MAKES = {
    (Kernel, "name"), (Param, "name"), (Axis, "name"), (loop.For, "var"), (loop.Accumulate, "acc"),
    (loop.Merge, "accs"), *((cls, "dst") for cls in owners().values()),
}  # fmt: skip


def _any_field(name: str) -> Field | None:
    """A field of this name of any statement: `xs.. with depth=2` where the class of xs is not known."""
    return next((cls.by_name[name] for cls in owners().values() if name in cls.by_name), None)


_PARTS: dict[type, tuple[str, ...]] = {}


def parts(cls: type) -> tuple[str, ...]:
    """The fields of a class of syntax, but its place."""
    found = _PARTS.get(cls)
    if found is None:
        found = _PARTS[cls] = tuple(f.name for f in dataclasses.fields(cls) if f.name != "span")
    return found


def names(node: Any, hidden: frozenset[str] = frozenset()) -> Iterator[s.NameOf]:
    """The names an expression reads from its surroundings: not what it binds itself, not the names of calls."""
    if isinstance(node, tuple):
        for item in node:
            yield from names(item, hidden)
    elif isinstance(node, s.NameOf):
        if node.text not in hidden:
            yield node
    elif isinstance(node, s.Comprehension):
        yield from names(node.domain, hidden)
        yield from names((node.element, node.condition), hidden | {node.variable})
    elif isinstance(node, s.Syntax):
        for part in parts(type(node)):
            yield from names(getattr(node, part), hidden)


def walk(value: Any) -> Iterator[Any]:
    """Every syntax node below a node or a tuple, itself first, in text order."""
    stack = [value]
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            stack.extend(reversed(node))
        elif isinstance(node, s.Syntax):
            yield node
            stack.extend([getattr(node, part) for part in reversed(parts(type(node)))])


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A tuple or a node with every part of it changed; itself where nothing has changed."""
    if value.__class__ is tuple:
        items = [change(item) for item in value]
        return tuple(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not isinstance(value, s.Syntax):
        return value
    cls: Any = value.__class__
    before = [getattr(value, part) for part in parts(cls)]
    after = [change(part) for part in before]
    return cls(value.span, *after) if any(a is not b for a, b in zip(after, before, strict=True)) else value


def plain(node: Any) -> Any:
    """A piece of syntax without its places, for comparison."""
    if isinstance(node, tuple):
        return tuple(map(plain, node))
    if isinstance(node, s.NameOf):
        return node.text
    if isinstance(node, s.Syntax):
        return (type(node).__name__, *(plain(getattr(node, name)) for name in parts(type(node))))
    return node


def every(node: Any, kind: Any) -> Iterator[Any]:
    """The nodes of a kind in a node or a tuple, outermost first."""
    return (found for found in walk(node) if isinstance(found, kind))


def calls(node: Any) -> Iterator[s.Apply]:
    """The calls in an expression, outermost first."""
    return every(node, s.Apply)


def names_in(node: Any) -> set[str]:
    """The names that an expression mentions."""
    return {found.text for found in every(node, s.NameOf)}


def is_variable(name: str) -> bool:
    """Whether a name of a rule is not reserved."""
    return name != "_" and name not in RESERVED and name not in CONSTANTS
