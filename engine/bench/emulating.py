"""Running the kernels of a case on the emulator: right or not, and what their accesses cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ...codegen.arrays import as_numpy, as_tensor, is_written
from ...codegen.build import BuildError, build_host, build_runtime, host_text
from ...codegen.emulator.kernels import load
from ...codegen.emulator.runtime import DeviceBuffer, LaunchOptions, LineCost
from ...codegen.kernel import CudaKernel, Launch, Program
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..compiler import Compilation
from ..cost.instruction_counts import instruction_counts
from ..cost.memory_model import LANES
from ..run.judge import Judgement, judge, run_reference
from ..run.load_time_weights import Preparation
from .assembling import WORKERS, distinct_kernels
from .compiling import CompiledCase
from .records import KernelRecord, RunRecord

WHOLE = 2e11  # instructions of threads that are run: half a minute on two cores
BLOCKS = 32  # of a kernel that takes longer


def build_all(suite: Sequence[CompiledCase], say: Callable[[str], None]) -> None:
    """Build every kernel for both modes of the emulator, two at a time, so that runs find them in the cache."""
    kernels = distinct_kernels(suite)
    say(f"building {len(kernels)} kernels for the emulator")
    build_runtime()
    tasks = [(kernel, checked) for kernel in kernels.values() for checked in (False, True)]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(_build, tasks))


def _build(task: tuple[CudaKernel, bool]) -> None:
    with contextlib.suppress(BuildError):  # running the kernel will report it
        build_host(host_text([task[0]]), task[1])


def run_case(compiled: CompiledCase) -> None:
    """Run a case on drawn inputs, compare with float64, count accesses; the record says how it went."""
    compilation, record = compiled.compilation, compiled.record
    if compilation is None:
        return
    start = time.perf_counter()
    blocks = _sample(compilation)
    total = sum(kernel.blocks for kernel in compilation.program.kernels)
    extent = "whole" if blocks is None else f"{len(blocks)} of {total} blocks: whole would take minutes"
    record.run = RunRecord(ok=False, extent=extent, seconds=0.0, checked="first and last block")
    try:
        values = compiled.subject.inputs()
        tensors = {
            **compilation.captured.tensors,
            **dict(zip(compilation.captured.inputs, values.values(), strict=True)),
        }
        tensors |= Preparation().now(compilation.prepared, tensors)
        results = _run(compilation, tensors, blocks, record.kernels)
        references = run_reference(compilation.captured, tensors)
        found = _judged(results, references, _leaves(compiled.subject.function(*values.values())), blocks is not None)
        record.run.relative_error, record.run.ok = found.relative, found.ok
        record.run.finding = "" if found.ok else f"the result is wrong: {found.verdict}"
    except DplcError as problem:
        record.run.finding = problem.render()
    record.run.seconds = time.perf_counter() - start


def _sample(compilation: Compilation) -> tuple[int, ...] | None:
    """The blocks to run, None for all. Several kernels feed one another: they run whole."""
    if len(compilation.launched) > 1:
        return None
    blocks = compilation.program.kernels[0].blocks
    return None if work_of(compilation.kernels[0]) <= WHOLE or blocks <= BLOCKS else sampled(blocks)


def work_of(kernel: Kernel) -> float:
    """Instructions of all threads of a kernel of Kernel IR."""
    counted = instruction_counts(kernel)
    return counted.issued * LANES * counted.blocks


def sampled(blocks: int) -> tuple[int, ...]:
    """Some blocks of a kernel, the first and the last among them."""
    return tuple(sorted({place * (blocks - 1) // (BLOCKS - 1) for place in range(BLOCKS)}))


def _run(
    compilation: Compilation, tensors: dict[str, Any], blocks: tuple[int, ...] | None, records: list[KernelRecord]
) -> list[Any]:
    """The outputs of the program, with torch's shapes; what no block wrote is NaN."""
    program = compilation.program
    buffers = buffers_of(program, tensors)
    for launch, record in zip(program.launches(), records, strict=True):
        kernel = launch.kernel
        bound = bound_to(launch, buffers)
        record.sector_efficiency, record.wavefront_ratio = ratios(check_ends(kernel, bound))
        load((kernel,)).launch(kernel, bound, LaunchOptions(blocks=blocks))
    plan = compilation.plan
    outputs = {buffer.name: as_tensor(buffer, buffers[buffer.name].array.copy()) for buffer in program.outputs}
    return [outputs[param.name].reshape(kind.shape) for param, kind in zip(plan.outputs, plan.results, strict=True)]


def bound_to(launch: Launch, buffers: Mapping[str, DeviceBuffer]) -> dict[str, DeviceBuffer]:
    """The buffers of a launch by its kernel's parameters."""
    return {param.name: buffers[name] for param, name in zip(launch.kernel.params, launch.buffers, strict=True)}


def buffers_of(program: Program, tensors: Mapping[str, Any]) -> dict[str, DeviceBuffer]:
    """The buffers of a program, its inputs and constants filled in."""
    buffers = {buffer.name: DeviceBuffer(buffer) for buffer in program.buffers()}
    for buffer in (*program.inputs, *program.constants):
        given = buffers[buffer.name]
        given.array[...] = as_numpy(buffer, tensors[buffer.name].detach().reshape(buffer.shape))
        given.protect(writable=False)
    return buffers


def check_ends(kernel: CudaKernel, bound: dict[str, DeviceBuffer]) -> tuple[LineCost, ...]:
    """The first and the last block in checked mode, on outputs of their own. Raises EmulatorError."""
    options = LaunchOptions(blocks=tuple(sorted({0, kernel.blocks - 1})), checked=True)
    return load((kernel,), True).launch(kernel, own_outputs(kernel, bound), options)


def own_outputs(kernel: CudaKernel, bound: dict[str, DeviceBuffer]) -> dict[str, DeviceBuffer]:
    """What a kernel is given for a run that is to leave no trace."""
    return {param.name: DeviceBuffer(param) if param.role == "out" else bound[param.name] for param in kernel.params}


def ratios(sites: Sequence[LineCost]) -> tuple[float | None, float | None]:
    """(least sectors of global memory over sectors, wavefronts of shared memory over the least); None without any."""
    outside = [site for site in sites if site.access.startswith("global")]
    inside = [site for site in sites if not site.access.startswith("global")]
    cost, ideal = sum(site.cost for site in outside), sum(site.ideal for site in inside)
    # lanes that read the same bytes take less than their bytes
    efficiency = round(sum(min(site.ideal, site.cost) for site in outside) / cost, 4) if cost else None
    return efficiency, round(sum(site.cost for site in inside) / ideal, 4) if ideal else None


def _judged(results: list[Any], references: list[Any], eager: list[Any], sampled: bool) -> Judgement:
    """The outputs of a run. sampled: only where a block wrote."""
    if not sampled:
        return judge(results, references, eager)
    stored = [is_written(result) for result in results]

    def there(outputs: list[Any]) -> list[Any]:
        return [output[where] for output, where in zip(outputs, stored, strict=True)]

    return judge(there(results), there(references), there(eager))


def _leaves(value: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
