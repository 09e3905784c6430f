"""Patterns of torch rules, and their templates.

A pattern is closed: a field that the rule does not mention must be at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ....ir import compose
from ....ir.compose import remap, remap_expr
from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.dtypes import DTYPES
from ....ir.expr import Axis, Binary, Sum, Var
from ....ir.functions import FUNCTIONS
from ....ir.interp import tensor as meaning
from ....ir.node import Expr, Node, immutable, nodes, walk
from ....ir.program import TensorType
from ....ir.schemas import PARTS, Overload
from ....ir.sizes import known_at_launch
from ....ir.stacked import stacked
from ....ir.substitute import with_sizes
from ....ir.tensor import Elementwise, Input, Output, TensorGraph, Term, axes, dtype, postorder
from ....ir.text.read_statements import CONSTANTS
from ....ir.text.torch import print_field
from ....ir.torch import TorchOp
from ...language.core import (
    Apply,
    Assign,
    CaseTerm,
    CastTerm,
    EitherTerm,
    FoldTerm,
    FunctionTerm,
    Group,
    IndexTerm,
    Keyword,
    NameOf,
    NameTerm,
    Nodes,
    PlaceTerm,
    ReadTerm,
    ReduceTerm,
    Run,
    StackedTerm,
    Subscript,
    Syntax,
    Text,
    ValueTerm,
    constant_of,
    term_of,
)
from ...language.evaluate import MISTAKES, RESERVED, SITE, Closure, Environment, Expressions, mistaken
from ...language.typed_slots import names_in

# Torch values as terms, and axes that have no name yet.


Entry = Any  # the content of one position of a bracket: an index expression over unnamed axes, or a deferred term
Entries = tuple[Entry, ...]


class NotApplicable(Exception):
    """The rule does not apply; the text says why.

    saw: gives the values that its guard saw. undecided: the condition that sizes leave open, if that is the reason.
    """

    def __init__(self, reason: str, saw: Callable[[], str] = str, undecided: Any = None):
        super().__init__(reason)
        self.saw, self.undecided = saw, undecided

    @property
    def text(self) -> str:
        """The reason, with what the guard saw."""
        return f"{self} {self.saw()}".rstrip()


@dataclass(eq=False, slots=True)
class View:
    """A torch value: a term, and per torch dimension the axis that it varies with (None for size 1).

    An input that nothing has read has no term yet: its first reader names its axes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    term: Term | None = None
    dims: tuple[Axis | None, ...] = ()

    def along(self, name: Callable[[Any], Axis], entries: Sequence[Any]) -> tuple[Axis | None, ...]:
        """Return the axes that names give to the entries of its dimensions."""
        return tuple(None if n == 1 else name(entry) for entry, n in zip(entries, self.shape, strict=True))

    def own(self, name: Callable[[Any], Axis], entries: Sequence[Any]) -> Term:
        """Return the term, after naming the axes of an input that has none yet."""
        if self.term is None:
            self.dims = self.along(name, entries)
            self.term = Input(self.name, tuple(filter(None, self.dims)), self.dtype)
        return self.term

    def read_at(self, places: Sequence[Expr]) -> Term:
        """Return the value at an index in each dimension."""
        assert self.term is not None, self
        return remap(self.term, {dim: e for e, dim in zip(places, self.dims, strict=True) if dim is not None})

    def __repr__(self) -> str:
        return self.name


def views(*values: Any) -> list[View]:
    """Return the tensors in some values, the elements of lists and the operands of index expressions, in order."""
    return [part for part in walk(values) if isinstance(part, View)]


@dataclass
class AxisSlot:
    """Axis without a name yet. candidates: the axes at the positions that it indexes, and whether of a computed value.

    free: a bracket created it, and its extent is that of the positions, of which those of size 1 say nothing.
    """

    extent: int
    free: bool = False
    candidates: dict[Axis, bool] = field(default_factory=dict)
    axis: Axis | None = None
    bound: bool = False  # a Reduce sweeps it


