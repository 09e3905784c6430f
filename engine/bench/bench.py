"""Benchmarks of cases and programs: figures of their kernels, runs on the emulator, and times on a GPU."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import gmtime, perf_counter, process_time, strftime
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from ...codegen.arrays import is_written
from ...codegen.build import (
    FIX_OLD_DEVICE,
    assemble,
    build_host,
    build_runtime,
    device_text,
    emulator_sources,
    host_text,
)
from ...codegen.cache import cached
from ...codegen.compiler import BuildError, find_nvrtc, find_program, program_identity
from ...codegen.cuda import safe_kernel_name
from ...codegen.emulator.executor import CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.judge import Judgement
from ...codegen.kernel import CudaKernel
from ...codegen.launch import Session, memory_of
from ...codegen.sass import disassemble, find_nvdisasm
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, first_line
from ...ir.interp import torch as meaning
from ...ir.program import Kernel
from ...version import __version__
from ..api import Compiled, has_gpu
from ..capture.fx_rewrites import Function
from ..capture.signature import Capture, Tensors
from ..compiler import Compilation, Compiler
from ..cost.instruction_counts import buffer_bytes, instruction_counts
from ..cost.limits import least_seconds
from ..cost.memory_model import LANES
from ..cost.predict import occupancy, predict
from ..rewrite.statements.driver import tell_unheard, unheard_by_all
from ..ruleset import Toolchain
from ..run.calls import Preparation, judge_program, run_eager, run_reference
from .cases import BenchCase, BenchSubject, Say, Suite, import_everything, subject_of
from .records import BenchRecord, CaseRecord, KernelRecord, MeasuredRecord, RunRecord, TimingRecord, Totals, geomean

R = TypeVar("R")
T = TypeVar("T")
Eager = tuple[Function, Sequence[Tensor]]  # a function, and the tensors that it takes

# ---- predicted


def kernel_record(kernel: Kernel, text: CudaKernel, target: Target, image: Assembled | None = None) -> KernelRecord:
    """Return the figures for a kernel of Kernel IR: of the model, and of its assembled form, which the model uses."""
    figures = {} if image is None else {name: getattr(image, name) for name in image.__struct_fields__[1:]}
    counted = instruction_counts(kernel, figures.get("registers"))
    found, (warps, held) = predict(counted, target), occupancy(counted, target)
    return KernelRecord(
        name=text.name, grid=text.grid, block=text.block, smem=text.smem, hbm_bytes=buffer_bytes(kernel),
        predicted_us=found.seconds * 1e6, predicted_bound=found.binding, waves=found.waves, resident=found.resident,
        dram_bytes=round(counted.dram), busy_us={name: taken * 1e6 for name, taken in found.bounds.items()},
        busiest_us=found.busiest * 1e6, fixed_us=found.fixed * 1e6, occupancy=warps, held_by=held, **figures,
    )  # fmt: skip


# ---- limits


def sources_of(compilation: Compilation) -> dict[str, Kernel]:
    """Return {CUDA kernel: the kernel of Loop IR that it was scheduled from}."""
    steps = reversed(compilation.steps.steps)  # launches of one structure have the kernel of the first
    return {compilation.cuda_kernels[step.index].name: compilation.plan.kernels[step.place] for step in steps}


def over_limits(sources: Mapping[str, Kernel], records: Iterable[KernelRecord], target: Target) -> dict[str, float]:
    """Return {kernel of Loop IR: the predicted time of all kernels that it became, divided by its limit}.

    sources: see `sources_of`; records: of each CUDA kernel.
    """
    predicted_us = {record.name: record.predicted_us for record in records}
    seconds = defaultdict[str, float](float)
    for name, loop in sources.items():
        seconds[loop.name] += predicted_us[name] * 1e-6
    return {loop.name: seconds[loop.name] / least_seconds(loop, target) for loop in sources.values()}


@dataclass
class CompiledCase:
    """Case that was compiled. record: the figures so far.

    subject: the program of a suite; None for a `-c` text, which has the values that its factories generated. wanted:
    the results in float64; None for those of Torch IR.
    """

    compilation: Compilation
    record: CaseRecord
    subject: BenchSubject | None = None
    wanted: Sequence[Tensor] | None = None

    def tensors(self, device: str = "cpu") -> dict[str, Tensor]:
        """Return {name: tensor} of the inputs and everything else that the program reads, on a device of torch."""
        captured = self.compilation.captured
        drawn = dict(zip(captured.inputs, self.subject.inputs().values())) if self.subject else {}
        return {name: tensor.to(device) for name, tensor in {**captured.tensors, **drawn}.items()}

    def eager(self, tensors: Tensors) -> Eager:
        """Return the program in eager mode, with those of the tensors that it takes. Raises DplcError."""
        captured = self.compilation.captured
        program = self.subject.function if self.subject else as_module(captured)
        taken = [tensors[name] for name in (captured.inputs if self.subject else captured.tensors)]
        device = taken[0].device if taken else torch.device("cpu")

        def function(*given: Tensor) -> object:
            with device:  # of the tensors that the program creates, such as masks
                return program(*given)

        return function, taken


def as_module(captured: Capture) -> torch.fx.GraphModule:
    """Return a program as one module over all tensors that it reads, which torch.compile compiles as a whole.

    It computes one ATen op after the other, in the dtypes of the program.
    """
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    values = {name: torch.fx.Proxy(graph.placeholder(name), tracer) for name in captured.tensors}
    results = meaning.evaluated(captured.graph, values, wide=False)
    graph.output(tuple(result.node for result in results))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def compile_all(
    subjects: Sequence[BenchSubject], compiler: Callable[[], Compiler], say: Say
) -> tuple[list[CaseRecord], list[CompiledCase], tuple[float, float, float]]:
    """Compile every case, one after the other. An error of a case is recorded and does not stop the others.

    Returns the records of all cases, the cases that compiled, and the wall-clock and processor seconds with the
    milliseconds of loading rules.
    """
    import_everything()
    wall, cpu = perf_counter(), process_time()
    made = compiler()
    loaded = perf_counter() - wall
    records, compiled = [], []
    for subject in subjects:
        case = subject.case
        say(f"compiling {case.name}")
        record = msgspec.convert(case, CaseRecord, from_attributes=True)
        records.append(record)
        try:
            compilation = subject.compile(made)
        except DplcError as error:
            record.error = error.render()
        else:
            compiled.append(CompiledCase(compilation, record, subject))
    tell_unheard(unheard_by_all([one.compilation.unheard for one in compiled]))
    times = perf_counter() - wall, process_time() - cpu, loaded * 1e3
    for one in compiled:
        describe(one)
    return records, compiled, times


def describe(compiled: CompiledCase, images: Mapping[str, Assembled | DplcError] = {}) -> None:
    """Fill in the figures of the launch plan and the model.

    images: {kernel text: its assembled form, or why the assembler rejects it, which is an error of the case}.
    """
    compilation, record = compiled.compilation, compiled.record
    record.stages, record.compile_ms = compilation.timings, sum(compilation.timings.values())
    target, once = compilation.target, []
    for kernel, text in zip(compilation.kernels, compilation.cuda_kernels, strict=True):
        image = images.get(text.text)
        if isinstance(image, DplcError):
            record.error, image = image.render(), None
        once.append(kernel_record(kernel, text, target, image))
    record.kernels = kernels = [msgspec.structs.replace(once[index]) for index in compilation.launched]
    record.compulsory_bytes = compilation.compulsory_bytes
    record.hbm_ratio = sum(kernel.hbm_bytes for kernel in kernels) / max(record.compulsory_bytes, 1)
    record.predicted_us = None if compilation.called else sum(kernel.predicted_us for kernel in kernels)
    record.least_us = 1e6 * compilation.least_seconds
    record.times_limit = max(over_limits(sources_of(compilation), once, target).values(), default=None)


# ---- assembled


WORKERS = 2


class Assembled(msgspec.Struct, kw_only=True):
    """Assembled kernel. cubin: what the driver loads.

    The other fields are figures, named as in `KernelRecord`. All but the first two need nvdisasm.
    """

    cubin: bytes = b""
    registers: int
    spill_bytes: int
    instructions: int | None = None
    has_loop: bool | None = None
    ffma_share: float | None = None
    widths: tuple[str, ...] | None = None


def assembler() -> str:
    """Return the name and version of the CUDA compiler, "" without one."""
    nvrtc, nvcc = find_nvrtc(), find_program("nvcc")
    if nvrtc is not None:
        return " ".join(nvrtc.identity.split()[:2])
    return program_identity(nvcc).splitlines()[-1] if nvcc else ""


def assembled(kernel: CudaKernel, arch: str) -> Assembled:
    """Assemble a kernel, or read the result from the cache. Raises BuildError."""

    def build(product: Path) -> None:
        assembly = assemble(text, arch)
        resources = assembly.kernels.get(kernel.name)
        if resources is None:
            raise BuildError(f"{assembler()} reported nothing on `{kernel.name}`", "", FIX_OLD_DEVICE)
        spilled = resources.spill_stores + resources.spill_loads
        found = Assembled(cubin=assembly.cubin, registers=resources.registers, spill_bytes=spilled)
        if find_nvdisasm():
            listing = disassemble(assembly.cubin)[kernel.name]
            found.instructions = sum(op != "NOP" for op in listing.opcodes)
            found.has_loop, found.widths = listing.has_loop, listing.widths()
            found.ffma_share = round(listing.share("FFMA"), 4)
        product.write_bytes(msgspec.msgpack.encode(found))

    text = device_text([kernel])
    tools = (assembler(), find_nvdisasm() or "")
    path = cached("assembled", [text, *emulator_sources(), *tools, kernel.name, arch], ".msgpack", build)
    return msgspec.msgpack.decode(path.read_bytes(), type=Assembled)


def each_assembled(kernels: Mapping[str, CudaKernel], arch: str) -> Iterator[tuple[str, Assembled | DplcError]]:
    """Assemble kernels, two at a time. Yields (text, result), where an error is a result as well."""
    return zip(kernels, each_tried(lambda kernel: assembled(kernel, arch), kernels.values()))


def each_tried(work: Callable[[T], R], given: Iterable[T]) -> Iterator[R | DplcError]:
    """Yield the results of a function, two computed at a time. An error is a result as well."""

    def tried(value: T) -> R | DplcError:
        try:
            return work(value)
        except DplcError as error:
            return error

    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(tried, given)


# ---- Runs of a case on the emulator, and times on a GPU.

WHOLE = 2e11  # instructions of threads that are run: half a minute on two cores
BLOCKS = 32  # of a kernel that takes longer
ENDS = ("first", "last")  # blocks whose accesses are counted


@dataclass(frozen=True)
class BenchSteps:
    """Steps of a benchmark in addition to compiling."""

    run: bool
    assemble: bool
    command: str


def assemble_and_run(suite: Sequence[CompiledCase], arch: str, steps: BenchSteps, say: Say) -> None:
    """Assemble every distinct kernel and predict again with its registers. Run every case on the emulator."""
    kernels = {kernel.text: kernel for compiled in suite for kernel in compiled.compilation.cuda_kernels}
    if steps.assemble and assembler():
        say(f"assembling {len(kernels)} kernels")
        images = dict(each_assembled(kernels, arch))
        for compiled in suite:
            describe(compiled, images)
    if steps.run:
        say(f"building {len(kernels)} kernels for the emulator")
        build_runtime()
        texts = itertools.product([host_text([kernel]) for kernel in kernels.values()], (False, True))
        list(each_tried(lambda text: build_host(*text), texts))  # a run reports the error of a kernel
        for compiled in suite:
            say(f"running {compiled.record.name} on the emulator")
            run_case(compiled)


def run_case(compiled: CompiledCase) -> None:
    """Run a case on random inputs, compare with float64, and count accesses. The record gets the result."""
    compilation, record = compiled.compilation, compiled.record
    start = perf_counter()
    kernels, blocks, extent = compilation.program.kernels, None, "whole"
    # several kernels depend on each other and so run whole
    if len(kernels) == 1 and work_of(compilation.kernels[0]) > WHOLE and (total := kernels[0].blocks) > BLOCKS:
        blocks = sampled(total)
        extent = f"{len(blocks)} of {total} blocks: whole would take minutes"
    run = record.run = RunRecord(extent=extent)
    try:
        tensors = compiled.tensors()
        callee, checker = Compiled(compilation, "emulator"), CheckingExecutor(ENDS, orders=(0,), some=blocks)
        callee.executor = checker
        results = callee.run(tensors)
        for kernel, (efficiency, wavefronts) in zip(record.kernels, ratios(checker), strict=True):
            kernel.sector_efficiency, kernel.wavefront_ratio = efficiency, wavefronts
        found = _judged(compiled, tensors, results, partly=blocks is not None)
        run.relative_error, run.ok = found.relative, found.ok
        if not found.ok:
            run.finding = f"the result is wrong: {found.verdict}"
    except DplcError as problem:
        run.finding = problem.render()
    run.seconds = perf_counter() - start


def _judged(compiled: CompiledCase, tensors: Tensors, results: list[Tensor], partly: bool = False) -> Judgement:
    """Compare results with float64 and with eager mode. partly: only the elements that a block wrote."""
    captured, target = compiled.compilation.captured, compiled.compilation.target
    references: Sequence[Tensor] = compiled.wanted or run_reference(captured, tensors)
    if partly:
        pairs = zip(results, references, strict=True)
        results = [torch.where(is_written(result), result, wanted.to(result.dtype)) for result, wanted in pairs]
    eager = run_eager(captured, tensors, target)
    return judge_program(captured, tensors, results, eager, target, references=references)


def work_of(kernel: Kernel) -> float:
    """Return the instructions of all threads of a kernel of Kernel IR."""
    counted = instruction_counts(kernel)
    return counted.issued * LANES * counted.blocks


def sampled(blocks: int) -> tuple[int, ...]:
    """Return the indices of some blocks of a kernel, with the first and the last."""
    return tuple(sorted({place * (blocks - 1) // (BLOCKS - 1) for place in range(BLOCKS)}))


def ratios(checker: CheckingExecutor) -> Iterator[tuple[float | None, float | None]]:
    """Yield the efficiency of accesses to global and to shared memory for each checked launch, None without accesses.

    They are the least sectors divided by the sectors, and the wavefronts divided by the least wavefronts. Raises
    EmulatorError for a launch that did what it must not.
    """
    for finding in checker.findings:
        raise EmulatorError(finding.message, notes=finding.lines)
    for launch in checker.launches:
        sectors, least, wavefronts, ideal = 0, 0, 0, 0
        for site in launch.sites:
            if site.access.startswith("global"):  # lanes that read the same bytes take less than their bytes
                sectors, least = sectors + site.cost, least + min(site.ideal, site.cost)
            else:
                wavefronts, ideal = wavefronts + site.cost, ideal + site.ideal
        yield round(least / sectors, 4) if sectors else None, round(wavefronts / ideal, 4) if ideal else None


# ---- on a GPU


WARM_UP, RUNS = 5, 30
COLD = "cold: filled with other data before every run"


class CudaClock:
    """Clock of runs, on torch's current stream, with events.

    Before every run other data fills the L2 cache. The write that does it also hides the cost of the launch.
    `codegen/pack/worker.py` times launches on a stream of the driver in the same way.
    """

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._other = torch.empty(max(2 * size, 1 << 26), dtype=torch.int8, device="cuda")

    def seconds(self, run: Callable[[], object]) -> float:
        self._other.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        """Record the run once. Return a function that replays it, or None if it cannot be recorded."""
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
        replay: Callable[[], object] = recorded.replay
        return replay


def timing(run: Callable[[], object], clock: CudaClock, times: int = 1) -> TimingRecord:
    """Return the median and the quartiles of RUNS runs, after WARM_UP runs. times: what they are multiplied by."""
    replay = clock.graph(run)
    microseconds = [clock.seconds(replay or run) * 1e6 * times for _ in range(WARM_UP + RUNS)]
    low, middle, high = statistics.quantiles(microseconds[WARM_UP:], n=4, method="inclusive")
    how = "CUDA graph" if replay else "one by one"
    return TimingRecord(median_us=middle, low_us=low, high_us=high, runs=RUNS, launched=how)


def measured(compiled: CompiledCase, callee: Compiled, clock: CudaClock) -> MeasuredRecord:
    """Check the result, then measure the times, with the tensors on the device of the callee."""
    tensors = compiled.tensors(memory_of(callee.device))
    judged = functools.partial(_judged, compiled, compiled.tensors())
    return measured_run(lambda: callee.run(tensors), judged, lambda: compiled.eager(tensors), clock)


def nothing_measured() -> MeasuredRecord:
    """Return the record of a run on the GPU of this machine, without times yet."""
    return MeasuredRecord(device=device_name(), l2=COLD, float32=torch.get_float32_matmul_precision())


def measured_run(
    run: Callable[[], list[Tensor]], judged: Callable[[list[Tensor]], Judgement], eager: Callable[[], Eager],
    clock: CudaClock, wrong: str = "the result is wrong: not timed",
) -> MeasuredRecord:  # fmt: skip
    """Time a run if its result is right, and then the program in eager mode and by torch.compile.

    wrong: the finding for a wrong result, a format of its relative error.
    """
    record = nothing_measured()
    try:
        function, inputs = eager()
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
        record.wrong = f"the GPU stopped: {first_line(error)}"
        return record
    with torch.no_grad():
        record.eager = timing(lambda: function(*inputs), clock)
        record.torch_compile = compiled_by_torch(function, inputs, clock)
    return record


def compiled_by_torch(function: Function, inputs: Sequence[Tensor], clock: CudaClock) -> TimingRecord | None:
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


# ---- a row for each kernel


END_TO_END = "end to end"


def row(record: KernelRecord, launches: int, dtype: str) -> CaseRecord:
    """Return the row of a kernel with the sum of all its launches."""
    return CaseRecord(
        name=record.name, operation="kernel", sizes={"launches": launches}, dtype=dtype, kernels=[record],
        compulsory_bytes=record.dram_bytes * launches, predicted_us=record.predicted_us * launches,
    )  # fmt: skip


def rows(records: Sequence[KernelRecord]) -> list[CaseRecord]:
    """Return a row for each distinct kernel. records: one for every launch."""
    launches = Counter(record.name for record in records)
    return [row(record, launches[name], "") for name, record in {record.name: record for record in records}.items()]


def sums(kernels: Sequence[CaseRecord]) -> dict[str, Any]:
    """Return the fields of the last row that are sums of all kernels."""
    return {
        "sizes": {"launches": sum(case.sizes["launches"] for case in kernels)},
        "compulsory_bytes": sum(case.compulsory_bytes for case in kernels),
        "predicted_us": sum(case.predicted_us or 0.0 for case in kernels),
    }


def note_limits(cases: Iterable[CaseRecord], sources: Mapping[str, Kernel], target: Target) -> None:
    """Fill in the distance of each kernel from its limit. If a schedule split a kernel, the last part gets it.

    sources: see `sources_of`.
    """
    by_name = {case.name: case for case in cases}
    for name, times in over_limits(sources, (case.kernels[0] for case in by_name.values()), target).items():
        by_name[safe_kernel_name(name)].times_limit = times


def time_kernels(cases: Iterable[CaseRecord], session: Session, clock: CudaClock) -> None:
    """Time the first launch of each kernel alone, multiplied by the number of its launches.

    session: of a program that has run.
    """
    names = [kernel.name for kernel in session.program.kernels]
    for case in cases:
        case.measured = nothing_measured()
        run = functools.partial(session.launch, names.index(case.name))
        case.measured.dplc = timing(run, clock, case.sizes["launches"])


# ---- a suite, and one program


def bench_cases(
    path: Path, suite: Suite, cases: list[BenchCase], compiler: Callable[[], Compiler], steps: BenchSteps, say: Say
) -> BenchRecord:
    """Compile the cases cold; assemble, run and measure them as requested.

    Raises DplcError for an error outside of a case.
    """
    records, compiled, times = compile_all([subject_of(suite, case) for case in cases], compiler, say)
    made = compiler()
    assemble_and_run(compiled, made.target.arch, steps, say)
    for one in compiled if steps.run and has_gpu() else ():
        say(f"measuring {one.record.name}")
        one.record.measured = measured(one, Compiled(one.compilation, "cuda"), CudaClock())
    return BenchRecord(
        suite=str(path), about=suite.about, published=suite.published, totals=totals(records, *times), cases=records,
        **provenance(steps.command, made.target, made.tools),
    )  # fmt: skip


def provenance(command: str, target: Target, tools: Toolchain) -> dict[str, Any]:
    """Return the command, date, machine, target and versions of a record."""
    return {
        "command": command, "date": strftime("%Y-%m-%d", gmtime()), "machine": machine(),
        "target": target.name, "arch": target.arch, "dram_bytes_per_second": target.dram_bytes_per_second,
        "versions": versions(tools),
    }  # fmt: skip


def totals(records: list[CaseRecord], wall: float, cpu: float, rules_ms: float = 0.0) -> Totals:
    """Return the totals under the table.

    wall, cpu, rules_ms: wall-clock and processor seconds of all compiles, and milliseconds of loading the rules.
    """
    spills = [k.spill_bytes for record in records for k in record.kernels if k.spill_bytes is not None]
    runs = [record.run for record in records if record.run is not None]
    return Totals(
        cases=len(records),
        failed=sum(bool(record.error) for record in records),
        kernels=sum(len(record.kernels) for record in records),
        compile_seconds=wall,
        compile_cpu_seconds=cpu,
        rules_ms=rules_ms,
        spill_bytes=sum(spills) if spills else None,
        wrong=sum(not run.ok for run in runs) if runs else None,
        predicted_geomean_us=geomean(record.predicted_us for record in records),
    )


def versions(tools: Toolchain) -> dict[str, str]:
    """Return the versions of all tools; "" for a missing one."""
    host, disassembler = find_program("g++"), find_nvdisasm()
    return {
        "dplc": __version__,
        "rules": tools.rules.digest[:12],
        "python": platform.python_version(),
        "torch": version("torch"),
        "assembler": assembler(),
        "disassembler": program_identity(disassembler).splitlines()[-1] if disassembler else "",
        "host compiler": program_identity(host).splitlines()[0] if host else "",
        **(_launching() if has_gpu() else {}),
    }


def _launching() -> dict[str, str]:
    """Return the versions of what launches kernels, and the GPU."""
    import pycuda.driver

    number = pycuda.driver.get_driver_version()
    driver = f"for CUDA {number // 1000}.{number % 1000 // 10}"
    cuda = str(torch.version.cuda)
    return {"pycuda": version("pycuda"), "CUDA of torch": cuda, "driver": driver, "gpu": device_name()}


def machine() -> str:
    """Describe this machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {device_name()}"


