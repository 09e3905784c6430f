"""Running the kernels of a case on the emulator: correctness of the result, and cost of the accesses."""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

from ...codegen.arrays import as_numpy, as_tensor, is_written
from ...codegen.build import build_host, build_runtime, host_text
from ...codegen.compiler import BuildError
from ...codegen.emulator.runtime import DeviceBuffer, LaunchOptions, LineCost, load
from ...codegen.kernel import CudaKernel, Launch, Program
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..api import Compiled as Callee
from ..compiler import Compilation
from ..cost.instruction_counts import instruction_counts
from ..cost.memory_model import LANES
from ..run.inputs import Judgement, Preparation, judge, run_reference
from .cases import WORKERS, CompiledCase, distinct_kernels
from .records import KernelRecord, MeasuredRecord, RunRecord, TimingRecord

WHOLE = 2e11  # instructions of threads that are run: half a minute on two cores
BLOCKS = 32  # of a kernel that takes longer


def build_all(suite: Sequence[CompiledCase], say: Callable[[str], None]) -> None:
    """Build every kernel for both modes of the emulator, two at a time, so that runs find them in the cache."""
    kernels = distinct_kernels(suite)
    say(f"building {len(kernels)} kernels for the emulator")
    build_runtime()
    tasks = [(kernel, checked) for kernel in kernels.values() for checked in (False, True)]

    def build(task: tuple[CudaKernel, bool]) -> None:
        with contextlib.suppress(BuildError):  # running the kernel will report it
            build_host(host_text([task[0]]), task[1])

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(build, tasks))


def run_case(compiled: CompiledCase) -> None:
    """Run a case on random inputs, compare with float64, and count accesses. The record gets the result."""
    compilation, record = compiled.compilation, compiled.record
    if compilation is None:
        return
    start = time.perf_counter()
    total, blocks = sum(kernel.blocks for kernel in compilation.program.kernels), None
    # several kernels depend on each other and so run whole
    if len(compilation.launched) == 1 and work_of(compilation.kernels[0]) > WHOLE and total > BLOCKS:
        blocks = sampled(total)
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
        eager = _leaves(compiled.subject.function(*values.values()))
        if blocks is not None:  # only elements that a block wrote are compared
            stored = [is_written(result) for result in results]
            results, references, eager = (
                [output[where] for output, where in zip(outputs, stored, strict=True)]
                for outputs in (results, references, eager)
            )
        found = judge(results, references, eager)
        record.run.relative_error, record.run.ok = found.relative, found.ok
        record.run.finding = "" if found.ok else f"the result is wrong: {found.verdict}"
    except DplcError as problem:
        record.run.finding = problem.render()
    record.run.seconds = time.perf_counter() - start


def work_of(kernel: Kernel) -> float:
    """Return the instructions of all threads of a kernel of Kernel IR."""
    counted = instruction_counts(kernel)
    return counted.issued * LANES * counted.blocks


