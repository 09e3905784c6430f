"""The whole way, told once: a captured program through six IRs to CUDA text and a launch plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..codegen.cuda import print_cuda
from ..codegen.kernel import Buffer, CudaKernel, Program
from ..codegen.materialise import materialise
from ..codegen.target import Target
from ..ir.diagnostic import UsageError, did_you_mean
from ..ir.program import Kernel, Param, TensorType
from ..ir.tensor import TensorGraph
from ..ir.text.print import print_program
from .front.capture import Capture, check_extents
from .front.constants import fold
from .front.lower import lower
from .fuse.commute import commute
from .fuse.kernels import Plan, compile_graph
from .fuse.renaming import settle_renamings
from .match.passes import run_pipeline
from .match.terms import Evidence, rewrite_graph
from .match.trace import Trace
from .toolchain import Toolchain
from .tracing import trace_algebra, trace_fusion, trace_lowering

STAGES = ("torch", "tensor", "loop", "tile", "kernel", "cuda")


@dataclass
class Compilation:
    """A program at every stage. timings: milliseconds per stage; trace: what the rules did, if it was asked for.

    tensor is the program after algebra, plan the same cut into kernels (its kernels are Loop IR).
    """

    captured: Capture
    target: Target
    tensor: TensorGraph
    plan: Plan
    tile: tuple[Kernel, ...]
    kernels: tuple[Kernel, ...]
    cuda_kernels: tuple[CudaKernel, ...]
    program: Program
    timings: dict[str, float] = field(default_factory=dict)
    trace: Trace | None = None

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
        return print_program(units[stage], stage)

    @property
    def cuda(self) -> str:
        """The CUDA text of all kernels in launch order."""
        return "\n".join(kernel.text for kernel in self.cuda_kernels)


class Stopwatch:
    """Milliseconds per stage."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + (time.perf_counter() - start) * 1e3


def compile_captured(
    captured: Capture, tools: Toolchain, target: Target, trace: Trace | None = None, capture_ms: float = 0.0
) -> Compilation:
    """Compile a captured program. Raises DplcError where a rule set or a target cannot."""
    watch = Stopwatch()
    watch.timings["capture"] = capture_ms
    folded, graph, plan = cut_into_kernels(captured, tools, target, trace, watch)
    tile, kernels, cuda = schedule(plan.kernels, tools, target, trace, watch)
    program = launch_plan(plan, kernels, cuda, folded.kinds)
    return Compilation(folded, target, graph, plan, tile, kernels, cuda, program, watch.timings, trace)


def cut_into_kernels(
    captured: Capture, tools: Toolchain, target: Target, trace: Trace | None, watch: Stopwatch
) -> tuple[Capture, TensorGraph, Plan]:
    """Torch IR to Tensor IR to Loop IR: the program with constants folded, its values, its kernels."""
    with watch.stage("torch"):
        folded = fold(captured)
        check_extents(folded)
        lowered = lower(folded, tools.torch, trace is not None)
        trace_lowering(trace, lowered)
    with watch.stage("tensor"):
        evidence = Evidence() if trace is not None else None
        settled = settle_renamings(lowered.graph, lowered.origins)
        graph = rewrite_graph(settled, tools.algebra, target, evidence, lowered.origins)
        trace_algebra(trace, evidence, settled, graph)
    with watch.stage("fusion"):
        evidence = Evidence() if trace is not None else None
        commuted = commute(graph, tools.commuting, target, evidence, lowered.origins)
        trace_algebra(trace, evidence, graph, commuted)
        graph = commuted
        results = tuple(TensorType(out.dtype, out.shape) for out in folded.graph.outs)
        plan = compile_graph(graph, tools.fusion, target, lowered.origins, results)
        trace_fusion(trace, plan, graph, tools.fusion.rules)
    return folded, graph, plan


def schedule(
    loops: tuple[Kernel, ...], tools: Toolchain, target: Target, trace: Trace | None, watch: Stopwatch
) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...], tuple[CudaKernel, ...]]:
    """Loop IR to Tile IR, Kernel IR and CUDA."""
    shaped: dict[str, list[str]] = {}

    def run(pipeline: str, program: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        events = trace.at(pipeline) if trace is not None else None
        return run_pipeline(tools.engine, tools.pipelines[pipeline], program, target, events, shaped)

    with watch.stage("tile"):
        tile = run("tile", run("loop", loops))
    with watch.stage("kernel"):
        kernels = run("kernel", tuple(materialise(kernel, target) for kernel in tile))
    with watch.stage("cuda"):
        cuda = tuple(print_cuda(kernel, tuple(dict.fromkeys(shaped.get(kernel.name, ())))) for kernel in kernels)
    return tile, kernels, cuda


def launch_plan(
    plan: Plan, kernels: tuple[Kernel, ...], cuda: tuple[CudaKernel, ...], kinds: Mapping[str, str]
) -> Program:
    """Kernels in order and the buffers they touch. A schedule may add kernels and buffers between them (split-K)."""
    known = {param.name for param in (*plan.inputs, *plan.outputs)}
    between: dict[str, Param] = {}
    for kernel in kernels:
        for param in (*kernel.ins, *kernel.outs):
            if param.name not in known:
                between.setdefault(param.name, param)
    bindings = tuple(bound(kernel, made) for kernel, made in zip(kernels, cuda, strict=True))
    return Program(
        cuda,
        tuple(buffer(p) for p in plan.inputs if kinds.get(p.name) == "input"),
        tuple(map(buffer, plan.outputs)),
        tuple(buffer(p) for p in plan.inputs if kinds.get(p.name) != "input"),
        tuple(map(buffer, between.values())),
        bindings,
    )


def bound(kernel: Kernel, made: CudaKernel) -> tuple[str, ...]:
    """The buffers that a kernel's parameters stand for: a tensor map stands for the buffer it describes."""
    names = [param.name for param in (*kernel.ins, *kernel.outs)]
    place = {param.name: name for param, name in zip(made.params, names, strict=False)}
    return (*names, *(place[param.box.source] for param in made.params if param.box is not None))


def buffer(param: Param) -> Buffer:
    return Buffer(param.name, param.dtype, param.shape)  # type: ignore[arg-type]
