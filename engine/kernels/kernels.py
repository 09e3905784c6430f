"""From decisions to kernels: layouts of stored values, siblings combined, each kernel lifted, the launch plan."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen.target import Target
from ...codegen.target import target as default_target
from ...ir.expr import Axis, Binary, add, both, multiply
from ...ir.facts.index import operate
from ...ir.program import Kernel, Param, TensorType
from ...ir.tensor import Fold, Input, Reduce, Remap, TensorGraph, Term, dtype, operands, postorder
from ...ir.text import html
from ...ir.text.tensor import print_graph
from ...ir.torch import TorchOp
from ..language import core as s
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
    """A value that is stored: what computes it, over stored values, and where it goes."""

    value: Any
    root: Any
    buffer: BufferLayout
    copy: bool = False


def in_order(
    waiting: list[list[StoredValue]], needs: Callable[[list[StoredValue]], set[Any]]
) -> list[list[StoredValue]]:
    """Return kernels in an order in which each finds what it reads; those that would wait for each other are parted."""
    ordered: list[list[StoredValue]] = []
    written: set[Any] = set()
    while waiting:
        ready = next((group for group in waiting if needs(group) <= written), None)
        if ready is None:
            broken = next(group for group in waiting if len(group) > 1)
            waiting[waiting.index(broken) : waiting.index(broken) + 1] = [[entry] for entry in broken]
            continue
        waiting.remove(ready)
        ordered.append(ready)
        written.update(entry.value for entry in ready if not entry.copy)
    return ordered


@dataclass(frozen=True)
class Plan:
    """Program as launches: its kernels in order, and every buffer by name, dtype and shape.

    inputs: the buffers that the caller passes, weights and constants too; temporaries: the buffers between kernels;
    outputs: in the program's order, with `results` giving torch's shapes (size-1 dimensions included) if the caller
    passed them.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    temporaries: tuple[Param, ...]
    results: tuple[TensorType, ...]
    stores: tuple[tuple[Any, ...], ...] = field(default=(), compare=False, repr=False)  # the values of each kernel
    why: tuple[Stored, ...] = field(default=(), compare=False, repr=False)
    decisions: FusionDecisions | None = field(default=None, compare=False, repr=False)
    # for each kernel, the value of the program that each of its names holds
    values: tuple[Mapping[str, Term], ...] = field(default=(), compare=False, repr=False)


