"""Positions of rules on `torch` and `tensor`, where a statement defines a value and brackets name axes."""

from __future__ import annotations

from ...ir import schemas
from ...ir.diagnostic import did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.monoid_texts import PARTS
from ...ir.text import syntax as s
from ...ir.text.tensor_read import part_name
from .evaluate import CONSTANTS
from .facts import facts_of
from .positions import Positions, Report, is_variable, named
from .sorts import ANY, AXES, AXIS, BOOL, EXPR, INDEX, LIST, NAME, TERM, Sort

OTHER_FIELDS = "the other fields"  # `rest..` on torch, which opens a pattern
VALUE = "a value"  # what a function of values is given
PRIMITIVES = ("Reduce", "Fold", "Index", "Case", "cast", "place", "mat")
# Kinds of ATen arguments that have a sort of their own; everything else may be several things.
_KINDS = {
    "int": Sort("int"), "float": Sort("num"), "bool": BOOL, "str": Sort("text"), "dtype": Sort("dtype"),
    "int[]": Sort("int", True), "Tensor": TERM, "Tensor[]": Sort("term", True),
}  # fmt: skip


def targets(node: s.Assign) -> tuple[s.Syntax, ...]:
    """The names that a statement defines: one, or several as in `(a, b) = mat(v, w)`."""
    target = node.target.base if isinstance(node.target, s.Subscript) else node.target
    return target.items if isinstance(target, s.Group) else (target,)


class DataflowPositions(Positions):
    """`y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`. `axes`: the names that stand where axes do."""

    def __init__(self, level: str, pattern: bool, report: Report):
        super().__init__(level, pattern, report)
        self.axes: dict[str, Sort] = {}
        self.facts = facts_of(level)

    def _assign(self, node: s.Assign) -> None:
        if isinstance(node.target, s.Subscript):
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
            self.report(f"`load` is no part of level {self.level}", value.span)
        elif self.level == "torch" and self.pattern and isinstance(value, s.Apply):
            self._aten(value)
        else:
            self._term(value)

    def _statement(self, node: s.Statement) -> None:
        self.report(f"a statement on {self.level} is `y = value`", node.span)

    _forloop = _ifblock = _accumulateinto = _statement  # type: ignore[assignment]

    # ---- values
    def _term(self, node: s.Syntax) -> None:
        if isinstance(node, s.Apply):
            self._call(node)
        elif isinstance(node, s.Subscript) and isinstance(node.base, s.NameOf):
            self.add(node.base, TERM, "a tensor")
            self._bracket(node.items)
        elif isinstance(node, s.Choice):
            self.add(node.condition, BOOL, "the condition of `if`")
            self._term(node.a)
            self._term(node.b)
        elif isinstance(node, s.Group):
            for item in node.items:
                self._term(item.base if isinstance(item, s.Run) else item)
        else:
            self.add(node, TERM, VALUE)

    def _call(self, node: s.Apply) -> None:
        if node.fn == "Reduce":
            self._reduce(node)
        elif node.fn == "Fold" and len(node.items) > 2 and isinstance(node.items[-1], s.Group):
            self._fold(node, node.items[-1])
        elif node.fn == "Index" and len(node.items) == 1:
            self._indexing(node.items[0], "the index")
        elif node.fn == "Case" and len(node.items) == 3:
            self._indexing(node.items[0], "the condition of `Case`")
            self._term(node.items[1])
            self._term(node.items[2])
        elif node.fn == "cast" and len(node.items) == 2:
            self._term(node.items[0])
            self.add(node.items[1], Sort("dtype"), "a dtype")
        elif node.fn == "place" and len(node.items) == 3 and self.level == "torch" and not self.pattern:
            self._term(node.items[0])
            for bound in node.items[1:]:
                self.add(bound, Sort("int"), "a bound of `place`")
        elif node.fn == "mat" and node.items:
            for item in node.items:
                self._term(item)
        elif node.fn in PRIMITIVES and not (self.level == "torch" and schemas.overloads(node.fn)):
            forms = "`Index(e)`, `Case(condition, a, b)`, `cast(x, dtype)`, `place(x, low, end)`, `mat(x)`"
            self.report(f"`{node.fn}` is not written like this", node.span, (f"the forms are {forms}",))
        elif self.level == "torch" and not self.pattern and (node.fn[:1].isupper() or schemas.overloads(node.fn)):
            self._aten(node)
        elif node.fn in self.facts and node.fn not in FUNCTIONS:
            self.add(node, TERM, "a value")
        else:
            self._function(node)

    def _function(self, node: s.Apply) -> None:
        """A scalar function of values; in a pattern also a variable, or `_`, for one."""
        self.add(named(node.fn, node), Sort("fn"), "a function")
        for item in node.items:
            if isinstance(item, s.Run) and self.level == "torch" and node.fn in FUNCTIONS:
                self.report(f"`{node.fn}` takes values, not a run of them", item.span)
            elif isinstance(item, s.Run):
                self.add(item.base, ANY, "a run of values")
            else:
                self._term(item)

    def _reduce(self, node: s.Apply) -> None:
        if len(node.items) < 3 and not any(isinstance(item, s.Run) for item in node.items):
            self.report("a reduction reads `Reduce(function, axis.., value)`", node.span)
            return
        first, *over, value = node.items
        self.add(first, Sort("fn"), "the function of `Reduce`")
        self._bracket(tuple(over))
        self._term(value)

    def _fold(self, node: s.Apply, given: s.Group) -> None:
        first = node.items[0]
        part = part_name(first)
        if part is None:
            self.add(first, Sort("fn"), "the part of `Fold`")
        elif part not in PARTS:
            self.report(f"there is no `{part}` to fold", first.span, (), did_you_mean(part, PARTS))
        self._bracket(node.items[1:-1])
        for item in given.items:
            if isinstance(item, s.Run):
                self.add(item.base, ANY, "a run of values")
            else:
                self._term(item)

    # ---- axes
    def _bracket(self, items: tuple[s.Syntax, ...]) -> None:
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
                self._indexing(item, "an index")

    def _indexing(self, node: s.Syntax, what: str) -> None:
        """Index arithmetic over axes, and over values that are read with brackets."""
        self.add(node, EXPR if what == "an index" else ANY, what)

    def _born(self, node: s.Syntax, sort: Sort) -> None:
        """A name alone, or a run of names alone, is where an axis comes from; inside arithmetic it is only read."""
        if isinstance(node, s.NameOf) and is_variable(node.text):
            self.axes.setdefault(node.text, sort)

    # ---- torch
    def _aten(self, call: s.Apply) -> None:
        """`Op(tensors.., field=value)` by the ATen schemas."""
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
        elif isinstance(node, s.NameOf) and node.text in CONSTANTS:
            self.add(node, ANY, what)
        else:
            self.add(node, sort, what)


def _one_kind(kinds: set[str]) -> Sort:
    """The sort of a field that is of one kind in every overload; anything otherwise."""
    return _KINDS.get(next(iter(kinds)), ANY) if len(kinds) == 1 else ANY


def _places(known: tuple[schemas.Overload, ...], given: set[str]) -> list[set[str]]:
    """The kinds that the fields without a name may have, by position, over the overloads that have the named ones."""
    places: list[set[str]] = []
    for overload in known:
        free = [argument.kind for argument in overload.arguments if argument.name not in given]
        if given <= {argument.name for argument in overload.arguments}:
            places += [set() for _ in range(len(free) - len(places))]
            for place, kind in zip(places, free, strict=False):
                place.add(kind)
    return places
