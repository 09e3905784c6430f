"""The registers that kernels of a page really take: measured by the assembler, where one is here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...codegen.build import BuildError
from ..bench.assembling import assembled, assembler
from ..compiler import Compilation


def measured_registers(compilation: Compilation) -> Iterator[dict[str, Any] | None]:
    """Of each kernel of a compile, in order: the registers of a thread, the bytes it spills, and which assembler says
    so. None of a kernel that it refuses; nothing at all without an assembler."""
    by = assembler()
    for kernel in compilation.cuda_kernels if by else ():
        try:
            found = assembled(kernel, compilation.target.arch)
        except BuildError:
            yield None
        else:
            yield {"registers": found.registers, "spill_bytes": found.spill_bytes, "by": by}