class Kernels:
    """Builds the kernels of one program; also the site of rules that put two kernels together."""

    def __init__(
        self,
        graph: TensorGraph,
        decisions: FusionDecisions,
        rules: FusionRules,
        target: Target,
        origins: Mapping[Any, TorchOp],
    ):
        self.graph, self.decisions, self.rules, self.target = graph, decisions, rules, target
        self.flow = decisions.flow
        self.recorder = Recorder(graph, decisions.asked)
        self.names = Names(graph, self.flow, decisions.stored, origins)
        self.sources: dict[Any, Any] = {}  # values as the program has them, of values over stored ones
        self.resolver = Resolver(self.flow, decisions.stored, self.names.values, self.sources)
        self.lifted: list[dict[str, Term]] = []
        self.buffers: dict[Any, BufferLayout] = {x: input_buffer(x) for x in graph.ins}
        self.filled = dict(self.buffers)  # those that the kernels lifted so far have written
        self.entries: list[StoredValue] = []
        self.stores: tuple[tuple[Any, ...], ...] = ()
        self.refusals = decisions.refusals
        self._facts: dict[Any, tuple[list[Any], frozenset[Any]]] = {}

    def build(self) -> list[Kernel]:
        return [lift() for _, lift in self.summarised()]

    def summarised(self) -> Iterator[tuple[Callable[[], FusionSummary], Callable[[], Kernel]]]:
        """Yield, in launch order, the functions that summarise and lift each kernel, before arranging the next one."""
        for group in self.arrange():
            writes = [replace(w, value=in_memory(w.value, self.filled)) for w in self._writes(group)]
            # not all buffers: pushing index maps can spell a value that is only stored later
            yield functools.partial(fusion_summary, writes, self.filled), functools.partial(self._lift, group, writes)
            self.filled.update((entry.value, entry.buffer) for entry in group if not entry.copy)

    def arrange(self) -> list[list[StoredValue]]:
        """Return the stored values by kernel, in the order of the launches."""
        outs: dict[Any, Any] = {}
        copies = []
        for out in self.graph.outs:
            if out.value.__class__ is Input or out.value in outs:
                copies.append(out)
            else:
                outs[out.value] = out
        for term in self.flow.order:
            if term in self.decisions.stored and term.__class__ is not Input:
                self._enter(term, outs.get(term))
        for out in copies:  # an output that is an input, or was returned before: a copy of its own
            self.entries.append(
                StoredValue(out.value, Remap(out.value, ()), result_buffer(out.name, out.value, out.axes), copy=True)
            )
        self._place = {entry.value: place for place, entry in enumerate(self.entries) if not entry.copy}
        groups = self._groups()
        self.stores = tuple(tuple(entry.value for entry in group) for group in groups)
        return groups

    # ---- layouts
    def _enter(self, term: Any, out: Any) -> None:
        root = in_memory(self.resolver.kernel(term), self.buffers)
        if out is not None:
            buffer = result_buffer(out.name, term, out.axes)
        else:
            buffer = self._temporary(term)
        self.buffers[term] = buffer
        self.entries.append(StoredValue(term, root, buffer))

    def _temporary(self, term: Any) -> BufferLayout:
        """Return the buffer of a temporary. Axes that every consumer merges are neighbours and written merged."""
        name, loops = self.names.temporary(term), self.flow.natural(term)
        readers = self.flow.readers[term]
        maps = [dict(reader.map) for reader in readers if reader.__class__ is Remap and reader.x is term]
        for mapping in maps:
            split = [axis for axis, e in mapping.items() if e.__class__ is Binary and e.op in ("//", "%")]
            split.sort(key=lambda axis: mapping[axis].op != "//")
            if len({mapping[axis].op for axis in split}) == 2:  # a quotient alone repeats elements: nothing is merged
                loops = (*(axis for axis in loops if axis not in split), *split)
        plain = result_buffer(name, term, loops)
        if not maps or len(maps) < len(readers):
            return plain
        for high, low in itertools.pairwise(loops):
            if all(_merges(mapping, high, low) for mapping in maps):
                merged = Axis(f"{high.name}{low.name}", high.extent * low.extent)
                dims = tuple(merged if axis is high else axis for axis in loops if axis is not low)
                together = add(multiply(high, low.extent), low)
                return BufferLayout(
                    name, plain.dtype, dims, loops, tuple(together if axis is merged else axis for axis in dims)
                )
        return plain

    # ---- siblings
    def _groups(self) -> list[list[StoredValue]]:
        if self.decisions.groups is not None:
            return self._decided(self.decisions.groups)
        groups: list[list[StoredValue]] = []
        taken: set[int] = set()
        for place, entry in enumerate(self.entries):
            if place in taken:
                continue
            group = [entry]
            other = self._sibling(place, taken) if self.rules.siblings and not entry.copy else None
            if other is not None:
                taken.add(other)
                group.append(self.entries[other])
            groups.append(group)
        return in_order(groups, self._needs) if taken else groups

    def _decided(self, together: Sequence[Sequence[Any]]) -> list[list[StoredValue]]:
        """Return the decided groups, as far as their loops agree, in an order in which each finds what it reads."""
        of: dict[Any, list[StoredValue]] = {}
        for values in together:
            members = [self.entries[place] for place in sorted(self._place[value] for value in values)]
            alike = [e for e in members if self.extents(e.value) is not None]
            if len(alike) < len(members) or self._parts(alike) is None:
                alike = [e for e in alike if self.extents(e.value) == self.extents(alike[0].value)]
            if not any(self._elsewhere(entry, alike) for entry in alike):
                of.update((entry.value, alike) for entry in alike)
        every = ([entry] if entry.copy else of.get(entry.value, [entry]) for entry in self.entries)
        return in_order(list({id(group[0]): group for group in every}.values()), self._needs)

    def _parts(self, group: Sequence[StoredValue]) -> Parts | None:
        """Return the arrangement of values of different extents side by side in one kernel, or None."""
        if any(entry.copy for entry in group) or len({self.extents(entry.value) for entry in group}) < 2:
            return None
        if {entry.value for entry in group} & frozenset().union(*(self.leaves(entry.value) for entry in group)):
            return None
        return parts_of([e.value for e in group], [e.buffer.loops for e in group], self.decisions.stored)

    def _elsewhere(self, entry: StoredValue, group: list[StoredValue]) -> bool:
        """Return whether a value reads another one of its kernel at indices other than its own.

        One index of a row (its first element) is computed again, if nothing is reduced for it.
        """
        beside = {other.value: other.buffer.loops for other in group if other is not entry}
        mine = entry.buffer.loops
        for term in postorder([entry.root], self._below(entry.root)):
            for operand in operands(term):
                if operand not in beside:
                    continue
                if len(beside[operand]) != len(mine) or (term.__class__ is Remap and term.x is not operand):
                    return True  # or it states itself at which index something is read
                places = dict(term.map) if term.__class__ is Remap else {}
                for axis, own in zip(beside[operand], mine, strict=True):
                    place = places.get(axis, axis)
                    if place is not own and (place.__class__ is not int or self.folds(operand)):
                        return True
        return False

    def _needs(self, group: list[StoredValue]) -> set[Any]:
        """Return the stored values that a kernel reads."""
        mine = {entry.value for entry in group if not entry.copy}
        needed = {e.value for e in group if e.copy and e.value.__class__ is not Input}
        for value in mine:
            needed |= {leaf for leaf in self.leaves(value) if leaf.__class__ is not Input}
        return needed - mine

    def _sibling(self, place: int, taken: set[int]) -> int | None:
        """Return the next kernel that a rule lets join this one."""
        first = self.entries[place]
        near = range(place + 1, min(place + 1 + policy(self.target).near_launches, len(self.entries)))
        for other in near:
            second = self.entries[other]
            if other in taken or second.copy:
                continue
            for rule in self.rules.siblings:
                joined = rule.joined(first.value, second.value, self)
                if joined is not None:
                    self.decisions.firings.append(joined)
                    return other
        return None

    def refuse(self, rule: Rule, guard: s.Guard, value: Any, env: dict[str, Any]) -> None:
        """Record a guard that keeps two stored values apart."""
        self.refusals.append(self.recorder.refused(rule, guard, value, env))

    def _below(self, root: Any) -> Any:
        def below(term: Any) -> Sequence[Any]:
            return () if term is not root and term in self.buffers else operands(term)

        return below

    def _facts_of(self, value: Any) -> tuple[list[Any], frozenset[Any]]:
        """Return the reductions of the kernel that stores a value, and what it reads."""
        known = self._facts.get(value)
        if known is None:
            root = self.entries[self._place[value]].root
            order = postorder([root], self._below(root))
            mine = (term for term in order if term is root or term not in self.buffers)
            folds = [term for term in mine if term.__class__ in (Reduce, Fold)]
            leaves = frozenset(term for term in order if term is not root and term in self.buffers)
            known = self._facts[value] = folds, leaves
        return known

    def folds(self, value: Any) -> list[Any]:
        return self._facts_of(value)[0]

    def reduction(self, value: Any) -> Any:
        """Return a reduction of the kernel that stores a value; none where they differ in axes."""
        folds = self.folds(value)
        return folds[0] if len({term.over for term in folds}) == 1 else None

    def leaves(self, value: Any) -> frozenset[Any]:
        return self._facts_of(value)[1]

    def extents(self, value: Any) -> tuple[Any, ...] | None:
        buffer = self.entries[self._place[value]].buffer
        return tuple(axis.extent for axis in buffer.loops) if buffer.address == buffer.loops else None

    def place(self, value: Any) -> int:
        return self._place[value]

    def same_place(self, first: Any, second: Any) -> bool:
        """Return whether a kernel reads the result of another one, only at its own indices.

        Nothing else that the kernel needs may depend on that result.
        """
        one, other = (self.entries[self.place(value)] for value in (first, second))
        needed = self.leaves(second)
        if first not in needed or self._elsewhere(other, [one, other]):
            return False
        waiting = {first}
        for entry in self.entries[self.place(first) + 1 : self.place(second)]:
            if entry.copy or not waiting.isdisjoint(self.leaves(entry.value)):
                waiting.add(entry.value)
        return waiting & needed == {first}

    # ---- lifting
    def _lift(self, group: list[StoredValue], writes: list[Write]) -> Kernel:
        name = self.names.kernel([entry.value for entry in group])
        lift = Lift(name, writes, self.filled, self.names.values)
        made = lift.kernel()
        held = {name: self.sources.get(term, term) for name, term in lift.holds.items()}
        self.lifted.append(held | {entry.buffer.name: entry.value for entry in group})
        return made

    def _writes(self, group: list[StoredValue]) -> list[Write]:
        """Return the writes of a kernel, over the loops of its first value."""
        first = group[0]
        parts = self._parts(group)
        if parts is not None:
            return self._side_by_side(group, parts)
        inside, resolver = {entry.value for entry in group}, self.resolver
        if len(group) > 1 and any(inside & self.leaves(value) for value in inside):
            # what one of them computes, another one reads: in their kernel that is not a load
            resolver = Resolver(self.flow, self.decisions.stored - inside, self.names.values, self.sources)
            for entry in group:
                entry.root = resolver.kernel(entry.value)
        writes = [Write(first.root, first.buffer)]
        for entry in group[1:]:
            renaming = {
                own: shared
                for own, shared in zip(entry.buffer.loops, first.buffer.loops, strict=True)
                if own is not shared
            }
            root = resolver.moved(entry.root, renaming) if renaming else entry.root
            buffer = entry.buffer
            writes.append(
                Write(
                    root,
                    BufferLayout(buffer.name, buffer.dtype, first.buffer.loops, first.buffer.loops, first.buffer.loops),
                )
            )
        return writes

    def _side_by_side(self, group: list[StoredValue], parts: Parts) -> list[Write]:
        """Return the writes of values that are stored at their own ranges of one axis."""
        loops: tuple[Axis, ...] | None = None
        writes = []
        for entry, places, (start, stop) in zip(group, parts.places, parts.ranges, strict=True):
            (own,) = places
            if loops is None:
                loops = tuple(parts.axis if axis is own else axis for axis in entry.buffer.loops)
            moved = {mine: shared for mine, shared in zip(entry.buffer.loops, loops, strict=True) if mine is not shared}
            moved.update(places)
            address = tuple(moved.get(axis, axis) for axis in entry.buffer.loops)
            buffer = replace(entry.buffer, loops=loops, address=address)
            guard = both(operate(">=", parts.axis, start), operate("<", parts.axis, stop))
            writes.append(Write(self.resolver.moved(entry.value, moved), buffer, guard))
        return writes


