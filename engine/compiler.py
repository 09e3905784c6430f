"""Compilation of a captured program through six IRs to CUDA text and a launch plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch

from ..codegen.cache import forget_oldest
from ..codegen.cuda import bound as bound_kernel
from ..codegen.kernel import Buffer, CudaKernel, LaunchLoop, Program, TorchCall, with_arena
from ..codegen.target import Target
from ..ir.diagnostic import DplcError, Source, UsageError, no_such
from ..ir.expr import Size
from ..ir.node import immutable
from ..ir.program import LEVELS, Kernel, Param, TensorType
from ..ir.schemas import aten_name
from ..ir.sizes import AT_HINTS, Binding, hints, sizes_in, value_of
from ..ir.substitute import with_sizes
from ..ir.tensor import TensorGraph, Term
from ..ir.text.programs import print_program
from ..ir.torch import TorchGraph, TorchOp
from .capture.capture import fold
from .capture.export import export_lock
from .capture.precision import tf32_line
from .capture.signature import Capture
from .cost.limits import program_seconds
from .kernels.index_maps import push_renamings, uncut_outputs
from .kernels.kernels import (
    Buffers,
    Candidate,
    Plan,
    Prepared,
    buffers_of,
    commute,
    compile_graph,
    launches_of,
    with_loops,
)
from .kernels.sharing import Steps, share
from .kernels.tracing import trace_algebra, trace_fusion, trace_lowering
from .language.rule import RuleSet, built_in_files, policy, read_rules
from .language.rule_files import collections_paused
from .rewrite.statements.compiled import Program as Kernels
from .rewrite.statements.driver import Settings, Shaped, Unheard, unheard
from .rewrite.terms.rewriter import TermEvidence, TermRules, rewrite_graph
from .rewrite.torch_rules.lower import CALLS, Unsupported, lower
from .rewrite.torch_rules.pattern import Bound
from .rewrite.trace import Event, Remark, Trace
from .ruleset import toolchain
from .schedule.scheduling import Origin, Scheduler, cuda_of, predictions

BINDINGS = 64  # of a program whose launches are kept
STAGES = (*LEVELS, "cuda")
TIMED = ("torch", "tensor", "fusion", "tile", "kernel", "cuda")
SizePlaces = tuple[tuple[str, int, Size], ...]  # (input, dimension, size), of those that tell the sizes of a call


@dataclass
class Compilation:
    """Program at every stage.

    compiler: with the rules, the target and the trace; timings: milliseconds per stage. tensor is the program after
    algebra, plan the same cut into launches (in Loop IR). tile, kernels and cuda_kernels hold every kernel once,
    however often the program launches it; steps are the launches. origins: of their schedules; empty
    without a store. since: the stage at which it began; earlier stages are absent.
    """

    captured: Capture
    compiler: Compiler
    tensor: TensorGraph | None
    plan: Plan
    tile: Kernels
    kernels: Kernels
    cuda_kernels: tuple[CudaKernel, ...]
    program: Program
    steps: Steps
    timings: dict[str, float] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    prepared: tuple[Prepared, ...] = ()  # weights that loading computes from others
    unheard: tuple[Unheard, ...] = ()  # what was set of rules that do not fire
    since: str = "torch"
    bounds: tuple[Bound, ...] = ()  # of indices, before a run on the emulator
    made_from: Mapping[Term, TorchOp] = field(default_factory=dict, repr=False)  # the torch op of values
    called: tuple[Unsupported, ...] = ()  # why no rule lowers the op of each call of torch

    def __repr__(self) -> str:  # in short: the stages of a model take minutes to write
        return f"<Compilation for {self.target.name}: {len(self.launched)} launches of {len(self.kernels)} kernels>"

    @property
    def target(self) -> Target:
        return self.compiler.target

    @property
    def trace(self) -> Trace | None:
        """The trace of the rules, if the compiler kept one."""
        return self.compiler.trace

    @property
    def events(self) -> list[Event]:
        """The events of the trace, none without one."""
        return self.trace.events if self.trace is not None else []

    @property
    def launched(self) -> tuple[int, ...]:
        """The index of the kernel of each launch."""
        return tuple(step.index for step in self.steps.steps for _ in range(self.times(step.place)))

    @property
    def predicted_seconds(self) -> float:
        """Predicted time of all launches, without calls of torch."""
        each = predictions(self.kernels, self.target)
        return sum(each[place].seconds for place in self.launched)

    def times(self, place: int) -> int:
        """Return how often a kernel of the plan runs: once, or in each iteration of its loop."""
        around = (loop for loop in self.plan.loops if loop.first <= place < loop.end)
        return next((int(value_of(loop.times, AT_HINTS)) for loop in around), 1)

    @property
    def calls_told(self) -> list[str]:
        """A line for each call of torch."""
        names = [aten_name(step.call.statement.op) for step in self.program.calls]
        return [f"torch computes `{name}`, which no rule lowers: its time is not predicted" for name in names]

    @property
    def compulsory_bytes(self) -> int:
        """Bytes of arguments and results, each once."""
        program = self.program
        return sum(buffer.nbytes for buffer in (*program.inputs, *program.constants, *program.outputs))

    @property
    def least_seconds(self) -> float:
        """Lower bound of the time of all launches, whatever their schedules."""
        return program_seconds(self.plan.kernels, self.compulsory_bytes, len(self.launched), self.target)

    @cached_property
    def sizes(self) -> dict[str, Size]:
        """Sizes that are known at a call, by name."""
        return sizes_in((self.plan.kernels, *self.plan.inputs, *self.plan.outputs))

    @cached_property
    def inputs_with_sizes(self) -> SizePlaces:
        """The dimensions of inputs that tell the sizes of a call."""
        return places_of_sizes(self.captured.graph.ins)

    @property
    def largest(self) -> Program:
        """The launches at the greatest number of each size."""
        return self.at({name: size.high // size.multiple * size.multiple for name, size in self.sizes.items()})

    @property
    def results(self) -> tuple[Param, ...]:
        """The outputs in order, with torch's shapes."""
        pairs = zip(self.plan.outputs, self.plan.results, strict=True)
        return tuple(Param(param.name, kind.dtype, kind.shape) for param, kind in pairs)

    def outputs_at(self, sizes: Binding = AT_HINTS) -> tuple[Buffer, ...]:
        """Return the outputs in order, with torch's shapes."""
        return tuple(buffer(param, sizes) for param in self.results)

    def at(self, sizes: Binding) -> Program:
        """Return the launches where the sizes are these numbers: the same kernels, with other grids and buffers."""
        if not self.sizes:
            return self.program
        key = tuple(sizes[name] for name in self.sizes)
        if key not in self._bound:
            cuda = tuple(map(partial(bound_kernel, sizes=sizes), self.kernels, self.cuda_kernels))
            made = launch_plan(self.plan, self.steps, self.kernels, cuda, self.captured.kinds, sizes)
            self._bound[key] = replace(made, aliases=self.program.aliases)
            forget_oldest(self._bound, BINDINGS)
        return self._bound[key]

    @property
    def buffers(self) -> Buffers:
        """Buffers that its launches read and write; extents may depend on sizes."""
        return buffers_of(self.plan, self.steps, self.captured.kinds)

    @cached_property
    def _bound(self) -> dict[tuple[int, ...], Program]:
        return {}

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage of STAGES. Raises UsageError for another name."""
        if stage == "cuda":
            return self.cuda
        units: dict[str, Any] = {
            "torch": self.captured.graph,
            "tensor": self.tensor,
            "loop": self.plan.kernels,
            "tile": self.tile,
            "kernel": self.kernels,
        }
        if stage not in units:
            raise no_such("stage", stage, STAGES)
        if STAGES.index(stage) < STAGES.index(self.since):
            raise UsageError(f"the program is given in {self.since} IR: there is no {stage} IR of it")
        return print_program(units[stage], stage)

    @property
    def cuda(self) -> str:
        """The CUDA text of all kernels in the order of their first launch."""
        return "\n".join(kernel.text for kernel in self.cuda_kernels)


def places_of_sizes(ins: Iterable[Param]) -> SizePlaces:
    """Return the dimensions of inputs that are sizes."""
    return tuple((p.name, d, n) for p in ins for d, n in enumerate(p.shape) if isinstance(n, Size))


class Stopwatch:
    """Milliseconds per stage.

    begun: called with the name of a stage of TIMED when it begins; made: called with the result of a stage of STAGES.
    """

    def __init__(
        self,
        begun: Callable[[str], None] = lambda stage: None,
        made: Callable[[str, object], None] = lambda stage, units: None,
    ):
        self.timings: dict[str, float] = {}
        self._begun, self.made = begun, made

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._begun(name)
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + (time.perf_counter() - start) * 1e3


@immutable
class Values:
    """Program in Tensor IR before fusion, with the compiler that lowered it.

    origins: the torch op of each term; results: types of the outputs in PyTorch; lowered: the program before algebra,
    where a search starts, because rules that compare costs remove alternatives from it.
    """

    captured: Capture
    compiler: Compiler
    lowered: TensorGraph
    graph: TensorGraph
    origins: dict[Term, TorchOp]
    results: tuple[TensorType, ...]
    bounds: tuple[Bound, ...] = ()
    called: tuple[Unsupported, ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """The inputs that loading may compute with."""
        kinds = self.captured.kinds.items() if self.captured.folds else ()
        return frozenset(name for name, kind in kinds if kind != "input")


Explore = Callable[[Values], Candidate | None]  # None: as the rules decide


@immutable
class Compiler(Scheduler):
    """Rules with settings, target, store and exploration of a compile, and the trace that the compile fills.

    explore: chooses equivalent expressions and cuts; without, the rules do. calls: one of CALLS.
    """

    explore: Explore | None = None
    calls: str = CALLS[0]

    def __reduce__(self) -> tuple[Callable[..., Compiler], tuple[object, ...]]:
        """Send a compiler without store and trace to another process: that has the built-in rules already."""
        return _received, (tuple(file.source for file in self.tools.rules.files), self.tools.settings, self.target)

    @export_lock()
    @collections_paused()
    def compile(self, captured: Capture, watch: Stopwatch | None = None) -> Compilation:
        """Compile a captured program. watch: may have timed the capture. Raises DplcError if rules or target cannot."""
        watch = watch or Stopwatch()
        return self.compile_values(self.values(captured, watch), watch)

    def values(self, captured: Capture, watch: Stopwatch | None = None) -> Values:
        """Lower Torch IR to Tensor IR, simplified, with constants folded."""
        watch = watch or Stopwatch()
        with watch.stage("torch"):
            folded = fold(captured, policy(self.target))
            watch.made("torch", folded.graph)
            lowered = lower(folded, self.tools.torch, self.trace is not None, self.calls)
            trace_lowering(self.trace, lowered)
            if self.trace is not None and (line := tf32_line(self.target, folded.graph)):
                self.trace.at("torch").events.append(Remark("d", "precision", folded.graph.name, line))
        with watch.stage("tensor"):
            settled = uncut_outputs(push_renamings(lowered.graph, lowered.origins))
            graph = self.simplified(settled, lowered.origins)
        results = tuple(TensorType(out.dtype, out.shape) for out in folded.graph.outs)
        return Values(folded, self, settled, graph, lowered.origins, results, lowered.bounds, lowered.called)

    def simplified(
        self,
        settled: TensorGraph,
        origins: dict[Term, TorchOp],
        algebra: TermRules | None = None,
        rewrite: Callable[..., TensorGraph] = rewrite_graph,
    ) -> TensorGraph:
        """Return values after algebra.

        origins: the torch op of each term; algebra: by default that of the rules; rewrite: its pass, or `commute`.
        """
        evidence, algebra = TermEvidence() if self.trace is not None else None, algebra or self.tools.algebra
        graph = rewrite(settled, algebra, self.target, evidence, origins)
        trace_algebra(self.trace, evidence, settled, graph, algebra.rules)
        return graph

    def fused(self, values: Values, taken: Plan | None = None) -> tuple[TensorGraph, Plan]:
        """Cut a program into kernels as the rules decide in their order. taken: as in `compile_graph`."""
        tools, trace = self.tools, self.trace
        graph = self.simplified(values.graph, values.origins, tools.commuting, commute)
        asked = None if trace is None else trace.asked
        plan = compile_graph(graph, tools.fusion, self.target, values.origins, values.results, asked, taken=taken)
        trace_fusion(trace, plan, graph, tools.fusion.rules)
        return graph, plan

    def cut(self, captured: Capture) -> tuple[TensorGraph, Plan]:
        """Lower Torch IR to values and to kernels of Loop IR, cut as the rules decide."""
        values = self.values(captured)
        graph, plan = self.fused(values)
        return graph, self.with_loops(values.captured, plan)

    def with_loops(self, captured: Capture, plan: Plan) -> Plan:
        """Return the plan of a program with the kernels of its loops."""

        def body_plan(body: TorchGraph, around: Plan) -> Plan:
            kinds = dict.fromkeys((param.name for param in body.ins), "input")
            given = replace(captured, graph=body, kinds=kinds, tensors=dict.fromkeys(kinds, torch.empty(0)))
            inside = replace(self, calls=CALLS[0]).values(given)
            if inside.graph.calls:
                raise DplcError("a loop inside of a loop is not supported")
            return self.fused(inside, around)[1]

        return with_loops(plan, body_plan)

    @export_lock()
    @collections_paused()
    def compile_values(self, values: Values, watch: Stopwatch | None = None) -> Compilation:
        """Compile values: `explore` decides how they are fused, else the rules do."""
        watch = watch or Stopwatch()
        prepared: tuple[Prepared, ...] = ()
        with watch.stage("fusion"):
            chosen = self.explore(values) if self.explore is not None else None
            if chosen is None:
                graph, plan, made_from = *self.fused(values), values.origins
            else:
                graph, plan, prepared = chosen.graph, chosen.plan(values.results), chosen.prepared
                made_from = dict(chosen.origins)
        made = self.compile_plan(values.captured, graph, self.with_loops(values.captured, plan), watch)
        return replace(made, prepared=prepared, bounds=values.bounds, made_from=made_from, called=values.called)

    def compile_plan(
        self,
        captured: Capture,
        graph: TensorGraph | None,
        plan: Plan,
        watch: Stopwatch,
        since: Literal["loop", "tile", "kernel"] = "loop",
        units: Kernels | None = None,
        sizes: Binding = AT_HINTS,
    ) -> Compilation:
        """Compile a program that is cut into kernels.

        Args:
            graph: the program as values, if it was given so.
            since: the IR of the plan's kernels.
            units: the plan's kernels with open sizes, if these differ.
            sizes: numbers of the sizes, as `print_cuda` takes them.
        """
        if graph is not None:
            watch.made("tensor", graph)
        if since == "loop":
            watch.made("loop", plan.kernels)
        tools = self.tools
        within = replace(self, trace=Trace()) if self.trace is None and tools.settings else self
        shared = share(plan.kernels if units is None else units)
        shaped, tile = Shaped(), shared.kernels
        origins: tuple[Origin, ...] = ()
        if since == "loop":
            with watch.stage("tile"):
                tile, origins = within.tiles(tile, shaped)
                watch.made("tile", tile)
        launches = launches_of(plan, shared, tile)
        kernels = tile
        if since == "kernel":
            tile = ()
        else:
            with watch.stage("kernel"):
                kernels = within.kernel_ir(tile, shaped)
                watch.made("kernel", kernels)
        with watch.stage("cuda"):
            cuda = cuda_of(kernels, shaped, sizes)
            program = launch_plan(plan, launches, kernels, cuda, captured.kinds)
        return Compilation(
            captured, self, graph, plan, tile, kernels, cuda, program, launches, watch.timings, origins,
            unheard=unheard(within.trace, tools.settings, tools.rules) if within.trace is not None else (),
        )  # fmt: skip


def compiler_with(
    target: Target,
    rules: Iterable[Path | str] | RuleSet | None = None,
    settings: Settings | Iterable[str] | None = None,
    exact: bool = False,
    trace: Trace | None = None,
    tf32: str = "auto",
) -> Compiler:
    """Return a compiler without store and exploration. trace: what the compile fills. Otherwise see `toolchain`."""
    return Compiler(toolchain(rules, settings, exact, tf32), target, trace)


def _received(sources: Sequence[Source], settings: Settings, target: Target) -> Compiler:
    known = {file.source: file for file in built_in_files()}
    files = (known.get(source) or read_rules(source) for source in sources)
    return compiler_with(target, RuleSet(files), settings)


def launch_plan(
    plan: Plan,
    made: Steps,
    kernels: Kernels,
    cuda: tuple[CudaKernel, ...],
    kinds: Mapping[str, str],
    sizes: Binding = AT_HINTS,
) -> Program:
    """Return the launches in order with the buffers they touch.

    A schedule may add kernels, and buffers between them (split-K). sizes: the numbers of those of the plan; by default
    their hints.
    """
    sizes = {**hints((plan.inputs, plan.outputs, plan.calls, kernels)), **sizes}
    placed = partial(buffer, sizes=sizes)
    buffers = buffers_of(plan, made, kinds)
    params = (buffers.inputs, buffers.outputs, buffers.constants, buffers.temporaries)
    inputs, outputs, constants, temporaries = (tuple(map(placed, given)) for given in params)
    bindings = tuple(
        tuple(step.buffers[name] for name in bound(kernels[step.index], cuda[step.index])) for step in made.steps
    )
    launched = tuple(cuda[step.index] for step in made.steps)
    found = tuple(_calls(plan, made, kernels, sizes))
    slots = {slot.param.name: with_sizes(slot, sizes) for loop in plan.loops for slot in loop.slots}
    calls = tuple(x for x in found if isinstance(x, TorchCall))
    loops = tuple(x for x in found if isinstance(x, LaunchLoop))
    kept = launched, inputs, outputs, constants, temporaries, bindings
    return with_arena(Program(*kept, calls=calls, loops=loops, slots=slots))


def _calls(plan: Plan, made: Steps, kernels: Kernels, sizes: Binding) -> Iterator[TorchCall | LaunchLoop]:
    """Yield the loops, and the calls of torch.

    A call runs after the last launch that writes what it reads, and after the calls and loops before it.
    """
    written, loops = dict[str, int](), {loop.call: loop for loop in plan.loops}
    for place, step in enumerate(made.steps, 1):
        written |= {step.buffers[param.name]: place for param in kernels[step.index].outs}
    after = 0
    for call in plan.calls:
        if (loop := loops.get(call)) is not None:
            inside = [n for n, step in enumerate(made.steps) if loop.first <= step.place < loop.end]
            after = inside[-1] + 1
            yield LaunchLoop(inside[0], after, int(value_of(loop.times, sizes)))
            continue
        after = max((after, *(written.get(param.name, 0) for param in call.given)))
        written |= {param.name: after for param in call.results}
        yield TorchCall(with_sizes(call, sizes), after)


def bound(kernel: Kernel, made: CudaKernel) -> tuple[str, ...]:
    """Return the buffers of a kernel's parameters, by its own names: a tensor map's is the buffer that it describes."""
    names = [param.name for param in kernel.params]
    place = {param.name: name for param, name in zip(made.params, names, strict=False)}
    return (*names, *(place[param.box.source] for param in made.params if param.box is not None))


def buffer(param: Param, sizes: Binding = AT_HINTS) -> Buffer:
    return Buffer(param.name, param.dtype, tuple(value_of(n, sizes) for n in param.shape))  # type: ignore[arg-type]
