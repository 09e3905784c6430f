"""Search results as data for the page: a tuning run (best time, decisions, values) and the e-graph by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..cost.kernel_estimate import bits
from ..explore.explore import Exploration
from ..explore.problem import EGraph
from ..explore.solution import PricedSolution
from ..kernels.kernels import Candidate
from ..schedule.space import ScheduleCandidate
from ..tune.running import SearchProgress
from ..tune.search_log import CandidateTimes, SearchLog, SharedPrefix
from ..tune.tuning import plain
from ..tune.tuning_program import Programmed

MOST_CLASSES = 4000  # of all e-graphs of a program
EFFECTS, VALUES = 24, 10  # number of parameters and values shown


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
    return {
        "name": name, "count": count, "default": _micro(default), "best": _micro(best),
        "schedule": [dict(step) for step in plain(winner)], "effects": _effects(log, name, default),
    }  # fmt: skip


def _effects(log: SearchLog, kernel: str, default: float | None) -> list[dict[str, Any]]:
    """Return the parameters of a kernel with several tried values, those with the largest effect first.

    Each value has the number of candidates with and without a time, and the best and mean time over the default.
    """
    mine = ((key[1:], values) for key, values in log.effects.items() if key[0] == kernel)
    found = [(_spread(values), key, values) for key, values in mine if len(values) > 1]
    rows = []
    for _, (step, rule, name), values in sorted(found, key=lambda one: (-one[0], one[1]))[:EFFECTS]:
        title = f"{step}: {name}" if step == rule else f"{step}: {rule}.{name}"
        shown = sorted(values.items(), key=lambda pair: -(pair[1].count + pair[1].without))[:VALUES]
        ordered = [_value(value, times, default or 1.0) for value, times in sorted(shown, key=_in_order)]
        rows.append({"title": title, "values": ordered})
    return rows


def _spread(values: dict[str, CandidateTimes]) -> float:
    """Return the logarithm of the ratio of the best times of the values."""
    best = [times.best for times in values.values() if times.count]
    return math.log(max(best) / min(best)) if best else 0.0


def _in_order(pair: tuple[str, CandidateTimes]) -> tuple[bool, float, str]:
    text = pair[0]
    return (not text.isdigit(), float(text) if text.isdigit() else 0.0, text)


def _value(value: str, times: CandidateTimes, default: float) -> dict[str, Any]:
    best, mean = (f"{times.best / default:.3f}", f"{times.mean / default:.3f}") if times.count else ("-", "-")
    return {"value": value, "tried": times.count, "without": times.without, "best": best, "mean": mean}


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
    for region in _regions_of(made):
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


def _regions_of(made: Exploration) -> list[dict[str, Any]]:
    """Return each distinct region of a program with its e-classes, and how often it occurs."""
    seen: dict[int, dict[str, Any]] = {}
    for problem, solved in made.problems:
        graph = solved.search.graph
        if id(solved) in seen:
            seen[id(solved)]["times"] += 1
        else:
            seen[id(solved)] = _region(graph, solved.found[0], [_named(term, made) for term in problem.terms])
    return list(seen.values())


def _named(term: Any, made: Exploration) -> str:
    """Return the name of a value in the program, or an empty text."""
    names = {n.value: n.name for n in made.graph.names} | {out.value: out.name for out in made.graph.outs}
    return str(getattr(term, "name", "") or names.get(term, ""))


def _region(graph: EGraph, best: PricedSolution, names: list[str]) -> dict[str, Any]:
    """Return the e-classes of a region with all members, and the kernels of the best solution."""
    problem = graph.problem
    axes = {1 << place: axis.name for place, axis in enumerate(problem.axes)}
    of: dict[int, str] = {}
    for place, cls in enumerate(graph.of):
        if names[place]:
            of.setdefault(cls, names[place])

    def title(cls: int) -> str:
        return of.get(cls) or f"c{cls}"

    def spelled(node: Any) -> str:
        op, attributes, children = node
        below = ", ".join(title(child) for child in children)
        if op == "E":
            return f"{attributes[0]}({below})"
        if op in ("Red", "Fold"):
            name = "Reduce" if op == "Red" else op
            return f"{name}({attributes[0]}, {', '.join(axes[bit] for bit in bits(attributes[1]))}, {below})"
        if op == "Num":
            return str(attributes[0])
        if op == "Leaf":
            return "read from memory" if problem.leaves[attributes[0]].memory else "index"
        return f"{op.lower()} {attributes[0]} of {below}"

    solution = best.solution
    classes = [
        {
            "title": title(cls),
            "axes": ", ".join(f"{axes[bit]}:{problem.extents[bit]}" for bit in bits(graph.mask[cls])),
            "dtype": graph.dtype[cls],
            "known": cls in graph.known,
            "stored": cls in solution.stored,
            "needed": cls in solution.choice,
            "spellings": [
                {"text": spelled(node), "chosen": solution.choice.get(cls) == place} for place, node in enumerate(nodes)
            ],
        }
        for cls, nodes in enumerate(graph.classes)
    ]
    stop = graph.stop
    return {
        "times": 1, "classes": classes, "enodes": graph.enodes, "operations": len(problem.nodes),
        "stop": "without egglog" if stop is None else f"{stop.reason} after {stop.iterations} iterations",
        "rules": graph.fired, "kernels": [" and ".join(title(cls) for cls in group) for group in best.table],
    }  # fmt: skip
