"""What a bench finds, as data: the schema of its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec


class KernelRecord(msgspec.Struct, kw_only=True):
    """One launch. None: not looked at, or the tool for it is not there.

    hbm_bytes: its buffers, each once; dram_bytes: what it takes of them. busy_us: {resource: microseconds that it alone
    would take}; busiest_us: those of the busiest resource of each wave of blocks, summed; fixed_us: the launch, and the
    latency of the first loads and the last stores. predicted_us is fixed_us + busiest_us + 0.02 of (the sum of busy_us
    - busiest_us): what the other resources do is not hidden wholly. occupancy: warps that a multiprocessor holds over
    those it could, and what holds that down (held_by): counted in Kernel IR, for the model. registers, spill_bytes,
    instructions, ffma_share (of the hot loop; has_loop says whether there is one), widths: of the assembled kernel.
    sector_efficiency: least sectors over sectors of global accesses, wavefront_ratio: wavefronts of shared memory over
    the least; counted by the emulator in the first and the last block. predicted_us by the analytic model: never
    measured. waves, resident: of blocks, as the model sees them.
    """

    name: str
    grid: tuple[int, int, int]
    block: int
    smem: int
    hbm_bytes: int
    predicted_us: float
    predicted_bound: str
    waves: int
    resident: int
    dram_bytes: int
    busy_us: dict[str, float]
    busiest_us: float | None = None
    fixed_us: float | None = None
    occupancy: float
    held_by: str
    registers: int | None = None
    spill_bytes: int | None = None
    instructions: int | None = None
    has_loop: bool | None = None
    ffma_share: float | None = None
    widths: tuple[str, ...] | None = None
    sector_efficiency: float | None = None
    wavefront_ratio: float | None = None


class RunRecord(msgspec.Struct, kw_only=True):
    """A run on the emulator. extent: whole, or which blocks. relative_error: against float64, over the largest value.

    checked: what was run in checked mode. finding: what went wrong.
    """

    ok: bool
    extent: str
    seconds: float
    relative_error: float | None = None
    checked: str = ""
    finding: str = ""


class TimingRecord(msgspec.Struct, kw_only=True):
    """Measured on a GPU: microseconds, median and quartiles of so many runs. launched: by a CUDA graph, or directly."""

    median_us: float
    low_us: float
    high_us: float
    runs: int
    launched: str


class MeasuredRecord(msgspec.Struct, kw_only=True):
    """A case on a GPU. Times are there only where the result was right. wrong: why there are none.

    l2: its state before every run. float32: torch's precision of matmuls, for eager and torch.compile.
    """

    device: str
    l2: str
    float32: str
    relative_error: float | None = None
    dplc: TimingRecord | None = None
    eager: TimingRecord | None = None
    torch_compile: TimingRecord | None = None
    wrong: str = ""


class CaseRecord(msgspec.Struct, kw_only=True):
    """One case. stages: milliseconds of each stage of its compile. error: why it could not be compiled.

    times_limit: of the kernel that is furthest from it, what is predicted over what no schedule goes below.
    least_us: what its launches take at least, with arguments and results moved, and every operation done, once.
    """

    name: str
    operation: str
    sizes: dict[str, int]
    dtype: str
    compile_ms: float = 0.0
    stages: dict[str, float] = {}
    kernels: list[KernelRecord] = []
    compulsory_bytes: int = 0
    hbm_ratio: float | None = None
    predicted_us: float | None = None
    times_limit: float | None = None
    least_us: float | None = None
    run: RunRecord | None = None
    measured: MeasuredRecord | None = None
    published: dict[str, float] = {}
    error: str = ""

    @property
    def wrong(self) -> bool:
        """Whether it did not compile, or gave a wrong result on the emulator or on a GPU."""
        ran = self.run is None or self.run.ok
        return bool(self.error) or not ran or (self.measured is not None and bool(self.measured.wrong))

    @property
    def registers(self) -> int | None:
        return max((k.registers for k in self.kernels if k.registers is not None), default=None)

    @property
    def spills(self) -> int | None:
        found = [k.spill_bytes for k in self.kernels if k.spill_bytes is not None]
        return sum(found) if found else None

    @property
    def smem(self) -> int:
        return max((k.smem for k in self.kernels), default=0)

    @property
    def main(self) -> KernelRecord | None:
        """The kernel that takes longest, predicted."""
        return max(self.kernels, key=lambda k: k.predicted_us, default=None)

    @property
    def sector_efficiency(self) -> float | None:
        return min((k.sector_efficiency for k in self.kernels if k.sector_efficiency is not None), default=None)

    @property
    def wavefront_ratio(self) -> float | None:
        return max((k.wavefront_ratio for k in self.kernels if k.wavefront_ratio is not None), default=None)


class Totals(msgspec.Struct, kw_only=True):
    """Over all cases. compile_*: loading the rules and every compile, capture included, cold, imports excluded."""

    cases: int
    failed: int
    kernels: int
    compile_seconds: float
    compile_cpu_seconds: float
    rules_ms: float
    spill_bytes: int | None
    wrong: int | None
    predicted_geomean_us: float | None


class BenchRecord(msgspec.Struct, kw_only=True):
    """A bench. target: the device that was compiled for and predicted; dram_bytes_per_second: of that."""

    suite: str
    about: str
    command: str
    date: str
    machine: str
    target: str
    arch: str
    dram_bytes_per_second: float
    versions: dict[str, str]
    totals: Totals
    published: str
    cases: list[CaseRecord]


def geomean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None
