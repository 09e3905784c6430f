"""The positions of a pattern or a template: every place where an expression or a name stands, and its sort there.

Read off the node classes (on torch, the ATen schemas), so that the checks of scopes and of sorts know no op by name.
What cannot be placed (an unknown op, a field that an op does not have) is reported on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...ir.diagnostic import did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.node import Field
from ...ir.text import syntax as s
from ...ir.text.read_statements import merge_fields, statement_classes, value_classes
from .evaluate import CONSTANTS, RESERVED
from .sorts import ANY, BOOL, CONTEXT, EXPR, LIST, NAME, RUN, SPLICE, Sort, field_sort, owners


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
                self._field(field, change.value, f"`{change.name}`")

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
        self.op(node.call, owners())

    def _unit(self, node: s.Unit) -> None:
        self.add(named(node.name, node), NAME, "the name of a kernel", makes=True)
        for item in (*node.ins, *node.outs):
            if isinstance(item, s.ParamItem):
                self.add(named(item.name, item), NAME, "a buffer", makes=True)
                self.add(named(item.type.dtype, item.type), Sort("dtype"), "a dtype")
                self._list(item.type.dims, EXPR, "an extent")
            elif isinstance(item, s.Run):
                self.add(item.base, LIST, "a run of parameters")
        self.block(node.body)

    # ---- Loop, Tile and Kernel IR
    def _forloop(self, node: s.ForLoop) -> None:
        self.add(named(node.var, node), NAME, "a loop variable", makes=True)
        self.add(node.start, EXPR, "the start of a loop")
        self.add(node.stop, EXPR, "the end of a loop")
        self.add(node.step, EXPR, "the step of a loop")
        for attribute in node.attributes:
            if isinstance(attribute, s.NameOf):
                self.add(attribute, Sort("role"), "a role")
            elif isinstance(attribute, s.Keyword) and attribute.name == "unroll":
                self.add(attribute.value, Sort("int"), "`unroll`")
            elif isinstance(attribute, s.Keyword):
                what = f"a loop has no attribute `{attribute.name}`"
                self.report(what, attribute.span, (), did_you_mean(attribute.name, ("unroll",)))
        self.block(node.body)

    def _ifblock(self, node: s.IfBlock) -> None:
        self.add(node.condition, BOOL, "the condition of `if`")
        self.block(node.body)

    def _accumulateinto(self, node: s.AccumulateInto) -> None:
        value = node.value
        if isinstance(node.target, s.Group):
            self._merge(node, node.target)
            return
        self.add(node.target, NAME, "an accumulator", makes=True)
        if not isinstance(value, s.Apply) or len(value.items) != 2:
            self.report("an accumulation reads `acc <- fn(acc, value)`", node.span)
            return
        self.add(named(value.fn, value), Sort("fn"), "a function")
        self.add(value.items[0], NAME, "an accumulator")
        self.add(value.items[1], EXPR, "an accumulated value")

    def _merge(self, node: s.AccumulateInto, target: s.Group) -> None:
        fields = merge_fields(node)
        assert fields is not None
        for item in target.items:
            self.add(item, NAME, "an accumulator", makes=True)
        self.add(named(fields[1], node.value), Sort("monoid"), "a monoid")
        self._list(fields[2], EXPR, "an operand")

    def _assign(self, node: s.Assign) -> None:
        if isinstance(node.target, s.Subscript):
            self.add(node.target.base, NAME, "a buffer")
            self._list(node.target.items, EXPR, "an index")
        else:
            self.add(node.target, NAME, "a name", makes=True)
        value = node.value
        if isinstance(value, s.LoadOf):
            self._load(value)
        elif isinstance(value, s.Apply) and (value.fn in statement_classes() or value.fn[:1].isupper()):
            self.op(value)
        else:
            self._scalar(value)
        self.block(node.body or ())

    def _load(self, node: s.LoadOf) -> None:
        if isinstance(node.access, s.Subscript):
            self.add(node.access.base, NAME, "a buffer")
            self._list(node.access.items, EXPR, "an index")
        self.add(node.condition, BOOL, "the condition of a load")
        self.add(node.other, EXPR, "the value where a load is not done")

    def _scalar(self, value: s.Syntax) -> None:
        """What a value is computed from: a function of expressions, or an expression."""
        if isinstance(value, s.Apply) and (value.fn in FUNCTIONS or self.pattern):
            self.add(named(value.fn, value), Sort("fn"), "a function")
            self._list(value.items, EXPR, f"an argument of `{value.fn}`")
        else:
            self.add(value, EXPR, "a value")

    def _statement(self, node: s.Statement) -> None:
        if isinstance(node.call, s.Apply):
            self.op(node.call)
        else:
            self.report("this is not a statement", node.span)
        self.block(node.body or ())

    # ---- ops of Tile and Kernel IR
    def op(self, call: s.Apply, among: dict[str, Any] | None = None) -> None:
        """`Op(positional.., field=value)` by the schema of its class."""
        classes = among or {**owners(), **value_classes()}
        if call.fn not in classes:
            if call.fn != "_":
                self.report(f"unknown op `{call.fn}`", call.span, (), did_you_mean(call.fn, classes))
            self._list(call.items, ANY, "a field")
            return
        cls = classes[call.fn]
        left = list(getattr(cls, "positional", ()))
        for item in call.items:
            if isinstance(item, s.Keyword):
                field = cls.by_name.get(item.name)
                if field is None or item.name in ("dst", "body"):
                    what = f"`{call.fn}` has no field `{item.name}`"
                    self.report(what, item.span, (), did_you_mean(item.name, cls.by_name))
                else:
                    self._field(field, item.value, f"`{field.name}` of `{call.fn}`")
            elif not left:
                self.report(f"too many positional arguments for `{call.fn}`", item.span)
            elif cls.by_name[left[0]].many:
                self._item(item, field_sort(cls.by_name[left[0]].sort, False), f"`{left[0]}` of `{call.fn}`")
            else:
                name = left.pop(0)
                self._field(cls.by_name[name], item, f"`{name}` of `{call.fn}`")

    def _field(self, field: Field, value: s.Syntax, what: str) -> None:
        sort = field_sort(field.sort, field.many)
        if isinstance(value, s.Prefix) and value.op == "not" and self.pattern:
            value = value.a  # `via=not TMA`
        if field.many and isinstance(value, s.Group):
            self._list(value.items, sort.one, what)
        elif field.many and not self.pattern and (isinstance(value, s.AxisItem) or not isinstance(value, s.NameOf)):
            self._item(value, ANY if not isinstance(value, s.AxisItem) else sort.one, what)
        elif field.many and not self.pattern:
            self.add(value, ANY, what)  # a name alone: the list, or its one element
        elif isinstance(value, s.Apply) and value.fn in value_classes():
            self.op(value)
        else:
            self._item(value, sort, what)

    def _list(self, items: tuple[s.Syntax, ...], sort: Sort, what: str) -> None:
        for item in items:
            self._item(item, sort, what)

    def _item(self, item: s.Syntax, sort: Sort, what: str) -> None:
        """An element of a list, or a run of them."""
        if isinstance(item, s.Run):
            self.add(item.base, Sort(sort.kind, True), what)
            if item.role is not None:
                self.add(named(item.role, item), Sort("role"), "a role")
        elif isinstance(item, s.AxisItem):
            self.add(named(item.name, item), NAME, "an axis", makes=True)
            self.add(item.extent, EXPR, "an extent")
            if item.role is not None:
                self.add(named(item.role, item), Sort("role"), "a role")
            self.add(item.dim, Sort("int"), "a dimension")
            self.add(item.stride, Sort("int"), "a stride")
        else:
            self.add(item, sort, what)


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