def in_memory(value: Any, buffers: Mapping[Any, BufferLayout]) -> Any:
    """Return the value to store: one that is found to be in memory, as the first row of two, is read from there."""
    return Remap(value, ()) if value.__class__ is Input or value in buffers else value


def _merges(mapping: Mapping[Axis, Any], high: Axis, low: Axis) -> bool:
    """Return whether a map reads (high, low) at (e // C, e % C): one merged axis."""
    a, b = mapping.get(high), mapping.get(low)
    if a.__class__ is not Binary or b.__class__ is not Binary:
        return False
    return bool(a.op == "//" and b.op == "%" and a.a is b.a and a.b == b.b == low.extent)


def compile_graph(
    graph: TensorGraph,
    rules: FusionRules,
    target: Target | None = None,
    origins: Mapping[Any, TorchOp] | None = None,
    results: Sequence[TensorType] | None = None,
    asked: frozenset[str] | None = None,
    decisions: FusionDecisions | None = None,
) -> Plan:
    """Fuse and lift a program. Return its plan.

    Args:
        origins: the torch op that each term came from.
        results: torch's output types.
        asked: if given, the plan records every refusal with its values, and the firings of the rules of these names.
        decisions: which values are stored; without, the rules decide.
    """
    machine = target or default_target()
    decisions = decisions or Fusion(graph, rules, machine, asked=asked).decide()
    builder = Kernels(graph, decisions, rules, machine, origins or {})
    kernels = tuple(builder.build())
    outs = tuple(result_buffer(out.name, out.value, out.axes).param for out in graph.outs)
    named = {param.name for param in outs}
    temporaries = tuple(entry.buffer.param for entry in builder.entries if entry.buffer.name not in named)
    types = (
        tuple(results)
        if results is not None
        else tuple(TensorType(p.dtype, tuple(a.extent for a in o.axes)) for p, o in zip(outs, graph.outs, strict=True))
    )
    inputs = tuple(input_buffer(x).param for x in graph.ins)
    why, held = tuple(decisions.why.values()), tuple(builder.lifted)
    return Plan(graph.name, kernels, inputs, outs, temporaries, types, builder.stores, why, decisions, held)


