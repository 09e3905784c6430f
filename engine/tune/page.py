"""The HTML page of a tuning run: best so far, the tree of decisions, what each value did. Everything is in the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .running import SearchProgress
from .search_log import CandidateTimes, SearchLog
from .tuning import plain
from .tuning_program import Programmed

WIDTH, HEIGHT, LEFT, BOTTOM = 820, 220, 60, 24
EFFECTS, VALUES = 24, 10  # parameters and values that are shown


@dataclass(frozen=True)
class Effect:
    """One parameter: rows of (value, tried, without a time, best and mean over the default; bars in pixels)."""

    title: str
    rows: list[tuple[str, int, int, str, str, int, int]]


def html(found: Programmed, log: SearchLog, title: str, command: str) -> str:
    """The page."""
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (Path(__file__).parent / "page.html").read_text()
    )
    kernels = [
        {
            "outcome": one,
            "effects": effects(log, one.kernel, one.default_seconds),
            "schedule": plain(one.winner),
            "wrong": one.wrong,
        }
        for one in found.kernels
    ]
    return template.render(
        found=found, run=found.run, kernels=kernels, curve=curve(found.run), tree=log.root.shown(),
        default=found.default.seconds, title=title, target=found.space.target.name, command=command, micro=micro,
        relative=_relative,
    )  # fmt: skip


def micro(seconds: float | None) -> str:
    """Seconds as microseconds."""
    return "-" if seconds is None or seconds == math.inf else f"{seconds * 1e6:.2f}"


def _relative(seconds: float, default: float | None) -> str:
    """A time over the default."""
    return f"{seconds / default:.3f}" if default and seconds < math.inf else "-"


def curve(run: SearchProgress) -> dict[str, Any]:
    """The steps of the best time over tries, as the path of an SVG, with ticks."""
    if not run.curve:
        return {"path": "", "xs": [], "ys": [], "width": WIDTH, "height": HEIGHT}
    low, high = 0.0, max(seconds for _, _, seconds in run.curve) * 1.05

    def at(tries: float, seconds: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 10) * tries / max(run.tries, 1)
        return round(x, 1), round((HEIGHT - BOTTOM) * (1 - (seconds - low) / (high - low)), 1)

    path, last = [], run.curve[0][2]
    for number, (tries, _, seconds) in enumerate(run.curve):
        (x, y), before = at(tries, seconds), at(tries, last)
        path.append(f"L{before[0]} {before[1]} L{x} {y}" if number else f"M{x} {y}")
        last = seconds
    end = at(run.tries, last)
    ys = [(at(0, high * part)[1], micro(high * part)) for part in (0.25, 0.5, 0.75, 1.0)]
    xs = [(at(run.tries * part, low)[0], round(run.tries * part)) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return {"path": " ".join([*path, f"L{end[0]} {end[1]}"]), "xs": xs, "ys": ys, "width": WIDTH, "height": HEIGHT}


def effects(log: SearchLog, kernel: str, seconds: float | None) -> list[Effect]:
    """The parameters of a kernel with more than one value tried, those that matter most first. seconds: its default."""
    default = seconds or 1.0
    mine = ((key[1:], values) for key, values in log.effects.items() if key[0] == kernel)
    found = [(_matters(values), key, values) for key, values in mine if len(values) > 1]
    out = []
    for _, (step, rule, name), values in sorted(found, key=lambda one: (-one[0], one[1]))[:EFFECTS]:
        label = f"{step}: {name}" if step == rule else f"{step}: {rule}.{name}"
        shown = sorted(values.items(), key=lambda pair: -(pair[1].count + pair[1].without))[:VALUES]
        out.append(Effect(label, [_row(value, times, default) for value, times in sorted(shown, key=_in_order)]))
    return out


def _matters(values: dict[str, CandidateTimes]) -> float:
    """How far apart the best times of the values are."""
    best = [times.best for times in values.values() if times.count]
    return math.log(max(best) / min(best)) if best else 0.0


def _in_order(pair: tuple[str, CandidateTimes]) -> tuple[bool, float, str]:
    text = pair[0]
    return (not text.isdigit(), float(text) if text.isdigit() else 0.0, text)


def _row(value: str, times: CandidateTimes, default: float) -> tuple[str, int, int, str, str, int, int]:
    if not times.count:
        return value, 0, times.without, "-", "-", 0, 0
    best, mean = times.best / default, times.mean / default
    return value, times.count, times.without, f"{best:.3f}", f"{mean:.3f}", _pixels(best), _pixels(mean)


def _pixels(ratio: float) -> int:
    return round(min(ratio, 3.0) * 100)