# ---- one program


def bench_program(compilation: Compilation, text: str, steps: BenchSteps, say: Say, measuring: bool) -> BenchRecord:
    """Benchmark a compiled program on the inputs that its text generated. measuring: whether to measure on a GPU."""
    target = compilation.target
    record = CaseRecord(name=END_TO_END, operation="expression", sizes={}, dtype="")
    compiled = CompiledCase(compilation, record)
    describe(compiled)
    assemble_and_run([compiled], target.arch, steps, say)
    kernels = rows(record.kernels)
    note_limits(kernels, sources_of(compilation), target)
    if measuring and not record.problem:
        say("measuring")
        measure(compiled, kernels, Compiled(compilation, "cuda"), CudaClock())
    seconds = record.compile_ms / 1e3
    last = msgspec.structs.replace(record, kernels=[], hbm_ratio=None, least_us=None, **sums(kernels))
    about = "Every distinct kernel with all its launches, and the whole."
    return BenchRecord(
        suite=text, about=about, totals=totals([record], seconds, seconds),
        cases=[*kernels, last], **provenance(steps.command, target, compilation.compiler.tools),
    )  # fmt: skip


def measure(compiled: CompiledCase, kernels: list[CaseRecord], callee: Compiled, clock: CudaClock) -> None:
    """Measure the whole program if its result is right, then each kernel alone."""
    compiled.record.measured = measured(compiled, callee, clock)
    if compiled.record.measured.dplc is None:
        return
    made, tensors = compiled.compilation, compiled.tensors(memory_of(callee.device))
    program = made.program
    tensors |= Preparation().now(made.prepared, tensors)
    arrays = {each.name: tensors[each.name].reshape(each.shape) for each in (*program.inputs, *program.constants)}
    session = callee.executor.prepare(program, arrays)
    session.run(arrays)
    time_kernels(kernels, session, clock)