@immutable
class Exactly:
    """An axis put at a position on purpose: it may be shorter than the dimension (the start of a slice)."""

    axis: Axis


@immutable
class Producer:
    """An op that gives several tensors; its results are read with Getitem."""

    statement: TorchOp


class OpCall(NamedTuple):
    """An op and what its fields are: numbers, text, lists, views. origin: the user's op that it is part of."""

    statement: TorchOp
    overload: Overload
    given: dict[str, Any]
    origin: TorchOp


# Patterns: a variable, a list of patterns, or the value itself.


class ListPattern(NamedTuple):
    """`[n, d, rest..]`. rest: the pattern of the rest, or none."""

    front: tuple[Any, ...]
    rest: tuple[Any, ...]


class StatementPattern:
    """`dst = Op(positional.., field=pattern, rest..)`, with types or without: `dst: f32[4, n] = ..`."""

    def __init__(self, statement: Syntax):
        match statement:
            case Assign(target=NameOf(text=dst), value=Apply(fn=op, items=items) as call, types=types):
                self.dst, self.op, self.reads = dst, op, names_in(call)
            case _:
                raise DplcError("a pattern on torch is `y = Op(field, ..)`", statement)
        self.types = [ListPattern((Var(one.dtype), _list(one.dims)), ()) for one in types]
        self.keywords = {item.name: _pattern(item.value) for item in items if isinstance(item, Keyword)}
        self.positional = [_pattern(item) for item in items if not isinstance(item, Keyword | Run)]
        self.open = any(isinstance(item, Run) for item in items)

    def match(self, call: OpCall, env: Environment) -> None:
        """Bind the pattern's variables to the types and fields of an op. Raises NotApplicable if it does not fit."""
        overload, given, types = call.overload, call.given, call.statement.types
        if self.op != call.statement.op:
            raise NotApplicable(f"expected {self.op}, found {call.statement.op}")
        if self.types and len(types) != len(self.types):
            raise NotApplicable(f"{len(types)} results, not {len(self.types)}")
        for pattern, found in zip(self.types, types):
            _fit("type of the result", pattern, (Var(found.dtype), found.shape), env)
        fields = {name: default for name, _, default in overload.arguments}
        for name in self.keywords:
            if name not in fields:
                raise NotApplicable(f"{overload.name} has no field `{name}`")
        free = [name for name in fields if name not in self.keywords]
        if len(free) < len(self.positional):
            raise NotApplicable(f"{overload.name} has {len(free)} fields for {len(self.positional)} positions")
        patterns = self.keywords | dict(zip(free, self.positional))
        for name, default in fields.items():
            if name in patterns:
                _fit(name, patterns[name], given.get(name, default), env)
        for name, value in given.items():
            if name not in patterns and not self.open:
                raise NotApplicable(f"the rule says nothing about {name}={print_field(value)}")


def _pattern(node: Syntax) -> Any:
    """Return the pattern of a field's value."""
    match node:
        case NameOf(text=name):
            return CONSTANTS.get(name, Var(name))
        case Text(value=text):
            return text
        case Group(items=items):
            return _list(items)
    number = constant_of(node)
    if number is None:
        raise DplcError("a pattern on torch holds variables, constants and lists", node)
    return number


def _list(items: Nodes) -> ListPattern:
    rest = [item.base for item in items[-1:] if isinstance(item, Run)]
    return ListPattern(tuple(map(_pattern, items[: len(items) - len(rest)])), tuple(map(_pattern, rest)))


