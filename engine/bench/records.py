"""Records of a benchmark: the schema of its JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...ir.diagnostic import DplcError, UsageError


class KernelRecord(msgspec.Struct, kw_only=True):
    """One launch. A figure is None if it was not determined, or if its tool is missing.

    hbm_bytes: sizes of its buffers, each once; dram_bytes: the part of them that it transfers. busy_us: {resource:
    microseconds that it alone would need}; busiest_us: those of the busiest resource of each wave of blocks, summed;
    fixed_us: the launch, and the latency of the first loads and the last stores. predicted_us, by the analytic model
    and never measured, is fixed_us + busiest_us + 0.02 of (the sum of busy_us - busiest_us), because the work of the
    other resources is not fully hidden. occupancy: resident warps of a multiprocessor divided by its maximum, and the
    limiting resource (held_by), both counted in Kernel IR for the model. registers, spill_bytes, instructions,
    ffma_share (of the hot loop; has_loop: whether there is one), widths: of the assembled kernel. sector_efficiency:
    least sectors divided by sectors of global accesses; wavefront_ratio: wavefronts of shared memory divided by the
    least; the emulator counts both in the first and the last block. waves, resident: of blocks, by the model.
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
    busiest_us: float
    fixed_us: float
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
    """Run on the emulator. extent: whole, or which blocks. relative_error: against float64, over the largest value.

    checked: the part that ran in checked mode. finding: the error, "" for none.
    """

    ok: bool = False
    extent: str
    seconds: float = 0.0
    relative_error: float | None = None
    checked: str = "first and last block"
    finding: str = ""


class TimingRecord(msgspec.Struct, kw_only=True):
    """Microseconds measured on a GPU: median and quartiles of the runs. launched: by a CUDA graph, or directly."""

    median_us: float
    low_us: float
    high_us: float
    runs: int
    launched: str


class MeasuredRecord(msgspec.Struct, kw_only=True):
    """Case on a GPU. It has times only if the result was right. wrong: why it has none.

    l2: state of the L2 cache before every run. float32: torch's precision of matmuls, for eager and torch.compile.
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

    times_limit: predicted time divided by the limit, of the kernel that is furthest from its limit. least_us: lower
    bound of the time of its launches, with arguments and results transferred and every operation done once.
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
    def problem(self) -> str:
        """Return why the case did not compile, or was wrong on the emulator or on a GPU; "" for a right one."""
        return self.error or (self.run.finding if self.run else "") or (self.measured.wrong if self.measured else "")

    @property
    def main(self) -> KernelRecord | None:
        """Kernel with the longest predicted time."""
        return max(self.kernels, key=lambda k: k.predicted_us, default=None)


class Totals(msgspec.Struct, kw_only=True):
    """Totals of all cases. compile_*: loading the rules and every compile, capture included, cold, imports excluded."""

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
    """Benchmark. target: the device of compiles and predictions; dram_bytes_per_second: of that device."""

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


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the values that are known, None without any."""
    known = [value for value in values if value is not None]
    return statistics.geometric_mean(known) if known else None


# ---- the results of a pack


FORMAT = "dplc results 1"
T = TypeVar("T")


class PackTiming(TimingRecord, kw_only=True):
    """Microseconds of a run.

    within: half of the 95% interval of the median, divided by the median; warm_us: with L2 as the preceding run left
    it.
    """

    warm_us: float
    within: float
    compile_seconds: float | None = None


class PackedResult(msgspec.Struct, kw_only=True):
    """Case of a pack on a GPU. status: ok, wrong, failed or timeout. launches: features of the model, of each."""

    suite: str
    name: str
    same: str
    candidate: int | None
    predicted_us: float
    launches: list[dict[str, Any]]
    status: str = ""
    detail: str = ""
    error: float | None = None
    dplc: PackTiming | None = None
    eager: PackTiming | None = None
    torch_compile: PackTiming | None = None


class PackResults(msgspec.Struct, kw_only=True):
    """Results of `--unpack`. pack: how the pack was made; device: the measuring machine; left: items not done."""

    format: str
    pack: dict[str, Any]
    device: dict[str, Any]
    left: int
    faults: list[str]
    sanitizer: list[dict[str, Any]]
    cases: list[PackedResult]

    @property
    def gpu(self) -> str:
        return str(self.device.get("name", "a GPU"))

    @property
    def suites(self) -> Sequence[str]:
        """Measured suites in order."""
        return list(dict.fromkeys(one.suite for one in self.cases))

    def of(self, suite: str) -> list[PackedResult]:
        """Return the cases of a suite, compiled as the rules choose."""
        return [one for one in self.cases if one.suite == suite and one.candidate is None]


def read_json(path: Path, kind: type[T], hint: str) -> T:
    """Read a record in a file. Raises UsageError for an unreadable file, DplcError with a hint for one without it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"cannot read the results {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DplcError(f"{path} holds no results: {error}", hint=hint) from None


def read_results(path: Path) -> PackResults:
    """Read the results in a file. Raises UsageError for an unreadable file, DplcError for one without results."""
    found = read_json(path, PackResults, "`dplc bench --unpack` writes them")
    if found.format != FORMAT:
        raise DplcError(f"{path} is `{found.format}`; this dplc reads `{FORMAT}`", hint="measure again")
    return found


def measured_cases(path: Path, suite: str) -> dict[str, MeasuredRecord]:
    """Return the measured times of a suite's cases in a file of results, by name. Raises UsageError if it has none."""
    results = read_results(path)
    if suite not in results.suites:
        suites = ", ".join(sorted(results.suites)) or "none"
        raise UsageError(f"the results have no case of the suite `{suite}`", hint=f"suites there: {suites}")
    device = {name: str(results.device.get(name, "")) for name in ("l2", "float32")}
    return {
        one.name: MeasuredRecord(
            device=results.gpu, **device, relative_error=one.error, dplc=one.dplc, eager=one.eager,
            torch_compile=one.torch_compile, wrong="" if one.status == "ok" else f"{one.status}: {one.detail}",
        )
        for one in results.of(suite)
    }  # fmt: skip
