"""What tools say of a candidate's real kernels where no GPU measures it: the assembler, the disassembler, the emulator.

It is remembered beside a schedule. Every figure says where it comes from: `registers_by` names the assembler,
`counters_by` the emulator, and what was not there is left out.
"""

from __future__ import annotations

from typing import Any

from ...ir.program import supplied
from ..bench.cases import Assembled, assembled, assembler
from ..bench.running import bound_to, buffers_of, check_ends, ratios
from ..schedule.space import ScheduleCandidate
from .measure import launches
from .subject import draw

Details = dict[str, Any]


def evidence(candidate: ScheduleCandidate, emulate: bool = True) -> Details:
    """What is known of a candidate besides its score. emulate: count accesses, which builds and runs two blocks of each
    kernel. Raises DplcError where a kernel is refused by a tool."""
    details: Details = {}
    if assembler():
        details |= of_assembler([assembled(text, candidate.target.arch) for text in candidate.cuda])
    if emulate:
        details |= of_emulator(candidate)
    return details


def of_assembler(found: list[Assembled]) -> Details:
    """Registers, spills, and of the hot loops the share of FFMA, where the disassembler is there."""
    details: Details = {
        "registers": [one.registers for one in found], "spills": [one.spill_bytes for one in found],
        "registers_by": assembler(),
    }  # fmt: skip
    loops = [one.loop for one in found]
    if all(loop is not None for loop in loops):
        details["ffma_share"] = [loop.ffma_share for loop in loops if loop is not None]
        details["instructions"] = [loop.instructions for loop in loops if loop is not None]
    return details


def of_emulator(candidate: ScheduleCandidate) -> Details:
    """Of each kernel: least sectors over sectors of global memory, wavefronts of shared memory over the least."""
    loops, kernels, cuda = candidate.as_a_rule
    program = launches(loops, kernels, cuda)
    texts = {text.name: text for text in cuda}
    buffers = buffers_of(program, {param.name: draw(param) for param in supplied(loops)})
    found = [ratios(check_ends(texts[x.kernel.name], bound_to(x, buffers))) for x in program.launches()]
    outside, inside = map(list, zip(*found, strict=True))
    said = "emulator, first and last block of each kernel"
    return {"sector_efficiency": outside, "wavefront_ratio": inside, "counters_by": said}
