"""Cold, timed compiles of a whole suite, and the figures of its kernels that need no run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from ...codegen.build import HEADERS, assemble, device_text
from ...codegen.cache import cached
from ...codegen.compiler import BuildError, find_nvrtc, find_program, program_identity
from ...codegen.kernel import CudaKernel
from ...codegen.sass import disassemble, find_nvdisasm
from ...codegen.target import Target
from ...ir.diagnostic import INTERNAL, DplcError
from ...ir.program import Kernel
from ..capture.capture import capture
from ..compiler import Compilation, Compiler
from ..cost.instruction_counts import buffer_bytes, instruction_counts
from ..cost.limits import least_seconds, program_seconds
from ..cost.predict import occupancy, predict
from ..kernels.sharing import share
from ..rewrite.statements.driver import tell_unheard, unheard_by_all
from ..ruleset import extended
from .records import CaseRecord, KernelRecord
from .suites import BenchSubject, Written

# ---- predicted


def kernel_record(kernel: Kernel, text: CudaKernel, target: Target, registers: int | None = None) -> KernelRecord:
    """Return the model's figures for a kernel of Kernel IR. registers: of a thread, if it was assembled."""
    counted = instruction_counts(kernel, registers)
    found, (warps, held) = predict(counted, target), occupancy(counted, target)
    return KernelRecord(
        name=text.name, grid=text.grid, block=text.block, smem=text.smem, hbm_bytes=buffer_bytes(kernel),
        predicted_us=found.seconds * 1e6, predicted_bound=found.binding, waves=found.waves, resident=found.resident,
        dram_bytes=round(counted.dram), busy_us={name: taken * 1e6 for name, taken in found.bounds.items()},
        busiest_us=found.busiest * 1e6, fixed_us=found.fixed * 1e6, occupancy=warps, held_by=held,
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
    sharing = share(loops)
    kernels = sharing.kernels
    owners = [_owner(kernels, scheduled, place) for place in range(len(scheduled))]
    least = [least_seconds(kernel, target) for kernel in kernels]
    took = [sum(taken for owner, taken in zip(owners, seconds, strict=True) if owner == n) for n in range(len(kernels))]
    return [Limit(k.name, took[n], least[n]) for n, k in enumerate(kernels)]


def _owner(kernels: Sequence[Kernel], scheduled: Sequence[Kernel], place: int) -> int:
    """Return the index of the kernel of Loop IR to which a scheduled kernel belongs.

    It is the last one whose results the scheduled kernel stores, else the one of its consumer.
    """
    outs = {p.name for p in scheduled[place].outs}
    stored = [number for number, kernel in enumerate(kernels) if not outs.isdisjoint(p.name for p in kernel.outs)]
    if stored:
        return stored[-1]
    later = range(place + 1, len(scheduled))
    reader = next(other for other in later if not outs.isdisjoint(p.name for p in scheduled[other].ins))
    return _owner(kernels, scheduled, reader)


@dataclass
class CompiledCase:
    """Case in progress. compilation: None if it failed, with the error in the record; record: the figures so far."""

    subject: BenchSubject | Written
    compilation: Compilation | None
    record: CaseRecord


@dataclass(frozen=True)
class CompileTimes:
    """Times of compiling a suite: wall-clock and processor seconds, and milliseconds of loading and compiling rules."""

    wall: float
    cpu: float
    rules_ms: float


def import_everything() -> None:
    """Import all modules that the first call of torch.export imports, so that no compile time includes them."""
    capture(lambda x: torch.relu(x), [torch.empty(8)])
    gc.collect()
    gc.freeze()


def compile_all(
    subjects: Sequence[BenchSubject], compiler: Callable[[], Compiler], say: Callable[[str], None]
) -> tuple[list[CompiledCase], CompileTimes]:
    """Compile every case, one after the other. An error of a case is recorded and does not stop the others."""
    import_everything()
    wall, cpu = time.perf_counter(), time.process_time()
    made = compiler()
    loaded = time.perf_counter() - wall
    compiled = []
    for subject in subjects:
        say(f"compiling {subject.case.name}")
        compiled.append(_compile(subject, made))
    tell_unheard(unheard_by_all([one.compilation.unheard for one in compiled if one.compilation is not None]))
    times = CompileTimes(time.perf_counter() - wall, time.process_time() - cpu, loaded * 1e3)
    for one in compiled:
        describe(one)
    return compiled, times


def _compile(subject: BenchSubject, compiler: Compiler) -> CompiledCase:
    case = subject.case
    record = CaseRecord(
        name=case.name, operation=case.operation, sizes=case.sizes, dtype=case.dtype, published=case.published
    )
    start = time.perf_counter()
    try:
        captured = subject.capture()
        capture_ms = (time.perf_counter() - start) * 1e3
        compilation = with_rules(compiler, case.rules).compile(captured, capture_ms)
    except DplcError as error:
        record.error = error.render()
        return CompiledCase(subject, None, record)
    record.compile_ms = (time.perf_counter() - start) * 1e3
    record.stages = compilation.timings
    return CompiledCase(subject, compilation, record)


def with_rules(compiler: Compiler, paths: Sequence[str]) -> Compiler:
    """Return a compiler with more rule files as overrides. Raises DplcError for a file that does not check."""
    return replace(compiler, tools=extended(compiler.tools, paths)) if paths else compiler


def describe(compiled: CompiledCase, registers: dict[str, int] | None = None) -> None:
    """Fill in the figures of the launch plan and the model.

    registers: {kernel text: registers of a thread}, if known.
    """
    compilation, record = compiled.compilation, compiled.record
    if compilation is None:
        return
    program, target = compilation.program, compilation.target
    once = [
        kernel_record(kernel, text, target, (registers or {}).get(text.text))
        for kernel, text in zip(compilation.kernels, compilation.cuda_kernels, strict=True)
    ]
    kernels = [msgspec.structs.replace(once[index]) for index in compilation.launched]
    record.kernels = kernels
    record.compulsory_bytes = sum(b.nbytes for b in (*program.inputs, *program.constants, *program.outputs))
    record.hbm_ratio = sum(kernel.hbm_bytes for kernel in kernels) / max(record.compulsory_bytes, 1)
    record.predicted_us = sum(kernel.predicted_us for kernel in kernels)
    seconds = [kernel.predicted_us * 1e-6 for kernel in once]
    found = limits(compilation.plan.kernels, compilation.kernels, seconds, target)
    record.least_us = 1e6 * program_seconds(compilation.plan.kernels, record.compulsory_bytes, len(kernels), target)
    record.times_limit = max((limit.times for limit in found), default=None)


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


def assemble_all(suite: Sequence[CompiledCase], arch: str, say: Callable[[str], None]) -> None:
    """Assemble every distinct kernel, two at a time, and predict again with its registers.

    A kernel that the assembler rejects is an error of its cases.
    """
    kernels = distinct_kernels(suite)
    say(f"assembling {len(kernels)} kernels")
    found = dict(each_assembled(kernels, arch))
    registers = {text: one.registers for text, one in found.items() if isinstance(one, Assembled)}
    for compiled in suite:
        if compiled.compilation is not None:
            describe(compiled, registers)
            for kernel, record in zip(compiled.compilation.program.kernels, compiled.record.kernels, strict=True):
                one = found[kernel.text]
                if isinstance(one, Assembled):
                    note_assembled(record, one)
                else:
                    compiled.record.error = one.render()


def each_assembled(
    kernels: Mapping[str, CudaKernel], arch: str, build: Build | None = None
) -> Iterator[tuple[str, Assembled | DplcError]]:
    """Assemble kernels, two at a time. Yields (text, result), where an error is a result as well."""

    def tried(kernel: CudaKernel) -> Assembled | DplcError:
        try:
            return (build or assembled)(kernel, arch)
        except DplcError as error:
            return error

    with ThreadPoolExecutor(WORKERS) as pool:
        yield from zip(kernels, pool.map(tried, kernels.values()), strict=True)


def distinct_kernels(suite: Iterable[CompiledCase]) -> dict[str, CudaKernel]:
    """Return {text: kernel} of all compiled kernels."""
    compilations = (compiled.compilation for compiled in suite if compiled.compilation is not None)
    return {kernel.text: kernel for compilation in compilations for kernel in compilation.cuda_kernels}


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


def note_assembled(record: KernelRecord, found: Assembled) -> None:
    """Fill in the figures of an assembled kernel."""
    for name in found.__struct_fields__[1:]:
        setattr(record, name, getattr(found, name))
