"""The kernels of an artefact: printed anew from its Kernel IR, and compared with the CUDA that it holds.

To run an artefact on the emulator is to compile its CUDA and run it on the host. So only a text is taken that dplc
prints itself, from a program that was parsed and verified; any other is refused, unless its user trusts it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ...codegen.cuda import print_cuda, safe_kernel_name
from ...codegen.kernel import CudaKernel
from ...ir.diagnostic import DplcError, InternalError
from ...ir.expr import only_sizes
from ...ir.program import Kernel
from ...ir.text.programs import read_program
from ...ir.verify.kernel import problems
from ...ir.verify.sorts import sort_problems
from ...version import __version__
from .manifest import read_file
from .plan_file import KernelFile, PlanFile, kernel_record

KERNEL_IR = "ir/kernel.ir"
TRUST = "--trust-edited-cuda"


def read_text(path: Path) -> str:
    """The text of a file of an artefact. Raises DplcError."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise DplcError(f"the artefact is damaged: {path} is no UTF-8: {error.reason} at byte {error.start}") from None


def kernels_of(folder: Path, plan: PlanFile, trust: bool = False) -> tuple[dict[str, Kernel], dict[str, CudaKernel]]:
    """{name: its Kernel IR} and {name: kernel} of all kernels in a plan. trust: take CUDA that dplc did not print.

    Raises DplcError where plan, Kernel IR and CUDA do not agree.
    """
    path = folder / KERNEL_IR
    units = read_kernels(path)
    made: dict[str, CudaKernel] = {}
    for record in plan.kernels:
        if record.name in made or record.name not in units:
            what = "is there twice" if record.name in made else f"is not in {KERNEL_IR}"
            raise DplcError(f"the artefact is damaged: {folder / 'plan.json'}: kernel `{record.name}` {what}")
        printed = _printed(units[record.name], record, path)
        _compare(record, kernel_record(printed), folder / "plan.json")
        text = read_text(folder / "cuda" / f"{record.name}.cu")
        if text != printed.text and not trust:
            raise DplcError(
                f"{folder / 'cuda' / record.name}.cu is not what this dplc ({__version__}) prints of {KERNEL_IR}",
                notes=("it would be compiled and run on this machine",),
                hint=f"compile the model again, or say {TRUST} if you edited it yourself and trust all of it",
            )
        made[record.name] = replace(printed, text=text)
    return {name: units[name] for name in made}, made


def read_kernels(path: Path) -> dict[str, Kernel]:
    """{name of the kernel in CUDA: its Kernel IR}, verified. Raises DplcError for anything else."""
    try:
        _, units = read_program(read_text(path), str(path), None)
        found: dict[str, Kernel] = {}
        for unit in units:
            if not isinstance(unit, Kernel):
                raise DplcError(f"the artefact is damaged: {path} holds what is no kernel")
            wrong = _loose(unit) or sort_problems(unit) or problems(unit)
            if wrong:
                raise DplcError(f"the artefact is damaged: {path}: kernel `{unit.name}`: {wrong[0]}")
            found[safe_kernel_name(unit.name)] = unit
    except RecursionError:
        raise DplcError(f"the artefact is damaged: {path} nests too deep") from None
    return found


def _loose(kernel: Kernel) -> list[str]:
    """What is wrong with the extents of a kernel's arrays: each is a number wherever the kernel is launched."""
    loose = [p.name for p in (*kernel.ins, *kernel.outs) if not all(map(only_sizes, p.shape))]
    return [f"`{name}` has an extent that is no number, nor made of sizes" for name in loose]


def _printed(kernel: Kernel, record: KernelFile, path: Path) -> CudaKernel:
    """The kernel as dplc prints it; the record's comment names the rules that shaped it, which no IR does."""
    try:
        return print_cuda(kernel, _rules(record.comment))
    except (InternalError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        what = getattr(error, "what", "") or str(error) or type(error).__name__
        raise DplcError(f"the artefact is damaged: {path}: kernel `{kernel.name}`: {what}") from None


def _rules(comment: str) -> tuple[str, ...]:
    """The rules that a comment names. What is no name of a rule is left out, and the text will differ."""
    lines = [line for line in comment.splitlines() if not line.startswith("grid ")]
    return tuple(re.findall(r"[A-Za-z_][A-Za-z0-9_]*(?=\s|$)", " ".join(lines).removeprefix("rules: ")))


def _compare(record: KernelFile, printed: KernelFile, path: Path) -> None:
    """Raises DplcError where a plan says another thing of a kernel than its Kernel IR."""
    for field in record.__struct_fields__:
        if getattr(record, field) != getattr(printed, field):
            what = f"`{field}` of kernel `{record.name}` is not as {KERNEL_IR} says"
            raise DplcError(f"the artefact is damaged: {path}: {what}")
