"""Search results as data for the page: a tuning run (best time, decisions, values) and the e-graph by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..explore.explore import Exploration
from ..explore.page import regions_of
from ..kernels.candidate import Candidate
from ..schedule.space import ScheduleCandidate
from ..tune.page import effects
from ..tune.running import SearchProgress
from ..tune.search_log import SearchLog, SharedPrefix
from ..tune.tuning import plain
from ..tune.tuning_program import Programmed

MOST_CLASSES = 4000  # of a program's e-graphs together


# ---- tuning


def tuning_record(found: Programmed, log: SearchLog) -> dict[str, Any]:
    """Return the record of a finished tuning run, with the time of the chosen schedules as `best`."""
    kernels = [
        _kernel(log, one.kernel, one.count, one.default_seconds, one.seconds, one.winner) for one in found.kernels
    ]
    told = {"best": _micro(found.score.seconds), "kernels": kernels, "running": False}
    return tuning_so_far(found.run, log, found.run.seconds) | told


def tuning_so_far(run: SearchProgress, log: SearchLog, seconds: float) -> dict[str, Any]:
    """Return the record of a tuning run after `seconds`. Times are in microseconds.

    `curve` holds [tries, best time so far]. `tree` holds decisions with the candidates below them. A reward is the
    default's time divided by the candidate's, 0 without a time.
    """
    default = run.default.seconds
    kernels = [
        _kernel(log, start.kernels[0].name, log.kernels[start][1], log.kernels[start][0], leaders[0][0], leaders[0][1])
        for start, leaders in run.fastest.items()
        if start in log.kernels
    ]
    return {
        "search": run.search.name, "basis": run.default.basis, "tries": run.tries, "programs": run.programs,
        "refused": run.pruned, "failed": run.failed, "again": run.again, "seconds": seconds, "limit": run.limit,
        "default": _micro(default), "best": _micro(run.best[0] if run.best else None), "running": True,
        "curve": [[tries, _micro(found)] for tries, _, found in run.curve],
        "tree": _branch(log.root.shown(), default), "kernels": kernels,
    }  # fmt: skip


def _branch(node: SharedPrefix, default: float | None) -> dict[str, Any]:
    return {
        "label": _shorter(node.label), "tried": node.visits, "without": node.times.without,
        "best": _reward(node.times.best, default), "mean": _reward(node.times.mean, default),
        "below": [_branch(child, default) for child in node.children.values()],
    }  # fmt: skip


def _shorter(label: str) -> str:
    """Return the label of a decision, without following defaults and skips."""
    first, *rest = label.split(" · ")
    return " · ".join([first, *(part for part in rest if part not in ("default", "skip"))])


def _kernel(
    log: SearchLog, name: str, count: int, default: float | None, best: float | None, winner: ScheduleCandidate
) -> dict[str, Any]:
    rows = [
        {"title": one.title, "values": [{"value": row[0], "tried": row[1], "without": row[2], "best": row[3],
                                         "mean": row[4]} for row in one.rows]}
        for one in effects(log, name, default)
    ]  # fmt: skip
    return {
        "name": name, "count": count, "default": _micro(default), "best": _micro(best),
        "schedule": [dict(step) for step in plain(winner)], "effects": rows,
    }  # fmt: skip


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == math.inf else seconds * 1e6


def _reward(seconds: float, default: float | None) -> float:
    return default / seconds if default and 0 < seconds < math.inf else 0.0


# ---- the e-graph


def egraph_record(made: Exploration, found: Sequence[Candidate]) -> dict[str, Any]:
    """Return the e-classes of each region with their members, the best solution's members, and the candidates.

    `left_out` counts classes beyond MOST_CLASSES.
    """
    regions, left_out, count = [], 0, 0
    for region in regions_of(made):
        kept = region["classes"][: max(0, MOST_CLASSES - count)]
        left_out += len(region["classes"]) - len(kept)
        count += len(kept)
        regions.append({**region, "classes": kept})
    return {"regions": regions, "left_out": left_out, "candidates": [_candidate(one) for one in found]}


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "label": one.label, "kernels": one.kernels, "bytes": one.bytes, "us": one.predicted_us,
        "rules": list(one.rules), "problem": one.problem or "",
    }  # fmt: skip