def sampled(blocks: int) -> tuple[int, ...]:
    """Return the indices of some blocks of a kernel, with the first and the last."""
    return tuple(sorted({place * (blocks - 1) // (BLOCKS - 1) for place in range(BLOCKS)}))


def _run(
    compilation: Compilation, tensors: dict[str, Any], blocks: tuple[int, ...] | None, records: list[KernelRecord]
) -> list[Any]:
    """Run a program. Return its outputs with torch's shapes, NaN in elements that no block wrote."""
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
    """Return the buffers of a launch by the parameters of its kernel."""
    return {param.name: buffers[name] for param, name in zip(launch.kernel.params, launch.buffers, strict=True)}


def buffers_of(program: Program, tensors: Mapping[str, Any]) -> dict[str, DeviceBuffer]:
    """Return the buffers of a program with its inputs and constants filled in."""
    buffers = {buffer.name: DeviceBuffer(buffer) for buffer in program.buffers()}
    for buffer in (*program.inputs, *program.constants):
        given = buffers[buffer.name]
        given.array[...] = as_numpy(buffer, tensors[buffer.name].detach().reshape(buffer.shape))
        given.protect(writable=False)
    return buffers


def check_ends(kernel: CudaKernel, bound: dict[str, DeviceBuffer]) -> tuple[LineCost, ...]:
    """Run the first and the last block in checked mode, on separate outputs. Raises EmulatorError."""
    options = LaunchOptions(blocks=tuple(sorted({0, kernel.blocks - 1})), checked=True)
    own = {param.name: DeviceBuffer(param) if param.role == "out" else bound[param.name] for param in kernel.params}
    return load((kernel,), True).launch(kernel, own, options)


def ratios(sites: Sequence[LineCost]) -> tuple[float | None, float | None]:
    """Return the efficiency of accesses to global and to shared memory, None for each without accesses.

    They are the least sectors divided by the sectors, and the wavefronts divided by the least wavefronts.
    """
    outside = [site for site in sites if site.access.startswith("global")]
    inside = [site for site in sites if not site.access.startswith("global")]
    cost, ideal = sum(site.cost for site in outside), sum(site.ideal for site in inside)
    # lanes that read the same bytes take less than their bytes
    efficiency = round(sum(min(site.ideal, site.cost) for site in outside) / cost, 4) if cost else None
    return efficiency, round(sum(site.cost for site in inside) / ideal, 4) if ideal else None


def _leaves(value: Any) -> list[Any]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


# ---- on a GPU


WARM_UP, RUNS = 5, 30
COLD = "cold: filled with other data before every run"


class Clock(Protocol):
    """Clock of runs. `prepare` puts the machine in the state in which every run starts."""

    def prepare(self) -> None: ...

    def seconds(self, run: Callable[[], Any]) -> float: ...

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        """Record the run once. Return a function that replays it, or None if it cannot be recorded."""
        ...


class CudaClock:
    """Clock on torch's current stream, with events.

    Before every run other data fills the L2 cache. The write that does it also hides the cost of the launch.
    `codegen/pack/worker.py` times launches on a stream of the driver in the same way.
    """

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._other = torch.empty(max(2 * size, 1 << 26), dtype=torch.int8, device="cuda")

    def prepare(self) -> None:
        self._other.zero_()

    def seconds(self, run: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()  # what loads modules and allocates for the first time cannot be captured
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(recorded):
                run()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return recorded.replay  # type: ignore[no-any-return]


def can_measure() -> bool:
    """Return whether there are a GPU and PyCUDA."""
    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def timing(run: Callable[[], Any], clock: Clock, warm_up: int = WARM_UP, runs: int = RUNS) -> TimingRecord:
    """Return the median and the quartiles of some runs, after some warm-up runs."""
    replay = clock.graph(run)
    timed = replay or run
    microseconds = []
    for _ in range(warm_up + runs):
        clock.prepare()
        microseconds.append(clock.seconds(timed) * 1e6)
    low, middle, high = statistics.quantiles(microseconds[warm_up:], n=4, method="inclusive")
    how = "CUDA graph" if replay else "one by one"
    return TimingRecord(median_us=middle, low_us=low, high_us=high, runs=runs, launched=how)


def measured(compiled: CompiledCase, tensors: dict[str, Any], callee: Callee, clock: Clock) -> MeasuredRecord:
    """Check the result, then measure the times. tensors: the inputs on the device of the callee."""
    assert compiled.compilation is not None
    captured, function, inputs = compiled.compilation.captured, compiled.subject.function, tuple(tensors.values())
    named = dict(zip(captured.inputs, inputs, strict=True))
    device = inputs[0].device if inputs else torch.device(callee.device)
    constants = {name: tensor.to(device) for name, tensor in captured.tensors.items() if name not in named}

    def judged(results: list[Any]) -> Judgement:
        references = run_reference(captured, {**constants, **named})
        return judge(results, references, _leaves(function(*inputs)))

    return measured_run(lambda: callee.run(named), judged, function, inputs, clock)


def nothing_measured() -> MeasuredRecord:
    """Return the record of a run on the GPU of this machine, without times yet."""
    return MeasuredRecord(device=device_name(), l2=COLD, float32=torch.get_float32_matmul_precision())


def measured_run(
    run: Callable[[], list[Any]], judged: Callable[[list[Any]], Judgement], function: Callable[..., Any],
    inputs: tuple[Any, ...], clock: Clock, wrong: str = "the result is wrong: not timed",
) -> MeasuredRecord:  # fmt: skip
    """Time a run if its result is right, and then the function in eager mode and by torch.compile.

    wrong: the finding for a wrong result, a format of its relative error.
    """
    record = nothing_measured()
    try:
        found = judged(run())
        record.relative_error = found.relative
        if not found.ok:
            record.wrong = wrong.format(found.relative)
            return record
        record.dplc = timing(run, clock)
    except DplcError as error:
        record.wrong = error.render()
        return record
    except RuntimeError as error:  # a kernel that faulted: torch reports it for this case and every later one
        record.wrong = f"the GPU stopped: {str(error).splitlines()[0]}"
        return record
    with torch.no_grad():
        record.eager = timing(lambda: function(*inputs), clock)
        record.torch_compile = compiled_by_torch(function, inputs, clock)
    return record


def compiled_by_torch(function: Callable[..., Any], inputs: tuple[Any, ...], clock: Clock) -> TimingRecord | None:
    """Return the time of torch.compile, None if it does not work here (it needs Triton and a C compiler)."""
    torch._dynamo.reset()
    optimised = torch.compile(function, dynamic=False)
    try:
        optimised(*inputs)
    except Exception:  # if something is missing there, our own figures remain valid
        return None
    return timing(lambda: optimised(*inputs), clock)


def device_name() -> str:
    """Return the name of the GPU."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
