"""From decisions to kernels: layouts of stored values, siblings combined, each kernel lifted, the launch plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

from ...codegen.target import Target, target as default_target
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Binary, add, both, extents_of, multiply
from ...ir.facts.index import operate
from ...ir.facts.layout import SECTOR, WORD
from ...ir.node import Expr, immutable
from ...ir.program import PRECISIONS, BufferPart, Kernel, Module, Param, TensorType
from ...ir.schemas import LOOP
from ...ir.sizes import at_hint
from ...ir.tensor import (
    Fold,
    Input,
    OperatorCall,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    delivered,
    dtype,
    factors,
    operands,
    postorder,
    supplied,
)
from ...ir.torch import TorchGraph, TorchOp
from ..capture.precision import tf32_operators
from ..language import core as s
from ..language.evaluate import Environment
from ..language.rule import Rule, policy
from ..rewrite.terms.rewriter import TermEvidence, TermRules, TermSite, rewrite_graph
from ..rewrite.trace import RewriteStep
from .fusion_pass import Fusion, FusionDecisions, FusionRules, Recorder, Stored
from .index_maps import Parts, Resolver, parts_of
from .lift import BufferLayout, Lift, Names, Write, input_buffer, result_buffer
from .sharing import FusionSummary, Sharing, Steps, fusion_summary, steps

# ---- Kernels in the order of their launches, each after those that store what it reads.


@dataclass
class StoredValue:
    """A value that is stored: what computes it, over stored values, and where it goes. buffers: what memory holds."""

    value: Term
    root: Term
    buffer: BufferLayout
    buffers: Mapping[Term, BufferLayout]

    def reads(self, term: Term) -> bool:
        """Return whether its kernel reads a value from memory."""
        return term is not self.root and term in self.buffers

    @cached_property
    def terms(self) -> list[Term]:
        """The values that its kernel computes and reads, operands first."""
        return postorder([self.root], lambda term: () if self.reads(term) else operands(term))

    @cached_property
    def leaves(self) -> frozenset[Term]:
        """The values that its kernel reads."""
        return frozenset(filter(self.reads, self.terms))

    @cached_property
    def folds(self) -> list[Reduce | Fold]:
        """The reductions of its kernel."""
        return [term for term in self.terms if isinstance(term, (Reduce, Fold)) and not self.reads(term)]

    @property
    def extents(self) -> tuple[Expr, ...] | None:
        """The extents of its loops, None if its layout is not the plain one."""
        loops = self.buffer.loops
        return extents_of(loops) if self.buffer.address == loops else None


Group = list[StoredValue]  # what one kernel stores


def in_order(waiting: list[Group], calls: Sequence[OperatorCall] = ()) -> list[Group]:
    """Return kernels in an order in which each finds what it reads; those that would wait for each other are parted.

    calls: run in their order, each as soon as the outputs that it reads are stored.
    """
    ordered: list[Group] = []
    written: set[Term | str] = set()  # values, and the buffers of outputs and of what calls give
    pending = list(calls)
    made = {param.name for call in calls for param in call.results}
    stored = {entry.buffer.name for group in waiting for entry in group} | made
    while waiting:
        while pending and {param.name for param in pending[0].given} & stored <= written:
            written.update(param.name for param in pending.pop(0).results)
        ready = next((group for group in waiting if _needs(group, made) <= written), None)
        if ready is None:
            broken = next(group for group in waiting if len(group) > 1)
            place = waiting.index(broken)
            waiting[place : place + 1] = [[entry] for entry in broken]
        else:
            waiting.remove(ready)
            ordered.append(ready)
            written.update(entry.value for entry in ready)
            written.update(entry.buffer.name for entry in ready)
    return ordered


def _needs(group: Group, made: Container[str]) -> set[Term | str]:
    """Return what a kernel reads that is stored before: values, and the buffers that calls made."""
    leaves = [leaf for entry in group for leaf in entry.leaves]
    needed: set[Any] = {leaf for leaf in leaves if leaf.__class__ is not Input}
    needed = needed - {entry.value for entry in group} if len(group) > 1 else needed  # a copy reads its own value
    return needed.union(leaf.name for leaf in leaves if isinstance(leaf, Input) and leaf.name in made)


@immutable
class PlannedLoop:
    """A loop of a program. first, end: its kernels in the plan; times: it runs them; slots: the buffers of these."""

    call: OperatorCall
    first: int
    end: int
    times: Expr
    slots: tuple[BufferPart, ...]


@immutable
class Plan:
    """Program as launches: its kernels in order, and every buffer by name, dtype and shape.

    inputs: the buffers that the caller passes, weights and constants too; temporaries: the buffers between kernels;
    outputs: in the program's order, with `results` giving torch's shapes (size-1 dimensions included) if the caller
    passed them; calls: of torch and of loops, in their order. Each runs once the kernels have written what it reads.
    loops: those whose kernels are in the plan.
    """

    name: str
    kernels: Module
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    temporaries: tuple[Param, ...]
    results: tuple[TensorType, ...]
    stores: tuple[tuple[Term, ...], ...] = field(default=(), compare=False, repr=False)  # the values of each kernel
    why: tuple[Stored, ...] = field(default=(), compare=False, repr=False)
    decisions: FusionDecisions | None = field(default=None, compare=False, repr=False)
    # for each kernel, the value of the program that each of its names holds
    values: tuple[Mapping[str, Term], ...] = field(default=(), compare=False, repr=False)
    calls: tuple[OperatorCall, ...] = ()
    loops: tuple[PlannedLoop, ...] = ()


def values_in_tf32(origins: Mapping[Term, TorchOp], target: Target) -> set[Term]:
    """Return the values of the operators that multiply in TF32. origins: the torch op of each value."""
    ops = tf32_operators(target)
    return {term for term, origin in origins.items() if origin.op in ops}


class Kernels:
    """Builds the kernels of one program; also the site of rules that put two kernels together."""

    def __init__(
        self,
        graph: TensorGraph,
        decisions: FusionDecisions,
        rules: FusionRules,
        target: Target,
        origins: Mapping[Term, TorchOp],
    ):
        self.decisions, self.rules, self.target, self.flow = decisions, rules, target, decisions.flow
        self.recorder = Recorder(graph, decisions.asked)
        self.refusals = decisions.refusals
        self.names = Names(graph, self.flow, decisions.stored, origins)
        self.in_tf32 = values_in_tf32(origins, target)
        self.sources: dict[Term, Term] = {}  # values as the program has them, of values over stored ones
        self.resolver = Resolver(self.flow, decisions.stored, self.names.values, self.sources)
        self.lifted: list[dict[str, Term]] = []
        self.buffers: dict[Term, BufferLayout] = {x: input_buffer(x) for x in graph.ins}
        self.filled = dict(self.buffers)  # those that the kernels lifted so far have written
        self.outputs = [(out.value, result_buffer(out.name, out.value, out.axes)) for out in graph.outs]
        self.calls = graph.calls
        self.entries: list[StoredValue] = []
        self.stores: tuple[tuple[Term, ...], ...] = ()

    def build(self) -> list[Kernel]:
        return [lift() for _, lift in self.summarised()]

    def summarised(self) -> Iterator[tuple[Callable[[], FusionSummary], Callable[[], Kernel]]]:
        """Yield, in launch order, the functions that summarise and lift each kernel, before arranging the next one."""
        for group in self.arrange():
            writes = self._writes(group)
            yield partial(fusion_summary, writes, self.filled), partial(self._lift, group, writes)
            for entry in group:  # a copy is not read
                self.filled.setdefault(entry.value, entry.buffer)

    def arrange(self) -> list[Group]:
        """Return the stored values by kernel, in the order of the launches."""
        first: dict[Term, BufferLayout] = {}
        for value, buffer in self.outputs:
            first.setdefault(value, buffer)
        for term in self.flow.order:
            if term in self.decisions.stored and term.__class__ is not Input:
                root = in_memory(self.resolver.kernel(term), self.buffers)
                self.buffers[term] = first[term] if term in first else self._temporary(term)
                self.entries.append(StoredValue(term, root, self.buffers[term], self.buffers))
        self.place = {entry.value: place for place, entry in enumerate(self.entries)}.__getitem__
        together = self.decisions.groups
        groups = self._siblings() if together is None else self._decided(together)
        groups += [  # an output that is an input, or was returned before: a copy of its own
            [StoredValue(value, Remap(value, ()), buffer, self.buffers)]
            for value, buffer in self.outputs
            if value.__class__ is Input or first[value] is not buffer
        ]
        groups = in_order(groups, self.calls)
        self.stores = tuple(tuple(entry.value for entry in group) for group in groups)
        return groups

    def _temporary(self, term: Term) -> BufferLayout:
        """Return the buffer of a temporary. Axes that every consumer merges are neighbours and written merged."""
        name, loops = self.names.temporary(term), self.flow.natural(term)
        readers = self.flow.readers[term]
        maps = [dict(reader.map) for reader in readers if reader.__class__ is Remap and reader.x is term]
        for mapping in maps:
            high, low = (
                [axis for axis, e in mapping.items() if e.__class__ is Binary and e.op == op] for op in ("//", "%")
            )
            if high and low:  # a quotient alone repeats elements: nothing is merged
                loops = (*(axis for axis in loops if axis not in high + low), *high, *low)
            elif not high and all(
                at_hint(axis.extent) * WORD < SECTOR for axis in low
            ):  # phases: neighbours read others
                loops = (*low, *(axis for axis in loops if axis not in low))
        plain = result_buffer(name, term, loops)
        for outer, inner in itertools.pairwise(loops) if len(maps) == len(readers) else ():
            if all(_merges(mapping, outer, inner) for mapping in maps):
                merged = Axis(f"{outer.name}{inner.name}", outer.extent * inner.extent)
                together = add(multiply(outer, inner.extent), inner)
                dims = tuple(merged if axis is outer else axis for axis in loops if axis is not inner)
                address = tuple(together if axis is merged else axis for axis in dims)
                return replace(plain, dims=dims, address=address)
        return plain

    # ---- values that share a kernel
    def _siblings(self) -> list[Group]:
        """Return the groups that rules decide: each value with the next one that a rule lets join it."""
        groups: list[Group] = []
        taken: set[Term] = set()
        near = policy(self.target).near_launches
        for place, first in enumerate(self.entries, 1):
            if first.value not in taken:
                free = [entry for entry in self.entries[place : place + near] if entry.value not in taken]
                groups.append([first, *itertools.islice(self._joined(first, free), 1)])
                taken.update(entry.value for entry in groups[-1])
        return groups

    def _joined(self, first: StoredValue, others: list[StoredValue]) -> Iterator[StoredValue]:
        """Yield the stored values that a rule lets join another one."""
        for second, rule in itertools.product(others, self.rules.siblings):
            if fired := rule.joined(first.value, second.value, self):
                self.decisions.firings.append(fired)
                yield second

    def _decided(self, together: Sequence[Sequence[Term]]) -> list[Group]:
        """Return the decided groups, as far as their loops agree."""
        of = {entry.value: [entry] for entry in self.entries}
        for values in together:
            members = [self.entries[place] for place in sorted(map(self.place, values))]
            alike = [entry for entry in members if entry.extents is not None]
            if len(alike) < len(members) or self._parts(alike) is None:
                alike = [entry for entry in alike if entry.extents == alike[0].extents]
            if not any(self._elsewhere(entry, alike) for entry in alike):
                of.update((entry.value, alike) for entry in alike)
        return list({id(group): group for group in of.values()}.values())

    def _parts(self, group: Group) -> Parts | None:
        """Return the arrangement of values of different extents side by side in one kernel, or None."""
        apart = len({entry.extents for entry in group}) > 1 and not _inside(group)
        loops = [entry.buffer.loops for entry in group]
        return parts_of([entry.value for entry in group], loops, self.decisions.stored) if apart else None

    def _elsewhere(self, entry: StoredValue, group: Group) -> bool:
        """Return whether a value reads another one of its kernel at indices other than its own.

        One index of a row (its first element) is computed again, if nothing is reduced for it.
        """
        others = {other.value: other for other in group if other is not entry}
        mine = entry.buffer.loops
        for term in entry.terms:
            places = dict(term.map) if term.__class__ is Remap else {}
            for operand in others.keys() & operands(term):
                theirs = others[operand].buffer.loops
                if len(theirs) != len(mine) or (term.__class__ is Remap and term.x is not operand):
                    return True  # or it states itself at which index something is read
                for axis, own in zip(theirs, mine, strict=True):
                    place = places.get(axis, axis)
                    if place is not own and (place.__class__ is not int or others[operand].folds):
                        return True
        return False

    # ---- what rules for siblings ask
    def refuse(self, rule: Rule, guard: s.Guard, value: Term, env: Environment) -> None:
        """Record a guard that keeps two stored values apart."""
        self.refusals.append(self.recorder.refused(rule, guard, value, env))

    def folds(self, value: Term) -> list[Reduce | Fold]:
        return self.entries[self.place(value)].folds

    def reduction(self, value: Term) -> Reduce | Fold | None:
        """Return a reduction of the kernel that stores a value; none where they differ in axes."""
        folds = self.folds(value)
        return folds[0] if len({term.over for term in folds}) == 1 else None

    def leaves(self, value: Term) -> frozenset[Term]:
        return self.entries[self.place(value)].leaves

    def extents(self, value: Term) -> tuple[Expr, ...] | None:
        return self.entries[self.place(value)].extents

    def same_place(self, first: Term, second: Term) -> bool:
        """Return whether a kernel reads the result of another one, only at its own indices.

        Nothing else that the kernel needs may depend on that result.
        """
        one, *between, other = self.entries[self.place(first) : self.place(second) + 1]
        waiting = {first}
        for entry in between:
            if not waiting.isdisjoint(entry.leaves):
                waiting.add(entry.value)
        return waiting & other.leaves == {first} and not self._elsewhere(other, [one])

    # ---- lifting
    def _lift(self, group: Group, writes: list[Write]) -> Kernel:
        name = self.names.kernel([entry.value for entry in group])
        lift = Lift(name, writes, self.filled, self.names.values)
        made = lift.kernel()
        held = {name: self.sources.get(term, term) for name, term in lift.holds.items()}
        self.lifted.append(held | {entry.buffer.name: entry.value for entry in group})
        return Kernel(made.name, made.ins, made.outs, made.body, self._precision(held.values()))

    def _precision(self, values: Iterable[Term]) -> str:
        """Return the precision of a kernel: TF32 if torch multiplies so in every op with an f32 product in it."""
        totals = [total for total in values if {*map(dtype, factors(total))} == {"f32"}]
        return PRECISIONS[bool(totals) and self.in_tf32.issuperset(totals)]

    def _writes(self, group: Group) -> list[Write]:
        """Return the writes of a kernel, over the loops of its first value or, side by side, of the whole."""
        parts, resolver, loops = self._parts(group), self.resolver, group[0].buffer.loops
        if len(group) > 1 and _inside(group):  # what one computes, another one reads: in their kernel, that is no load
            stored = self.decisions.stored.difference(entry.value for entry in group)
            resolver = Resolver(self.flow, stored, self.names.values, self.sources)
        if parts is not None:
            loops = tuple(parts.axis if axis in parts.places[0] else axis for axis in loops)
        writes = []
        for place, entry in enumerate(group):
            root = entry.root if resolver is self.resolver else resolver.kernel(entry.value)
            buffer, guard = entry.buffer, True
            moved = {own: shared for own, shared in zip(buffer.loops, loops, strict=True) if own is not shared}
            if parts is not None:
                root, (start, stop) = entry.value, parts.ranges[place]
                moved |= parts.places[place]
                guard = both(operate(">=", parts.axis, start), operate("<", parts.axis, stop))
            if moved:
                root = resolver.moved(root, moved)
                address = tuple(moved.get(axis, axis) for axis in buffer.loops)
                dims = address if parts is None else buffer.dims
                buffer = replace(buffer, dims=dims, loops=loops, address=address)
            # not all buffers: pushing index maps can spell a value that is only stored later
            writes.append(Write(in_memory(root, self.filled), buffer, guard))
        return writes


def _inside(group: Group) -> bool:
    """Return whether a value of a group reads another one."""
    return any(entry.value in other.leaves for entry in group for other in group)


def in_memory(value: Term, buffers: Mapping[Term, BufferLayout]) -> Term:
    """Return the value to store: one that is found to be in memory, as the first row of two, is read from there."""
    return Remap(value, ()) if value.__class__ is Input or value in buffers else value


def _merges(mapping: Mapping[Axis, Expr], high: Axis, low: Axis) -> bool:
    """Return whether a map reads (high, low) at (e // C, e % C): one merged axis."""
    e, extent = mapping.get(low), low.extent
    merged = e.__class__ is Binary and e is Binary("%", e.a, extent) and mapping.get(high) is Binary("//", e.a, extent)
    return bool(merged)


def compile_graph(
    graph: TensorGraph,
    rules: FusionRules,
    target: Target | None = None,
    origins: Mapping[Term, TorchOp] | None = None,
    results: Sequence[TensorType] | None = None,
    asked: frozenset[str] | None = None,
    decisions: FusionDecisions | None = None,
    taken: Plan | None = None,
) -> Plan:
    """Fuse and lift a program. Return its plan.

    Args:
        origins: the torch op that each term came from.
        results: torch's output types.
        asked: if given, the plan records every refusal with its values, and the firings of the rules of these names.
        decisions: which values are stored; without, the rules decide.
        taken: a plan whose names of kernels and buffers the new plan does not use.
    """
    machine = target or default_target()
    in_tf32 = values_in_tf32(origins or {}, machine)
    decisions = decisions or Fusion(graph, rules, machine, asked=asked, in_tf32=in_tf32).decide()
    builder = Kernels(graph, decisions, rules, machine, origins or {})
    if taken is not None:
        builder.names.used.update(x.name for x in (*taken.inputs, *taken.outputs, *taken.temporaries))
        builder.names.kernels.update(kernel.name for kernel in taken.kernels)
    kernels = tuple(builder.build())
    inputs = tuple(input_buffer(x).param for x in supplied(graph))
    stored = {buffer.name: buffer for _, buffer in builder.outputs}
    returned = [stored.pop(out.name) for out in delivered(graph)]
    outs = tuple(buffer.param for buffer in returned)
    between = [entry.buffer for entry in builder.entries] + [*stored.values(), *map(input_buffer, graph.ins)]
    temporaries = dict.fromkeys(buffer.param for buffer in between if buffer.param not in (*outs, *inputs))
    if results is None:
        results = [TensorType(buffer.dtype, extents_of(buffer.dims)) for buffer in returned]
    return Plan(
        graph.name, kernels, inputs, outs, tuple(temporaries), tuple(results), builder.stores,
        tuple(decisions.why.values()), decisions, tuple(builder.lifted), graph.calls,
    )  # fmt: skip


# ---- Loops: the kernels of one iteration stand in the plan.


def with_loops(plan: Plan, body_plan: Callable[[TorchGraph, Plan], Plan]) -> Plan:
    """Return the plan with the kernels of its loops. body_plan: makes that of a body, with names that a plan lacks."""
    after = 0
    for call in plan.calls:
        read = {param.name for param in call.given}
        written = (place for place, kernel in enumerate(plan.kernels, 1) if read & {x.name for x in kernel.outs})
        after = max(after, *written, 0)
        if call.statement.op == LOOP:
            fields: dict[str, Any] = dict(call.statement.args)
            body = fields["body"]
            inner = body_plan(TorchGraph(body.name, body.ins, tuple(dict.fromkeys(body.outs)), body.body), plan)
            plan = _with_loop(plan, call, after, fields, inner)
            after = plan.loops[-1].end
    return plan


def _with_loop(plan: Plan, call: OperatorCall, first: int, fields: Mapping[str, Any], inner: Plan) -> Plan:
    """Return the plan with the kernels of a loop from a place on. inner: the plan of its body."""
    given = {param.name: param for param in call.given}
    init, xs, reads = ([given[var.name] for var in fields[field]] for field in ("init", "xs", "reads"))
    ins, times, count = fields["body"].ins, xs[0].shape[0], len(init)
    names = [out.name for out in fields["body"].outs]
    made = dict(zip(dict.fromkeys(names), inner.outputs, strict=True))
    if unknown := {x.name for x in inner.inputs} - {x.name for x in ins}:
        raise DplcError(f"a step of a loop computes the constant `{min(unknown)}`", hint="compute it before the loop")
    homes, wholes, slots = dict[str, tuple[str, Expr]](), list[Param](), list[BufferPart]()
    for name, result in zip(names[count:], call.results[count:], strict=True):
        if name in homes:  # rows that were stacked before
            slots.append(BufferPart(result, homes[name][0], 0, 0, 1))
        homes.setdefault(name, (result.name, times))
    for place, (name, before, begun) in enumerate(zip(names, ins, init, strict=False)):
        if before.dtype != made[name].dtype:
            raise DplcError(f"a loop carries {before.dtype}, and a step gives {made[name].dtype} to the next one")
        if name not in homes:
            slot = multiply(operate("//", add(reduce(multiply, before.shape, 1), SLOT - 1), SLOT), SLOT)
            wholes.append(Param(f"{call.statement.dst}_carried{place}", before.dtype, (2, slot)))
            homes[name] = wholes[-1].name, 2
        whole, parts = homes[name]
        slots.append(BufferPart(before, whole, add(parts, -1), 1, parts, begun.name))
        slots.append(BufferPart(call.results[place], whole, add(times, -1), 0, parts))
    slots += (BufferPart(made[name], whole, 0, 1, parts) for name, (whole, parts) in homes.items())
    slots += (BufferPart(param, whole.name, 0, 1, times) for param, whole in zip(ins[count:], xs, strict=False))
    slots += (
        BufferPart(param, whole.name, 0, 0, 1) for param, whole in zip(ins[count + len(xs) :], reads, strict=True)
    )

    def joined(own: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*own[:first], *new, *own[first:])

    taken = {param.name for param in (*plan.inputs, *plan.outputs, *plan.temporaries)}
    more = dict.fromkeys((*wholes, *(slot.param for slot in slots), *call.results, *inner.temporaries))
    return replace(
        plan,
        kernels=joined(plan.kernels, inner.kernels),
        stores=joined(plan.stores, inner.stores),
        values=joined(plan.values, inner.values),
        why=plan.why + inner.why,
        temporaries=plan.temporaries + tuple(param for param in more if param.name not in taken),
        loops=(*plan.loops, PlannedLoop(call, first, first + len(inner.kernels), times, tuple(slots))),
    )


SLOT = 256  # the number of elements of a carried value is rounded up to it, so that each slot is aligned


# ---- The launches of a program once its kernels are scheduled, and the buffers that they read and write.


@immutable
class Buffers:
    """Buffers of a program. Their extents may contain symbolic dimensions."""

    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    constants: tuple[Param, ...]
    temporaries: tuple[Param, ...]


def launches_of(plan: Plan, shared: Sharing, kernels: Module) -> Steps:
    """Return the launches of a program in order, each kernel of Loop IR a chain of them."""
    return steps(shared, kernels, [param.name for param in (*plan.inputs, *plan.outputs, *plan.temporaries)])


def buffers_of(plan: Plan, made: Steps, kinds: Mapping[str, str]) -> Buffers:
    """Return the buffers of a program's launches."""
    read = {name for step in made.steps for name in step.buffers.values()}
    read.update(param.name for call in plan.calls for param in call.given)
    slots = [slot for loop in plan.loops for slot in loop.slots]
    read.update(slot.whole for slot in slots)
    read.difference_update(slot.param.name for slot in slots)
    inputs, constants = (
        tuple(param for param in plan.inputs if (kinds.get(param.name) == "input") is given) for given in (True, False)
    )
    between = tuple(param for param in (*plan.temporaries, *made.between) if param.name in read)
    return Buffers(inputs, plan.outputs, constants, between)


# ---- What exploring a program gives: ways to compute it, each complete enough for compile to go on from.


@immutable
class Prepared:
    """A weight that loading computes: the input that holds it, and what it is over other weights."""

    input: Input
    value: Term


FIGURES = ("kernels", "moved", "predicted", "made by")  # columns of candidates


@immutable
class Candidate:
    """A way to compute a program. graph: its spelling; decisions: its cuts; prepared: weights computed at load time.

    kernels, bytes: its launches and what they move. predicted_us: by the model, of the kernels that the lowering makes
    of it. label: `rules` for what the rules decide in their order, else `explored`. rules: those that matched
    where it is spelled in another way. problem: why it cannot be lowered ("" where it can). plan: makes its kernels of
    Loop IR, given torch's types of the outputs or nothing.
    """

    label: str
    graph: TensorGraph
    decisions: FusionDecisions
    prepared: tuple[Prepared, ...]
    kernels: int
    bytes: float
    predicted_us: float
    problem: str
    signature: object = field(repr=False, compare=False)
    origins: Mapping[Term, TorchOp] = field(repr=False, compare=False)
    plan: Callable[..., Plan] = field(repr=False, compare=False)
    rules: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The figures as texts, in the order of FIGURES, and what makes the candidate."""
        made = "the rules in their order" if self.label == "rules" else ", ".join(self.rules) or "other cuts"
        if self.prepared:
            made += f" ({len(self.prepared)} weight{'s' * (len(self.prepared) > 1)} computed at load time)"
        if self.problem:
            made += f"; cannot be lowered: {self.problem}"
        return str(self.kernels), f"{self.bytes / 1e6:.2f} MB", f"{self.predicted_us:.1f} us", made

    def record(self) -> dict[str, object]:
        """Return the record for `--json`."""
        return {
            "kernels": self.kernels, "bytes": self.bytes, "predicted_us": self.predicted_us, "rules": list(self.rules),
            "label": self.label, "prepared": len(self.prepared), "problem": self.problem or None,
        }  # fmt: skip


# ---- Algebra that pays because of the resulting kernels: tried before fusion, on the program as it is.
#
# Every rule sees the whole program, so that a guard may query readers of a value. After firings the program is rebuilt
# once; a rule does not see the result of another one.


def commute(
    graph: TensorGraph,
    rules: TermRules,
    target: Target,
    evidence: TermEvidence | None = None,
    origins: dict[Term, TorchOp] | None = None,
) -> TensorGraph:
    """Return the program with values replaced where a rule says that its kernels are better for it."""
    table = rules.table(evidence is not None)
    roots = graph.roots
    site = TermSite(target, evidence, roots=roots)
    replaced: dict[Term, Term] = {}
    for term in postorder(roots):
        for attempt, run in table.at(term):
            result = run(term, site)
            if result is not None and dtype(result) == dtype(term):
                replaced[term] = result
                if evidence is not None:
                    evidence.firings.append(RewriteStep(attempt.rule, term, result))
                break
    return rewrite_graph(graph, TermRules(()), target, None, origins, replaced=replaced) if replaced else graph
