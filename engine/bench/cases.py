"""Cases of a suite: cold, timed compiles, figures of their kernels, runs on the emulator, and times on a GPU."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import gc
import importlib.util
import itertools
import keyword
import math
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import torch

from ...codegen.arrays import is_written
from ...codegen.build import HEADERS, assemble, build_host, build_runtime, device_text, host_text
from ...codegen.cache import cached
from ...codegen.compiler import BuildError, find_nvrtc, find_program, program_identity
from ...codegen.emulator.executor import CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.kernel import CudaKernel
from ...codegen.launch import memory_of
from ...codegen.pack.contents import function_of
from ...codegen.sass import disassemble, find_nvdisasm
from ...codegen.target import Target
from ...ir.diagnostic import INTERNAL, Diagnostics, DplcError, UsageError, did_you_mean
from ...ir.interp import torch as meaning
from ...ir.program import Kernel
from ..api import Compiled as Callee
from ..capture.capture import SCOPE, capture, parse
from ..capture.signature import Capture
from ..compiler import Compilation, Compiler, Stopwatch
from ..cost.instruction_counts import buffer_bytes, instruction_counts
from ..cost.limits import least_seconds, program_seconds
from ..cost.memory_model import LANES
from ..cost.predict import occupancy, predict
from ..kernels.sharing import share
from ..rewrite.statements.driver import tell_unheard, unheard_by_all
from ..ruleset import extended
from ..run.calls import Judgement, judge, run_reference
from .records import CaseRecord, KernelRecord, MeasuredRecord, RunRecord, TimingRecord

Say = Callable[[str], None]  # shows the current activity

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


class Limit(NamedTuple):
    """Kernel of Loop IR with its limit. seconds: predicted for all kernels scheduled from it; least: the limit."""

    name: str
    seconds: float
    least: float

    @property
    def times(self) -> float:
        """Predicted time divided by the limit."""
        return self.seconds / self.least


def limits(
    loops: Sequence[Kernel], scheduled: Sequence[Kernel], seconds: Sequence[float], target: Target
) -> list[Limit]:
    """Return the limit of each kernel of Loop IR.

    loops: the launches of a program before scheduling; scheduled: every distinct kernel after it; seconds: the
    predicted time of each of these.
    """
    kernels, later = share(loops).kernels, range(len(scheduled))
    owners: dict[int, int] = {}  # the last one whose results a kernel stores, else the one of its first consumer
    for place in reversed(later):
        outs = {p.name for p in scheduled[place].outs}
        stored = [number for number, kernel in enumerate(kernels) if not outs.isdisjoint(p.name for p in kernel.outs)]
        readers = (other for other in later[place + 1 :] if not outs.isdisjoint(p.name for p in scheduled[other].ins))
        owners[place] = stored[-1] if stored else owners[next(readers)]
    return [
        Limit(kernel.name, sum(seconds[place] for place in later if owners[place] == n), least_seconds(kernel, target))
        for n, kernel in enumerate(kernels)
    ]


@dataclass
class CompiledCase:
    """Case that was compiled. record: the figures so far."""

    subject: BenchSubject | Written
    compilation: Compilation
    record: CaseRecord

    def inputs(self, device: str = "cpu") -> dict[str, Any]:
        """Return {input of the program: values} on a device of torch."""
        values = (tensor.to(device) for tensor in self.subject.inputs().values())
        return dict(zip(self.compilation.captured.inputs, values, strict=True))


def import_everything() -> None:
    """Import all modules that the first call of torch.export imports, so that no compile time includes them."""
    capture(lambda x: torch.relu(x), [torch.empty(8)])
    gc.collect()
    gc.freeze()


def compile_all(
    subjects: Sequence[BenchSubject], compiler: Callable[[], Compiler], say: Say
) -> tuple[list[CaseRecord], list[CompiledCase], tuple[float, float, float]]:
    """Compile every case, one after the other. An error of a case is recorded and does not stop the others.

    Returns the records of all cases, the cases that compiled, and the wall-clock and processor seconds with the
    milliseconds of loading rules.
    """
    import_everything()
    wall, cpu = time.perf_counter(), time.process_time()
    made = compiler()
    loaded = time.perf_counter() - wall
    records, compiled = [], []
    for subject in subjects:
        case = subject.case
        say(f"compiling {case.name}")
        record = CaseRecord(
            name=case.name, operation=case.operation, sizes=case.sizes, dtype=case.dtype, published=case.published
        )
        records.append(record)
        start = time.perf_counter()
        try:
            compilation = subject.compile(made)
        except DplcError as error:
            record.error = error.render()
        else:
            record.compile_ms, record.stages = (time.perf_counter() - start) * 1e3, compilation.timings
            compiled.append(CompiledCase(subject, compilation, record))
    tell_unheard(unheard_by_all([one.compilation.unheard for one in compiled]))
    times = time.perf_counter() - wall, time.process_time() - cpu, loaded * 1e3
    for one in compiled:
        describe(one)
    return records, compiled, times


def with_rules(compiler: Compiler, paths: Sequence[str]) -> Compiler:
    """Return a compiler with more rule files as overrides. Raises DplcError for a file that does not check."""
    return replace(compiler, tools=extended(compiler.tools, paths))


def describe(compiled: CompiledCase, images: Mapping[str, Assembled | DplcError] | None = None) -> None:
    """Fill in the figures of the launch plan and the model.

    images: {kernel text: its assembled form, or why the assembler rejects it, which is an error of the case}.
    """
    compilation, record = compiled.compilation, compiled.record
    program, target, once = compilation.program, compilation.target, []
    for kernel, text in zip(compilation.kernels, compilation.cuda_kernels, strict=True):
        image = images[text.text] if images else None
        if isinstance(image, DplcError):
            record.error, image = image.render(), None
        once.append(kernel_record(kernel, text, target, image))
    record.kernels = kernels = [msgspec.structs.replace(once[index]) for index in compilation.launched]
    record.compulsory_bytes = sum(b.nbytes for b in (*program.inputs, *program.constants, *program.outputs))
    record.hbm_ratio = sum(kernel.hbm_bytes for kernel in kernels) / max(record.compulsory_bytes, 1)
    record.predicted_us = sum(kernel.predicted_us for kernel in kernels)
    loops, seconds = compilation.plan.kernels, [kernel.predicted_us * 1e-6 for kernel in once]
    record.least_us = 1e6 * program_seconds(loops, record.compulsory_bytes, len(kernels), target)
    times = (limit.times for limit in limits(loops, compilation.kernels, seconds, target))
    record.times_limit = max(times, default=None)


# ---- assembled


WORKERS = 2
Build = Callable[[CudaKernel, str], "Assembled"]  # assembles a kernel for an architecture. Raises BuildError


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
            what = f"the assembler did not report on kernel `{kernel.name}`"
            raise BuildError(what, "", "report this defect of dplc", INTERNAL)
        spilled = resources.spill_stores + resources.spill_loads
        found = Assembled(cubin=assembly.cubin, registers=resources.registers, spill_bytes=spilled)
        if find_nvdisasm():
            listing = disassemble(assembly.cubin)[kernel.name]
            found.instructions = sum(op != "NOP" for op in listing.opcodes)
            found.has_loop, found.widths = listing.has_loop, listing.widths()
            found.ffma_share = round(listing.share("FFMA"), 4)
        product.write_bytes(msgspec.msgpack.encode(found))

    text = device_text([kernel])
    headers = [path.read_text() for path in sorted(HEADERS.glob("*.cuh"))]
    tools = (assembler(), find_nvdisasm() or "")
    path = cached("assembled", [text, *headers, *tools, kernel.name, arch], ".msgpack", build)
    return msgspec.msgpack.decode(path.read_bytes(), type=Assembled)


def assemble_all(suite: Sequence[CompiledCase], arch: str, say: Say) -> None:
    """Assemble every distinct kernel, two at a time, and predict again with its registers."""
    kernels = distinct_kernels(suite)
    say(f"assembling {len(kernels)} kernels")
    images = dict(each_assembled(kernels, arch))
    for compiled in suite:
        describe(compiled, images)


def each_assembled(
    kernels: Mapping[str, CudaKernel], arch: str, build: Build = assembled
) -> Iterator[tuple[str, Assembled | DplcError]]:
    """Assemble kernels, two at a time. Yields (text, result), where an error is a result as well."""

    def tried(kernel: CudaKernel) -> Assembled | DplcError:
        try:
            return build(kernel, arch)
        except DplcError as error:
            return error

    with ThreadPoolExecutor(WORKERS) as pool:
        yield from zip(kernels, pool.map(tried, kernels.values()), strict=True)


def distinct_kernels(suite: Iterable[CompiledCase]) -> dict[str, CudaKernel]:
    """Return {text: kernel} of all compiled kernels."""
    return {kernel.text: kernel for compiled in suite for kernel in compiled.compilation.cuda_kernels}


# ---- Runs of a case on the emulator, and times on a GPU.

WHOLE = 2e11  # instructions of threads that are run: half a minute on two cores
BLOCKS = 32  # of a kernel that takes longer
ENDS = ("first", "last")  # blocks whose accesses are counted


def build_all(suite: Sequence[CompiledCase], say: Say) -> None:
    """Build every kernel for both modes of the emulator, two at a time, so that runs find them in the cache."""
    kernels = distinct_kernels(suite)
    say(f"building {len(kernels)} kernels for the emulator")
    build_runtime()

    def build(task: tuple[CudaKernel, bool]) -> None:
        kernel, checked = task
        with contextlib.suppress(BuildError):  # running the kernel will report it
            build_host(host_text([kernel]), checked)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(build, itertools.product(kernels.values(), (False, True))))


def run_case(compiled: CompiledCase) -> None:
    """Run a case on random inputs, compare with float64, and count accesses. The record gets the result."""
    compilation, record = compiled.compilation, compiled.record
    start = time.perf_counter()
    total, blocks, extent = sum(kernel.blocks for kernel in compilation.program.kernels), None, "whole"
    # several kernels depend on each other and so run whole
    if len(compilation.launched) == 1 and work_of(compilation.kernels[0]) > WHOLE and total > BLOCKS:
        blocks = sampled(total)
        extent = f"{len(blocks)} of {total} blocks: whole would take minutes"
    run = record.run = RunRecord(extent=extent)
    try:
        inputs = compiled.inputs()
        callee, checker = Callee(compilation, "emulator"), CheckingExecutor(ENDS, orders=(0,), some=blocks)
        callee.executor = checker
        results = callee.run(inputs)
        for kernel, (efficiency, wavefronts) in zip(record.kernels, ratios(checker), strict=True):
            kernel.sector_efficiency, kernel.wavefront_ratio = efficiency, wavefronts
        found = _judged(compiled, inputs, blocks is not None, results)
        run.relative_error, run.ok = found.relative, found.ok
        if not found.ok:
            run.finding = f"the result is wrong: {found.verdict}"
    except DplcError as problem:
        run.finding = problem.render()
    run.seconds = time.perf_counter() - start


def _judged(compiled: CompiledCase, inputs: Mapping[str, Any], partly: bool, results: list[Any]) -> Judgement:
    """Compare results with float64 and with eager mode, on the device of the inputs.

    partly: whether only elements that a block wrote are compared.
    """
    captured, device = compiled.compilation.captured, [*inputs.values(), *results][0].device
    leaves = torch.utils._pytree.tree_leaves(compiled.subject.function(*inputs.values()))
    eager = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    tensors = {name: inputs.get(name, tensor).to(device) for name, tensor in captured.tensors.items()}
    references = run_reference(captured, tensors)
    if partly:
        stored = [is_written(result) for result in results]
        results, references, eager = (
            [value[where] for value, where in zip(each, stored, strict=True)] for each in (results, references, eager)
        )
    return judge(results, references, eager)


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
        outside = [site for site in launch.sites if site.access.startswith("global")]
        inside = [site for site in launch.sites if not site.access.startswith("global")]
        cost, ideal = sum(site.cost for site in outside), sum(site.ideal for site in inside)
        # lanes that read the same bytes take less than their bytes
        efficiency = round(sum(min(site.ideal, site.cost) for site in outside) / cost, 4) if cost else None
        yield efficiency, round(sum(site.cost for site in inside) / ideal, 4) if ideal else None


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

    def seconds(self, run: Callable[[], Any]) -> float:
        self._other.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
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
        return recorded.replay  # type: ignore[no-any-return]


def can_measure() -> bool:
    """Return whether there are a GPU and PyCUDA."""
    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def timing(run: Callable[[], Any], clock: CudaClock, times: int = 1) -> TimingRecord:
    """Return the median and the quartiles of RUNS runs, after WARM_UP runs. times: what they are multiplied by."""
    replay = clock.graph(run)
    microseconds = [clock.seconds(replay or run) * 1e6 * times for _ in range(WARM_UP + RUNS)]
    low, middle, high = statistics.quantiles(microseconds[WARM_UP:], n=4, method="inclusive")
    how = "CUDA graph" if replay else "one by one"
    return TimingRecord(median_us=middle, low_us=low, high_us=high, runs=RUNS, launched=how)


def measured(compiled: CompiledCase, callee: Callee, clock: CudaClock) -> MeasuredRecord:
    """Check the result, then measure the times, with the inputs on the device of the callee."""
    inputs = compiled.inputs(memory_of(callee.device))
    judged = functools.partial(_judged, compiled, inputs, False)
    return measured_run(lambda: callee.run(inputs), judged, compiled.subject.function, tuple(inputs.values()), clock)


def nothing_measured() -> MeasuredRecord:
    """Return the record of a run on the GPU of this machine, without times yet."""
    return MeasuredRecord(device=device_name(), l2=COLD, float32=torch.get_float32_matmul_precision())


def measured_run(
    run: Callable[[], list[Any]], judged: Callable[[list[Any]], Judgement], function: Callable[..., Any],
    inputs: tuple[Any, ...], clock: CudaClock, wrong: str = "the result is wrong: not timed",
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


def compiled_by_torch(function: Callable[..., Any], inputs: tuple[Any, ...], clock: CudaClock) -> TimingRecord | None:
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


# ---- Suite files: JSON that lists the operations to compile and their sizes.
#
#     {"about": "two shapes of one operation",
#      "operations": {"linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
#      "cases": [{"name": "small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}}]}
#
# An expression is a `-c` text, which may begin with statements, over the inputs by name; torch, nn, F and math are in
# scope. Like the text after `-c` it is Python: run suites that you trust. An input names its dimensions: sizes of the
# case, or numbers. Inputs are drawn from a normal distribution, in the dtype of the case. `fan_in` names weights whose
# values are divided by the root of the number of summed terms, as trained models initialise them: `{"w": "in"}`.


class BenchOperation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Expression over named inputs. Each input is a text with its dimensions in order: `"rows in"`.

    fan_in: {weight: the number of its products that are summed}, a size or a number. Without it the weights of a layer
    have a standard deviation of 1. Its scores are then in the hundreds, and a softmax of them amplifies the last bit of
    each.
    """

    expression: str
    inputs: dict[str, str]
    about: str = ""
    fan_in: dict[str, str] = {}


class BenchCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Operation at sizes. published: figures of others by name, only for the reader.

    emulated: the sizes at which its schedules are checked, for cases whose sizes depend on each other (heads and
    columns). `examples/benches/short_extents.py` reduces the sizes of the others. rules: rule files that are applied as
    overrides for this case; in a suite file, their paths are relative to that file.
    """

    name: str
    operation: str
    sizes: dict[str, int]
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    published: dict[str, float] = {}
    emulated: dict[str, int] = {}
    rules: tuple[str, ...] = ()


class Suite(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Suite. published: the source of the published figures of the cases."""

    operations: dict[str, BenchOperation]
    cases: Annotated[list[BenchCase], msgspec.Meta(min_length=1)]
    about: str = ""
    published: str = ""

    def select(self, pattern: str | None) -> list[BenchCase]:
        """Return the cases whose names contain a text, or match a pattern with `*`. Raises UsageError if none does."""
        if pattern is None:
            return self.cases
        wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
        found = [case for case in self.cases if fnmatch.fnmatchcase(case.name, wanted)]
        if not found:
            hint = did_you_mean(pattern, [case.name for case in self.cases])
            raise UsageError(f"--only {pattern}: no case of the suite has such a name", hint=hint)
        return found


def read_suite(path: Path) -> Suite:
    """Read the suite in a file. Raises UsageError for an unreadable file, DplcError with all errors in it."""
    try:
        suite = msgspec.json.decode(path.read_bytes(), type=Suite)
    except OSError as error:
        raise UsageError(f"cannot read the suite {path}: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise DplcError(f"{path}: {error}", hint="engine/bench/cases.py shows a suite") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DplcError(f"{path} is not JSON: {error}") from None
    if wrong := [DplcError(f"{path}: {what}", hint=hint) for what, hint in _mistakes(suite)]:
        raise wrong[0] if len(wrong) == 1 else Diagnostics(wrong)
    replace = msgspec.structs.replace
    placed = [replace(case, rules=tuple(str(path.parent / rule) for rule in case.rules)) for case in suite.cases]
    return replace(suite, cases=placed)


def _mistakes(suite: Suite) -> Iterator[tuple[str, str | None]]:
    """Yield (error, help) for each error in a suite."""
    for name, operation in suite.operations.items():
        where = f"operation `{name}`"
        if not operation.inputs:
            yield f"{where} has no inputs", "a program without inputs is a constant"
        for given, text in operation.inputs.items():
            if not given.isidentifier() or keyword.iskeyword(given) or given in SCOPE:
                yield f"{where}: an input cannot be named `{given}`", "take a Python name other than torch, nn, F, math"
            for part in text.split():
                if not part.isdigit() and not part.isidentifier():
                    yield f"{where}: `{part}` of input `{given}` is neither a number nor a name of a size", None
        sizes = {part for text in operation.inputs.values() for part in text.split()}
        for weight, terms in operation.fan_in.items():
            if weight not in operation.inputs:
                yield f"{where}: `fan_in` names no input: `{weight}`", did_you_mean(weight, operation.inputs)
            if terms not in sizes or terms == "0":
                yield f"{where}: `{terms}` of `fan_in` is not a dimension of its inputs", did_you_mean(terms, sizes)
    for name, count in Counter(case.name for case in suite.cases).items():
        if count > 1:
            yield f"two cases are named `{name}`", None
    for case in suite.cases:
        where = f"case `{case.name}`"
        if case.operation not in suite.operations:
            yield f"{where}: there is no operation `{case.operation}`", did_you_mean(case.operation, suite.operations)
            continue
        inputs = suite.operations[case.operation].inputs.values()
        needed = {part for text in inputs for part in text.split() if not part.isdigit()}
        if case.emulated and case.emulated.keys() != case.sizes.keys():
            other = ", ".join(sorted(case.emulated.keys() ^ case.sizes.keys()))
            yield f"{where}: `sizes` and `emulated` name other sizes ({other})", "name the same sizes in both"
        for name in sorted(needed - case.sizes.keys()):
            hint = f"add it to its sizes: operation `{case.operation}` needs it"
            yield f"{where} does not say how large `{name}` is", hint
        for name in sorted(case.sizes.keys() - needed):
            yield f"{where}: no input of `{case.operation}` has a dimension `{name}`", did_you_mean(name, needed)
        for name, size in (*case.sizes.items(), *case.emulated.items()):
            if size < 1:
                yield f"{where}: `{name}` is {size}", "sizes are at least 1"


# ---- the program of a case


@dataclass(frozen=True)
class BenchSubject:
    """Case and its computation. shapes: of its inputs, in order. spreads: standard deviations other than 1."""

    case: BenchCase
    expression: str
    function: Callable[..., Any]
    shapes: dict[str, tuple[int, ...]]
    spreads: Mapping[str, float]

    def capture(self) -> Capture:
        """Capture the program on tensors without values. Raises DplcError."""
        try:
            return capture(self.function, [torch.empty(shape, dtype=self.dtype) for shape in self.shapes.values()])
        except DplcError as error:
            error.notes = (f"case `{self.case.name}`: {self.expression}", *error.notes)
            raise

    def compile(self, compiler: Compiler) -> Compilation:
        """Compile the program with the rules of its case. Raises DplcError."""
        watch = Stopwatch()
        with watch.stage("capture"):
            captured = self.capture()
        return with_rules(compiler, self.case.rules).compile(captured, watch)

    def inputs(self) -> dict[str, Any]:
        """Return {input: values}, the same in every run."""
        made = {}
        for name, shape in self.shapes.items():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{self.case.name}.{name}".encode()))
            drawn = torch.randn(shape, generator=generator) * self.spreads.get(name, 1.0)
            made[name] = drawn.to(self.dtype)
        return made

    @property
    def dtype(self) -> Any:
        return getattr(torch, self.case.dtype)


class Written:
    """Captured `-c` text in the form that a benchmark runs, on the values that its factories generated.

    `function` computes it in eager mode, one ATen op after the other, in the dtypes of the program.
    """

    def __init__(self, captured: Capture):
        self.captured = captured
        self._others = {name: tensor for name, tensor in captured.tensors.items() if name not in captured.inputs}
        self._constants: dict[Any, list[Any]] = {}  # by device, so that no run moves any

    def inputs(self) -> dict[str, Any]:
        """Return {input: values}."""
        return {name: self.captured.tensors[name] for name in self.captured.inputs}

    def function(self, *tensors: Any) -> Any:
        """Return the results of eager mode."""
        device = tensors[0].device if tensors else torch.device("cpu")
        if device not in self._constants:
            self._constants[device] = [tensor.to(device) for tensor in self._others.values()]
        with device:
            return tuple(self._module(*tensors, *self._constants[device]))

    @functools.cached_property
    def _module(self) -> Any:
        """Program as one torch.fx module, which torch.compile compiles as a whole."""
        graph = torch.fx.Graph()
        tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        names = (*self.captured.inputs, *self._others)
        values = {name: torch.fx.Proxy(graph.placeholder(name), tracer) for name in names}
        results = meaning.evaluated(self.captured.graph, values, wide=False)
        graph.output(tuple(result.node for result in results))
        return torch.fx.GraphModule(torch.nn.Module(), graph)


def subject_of(suite: Suite, case: BenchCase) -> BenchSubject:
    """Return the program of a case. Raises DplcError for a text that is not an expression."""
    operation = suite.operations[case.operation]
    expression, inputs = operation.expression, operation.inputs
    parse(expression)

    def extent(part: str) -> int:
        return int(part) if part.isdigit() else case.sizes[part]

    shapes = {name: tuple(map(extent, text.split())) for name, text in inputs.items()}
    spreads = {name: 1.0 / math.sqrt(extent(terms)) for name, terms in operation.fan_in.items()}
    return BenchSubject(case, expression, function_of(expression, tuple(inputs)), shapes, spreads)
