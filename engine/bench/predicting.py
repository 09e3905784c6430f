"""What is known of a kernel before anything runs."""

from __future__ import annotations

from ...codegen.kernel import CudaKernel
from ...codegen.target import Target
from ...ir.program import Kernel
from ..cost.instruction_counts import buffer_bytes, instruction_counts
from ..cost.predict import occupancy, predict
from .records import KernelRecord


def kernel_record(kernel: Kernel, text: CudaKernel, target: Target, registers: int | None = None) -> KernelRecord:
    """A kernel of Kernel IR as the model sees it. registers: of a thread, where it was assembled."""
    counted = instruction_counts(kernel, registers)
    found, (warps, held) = predict(counted, target), occupancy(counted, target)
    return KernelRecord(
        name=text.name, grid=text.grid, block=text.block, smem=text.smem, hbm_bytes=buffer_bytes(kernel),
        predicted_us=found.seconds * 1e6, predicted_bound=found.binding, waves=found.waves, resident=found.resident,
        dram_bytes=round(counted.dram), busy_us={name: taken * 1e6 for name, taken in found.bounds.items()},
        busiest_us=found.busiest * 1e6, fixed_us=found.fixed * 1e6, occupancy=warps, held_by=held,
    )  # fmt: skip