# ---- The launches of a program once its kernels are scheduled, and the buffers that they read and write.


@dataclass(frozen=True)
class Buffers:
    """Buffers of a program. Their extents may contain symbolic dimensions."""

    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    constants: tuple[Param, ...]
    temporaries: tuple[Param, ...]


def launches_of(plan: Plan, shared: Sharing, kernels: tuple[Kernel, ...]) -> Steps:
    """Return the launches of a program in order, each kernel of Loop IR a chain of them."""
    return steps(shared, kernels, [param.name for param in (*plan.inputs, *plan.outputs, *plan.temporaries)])


def buffers_of(plan: Plan, made: Steps, kinds: Mapping[str, str]) -> Buffers:
    """Return the buffers of a program's launches."""
    known = {param.name for param in (*plan.inputs, *plan.outputs)}
    read = {name for step in made.steps for name in step.buffers.values()} - known
    inputs = tuple(p for p in plan.inputs if kinds.get(p.name) == "input")
    constants = tuple(p for p in plan.inputs if kinds.get(p.name) != "input")
    between = tuple(param for param in (*plan.temporaries, *made.between) if param.name in read)
    return Buffers(inputs, tuple(plan.outputs), constants, between)


# ---- What exploring a program gives: ways to compute it, each complete enough for compile to go on from.


