"""What tools say of a candidate's real kernels where no GPU measures it: the assembler, the disassembler, the emulator.

It is remembered beside a schedule. Every figure says where it comes from: `registers_by` names the assembler,
`counters_by` the emulator, and what was not there is left out.
"""

from __future__ import annotations

from typing import Any

from ...codegen.arrays import as_numpy
from ...codegen.emulator.runtime import DeviceBuffer
from ...codegen.kernel import CudaKernel
from ..bench.assembling import Assembled, assembled, assembler
from ..bench.emulating import check_ends
from ..compiler import buffer
from ..schedule.space import ScheduleCandidate
from .measure import launches
from .subject import draw, inputs_of

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
    loops = candidate.start.kernels
    program = launches(loops, candidate.kernels, candidate.cuda)
    texts = {text.name: text for text in candidate.cuda}
    buffers = {b.name: DeviceBuffer(b) for b in program.buffers()}
    for param in inputs_of(loops):
        buffers[param.name].array[...] = as_numpy(buffer(param), draw(param))
    outside, inside = [], []
    for launch in program.launches():
        kernel = texts[launch.kernel.name]
        one, other = _counted(kernel, {p.name: buffers[b] for p, b in zip(kernel.params, launch.buffers, strict=True)})
        outside.append(one)
        inside.append(other)
    said = "emulator, first and last block of each kernel"
    return {"sector_efficiency": outside, "wavefront_ratio": inside, "counters_by": said}


def _counted(kernel: CudaKernel, bound: dict[str, DeviceBuffer]) -> tuple[float | None, float | None]:
    sites = check_ends(kernel, bound)
    far = [site for site in sites if site.access.startswith("global")]
    near = [site for site in sites if not site.access.startswith("global")]
    cost, ideal = sum(site.cost for site in far), sum(site.ideal for site in near)
    efficiency = round(sum(min(site.ideal, site.cost) for site in far) / cost, 4) if cost else None
    return efficiency, round(sum(site.cost for site in near) / ideal, 4) if ideal else None
