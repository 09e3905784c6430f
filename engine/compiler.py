"""The whole way, told once: a captured program through six IRs to CUDA text and a launch plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal

from ..codegen.cuda import bound as bound_kernel
from ..codegen.kernel import Buffer, CudaKernel, Program, with_arena
from ..codegen.target import Target
from ..ir.diagnostic import UsageError, did_you_mean
from ..ir.expr import Size
from ..ir.program import Kernel, Param, TensorType
from ..ir.sizes import sizes_in, value_of
from ..ir.tensor import TensorGraph, Term
from ..ir.text.programs import print_program
from ..ir.torch import TorchOp
from .capture.capture import Capture
from .capture.constants import fold
from .capture.export import export_lock
from .kernels.index_maps import push_renamings, uncut_outputs
from .kernels.kernels import Buffers, Candidate, Plan, Prepared, buffers_of, commute, compile_graph, launches_of
from .kernels.sharing import Sharing, Steps, share
from .kernels.tracing import trace_algebra, trace_fusion, trace_lowering
from .language.rule import policy
from .language.rule_files import collections_paused
from .rewrite.statements.driver import Shaped, Unheard, check_settings, unheard
from .rewrite.terms.rewriter import TermEvidence, rewrite_graph
from .rewrite.torch_rules.lower import lower
from .rewrite.torch_rules.pattern import Bound
from .rewrite.trace import Trace
from .ruleset import Toolchain
from .schedule.scheduling import Origin, ScheduleStore, cuda_of, kernel_ir, schedule_tiles

BINDINGS = 64  # of a program whose launches are kept
STAGES = ("torch", "tensor", "loop", "tile", "kernel", "cuda")
TIMED = ("torch", "tensor", "fusion", "tile", "kernel", "cuda")


@dataclass
class Compilation:
    """A program at every stage. timings: milliseconds per stage; trace: what the rules did, if it was asked for.

    tensor is the program after algebra, plan the same cut into launches (in Loop IR). tile, kernels and cuda_kernels
    hold every kernel once, however often the program launches it; launched says which, for every launch. origins: where
    their schedules come from; empty if no store was asked. since: the stage at which it began; what stands before is
    not there.
    """

    captured: Capture
    target: Target
    tensor: TensorGraph | None
    plan: Plan
    tile: tuple[Kernel, ...]
    kernels: tuple[Kernel, ...]
    cuda_kernels: tuple[CudaKernel, ...]
    program: Program
    launched: tuple[int, ...]
    timings: dict[str, float] = field(default_factory=dict)
    trace: Trace | None = None
    origins: tuple[Origin, ...] = ()
    prepared: tuple[Prepared, ...] = ()  # weights that loading computes from others
    unheard: tuple[Unheard, ...] = ()  # what was set of rules that do not fire
    since: str = "torch"
    bounds: tuple[Bound, ...] = ()  # of places, before a run on the emulator
    made_from: Mapping[Term, TorchOp] = field(default_factory=dict, repr=False)  # the torch op of values
    steps: Steps | None = None

    def __repr__(self) -> str:  # in place of every stage of a program, which a model's takes minutes to write
        return f"<Compilation for {self.target.name}: {len(self.launched)} launches of {len(self.kernels)} kernels>"

    @cached_property
    def sizes(self) -> dict[str, Size]:
        """What is known at a call, by name."""
        return sizes_in((self.plan.kernels, *self.plan.inputs, *self.plan.outputs))

    @cached_property
    def inputs_with_sizes(self) -> tuple[tuple[str, int, Size], ...]:
        """The inputs that tell the sizes of a call: (name, dimension, size)."""
        ins = self.captured.graph.ins
        return tuple((p.name, d, n) for p in ins for d, n in enumerate(p.shape) if isinstance(n, Size))

    @property
    def largest_sizes(self) -> dict[str, int]:
        """The greatest number of each size."""
        return {name: size.high // size.multiple * size.multiple for name, size in self.sizes.items()}

    def at(self, sizes: Mapping[str, int]) -> Program:
        """The launches where the sizes are these numbers: the same kernels, with other grids and buffers."""
        key = tuple(sizes[name] for name in self.sizes)
        if key not in self._bound:
            cuda = tuple(map(partial(bound_kernel, sizes=sizes), self.kernels, self.cuda_kernels))
            assert self.steps is not None
            made, _ = launch_plan(self.plan, self.steps, self.kernels, cuda, self.captured.kinds, sizes)
            made = replace(made, aliases=self.program.aliases)
            if len(self._bound) >= BINDINGS:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = made
        return self._bound[key]

    @property
    def buffers(self) -> Buffers:
        """What its launches read and write, with sizes where extents are made of them."""
        assert self.steps is not None
        return buffers_of(self.plan, self.steps, self.captured.kinds)

    @cached_property
    def _bound(self) -> dict[tuple[int, ...], Program]:
        return {}

    def ir(self, stage: str) -> str:
        """The program's text at a stage of STAGES. Raises UsageError for another name."""
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
            raise UsageError(
                f"there is no stage `{stage}`",
                notes=(f"stages are {', '.join(STAGES)}",),
                hint=did_you_mean(stage, STAGES),
            )
        if STAGES.index(stage) < STAGES.index(self.since):
            raise UsageError(f"the program is given in {self.since} IR: there is no {stage} IR of it")
        return print_program(units[stage], stage)

    @property
    def cuda(self) -> str:
        """The CUDA text of all kernels in the order of their first launch."""
        return "\n".join(kernel.text for kernel in self.cuda_kernels)