def _fit(what: str, pattern: Any, found: Any, env: Environment) -> None:
    """Bind the variables of a pattern to a value. Raises NotApplicable, which says what does not fit."""
    if isinstance(pattern, ListPattern):
        if not isinstance(found, tuple):
            raise NotApplicable(f"{what}: {print_field(found)} is not a list")
        front, rest = pattern
        count = len(front)
        if len(found) < count or (len(found) > count and not rest):
            raise NotApplicable(f"{what}: a list of {len(found)}, not of {count}{' or more' if rest else ''}")
        for inner, value in zip(front + rest, (*found[:count], found[count:])):
            _fit(what, inner, value, env)
    elif not isinstance(pattern, Var) or pattern.name in RESERVED:
        if not _same(found, pattern):
            raise NotApplicable(f"{what}: {print_field(found)} is not {print_field(pattern)}")
    elif pattern.name != "_" and not _same(env.setdefault(pattern.name, found), found):
        raise NotApplicable(f"{what}: two values for `{pattern.name}`")


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal, with numbers and truth values apart; nan equals nan."""
    return a is b or (isinstance(a, bool) is isinstance(b, bool) and a == b) or (a != a and b != b)


# Indices that ops write to: torch raises an error if one is out of range; dplc checks before the program runs.
#
# The op compares indices, so it would silently skip one out of range. A torch rule names such values by `place(ids[k],
# 0, n)`, which changes no value and no kernel. On the emulator dplc computes the indices that depend on integer inputs
# alone. On a GPU that would need a synchronisation, so dplc checks nothing there.


@immutable
class Bound:
    """Bound on the values of a term: indices from low to end-1, by the rule of an op, which the user wrote at span.

    low, end: numbers, or expressions of sizes.
    """

    term: Term
    low: Any
    end: Any
    op: str
    span: Span | None


def check_places(bounds: Iterable[Bound], tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raise DplcError for the first index in these inputs that is out of range, with these sizes."""
    for bound in bounds:
        term, low, end = with_sizes((bound.term, bound.low, bound.end), sizes)
        inputs = {x.name: x for x in postorder((term,)) if isinstance(x, Input)}
        if not inputs.keys() <= tensors.keys():
            continue  # an input of exploration's, whose values it made
        arrays = {name: tensors[name].detach().cpu() for name in inputs}
        stored = Elementwise("copy", (term,))
        graph = TensorGraph("places", tuple(inputs.values()), (Output("places", axes(stored), stored),))
        (places,) = meaning.run(graph, arrays)
        outside = places[(places < low) | (places >= end)]
        if outside.size:
            raise DplcError(
                f"place {outside[0]} is out of range: `{bound.op}` takes {low} to {end - 1} here",
                bound,
                notes=(f"it is computed from {', '.join(f'`{name}`' for name in inputs)}",),
            )


# Templates of torch rules, compiled: `y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`.
#
# Every part is compiled to a function of a firing that aligns its brackets with dimensions. It returns the function
# that gives its term once the axes have names. A number stays a number until it meets a term, whose dtype it gets; so
# does one of sizes.


# One use of a rule on one op: the axis of each position of each bracket, and the names of the axes.
#
# First every position gets an unnamed axis or an index expression over such axes. Then each axis takes the name of a
# position: a computed value's before an input's, the newest first, and never one that another axis of this
# firing took. Otherwise it gets a fresh name. Then the terms are built.


Build = Callable[[], Any]  # gives a term or a number, once the axes have names


