"""The HTML page of a bench: the table, and a plot of predicted times as inline SVG. It needs nothing from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from .records import BenchRecord, CaseRecord
from .tables import SUITE, TableLayout

LEFT, WIDTH, ROW, TOP = 250, 900, 14, 34


class Mark(NamedTuple):
    """A case in the plot: where its row is, its bar from the least time to the predicted one, a measured one."""

    name: str
    y: int
    floor: float
    predicted: float
    measured: float | None
    title: str


def html(record: BenchRecord, layout: TableLayout = SUITE) -> str:
    """The page."""
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (Path(__file__).parent / "page.html").read_text()
    )
    shown = layout.columns(record)
    marks, ticks = plot(record)
    return template.render(
        record=record, summary=layout.summary(record), legend=layout.legend, titles=[title for title, _, _ in shown],
        rows=[(case, [write(value(case)) for _, value, write in shown]) for case in record.cases],
        marks=marks, ticks=ticks, left=LEFT, top=TOP, width=LEFT + WIDTH + 20, height=TOP + ROW * len(marks) + 10,
    )  # fmt: skip


def plot(record: BenchRecord) -> tuple[list[Mark], list[tuple[float, str]]]:
    """The marks, and (x, text) of the ticks, on a logarithmic axis of microseconds."""
    timed = [(case, *_times(case, record)) for case in record.cases if case.predicted_us]
    if not timed:
        return [], []
    every = [value for _, *values in timed for value in values if value]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)) + 1e-9)

    def place(value: float) -> float:
        return round(LEFT + WIDTH * (math.log10(value) - low) / max(high - low, 1), 1)

    marks = [
        Mark(
            case.name, TOP + ROW * number + ROW // 2, place(floor), place(predicted),
            place(measured) if measured else None,
            f"{case.name}: predicted {predicted:.1f} us, at least {floor:.2f} us by bytes"
            + (f", measured {measured:.1f} us" if measured else ""),
        )
        for number, (case, floor, predicted, measured) in enumerate(timed)
    ]  # fmt: skip
    return marks, [(place(10.0**power), f"{10.0**power:g} us") for power in range(low, high + 1)]


def _times(case: CaseRecord, record: BenchRecord) -> tuple[float, float, Any]:
    """Microseconds: of the compulsory bytes at the target's bandwidth, predicted, measured."""
    floor = max(case.compulsory_bytes / record.dram_bytes_per_second * 1e6, 1e-2)
    measured = case.measured.dplc.median_us if case.measured and case.measured.dplc else None
    return floor, case.predicted_us or floor, measured