class Stopwatch:
    """Milliseconds per stage. begun: told of every stage when it begins, with its place in TIMED and how many are;
    made: of what a stage of STAGES made, when it is made."""

    def __init__(
        self,
        begun: Callable[[str, int, int], None] | None = None,
        made: Callable[[str, Any], None] = lambda stage, units: None,
    ) -> None:
        self.timings: dict[str, float] = {}
        self._begun, self.made = begun, made

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self._begun is not None:
            self._begun(name, TIMED.index(name), len(TIMED))
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + (time.perf_counter() - start) * 1e3


@export_lock()
@collections_paused()
def compile_captured(
    captured: Capture, options: CompileOptions, capture_ms: float = 0.0, watch: Stopwatch | None = None
) -> Compilation:
    """Compile a captured program. Raises DplcError where a rule set or a target cannot."""
    tools = options.tools
    check_settings(tools.settings, tools.rules)
    watch = watch or Stopwatch()
    watch.timings["capture"] = capture_ms
    return compile_values(values_of(captured, options, watch), options, watch)


def compile_values(values: Values, options: CompileOptions, watch: Stopwatch) -> Compilation:
    """The rest of the way for values: `options.explore` decides how they are fused, else the rules do."""
    prepared: tuple[Prepared, ...] = ()
    with watch.stage("fusion"):
        chosen = options.explore(values) if options.explore is not None else None
        if chosen is None:
            graph, plan, made_from = *fused(values, options), values.origins
        else:
            graph, plan, prepared = chosen.graph, chosen.plan(values.results), chosen.prepared
            made_from = dict(chosen.origins)
    made = compile_plan(values.captured, graph, plan, options, watch, prepared)
    return replace(made, bounds=values.bounds, made_from=made_from)


