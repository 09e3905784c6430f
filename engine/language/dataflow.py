"""Positions of rules on `torch` and `tensor`, where a statement defines a value and brackets name axes."""

from __future__ import annotations

from ...ir import schemas
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.monoid_texts import PARTS
from . import core as s
from .evaluate import CONSTANTS
from .facts import facts_of
from .positions import Positions, Report, is_variable, named
from .sorts import ANY, AXES, AXIS, BOOL, EXPR, INDEX, LIST, NAME, TERM, Sort

OTHER_FIELDS = "the other fields"  # `rest..` on torch, which opens a pattern
VALUE = "a value"  # what a function of values is given
# Kinds of ATen arguments that have a sort of their own; everything else may be several things.
TERMS = Sort("term", True)
_KINDS = {
    "int": Sort("int"), "float": Sort("num"), "bool": BOOL, "str": Sort("text"), "dtype": Sort("dtype"),
    "int[]": Sort("int", True), "Tensor": TERM, "Tensor[]": TERMS,
}  # fmt: skip


def targets(node: s.Assign) -> tuple[s.Syntax, ...]:
    """The names that a statement defines: one, or several as in `(a, b) = mat(v, w)`."""
    if s.says_slices(node):
        return ()
    target = node.target.base if isinstance(node.target, s.Subscript) else node.target
    return target.items if isinstance(target, s.Group) else (target,)


class DataflowPositions(Positions):
    """`y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`. `axes`: the names that stand where axes do."""

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
            self.report(f"`load` is no part of level {self.level}", value.span)
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
                self._all(*term.operands)
            case s.IndexTerm():
                self.add(term.e, ANY, "the index")
            case s.CaseTerm():
                self.add(term.condition, ANY, "the condition of `Case`")
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
        """A scalar function of values; in a pattern also a variable, or `_`, for one."""
        self.add(named(term.fn, term.node), Sort("fn"), "a function")
        for operand in term.operands:
            if self.level == "torch" and term.known and isinstance(operand, s.RunTerm):
                self.report(f"`{term.fn}` takes values, not a run of them", operand.span)
            else:
                self._of(operand)

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
                self.add(item, EXPR, "an index")

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
        elif isinstance(node, s.NameOf) and (node.text in CONSTANTS or sort == TERMS):
            self.add(node, ANY, what)  # where tensors are listed, an op that gives several has one name for them
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
