"""The records of a bench: the schema of its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...ir.diagnostic import DplcError, UsageError


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
        """Return whether the case did not compile, or was wrong on the emulator or on a GPU."""
        ran = self.run is None or self.run.ok
        return bool(self.error) or not ran or (self.measured is not None and bool(self.measured.wrong))

    def known(self, field: str) -> list[Any]:
        """The values of a field of the kernels that have one."""
        return [value for kernel in self.kernels if (value := getattr(kernel, field)) is not None]

    @property
    def registers(self) -> int | None:
        return max(self.known("registers"), default=None)

    @property
    def spills(self) -> int | None:
        found = self.known("spill_bytes")
        return sum(found) if found else None

    @property
    def smem(self) -> int:
        return max(self.known("smem"), default=0)

    @property
    def main(self) -> KernelRecord | None:
        """The kernel that takes longest, predicted."""
        return max(self.kernels, key=lambda k: k.predicted_us, default=None)

    @property
    def sector_efficiency(self) -> float | None:
        return min(self.known("sector_efficiency"), default=None)

    @property
    def wavefront_ratio(self) -> float | None:
        return max(self.known("wavefront_ratio"), default=None)


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


# ---- the results of a pack


FORMAT = "dplc results 1"


class PackTiming(TimingRecord, kw_only=True):
    """Microseconds of a run. within: half of the 95% interval of the median, over it; warm_us: L2 as the last run left
    it."""

    warm_us: float
    within: float
    compile_seconds: float | None = None


class PackedResult(msgspec.Struct, kw_only=True):
    """A case of a pack on a GPU. status: ok, wrong, failed or timeout. launches: features of the model, of each."""

    suite: str
    name: str
    dtype: str
    rules: tuple[str, ...]
    same: str
    candidate: int | None
    predicted_us: float
    least_us: float
    launches: list[dict[str, Any]]
    texts: str
    status: str = ""
    detail: str = ""
    error: float | None = None
    repeatable: bool | None = None
    registers: list[int] = []
    local_bytes: list[int] = []
    dplc: PackTiming | None = None
    eager: PackTiming | None = None
    torch_compile: PackTiming | None = None
    torch_compile_failed: str = ""
    clocks: dict[str, float] = {}


class PackResults(msgspec.Struct, kw_only=True):
    """The results of `--unpack`. pack: how the pack was made; device: the measuring machine; left: items not done."""

    format: str
    pack: dict[str, Any]
    device: dict[str, Any]
    seconds: float
    left: int
    faults: list[str]
    sanitizer: list[dict[str, Any]]
    cases: list[PackedResult]

    @property
    def gpu(self) -> str:
        return str(self.device.get("name", "a GPU"))


def read_results(path: Path) -> PackResults:
    """The results in a file. Raises UsageError and, for a file that holds none, DplcError."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PackResults)
    except OSError as error:
        raise UsageError(f"cannot read the results {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DplcError(f"{path} holds no results: {error}", hint="`dplc bench --unpack` writes them") from None
    if found.format != FORMAT:
        raise DplcError(f"{path} is `{found.format}`; this dplc reads `{FORMAT}`", hint="measure again")
    return found


def check_suite(suite: str, results: PackResults) -> None:
    """Raises UsageError where nothing of a suite was measured."""
    if not any(one.suite == suite for one in results.cases):
        suites = ", ".join(sorted({one.suite for one in results.cases})) or "none"
        raise UsageError(f"the results have no case of the suite `{suite}`", hint=f"suites there: {suites}")


def note_measured(record: BenchRecord, suite: str, results: PackResults) -> None:
    """Fill in what was measured of a suite's cases, by their names."""
    known = {one.name: one for one in results.cases if one.suite == suite and one.candidate is None}
    for case in record.cases:
        if case.name in known:
            case.measured = _measured(known[case.name], results)


def _measured(one: PackedResult, results: PackResults) -> MeasuredRecord:
    return MeasuredRecord(
        device=results.gpu, l2=str(results.device.get("l2", "")), float32=str(results.device.get("float32", "")),
        relative_error=one.error, dplc=one.dplc, eager=one.eager, torch_compile=one.torch_compile,
        wrong="" if one.status == "ok" else f"{one.status}: {one.detail}",
    )  # fmt: skip


HEAD = ("case", "predicted us", "measured us", "predicted / measured", "eager us", "torch.compile us", "eager / dplc",
        "error")  # fmt: skip


def markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table in Markdown. The first column is aligned to the left."""
    return [
        f"| {' | '.join(titles)} |",
        "|---|" + "---:|" * (len(titles) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def comparison(results: PackResults) -> str:
    """A table of every suite that was measured, as Markdown, with the geometric means below."""
    about = f"Measured on {results.gpu}, predicted for {results.pack.get('target', 'another device')}"
    lines = [f"# {results.gpu}", "", f"{about}; {results.device.get('l2', '')}."]
    suites = dict.fromkeys(one.suite for one in results.cases)
    for suite in suites:
        cases = [one for one in results.cases if one.suite == suite and one.candidate is None]
        lines += ["", f"## {suite}", "", *markdown_table(HEAD, map(_row, cases)), "", _means(cases)]
    if results.faults:
        lines += ["", "## Faults", "", *(f"- {fault}" for fault in results.faults)]
    looked = [one for one in results.sanitizer if one["status"] == "ok"]
    clean = f"compute-sanitizer: {len(looked)} of {len(results.sanitizer)} runs clean"
    lines += ["", f"{clean}; {results.left} items were left undone."]
    return "\n".join(lines) + "\n"


def _row(one: PackedResult) -> list[str]:
    def time(timed: PackTiming | None) -> str:
        return "-" if timed is None else f"{timed.median_us:.1f}"

    own, eager = one.dplc, one.eager
    ratio = "-" if own is None else f"{one.predicted_us / own.median_us:.2f}"
    gain = "-" if own is None or eager is None else f"{eager.median_us / own.median_us:.2f}"
    error = f"{one.error:.0e}" if one.status == "ok" and one.error is not None else one.status.upper()
    return [one.name, f"{one.predicted_us:.1f}", time(own), ratio, time(eager), time(one.torch_compile), gain, error]


def _means(cases: list[PackedResult]) -> str:
    """Geometric means over the cases that have both times."""
    right = sum(one.status == "ok" for one in cases)
    parts = [f"{right} of {len(cases)} right"]
    timed = [(one, one.dplc.median_us) for one in cases if one.dplc]
    means = {
        "eager / dplc": geomean(one.eager.median_us / own for one, own in timed if one.eager),
        "torch.compile / dplc": geomean(one.torch_compile.median_us / own for one, own in timed if one.torch_compile),
        "predicted / measured": geomean(one.predicted_us / own for one, own in timed),
    }
    parts += [f"{title} {found:.2f}" for title, found in means.items() if found is not None]
    return "; ".join(parts) + " (geometric means)."