class TorchSite:
    """The site that facts of level torch see. lowering: the pass over a program (`TorchLowering`)."""

    def __init__(self, lowering: Any, call: OpCall):
        self.lowering, self.call, kind = lowering, call, call.statement.types[0]
        self.result = View(call.statement.dst, kind.dtype, kind.shape)
        self.env: Environment = {SITE: self}
        self.slots: dict[Axis, AxisSlot] = {}
        self.unowned: dict[View, Entries] = {}
        self.locals: dict[str, Build] = {}
        self.own: dict[str, list[Entry]] = {}  # the axes of a local value that brackets read
        self.result_entries: Entries = ()

    # ---- unnamed axes
    def axis(self, extent: int, free: bool = False) -> Axis:
        """Return a new axis without a name."""
        leaf = Axis(f"?{len(self.slots)}")
        self.slots[leaf] = AxisSlot(extent, free)
        return leaf

    def extent(self, entry: Entry) -> int:
        """Return the extent of an axis without a name yet."""
        return self.slots[entry].extent

    # ---- placing
    def place(self, view: View, bracket: Bracket, short: bool = False) -> Entries:
        """Return the entries of a bracket, one per dimension of a value.

        short: it may be shorter than its axis, as under a Case.
        """
        if view.dtype in PARTS:
            raise NotApplicable(f"`{view.name}` holds complex numbers: a rule reads their parts, by Real and Imag")
        aligned = self.align(bracket, view, short)
        if view.term is None and view not in self.unowned:
            pairs = [(entry, n) for entry, n in zip(aligned, view.shape, strict=True) if n != 1]
            if len({entry for entry, n in pairs if entry in self.slots and self.extent(entry) == n}) == len(pairs):
                self.unowned[view] = aligned
            else:
                self.lowering.own(view)
        if view.term is not None:
            for entry, dim in zip(aligned, view.dims, strict=True):
                slot = self.slots.get(entry)
                if slot is not None and dim is not None and dim.extent == slot.extent:
                    slot.candidates[dim] = slot.candidates.get(dim, False) or view.term.__class__ is not Input
        return aligned

    def align(self, bracket: Bracket, view: View, short: bool = False) -> Entries:
        """Return one entry per dimension, from the right; extents of free axes are settled."""
        entries = self.entries(bracket, len(view.shape))
        spare = len(entries) - len(view.shape)
        if spare < 0:
            raise NotApplicable(f"{len(entries)} indices for {view.name} of rank {len(view.shape)}")
        aligned = []
        for entry, n in zip(entries[spare:], view.shape, strict=True):
            if isinstance(entry, Exactly) and self.extent(entry.axis) == n:
                entry = entry.axis
            aligned.append(entry)
            slot = self.slots.get(entry)
            if slot is None or n in (1, slot.extent):
                continue
            if slot.extent == 1 and slot.free:
                slot.extent = n
            elif not short:
                raise NotApplicable(f"extent {n} of {view.name} meets {slot.extent}")
        return tuple(aligned)

    def entries(self, bracket: Bracket, rank: int = 0) -> list[Entry]:
        """Return one entry per position of a bracket. An unbound run gets the positions that the rank leaves."""
        env, found, unbound = self.env, list[Entry](), list[tuple[str, int]]()
        for name, run, closure in bracket:
            if name is not None and name not in env:
                if run:
                    unbound.append((name, len(found)))
                    continue
                env[name] = self.axis(1, free=True)
            found += closure(env) if run else (closure(env),)
        for name, place in unbound:
            env[name] = tuple(self.axis(1, free=True) for _ in range(rank - len(found)))
            found[place:place] = env[name]
        return found

    # ---- naming
    def name_axes(self) -> None:
        """Give every axis its name, and the result and inputs that were not read before their axes."""
        taken = set[Axis | None]()
        # axes of computed values are first, then axes that are not reduced, then those with few candidates
        for slot in sorted(
            self.slots.values(), key=lambda x: (not any(x.candidates.values()), x.bound, len(x.candidates))
        ):
            found, age = slot.candidates, self.lowering.age
            slot.axis = max(found.keys() - taken, key=lambda axis: (found[axis], age[axis]), default=None)
            taken.add(slot.axis)
        self.result.dims = self.result.along(self.named, self.result_entries)
        for view, entries in self.unowned.items():  # unless an op that the template made owns it meanwhile
            view.own(self.named, entries)

    def named(self, leaf: Axis) -> Axis:
        """Return the named axis that an unnamed one became."""
        slot = self.slots[leaf]
        if slot.axis is None:
            slot.axis = self.lowering.fresh(slot.extent)
        return slot.axis

    def resolve(self, entry: Entry) -> Expr:
        """Return an index expression over named axes."""
        if isinstance(entry, Exactly):
            entry = entry.axis
        if entry.__class__ is Axis:
            return 0 if self.extent(entry) == 1 else self.named(entry)
        if not isinstance(entry, Node):
            return entry() if callable(entry) else entry
        return remap_expr(entry, {leaf: self.resolve(leaf) for leaf in nodes(entry, Axis)})

    # ---- reading
    def stack(self, axis: Axis, terms: Sequence[Term]) -> Term:
        """Return the values of an op that stacks tensors, along an axis of our own."""
        lanes = tuple(dict.fromkeys(lane for term in terms for lane in axes(term)))
        kind, shape, name = dtype(terms[0]), tuple(lane.extent for lane in lanes), self.result.name
        tensors = tuple(View(name, kind, shape, term, lanes) for term in terms)
        types = (TensorType(kind, (len(terms), *shape)),)
        made: View = self.lowering.made(self.call, name, "Stack", (), {"tensors": tensors, "dim": 0}, types)
        return made.read_at((axis, *lanes))

    def local(self, name: str, entries: Sequence[Entry]) -> Term:
        """Return a local value at an index for each of its own axes."""
        pairs = zip(map(self.resolve, self.own[name]), map(self.resolve, entries), strict=True)
        value, moved = self.locals[name](), tuple((a, e) for a, e in pairs if isinstance(a, Axis) and a is not e)
        if all(isinstance(e, Axis | int) for _, e in moved):
            return remap(value, dict(moved))
        return remap(Elementwise("copy", (value,)), dict(moved))  # what is stored has axes of its own

    def read(self, view: View, entries: Sequence[Entry]) -> Term:
        """Return the operand that a bracket reads."""
        return view.read_at(tuple(map(self.resolve, entries)))


