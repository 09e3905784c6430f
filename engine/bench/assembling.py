"""What the assembler makes of the kernels of a suite: registers, spills, the hot loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ...codegen.build import HEADERS, BuildError, assemble, device_text
from ...codegen.cache import cached
from ...codegen.compiler import find_program, program_identity
from ...codegen.kernel import CudaKernel
from ...codegen.nvrtc import find_nvrtc
from ...codegen.sass import disassemble, find_nvdisasm
from ...codegen.target import Target
from ...ir.diagnostic import INTERNAL
from .compiling import CompiledCase, describe
from .records import KernelRecord

WORKERS = 2


class HotLoop(msgspec.Struct):
    """What the disassembler shows of a kernel: all instructions, the share of FFMA in its hot loop, access widths."""

    instructions: int
    has_loop: bool
    ffma_share: float
    widths: tuple[str, ...]


class Assembled(msgspec.Struct):
    """One kernel. loop is None without nvdisasm."""

    registers: int
    spill_bytes: int
    loop: HotLoop | None


def assembler() -> str:
    """The compiler that will be used, with its version; "" for none."""
    nvrtc, nvcc = find_nvrtc(), find_program("nvcc")
    if nvrtc is not None:
        return " ".join(nvrtc.identity.split()[:2])
    return program_identity(nvcc).splitlines()[-1] if nvcc else ""


def assemble_all(suite: Sequence[CompiledCase], target: Target, say: Callable[[str], None]) -> None:
    """Assemble every distinct kernel, two at a time, and predict again with its registers.

    A kernel that the assembler refuses is an error of its cases.
    """
    kernels = distinct_kernels(suite)
    say(f"assembling {len(kernels)} kernels")
    with ThreadPoolExecutor(WORKERS) as pool:
        found = dict(zip(kernels, pool.map(lambda kernel: tried(kernel, target.arch), kernels.values()), strict=True))
    registers = {text: one.registers for text, one in found.items() if isinstance(one, Assembled)}
    for compiled in suite:
        if compiled.compilation is not None:
            describe(compiled, target, registers)
            for kernel, record in zip(compiled.compilation.program.kernels, compiled.record.kernels, strict=True):
                one = found[kernel.text]
                if isinstance(one, BuildError):
                    compiled.record.error = one.render()
                else:
                    note_assembled(record, one)


def tried(kernel: CudaKernel, arch: str) -> Assembled | BuildError:
    """What the assembler makes of a kernel, or what it says."""
    try:
        return assembled(kernel, arch)
    except BuildError as error:
        return error


def distinct_kernels(suite: Iterable[CompiledCase]) -> dict[str, CudaKernel]:
    """{text: kernel} of everything that was compiled."""
    compilations = (compiled.compilation for compiled in suite if compiled.compilation is not None)
    return {kernel.text: kernel for compilation in compilations for kernel in compilation.cuda_kernels}


def assembled(kernel: CudaKernel, arch: str) -> Assembled:
    """A kernel, assembled; what the same assembler said of the same text before is remembered. Raises BuildError."""

    def build(product: Path) -> None:
        product.write_bytes(msgspec.json.encode(_assemble(kernel, arch)))

    text = device_text([kernel])
    headers = [path.read_text() for path in sorted(HEADERS.glob("*.cuh"))]
    tools = (assembler(), find_nvdisasm() or "")
    path = cached("assembly", [text, *headers, *tools, kernel.name, arch], ".json", build)
    return msgspec.json.decode(path.read_bytes(), type=Assembled)


def _assemble(kernel: CudaKernel, arch: str) -> Assembled:
    assembly = assemble(device_text([kernel]), arch)
    resources = assembly.kernels.get(kernel.name)
    if resources is None:
        raise BuildError(
            f"the assembler did not report on kernel `{kernel.name}`", "", "report this defect of dplc", INTERNAL
        )
    loop = None
    if find_nvdisasm():
        listing = disassemble(assembly.cubin)[kernel.name]
        count = sum(op != "NOP" for op in listing.opcodes)
        loop = HotLoop(count, listing.has_loop, round(listing.share("FFMA"), 4), listing.widths())
    return Assembled(resources.registers, resources.spill_stores + resources.spill_loads, loop)


def note_assembled(record: KernelRecord, found: Assembled) -> None:
    """Fill in what the assembler says of a kernel."""
    record.registers, record.spill_bytes = found.registers, found.spill_bytes
    if found.loop is not None:
        record.instructions, record.has_loop = found.loop.instructions, found.loop.has_loop
        record.ffma_share, record.widths = found.loop.ffma_share, found.loop.widths
