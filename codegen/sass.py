"""Assembled code of a kernel: its instructions, its hot loop, the share of FFMA in it. For tests and benches.

Needs nvdisasm: `pip install nvidia-cuda-nvdisasm`, or the CUDA toolkit.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .compiler import find_program, run_compiler

_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*?);")
_MATH = ("FFMA", "HMMA", "HGMMA", "FADD", "FMUL", "MUFU")
MEMORY = ("LDG", "LDGSTS", "LDS", "STS", "STG")


@dataclass(frozen=True)
class Listing:
    """Opcodes of one kernel in order, and of its hot loop (all of it without a loop)."""

    opcodes: tuple[str, ...]
    hot: tuple[str, ...]
    has_loop: bool

    def share(self, opcode: str) -> float:
        """Return the part of the hot loop that an opcode takes."""
        return sum(op.split(".")[0] == opcode for op in self.hot) / len(self.hot)

    def widths(self) -> tuple[str, ...]:
        """Return the memory instructions with their widths in bits: `LDG.128`, `STS.32`."""
        found = set()
        for op in self.opcodes:
            name, *rest = op.split(".")
            if name in MEMORY:
                found.add(f"{name}.{next((width for width in ('128', '64', 'U8', 'U16') if width in rest), '32')}")
        return tuple(sorted(found))


@cache
def find_nvdisasm() -> str | None:
    """Return the disassembler: from PyPI's wheel, else on PATH."""
    wheel = [path for folder in sys.path for path in sorted(Path(folder).glob("nvidia/*/bin/nvdisasm"))]
    return str(wheel[0]) if wheel else find_program("nvdisasm")


def disassemble(cubin: bytes) -> dict[str, Listing]:
    """Return the kernels of a cubin by name. Raises CompilerFailure where nvdisasm is absent or fails."""
    with tempfile.TemporaryDirectory(prefix="dplc-sass-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        printed = run_compiler([find_nvdisasm() or "nvdisasm", "-c", str(path)])
    sections = re.split(r"\.section\s+\.text\.", printed)[1:]
    return {section.split(",")[0].strip('"'): _listing(section) for section in sections}


def _listing(section: str) -> Listing:
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    end = 0  # of what lies before the last exit: code out of line jumps back from after it
    for line in section.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line):
            guard, opcode, operands = instruction.groups()
            opcodes.append(opcode)
            end = len(opcodes) if opcode == "EXIT" and guard is None else end
            target = re.search(r"\.L_x_\d+", operands)
            start = labels.get(target[0], len(opcodes)) if target and opcode.startswith("BRA") else len(opcodes)
            # the branch to itself at the end of a kernel is not a loop
            if start < len(opcodes) - 1 and not start < end < len(opcodes):
                loops.append((start, len(opcodes)))
    work = {loop: sum(op.split(".")[0] in _MATH for op in opcodes[slice(*loop)]) for loop in loops}
    hottest = max((loop for loop in loops if work[loop]), key=lambda loop: work[loop], default=None)
    hot = [op for op in (opcodes[slice(*hottest)] if hottest else opcodes) if op != "NOP"]
    return Listing(tuple(opcodes), tuple(hot), hottest is not None)