Part = Callable[[TorchSite], Any]  # a piece of a template: it aligns its brackets, and returns what gives its term


def combined(make: Callable[..., Any], *parts: Part) -> Part:
    """Return a piece made of others: `make(firing, *what these return)` gives its term, once the axes have names."""
    return lambda firing: partial(make, firing, *[part(firing) for part in parts])


Reads = list[tuple[View, Entries]]  # of the tensors of a list


class Item(NamedTuple):
    """One item of a bracket. name: of an axis or a run that the bracket may bind. closure: of its entry or entries."""

    name: str | None
    run: bool
    closure: Closure


Bracket = tuple[Item, ...]  # axes, runs of axes, index expressions, terms


# Templates of torch rules: syntax compiled to the parts above.


class Numbers(Expressions):
    """Lets, guards and conditions: calculation with numbers, lists and unnamed axes."""

    def __init__(self, symbolic: bool = False):
        super().__init__("torch", symbolic)

    def apply(self, node: Apply) -> Closure:
        raise DplcError(f"unknown fact `{node.fn}`", node, did_you_mean(node.fn, self.facts))


class TemplateCompiler:
    """Compiler of the right sides of one template. locals: the values that it defines."""

    def __init__(self, locals_: frozenset[str]):
        self.locals = locals_
        self.numbers, self.symbolic = Numbers(), Numbers(symbolic=True)

    def of(self, term: ValueTerm, short: bool = False) -> Part:
        """Compile a term. short: an operand of a Case, which may be shorter than the axis that indexes it."""
        match term:
            case ReadTerm(x=NameTerm(name=name)):
                return self._read(term.node, lambda env: env.get(name), name, self.bracket(term.places), short)
            case EitherTerm():
                condition, a, b = self.numbers.compile(term.condition), self.of(term.a, short), self.of(term.b, short)
                return lambda firing: (a if condition(firing.env) else b)(firing)
            case ReduceTerm(fn=fn):
                return self._reduction(term, (term.x,), short, lambda over, xs: compose.reduce(fn, over, *xs))
            case FoldTerm(part=part):
                return self._reduction(term, term.args, short, partial(compose.fold, part))
            case StackedTerm(x=ReadTerm(x=NameTerm(name=name))):
                return self._stacked(term, name)
            case IndexTerm():
                e = self.index(term.expr)
                return combined(lambda firing: compose.index(firing.resolve(e(firing.env))))
            case CaseTerm():
                chosen_by = self.index(term.cond)

                def chosen(firing: TorchSite, a: Build, b: Build) -> Any:
                    condition = firing.resolve(chosen_by(firing.env))
                    if isinstance(condition, bool):
                        return a() if condition else b()
                    return compose.case(condition, a(), b())

                return combined(chosen, self.of(term.a, True), self.of(term.b, True))
            case CastTerm(dtype=written):
                to = self.numbers.compile(written)

                def cast(firing: TorchSite, x: Build) -> Any:
                    dtype = to(firing.env)
                    if not isinstance(dtype, Var) or dtype.name not in DTYPES:
                        raise DplcError("`cast` goes to a dtype: `f32`, `dtype(y)`", written)
                    return compose.asked_cast(x(), dtype.name)

                return combined(cast, self.of(term.x, short))
            case PlaceTerm():
                bounds = self.numbers.compile_all((term.low, term.end))
                return combined(
                    lambda firing, x: firing.lowering.bound(firing.call.origin, x(), *bounds(firing.env)),
                    self.of(term.x, short),
                )
            case FunctionTerm(known=True, fn=fn):
                if len(term.operands) != (arity := FUNCTIONS[fn].arity):
                    raise DplcError(f"`{fn}` takes {arity} arguments, not {len(term.operands)}", term)
                parts = (self.of(operand, short) for operand in term.operands)
                return combined(lambda _, *xs: compose.elementwise(fn, *[x() for x in xs]), *parts)
        return self._read(term.node, self.numbers.compile(term.node), term.name if isinstance(term, NameTerm) else "")

    @staticmethod
    def _read(node: Syntax, closure: Closure, name: str, bracket: Bracket | None = None, short: bool = False) -> Part:
        """Compile a name or a calculation: a local value, a number, a rank-0 tensor; or `x[os.., k]`, a tensor.

        A number in the position of a tensor is used as it is. short: what is read may be shorter than its axis.
        """

        def number(firing: TorchSite) -> Any:
            value = closure(firing.env)
            if isinstance(value, int | float) or known_at_launch(value):
                return value
            if bracket is not None:
                raise NotApplicable(f"`{name}` is not a tensor")
            raise DplcError(
                f"`{name or 'this'}` is neither a number nor a local value: a tensor is read with brackets", node
            )

        def part(firing: TorchSite) -> Any:
            if name in firing.locals:
                entries = firing.entries(bracket or ())
                return partial(firing.local, name, entries) if entries else firing.locals[name]
            view = firing.env.get(name)
            if isinstance(view, View) and (bracket is not None or not view.shape):
                return partial(firing.read, view, firing.place(view, bracket or (), short))
            return partial(number, firing)

        return part

    def _reduction(self, term: ValueTerm, operands: Sequence[ValueTerm], short: bool, fold: Callable[..., Any]) -> Part:
        """Compile `Reduce(fn, k, x)` or `Fold(linear.h, k, (a, b))`: `fold(axes, terms)`."""
        items: Nodes = term.node.items[1:-1]  # type: ignore[attr-defined]
        over = self.bracket(items)

        def leaves(firing: TorchSite) -> list[Axis]:
            found = list[Axis]()
            for node, item in zip(items, over, strict=True):
                for entry in firing.entries((item,)):
                    if entry not in firing.slots:
                        raise DplcError("a fold goes over axes, and over lists of them with dots: `k..`", node)
                    firing.slots[entry].bound = True
                    found.append(entry)
            return found

        def folded(firing: TorchSite, *given: Any) -> Any:
            *terms, swept = given
            named = [place for place in map(firing.resolve, swept) if isinstance(place, Axis)]
            return fold(named, [term() for term in terms])

        return combined(folded, *(self.of(operand, short) for operand in operands), leaves)

    def _tensors(self, term: StackedTerm) -> Part:
        """Return what aligns a bracket with each tensor of a list: it gives these, each with its entries."""
        listed, bracket = self.numbers.compile(term.x.x.node), self.bracket(term.x.places)

        def tensors(firing: TorchSite) -> Reads:
            found = listed(firing.env)
            if found.__class__ is not tuple:
                raise NotApplicable("`Stacked` reads a list of tensors")
            return [(view, firing.place(view, bracket)) for view in found]

        return tensors

    def _stacked(self, term: StackedTerm, name: str) -> Part:
        """Compile `Stacked(k, xs[os..])`: operands that are the steps of a recurrence are stacked by an op."""
        index = self.index(term.place)

        def one(firing: TorchSite, tensors: Reads) -> Any:
            terms = tuple(firing.read(*read) for read in tensors)
            place = firing.resolve(index(firing.env))
            axis = place if place.__class__ is Axis else firing.lowering.fresh(len(terms))
            made = stacked(axis, terms, partial(firing.stack, axis))
            if made is None:
                raise NotApplicable(f"the tensors of `{name}` are not computed alike")
            return remap(made, {axis: place})

        return combined(one, self._tensors(term))

    def slices(self, term: StackedTerm, result: Bracket) -> Part:
        """Compile `Stacked(k, xs[os..]) = y[..]`: the result, at the number of a tensor on its axis, has that tensor.

        result: the bracket of y. The piece returns what notes this, given the term of y.
        """
        index = self.index(term.place)

        def note(firing: TorchSite, tensors: Reads, whole: Term) -> None:
            place, own = index(firing.env), firing.result_entries
            for number, (view, read) in enumerate(tensors):
                assert view.term is not None
                at = dict(zip(read, view.dims, strict=True)) | {place: number}
                aligned = zip(own, firing.entries(result, len(own)), view.shape, strict=True)
                where = {firing.named(to): at[entry] or 0 for to, entry, n in aligned if entry is place or n != 1}
                firing.lowering.slice_of(view.term, whole, remap(whole, where))

        return combined(note, self._tensors(term))

    def index(self, node: Syntax) -> Closure:
        """Return an index, a list of them or a condition of them: of axes and numbers, never of tensors."""
        compute, names = self.symbolic.compile(node), names_in(node)
        what = "an index must be an axis or a number, and this is a tensor value"
        refused = partial(DplcError, what, node, "write an axis or a number")

        def index(env: Environment) -> Any:
            try:
                found = compute(env)
            except MISTAKES as error:
                if any(isinstance(env.get(name), View) for name in names):
                    raise refused() from None
                raise mistaken(node, error) from error
            if found.__class__ not in (Axis, int):
                calculated = [x for pair in nodes(found, Binary) for x in (pair.a, pair.b)]
                calculated += [atom for total in nodes(found, Sum) for atom, _ in total.terms]
                if views(found):
                    raise refused()
                if not all(isinstance(part, Node | int | float) for part in calculated):
                    raise DplcError("an index is calculated of axes and numbers, not of lists or `none`", node)
            return found

        return index

    def bracket(self, items: Nodes) -> Bracket:
        return tuple(map(self._item, items))

    def _item(self, item: Syntax) -> Item:
        run, inner = isinstance(item, Run), item.base if isinstance(item, Run) else item
        name = inner.text if isinstance(inner, NameOf) else None
        function = isinstance(item, Apply) and (item.fn in FUNCTIONS or item.fn == "place")
        if not (function or isinstance(item, Subscript) or (name in self.locals and not run)):
            return Item(name, run, self.index(inner))
        part = self.of(term_of(item, torch=True))
        return Item(None, False, lambda env: part(env[SITE]))
