"""From a schedule to code, in one place: Tile IR to Kernel IR, to CUDA, and to what the model says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...codegen.cuda import print_cuda
from ...codegen.kernel import CudaKernel
from ...codegen.materialise import materialise
from ...codegen.target import Target
from ...ir.substitute import with_hints
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import Prediction, predict
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.passes import Shaped, run_pipeline
from ..rewrite.trace import Trace
from ..ruleset import Toolchain


def kernel_ir(
    tile: Program, tools: Toolchain, target: Target, trace: Trace | None = None, shaped: Shaped | None = None
) -> Program:
    """Kernels of Tile IR as Kernel IR. trace, shaped: as of `run_pipeline`.

    Raises DplcError where the target cannot launch one.
    """
    known = shaped.materialised if shaped is not None else {}
    made = tuple(known.pop(kernel) if kernel in known else materialise(kernel, target) for kernel in tile)
    return kernel_passes(made, tools, target, trace, shaped)


def kernel_passes(
    made: Program, tools: Toolchain, target: Target, trace: Trace | None = None, shaped: Shaped | None = None
) -> Program:
    """Kernels of Kernel IR after the rules on it. trace, shaped: as of `run_pipeline`."""
    events = trace.at("kernel") if trace is not None else None
    return run_pipeline(tools.engine, tools.pipelines["kernel"], made, target, events, shaped)


def cuda_of(
    kernels: Program, shaped: Shaped | None = None, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[CudaKernel, ...]:
    """The CUDA of kernels. shaped: the rules that a comment names; sizes: the numbers of those that kernels declare."""
    named: Mapping[str, list[str]] = shaped or {}
    return tuple(print_cuda(kernel, tuple(dict.fromkeys(named.get(kernel.name, ()))), sizes) for kernel in kernels)


def predictions(
    kernels: Program, target: Target, registers: Sequence[int | None] | None = None
) -> tuple[Prediction, ...]:
    """What the model says of kernels of Kernel IR, with their sizes at the hints. registers: of a thread of each, where
    they are known."""
    known, plain = registers or [None] * len(kernels), with_hints(kernels)
    return tuple(predict(instruction_counts(kernel, n), target) for kernel, n in zip(plain, known, strict=True))


def seconds_of(kernels: Program, target: Target, registers: Sequence[int | None] | None = None) -> float:
    """The predicted seconds of kernels of Kernel IR, one after the other."""
    return sum(prediction.seconds for prediction in predictions(kernels, target, registers))
