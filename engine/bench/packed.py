"""The results of a pack (`dplc bench --unpack`), read back: measured times next to predicted ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ...ir.diagnostic import DplcError, UsageError
from .records import BenchRecord, MeasuredRecord, TimingRecord, geomean

FORMAT = "dplc results 1"


class PackTiming(msgspec.Struct):
    """Microseconds of a run. within: half of the 95% interval of the median, over it; warm_us: L2 as the last run left
    it."""

    median_us: float
    low_us: float
    high_us: float
    warm_us: float
    runs: int
    within: float
    launched: str
    compile_seconds: float | None = None

    @property
    def record(self) -> TimingRecord:
        return TimingRecord(
            median_us=self.median_us, low_us=self.low_us, high_us=self.high_us, runs=self.runs, launched=self.launched
        )


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
    """What `--unpack` wrote. pack: how the pack was made; device: the machine that measured; left: items not done."""

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
    timings = (None if timed is None else timed.record for timed in (one.dplc, one.eager, one.torch_compile))
    dplc, eager, torch_compile = timings
    return MeasuredRecord(
        device=results.gpu, l2=str(results.device.get("l2", "")), float32=str(results.device.get("float32", "")),
        relative_error=one.error, dplc=dplc, eager=eager, torch_compile=torch_compile,
        wrong="" if one.status == "ok" else f"{one.status}: {one.detail}",
    )  # fmt: skip


HEAD = ("case", "predicted us", "measured us", "predicted / measured", "eager us", "torch.compile us", "eager / dplc",
        "error")  # fmt: skip


def comparison(results: PackResults) -> str:
    """A table of every suite that was measured, as Markdown, with the geometric means below."""
    about = f"Measured on {results.gpu}, predicted for {results.pack.get('target', 'another device')}"
    lines = [f"# {results.gpu}", "", f"{about}; {results.device.get('l2', '')}."]
    suites = dict.fromkeys(one.suite for one in results.cases)
    for suite in suites:
        cases = [one for one in results.cases if one.suite == suite and one.candidate is None]
        lines += ["", f"## {suite}", "", f"| {' | '.join(HEAD)} |", "|---|" + "---:|" * (len(HEAD) - 1)]
        lines += [f"| {' | '.join(_row(one))} |" for one in cases]
        lines += ["", _means(cases)]
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
    for title, other in (("eager", "eager"), ("torch.compile", "torch_compile")):
        pairs = [(getattr(one, other), one.dplc) for one in cases]
        found = geomean(theirs.median_us / ours.median_us for theirs, ours in pairs if theirs and ours)
        if found is not None:
            parts.append(f"{title} / dplc {found:.2f}")
    found = geomean(one.predicted_us / one.dplc.median_us for one in cases if one.dplc)
    parts += [] if found is None else [f"predicted / measured {found:.2f}"]
    return "; ".join(parts) + " (geometric means)."