@dataclass(frozen=True)
class Prepared:
    """A weight that loading computes: the input that holds it, and what it is over other weights."""

    input: Input
    value: Term


@dataclass(frozen=True)
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
    signature: Any = field(repr=False, compare=False)
    origins: Mapping[Any, TorchOp] = field(repr=False, compare=False)
    plan: Callable[..., Plan] = field(repr=False, compare=False)
    rules: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the figures and the program of a candidate for notebooks."""
        made = "the rules in their order" if self.label == "rules" else ", ".join(self.rules) or "other cuts"
        row = (str(self.kernels), f"{self.bytes / 1e6:.2f} MB", f"{self.predicted_us:.1f} us", made, self.problem)
        titles = ("kernels", "moved", "predicted", "made by", "problem")
        program = html.folded("program", html.code(print_graph(self.graph)))
        return html.together(html.table(titles, [row]), program).text

    def record(self) -> dict[str, Any]:
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
    origins: dict[Any, TorchOp] | None = None,
) -> TensorGraph:
    """Return the program with values replaced where a rule says that its kernels are better for it."""
    if not rules.rules:
        return graph
    table = rules.table(evidence is not None)
    roots = tuple(out.value for out in graph.outs)
    site = TermSite(target, evidence, roots=roots)
    replaced: dict[Any, Any] = {}
    for term in postorder(roots):
        for attempt, run in table.at(term):
            result = run(term, site)
            if result is not None and dtype(result) == dtype(term):
                replaced[term] = result
                if evidence is not None:
                    evidence.firings.append(RewriteStep(attempt.rule, term, result))
                break
    return rewrite_graph(graph, NOTHING, target, None, origins, replaced=replaced) if replaced else graph


NOTHING = TermRules(())
