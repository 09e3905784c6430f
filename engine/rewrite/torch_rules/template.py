"""Templates of torch rules, compiled: `y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`.

Every part is compiled to an object with two methods: `scan` aligns its brackets with dimensions, `build` returns its
term once the axes have names. A number stays a number until it meets a term, whose dtype it gets; so does one of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ....ir import compose
from ....ir.compose import remap, remap_expr
from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.dtypes import DTYPES
from ....ir.expr import Axis, Binary, Sum, Var
from ....ir.functions import FUNCTIONS
from ....ir.node import Expr, Node, nodes
from ....ir.program import TensorType
from ....ir.schemas import PARTS
from ....ir.sizes import known_at_launch
from ....ir.stacked import stacked
from ....ir.tensor import Term, axes, dtype
from ...language import core as s
from ...language.evaluate import MISTAKES, SITE, Closure, Environment, Expressions, mistaken
from ...language.typed_slots import names_in
from .pattern import AxisSlot, Entry, Exactly, NotApplicable, OpCall, View

# One use of a rule on one op: the axis of each position of each bracket, and the names of the axes.
#
# First every position gets an unnamed axis or an index expression over such axes. Then each axis takes the name of a
# position: a computed value's before an input's, the newest first, and never one that another axis of this
# firing took. Otherwise it gets a fresh name. Then the terms are built.


class TorchSite:
    """The site that facts of level torch see. lowering: the pass over a program (`TorchLowering`)."""

    def __init__(self, lowering: Any, call: OpCall):
        statement = call.statement
        self.lowering, self.call = lowering, call
        self.result = View(statement.dst, statement.types[0].dtype, statement.types[0].shape)
        self.env: Environment = {SITE: self}
        self.slots: dict[Axis, AxisSlot] = {}
        self.placed: dict[Any, tuple[View, tuple[Entry, ...]]] = {}
        self.unowned: dict[View, tuple[Entry, ...]] = {}
        self.locals: dict[str, Any] = {}
        self.result_entries: tuple[Entry, ...] = ()

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
    def place(self, key: Any, view: View, entries: Sequence[Entry], short: bool = False) -> None:
        """Align a bracket with the dimensions of a value. short: it may be shorter than its axis, as under a Case."""
        if view.dtype in PARTS:
            raise NotApplicable(f"`{view.name}` holds complex numbers: a rule reads their parts, by Real and Imag")
        aligned = self.align(entries, view, short)
        self.placed[key] = view, aligned
        if view.term is None and view not in self.unowned:
            read = [(entry, n) for entry, n in zip(aligned, view.shape, strict=True) if n != 1]
            distinct = len(dict(read)) == len(read)
            if distinct and all(entry in self.slots and self.extent(entry) == n for entry, n in read):
                self.unowned[view] = aligned
            else:
                self.lowering.own(view)
        if view.term is not None:
            for entry, dim in zip(aligned, view.dims, strict=True):
                slot = self.slots.get(entry)
                if slot is not None and dim is not None and dim.extent == slot.extent:
                    slot.candidates[dim] = slot.candidates.get(dim, False) or view.computed

    def align(self, entries: Sequence[Entry], view: View, short: bool = False) -> tuple[Entry, ...]:
        """Return one entry per dimension, from the right; extents of free axes are settled."""
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

    def place_result(self, entries: Sequence[Entry]) -> None:
        """Align the brackets of the result: torch gives its shape, so these extents are final."""
        self.result_entries = self.align(entries, self.result)
        for entry in self.result_entries:
            if entry in self.slots:
                self.slots[entry].free = False

    # ---- naming
    def name_axes(self) -> None:
        """Give every axis its name, and inputs that were not read before their axes."""
        taken: set[Axis | None] = set()
        # axes of computed values are first, then axes that are not reduced, then those with few candidates
        for slot in sorted(
            self.slots.values(), key=lambda x: (not any(x.candidates.values()), x.bound, len(x.candidates))
        ):
            found, age = slot.candidates, self.lowering.age
            newest = sorted(found, key=lambda name: (found[name], age[name]), reverse=True)
            slot.axis = next((name for name in newest if name not in taken and slot.extent == name.extent), None)
            taken.add(slot.axis)
        self.result.along(self.named, self.result_entries)
        for view, entries in self.unowned.items():
            if view.term is None:  # not owned meanwhile by an op that the template made
                view.own(view.along(self.named, entries))

    def named(self, leaf: Axis) -> Axis:
        """Return the named axis that an unnamed one became."""
        slot = self.slots[leaf]
        if slot.axis is None:
            slot.axis = self.lowering.fresh(slot.extent)
        return slot.axis

    def resolve(self, entry: Entry) -> Expr:
        """Return an index expression over named axes."""
        if entry.__class__ is Axis:
            return 0 if self.extent(entry) == 1 else self.named(entry)
        if not isinstance(entry, Node):
            return entry.build(self) if hasattr(entry, "build") else entry
        return remap_expr(entry, {leaf: self.resolve(leaf) for leaf in nodes(entry, Axis)})

    # ---- reading
    def stack(self, axis: Axis, terms: Sequence[Term]) -> Term:
        """Return the values of an op that stacks tensors, along an axis of our own."""
        lanes = tuple(dict.fromkeys(lane for term in terms for lane in axes(term)))
        kind, shape, name = dtype(terms[0]), tuple(lane.extent for lane in lanes), self.result.name
        views = tuple(View(name, kind, shape, term, lanes) for term in terms)
        types = (TensorType(kind, (len(terms), *shape)),)
        made: View = self.lowering.made(self.call, name, "Stack", ((), {"tensors": views, "dim": 0}), types)
        return made.read_at((axis, *lanes))

    def read(self, key: Any) -> Term:
        """Return the operand that a bracket reads."""
        view, entries = self.placed[key]
        return view.read_at(tuple(map(self.resolve, entries)))


class Part(NamedTuple):
    """A piece of a template.

    scan: aligns its brackets with dimensions. build: gives its term, or a number, once the axes have names.
    """

    scan: Callable[[TorchSite], None]
    build: Callable[[TorchSite], Any]


def computed(parts: Sequence[Part], make: Callable[..., Any]) -> Part:
    """Return a piece whose term is made of those of others: `make(firing, *terms)`."""

    def scan(firing: TorchSite) -> None:
        for part in parts:
            part.scan(firing)

    return Part(scan, lambda firing: make(firing, *[part.build(firing) for part in parts]))


def read(node: s.Syntax, closure: Closure, name: str = "", bracket: Bracket | None = None, short: bool = False) -> Part:
    """Return a name or a calculation: a local value, a number, a rank-0 tensor; or `x[os.., k]`, which is a tensor.

    A number in the position of a tensor is used as it is. short: what is read may be shorter than its axis.
    """
    key = object()

    def scan(firing: TorchSite) -> None:
        value = firing.env.get(name)
        if isinstance(value, View) and (bracket is not None or not value.shape):
            firing.place(key, value, entries(bracket or (), firing, len(value.shape)), short)

    def build(firing: TorchSite) -> Any:
        if bracket is None and name in firing.locals:
            return firing.locals[name]
        if key in firing.placed:
            return firing.read(key)
        value = closure(firing.env)
        if isinstance(value, int | float) or known_at_launch(value):
            return value
        if bracket is not None:
            raise NotApplicable(f"`{name}` is not a tensor")
        what = f"`{name or 'this'}` is neither a number nor a local value: a tensor is read with brackets"
        raise DplcError(what, node.span)

    return Part(scan, build)


@dataclass(eq=False)
class StackedRead:
    """`Stacked(k, xs[os..])`: operands that are the steps of a recurrence are stacked by an op of their own."""

    name: str
    place: Closure
    bracket: Bracket

    def scan(self, firing: TorchSite) -> None:
        for number, view in enumerate(firing.env[self.name]):
            firing.place((self, number), view, entries(self.bracket, firing, len(view.shape)))

    def build(self, firing: TorchSite) -> Any:
        terms = tuple(firing.read((self, number)) for number in range(len(firing.env[self.name])))
        place = firing.resolve(self.place(firing.env))
        axis = place if place.__class__ is Axis else firing.lowering.fresh(len(terms))
        made = stacked(axis, terms, lambda others: firing.stack(axis, others))
        if made is None:
            raise NotApplicable(f"the tensors of `{self.name}` are not computed alike")
        return remap(made, {axis: place})

    def note_slices(self, firing: TorchSite, whole: Any, bracket: Bracket) -> None:
        """Note each tensor of the list as a slice of the whole (with this bracket), at its number on the list axis."""
        place, own = self.place(firing.env), firing.result_entries
        for number in range(len(firing.env[self.name])):
            view, read = firing.placed[(self, number)]
            assert view.term is not None
            at: dict[Any, Any] = dict(zip(read, view.dims, strict=True)) | {place: number}
            aligned = zip(own, entries(bracket, firing, len(own)), view.shape, strict=True)
            where = {firing.named(to): at[entry] or 0 for to, entry, n in aligned if entry is place or n != 1}
            firing.lowering.slice_of(view.term, whole, remap(whole, where))


class Item(NamedTuple):
    """One item of a bracket. name: of an axis or a run that the bracket may bind. closure: of its entry or entries."""

    name: str | None
    run: bool
    closure: Closure
    span: Span


Bracket = tuple[Item, ...]  # axes, runs of axes, index expressions, terms


def entries(bracket: Bracket, firing: TorchSite, rank: int = 0) -> list[Entry]:
    """Return one entry per position of a bracket. An unbound run gets the positions that the rank leaves."""
    env, found, unbound = firing.env, list[Entry](), list[tuple[str, int]]()
    for name, run, closure, _ in bracket:
        if name is not None and name not in env:
            if run:
                unbound.append((name, len(found)))
                continue
            env[name] = firing.axis(1, free=True)
        found += closure(env) if run else (closure(env),)
    for name, place in unbound:
        env[name] = tuple(firing.axis(1, free=True) for _ in range(rank - len(found)))
        found[place:place] = env[name]
    return found


# Templates of torch rules: syntax compiled to the parts above.


class Numbers(Expressions):
    """Lets, guards and conditions: calculation with numbers, lists and unnamed axes."""

    def __init__(self, symbolic: bool = False) -> None:
        super().__init__("torch", symbolic)

    def apply(self, node: s.Apply) -> Closure:
        raise DplcError(f"unknown fact `{node.fn}`", node.span, (), did_you_mean(node.fn, self.facts))


class TemplateCompiler:
    """Compiler of the right sides of one template. locals: the values that it defines."""

    def __init__(self, locals_: frozenset[str]):
        self.locals = locals_
        self.numbers, self.symbolic = Numbers(), Numbers(symbolic=True)

    def part(self, node: s.Syntax) -> Part:
        """Return the part of a value as it is written."""
        return self.of(s.term_of(node, torch=True))

    def of(self, term: s.ValueTerm, short: bool = False) -> Part:
        """Compile a term. short: an operand of a Case, which may be shorter than the axis that indexes it."""
        match term:
            case s.ReadTerm(x=s.NameTerm(name=name)):
                return read(term.node, lambda env: env.get(name), name, self.bracket(term.places), short)
            case s.EitherTerm():
                a, b = self.of(term.a, short), self.of(term.b, short)
                return self._either(self.numbers.compile(term.condition), a, b)
            case s.NameTerm():
                return read(term.node, self.numbers.compile(term.node), term.name)
            case s.ReduceTerm(fn=fn):
                able = [name for name, function in FUNCTIONS.items() if function.identity is not None]
                if fn not in able:
                    raise DplcError(f"`{fn}` cannot reduce: it has no identity", term.span, (), did_you_mean(fn, able))
                return self._reduction(term, (term.x,), short, lambda over, x: compose.reduce(fn, over, x))
            case s.FoldTerm(part=part):
                return self._reduction(term, term.args, short, lambda over, *xs: compose.fold(part, over, xs))
            case s.StackedTerm(x=s.ReadTerm(x=s.NameTerm(name=name))):
                stack = self.stacked(name, term)
                return Part(stack.scan, stack.build)
            case s.IndexTerm():
                e = self.index(term.expr)
                return computed((), lambda firing: compose.index(firing.resolve(e(firing.env))))
            case s.CaseTerm():
                return self._case(self.index(term.cond), self.of(term.a, True), self.of(term.b, True))
            case s.CastTerm():
                return self._cast(self.of(term.x, short), self.numbers.compile(term.dtype), term.dtype.span)
            case s.PlaceTerm():
                x, low, end = self.of(term.x, short), self.numbers.compile(term.low), self.numbers.compile(term.end)

                def place(firing: TorchSite, x: Any) -> Any:
                    return firing.lowering.bound(firing.call.origin, x, low(firing.env), end(firing.env))

                return computed((x,), place)
            case s.FunctionTerm(known=True, fn=fn):
                if len(term.operands) != (arity := FUNCTIONS[fn].arity):
                    raise DplcError(f"`{fn}` takes {arity} arguments, not {len(term.operands)}", term.span)
                parts = [self.of(operand, short) for operand in term.operands]
                return computed(parts, lambda _, *terms: compose.elementwise(fn, *terms))
        return read(term.node, self.numbers.compile(term.node))

    def _reduction(
        self, term: s.ValueTerm, operands: Sequence[s.ValueTerm], short: bool, fold: Callable[..., Any]
    ) -> Part:
        """Compile `Reduce(fn, k, x)` or `Fold(linear.h, k, (a, b))`: `fold(axes, *terms)`."""
        over = self.bracket(term.node.items[1:-1])  # type: ignore[attr-defined]
        every = computed([self.of(operand, short) for operand in operands], lambda _, *terms: terms)

        def reduced(firing: TorchSite) -> list[Axis]:
            found = [(entry, item.span) for item in over for entry in entries((item,), firing)]
            for entry, span in found:
                if entry not in firing.slots:
                    raise DplcError("a fold goes over axes, and over lists of them with dots: `k..`", span)
            return [entry for entry, _ in found]

        def scan(firing: TorchSite) -> None:
            every.scan(firing)
            for leaf in reduced(firing):
                firing.slots[leaf].bound = True

        def build(firing: TorchSite) -> Any:
            named = [place for place in map(firing.resolve, reduced(firing)) if isinstance(place, Axis)]
            return fold(named, *every.build(firing))

        return Part(scan, build)

    def stacked(self, name: str, term: s.StackedTerm) -> StackedRead:
        """Return the part of a list of tensors."""
        return StackedRead(name, self.index(term.place), self.bracket(term.x.places))

    @staticmethod
    def _either(condition: Closure, a: Part, b: Part) -> Part:
        """Return `a if condition else b`: the condition is decided when the rule fires."""

        def chosen(firing: TorchSite) -> Part:
            return a if condition(firing.env) else b

        return Part(lambda firing: chosen(firing).scan(firing), lambda firing: chosen(firing).build(firing))

    @staticmethod
    def _case(condition: Closure, a: Part, b: Part) -> Part:
        def build(firing: TorchSite) -> Any:
            found = firing.resolve(condition(firing.env))
            if isinstance(found, bool):
                return (a if found else b).build(firing)
            return compose.case(found, a.build(firing), b.build(firing))

        return Part(computed((a, b), tuple).scan, build)

    @staticmethod
    def _cast(x: Part, to: Closure, span: Span) -> Part:
        """Compile `cast(x, dtype)`: the dtype is calculated."""

        def cast(firing: TorchSite, x: Any) -> Any:
            dtype = to(firing.env)
            if not isinstance(dtype, Var) or dtype.name not in DTYPES:
                raise DplcError("`cast` goes to a dtype: `f32`, `dtype(y)`", span)
            return compose.asked_cast(x, dtype.name)

        return computed((x,), cast)

    def index(self, node: s.Syntax) -> Closure:
        """Return an index, a list of them or a condition of them: of axes and numbers, never of tensors."""
        compute, names = self.symbolic.compile(node), names_in(node)
        refused = partial(DplcError, "an index is an axis or a number, not a tensor value", node.span)

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
                if any(isinstance(x, View) for x in (*calculated, *(found if isinstance(found, tuple) else (found,)))):
                    raise refused()
                if not all(isinstance(part, Node | int | float) for part in calculated):
                    raise DplcError("an index is calculated of axes and numbers, not of lists or `none`", node.span)
            return found

        return index

    def bracket(self, items: s.Nodes) -> Bracket:
        return tuple(map(self._item, items))

    def _item(self, item: s.Syntax) -> Item:
        run, inner = isinstance(item, s.Run), item.base if isinstance(item, s.Run) else item
        name = inner.text if isinstance(inner, s.NameOf) else None
        function = isinstance(item, s.Apply) and (item.fn in FUNCTIONS or item.fn == "place")
        if not (function or isinstance(item, s.Subscript) or (name in self.locals and not run)):
            return Item(name, run, self.index(inner), item.span)
        part = self.part(item)

        def deferred(env: Environment) -> Part:
            part.scan(env[SITE])
            return part

        return Item(None, False, deferred, item.span)