def compile_plan(
    captured: Capture,
    graph: TensorGraph | None,
    plan: Plan,
    options: CompileOptions,
    watch: Stopwatch,
    prepared: tuple[Prepared, ...] = (),
    since: Literal["loop", "tile", "kernel"] = "loop",
    units: tuple[Kernel, ...] | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
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
    shared = share(plan.kernels if units is None else units)
    tools, trace = options.tools, options.trace
    heard = trace if trace is not None or not tools.settings else Trace()
    tile, kernels, cuda, origins, launches = schedule(
        plan, shared, options if heard is trace else replace(options, trace=heard), watch, since, sizes
    )
    with watch.stage("cuda"):
        program, launched = launch_plan(plan, launches, kernels, cuda, captured.kinds)
    return Compilation(
        captured,
        options.target,
        graph,
        plan,
        tile,
        kernels,
        cuda,
        program,
        launched,
        watch.timings,
        trace,
        origins,
        prepared,
        unheard(heard, tools.settings, tools.rules) if heard is not None else (),
        steps=launches,
    )


@dataclass(frozen=True)
class Values:
    """A program as values, before anything is stored. origins: the torch op of each term; results: torch's types.

    lowered: the same before algebra, where a search starts: rules that look at profit take ways from it.
    """

    captured: Capture
    lowered: TensorGraph
    graph: TensorGraph
    origins: dict[Any, TorchOp]
    results: tuple[TensorType, ...]
    bounds: tuple[Bound, ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """The inputs that loading may compute with."""
        kinds = self.captured.kinds.items() if self.captured.folds else ()
        return frozenset(name for name, kind in kinds if kind != "input")


Explore = Callable[[Values], Candidate | None]  # None: as the rules decide


@dataclass(frozen=True)
class CompileOptions:
    """What a compile depends on beside its program, and where what the rules do is kept.

    tools: the rules, with what is set of them; schedules: those of a store; explore: chooses spelling and cuts, else
    the rules do; trace: none where nobody reads it. What the rules override for the target is in force in both.
    """

    tools: Toolchain
    target: Target
    trace: Trace | None = None
    schedules: ScheduleStore | None = None
    explore: Explore | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", self.tools.at(self.target))
        object.__setattr__(self, "target", self.tools.on(self.target))


def values_of(captured: Capture, options: CompileOptions, watch: Stopwatch | None = None) -> Values:
    """Torch IR to Tensor IR, simplified, with constants folded."""
    tools, target, trace = options.tools, options.target, options.trace
    watch = watch or Stopwatch()
    with watch.stage("torch"):
        folded = fold(captured, policy(target))
        watch.made("torch", folded.graph)
        lowered = lower(folded, tools.torch, trace is not None)
        trace_lowering(trace, lowered)
    with watch.stage("tensor"):
        settled = uncut_outputs(push_renamings(lowered.graph, lowered.origins))
        graph = simplified(settled, options, lowered.origins)
    results = tuple(TensorType(out.dtype, out.shape) for out in folded.graph.outs)
    return Values(folded, settled, graph, lowered.origins, results, lowered.bounds)


def simplified(settled: TensorGraph, options: CompileOptions, origins: dict[Any, TorchOp]) -> TensorGraph:
    """Values after algebra. origins: the torch op of each term."""
    evidence = TermEvidence() if options.trace is not None else None
    graph = rewrite_graph(settled, options.tools.algebra, options.target, evidence, origins)
    trace_algebra(options.trace, evidence, settled, graph, options.tools.algebra.rules)
    return graph


def cut_into_kernels(
    captured: Capture, options: CompileOptions, watch: Stopwatch | None = None
) -> tuple[Capture, TensorGraph, Plan]:
    """Torch IR to Tensor IR to Loop IR: the program with constants folded, its values, its kernels."""
    watch = watch or Stopwatch()
    values = values_of(captured, options, watch)
    with watch.stage("fusion"):
        return values.captured, *fused(values, options)


def fused(values: Values, options: CompileOptions) -> tuple[TensorGraph, Plan]:
    """A program cut into kernels as the rules decide in their order."""
    tools, target, trace = options.tools, options.target, options.trace
    evidence = TermEvidence() if trace is not None else None
    graph = commute(values.graph, tools.commuting, target, evidence, values.origins)
    trace_algebra(trace, evidence, values.graph, graph, tools.commuting.rules)
    asked = frozenset() if trace is None else trace.asked
    plan = compile_graph(graph, tools.fusion, target, values.origins, values.results, trace is not None, asked)
    trace_fusion(trace, plan, graph, tools.fusion.rules)
    return graph, plan


def schedule(
    plan: Plan, shared: Sharing, options: CompileOptions, watch: Stopwatch, since: str = "loop",
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...], tuple[CudaKernel, ...], tuple[Origin, ...], Steps]:  # fmt: skip
    """Return the distinct kernels of a plan in Tile IR, in Kernel IR and in CUDA, the origins of their schedules, and
    the launches. since: the IR that the kernels are in; nothing earlier is returned."""
    tools, target, trace = options.tools, options.target, options.trace
    shaped, units = Shaped(), shared.kernels
    origins: tuple[Origin, ...] = ()
    if since == "loop":
        with watch.stage("tile"):
            units, origins = schedule_tiles(units, tools, target, trace, shaped, options.schedules)
            watch.made("tile", units)
    launches = launches_of(plan, shared, units)
    tile = units if since != "kernel" else ()
    if since != "kernel":
        with watch.stage("kernel"):
            units = kernel_ir(tile, tools, target, trace, shaped)
            watch.made("kernel", units)
    with watch.stage("cuda"):
        return tile, units, cuda_of(units, shaped, sizes), origins, launches


def launch_plan(
    plan: Plan,
    made: Steps,
    kernels: tuple[Kernel, ...],
    cuda: tuple[CudaKernel, ...],
    kinds: Mapping[str, str],
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Program, tuple[int, ...]]:
    """Launches in order with the buffers they touch, and the index of each launch's kernel.

    A schedule may add kernels, and buffers between them (split-K). sizes: the numbers of those of the plan; by default
    their hints.
    """
    numbers = {name: size.hint for name, size in sizes_in((plan.inputs, plan.outputs, kernels)).items()}
    numbers |= sizes
    placed = partial(buffer, sizes=numbers)
    found = buffers_of(plan, made, kinds)
    program = Program(
        tuple(cuda[step.index] for step in made.steps),
        tuple(map(placed, found.inputs)),
        tuple(map(placed, found.outputs)),
        tuple(map(placed, found.constants)),
        tuple(map(placed, found.temporaries)),
        tuple(
            tuple(step.buffers[name] for name in bound(kernels[step.index], cuda[step.index])) for step in made.steps
        ),
    )
    return with_arena(program), tuple(step.index for step in made.steps)


def bound(kernel: Kernel, made: CudaKernel) -> tuple[str, ...]:
    """The buffers, by the kernel's own names, that its parameters stand for: a tensor map's is what it describes."""
    names = [param.name for param in (*kernel.ins, *kernel.outs)]
    place = {param.name: name for param, name in zip(made.params, names, strict=False)}
    return (*names, *(place[param.box.source] for param in made.params if param.box is not None))


def buffer(param: Param, sizes: Mapping[str, int] = MappingProxyType({})) -> Buffer:
    return Buffer(param.name, param.dtype, tuple(value_of(n, sizes) for n in param.shape))  # type: ignore[arg-type]
