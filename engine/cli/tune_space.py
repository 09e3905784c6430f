"""`dplc tune --space`: what there is to decide, nothing tried."""

from __future__ import annotations

from typing import Any

from ..explore.candidates import Fusing
from ..schedule.program_space import ProgramSpace
from ..tune.describe import PassDescription, levels, plain_text, size
from ..tune.tuning import SearchOptions
from ..tune.tuning_program import space_of
from .options import Flags
from .show import print_json, write
from .tune_command import check_passes, fusing_of


def show_space(flags: Flags, search: SearchOptions, top: int) -> None:
    """`dplc tune --space`: the candidates of fusion first, then the decisions of every kernel, once."""
    tools, fusing = fusing_of(flags, top)
    check_passes(search.free, tools)
    space = space_of(fusing, search)
    ways = [_way(space, fusing, way) for way in range(len(space.ways))]
    kernels: dict[str, dict[str, Any]] = {}
    for way in range(len(space.ways)):
        for inner, count in space.spaces(way):
            about = kernels.setdefault(
                inner.name,
                {"kernel": inner.start.kernels[0].name, "count": count, "candidates": [], "schedules": 0.0},
            )
            about["candidates"].append(space.ways[way])
            if "passes" not in about:
                about |= {"passes": levels(inner), "schedules": size(inner, search.seed)}
    total = size(space, search.seed)
    if flags.as_json:
        rows = [{**one, "passes": [level.record() for level in one["passes"]]} for one in kernels.values()]
        print_json({"target": space.target.name, "programs": total, "candidates": ways, "kernels": rows})
        return
    write(_candidates(ways, total) + "\n".join(_kernel(one, len(ways)) for one in kernels.values()))


def _way(space: ProgramSpace, fusing: Fusing, way: int) -> dict[str, Any]:
    """A candidate as data."""
    spaces = space.spaces(way)
    names = [f"{inner.start.kernels[0].name}" + (f" x{count}" if count > 1 else "") for inner, count in spaces]
    rules: list[str] = []
    if spaces:
        rules = list(fusing.rules(way))
    return {"candidate": space.ways[way], "kernels": names, "rules": rules, "problem": space.problems.get(way)}


def _candidates(ways: list[dict[str, Any]], total: float) -> str:
    if len(ways) == 1:
        return ""
    lines = [f"candidate: by default rules, about {total:.0e} programs (estimated)"]
    for one in ways:
        made = f"; made by {', '.join(one['rules'])}" if one["rules"] else ""
        lines.append(f"  {one['candidate']}: {one['problem'] or ', '.join(one['kernels']) + made}")
    return "\n".join(lines) + "\n\n"


def _kernel(about: dict[str, Any], ways: int) -> str:
    found: tuple[PassDescription, ...] = about["passes"]
    times = "" if about["count"] == 1 else f" ({about['count']} times)"
    used = f", in {', '.join(about['candidates'])}" if ways > 1 else ""
    schedules = f"about {about['schedules']:.0e} schedules (estimated)"
    lines = [f"{about['kernel']}{times}{used}: {len(found)} passes to decide, {schedules}"]
    for level in found:
        opens = f"; opens {', '.join(level.opens)}" if level.opens else ""
        lines.append(f"  {level.step}: by default {level.reference}{opens}")
        for site in level.sites:
            lines.append(f"    {site.rule} at {site.where}")
            for name, values, _ in site.parameters:
                lines.append(f"      {name} in {_domain(values)}")
    return "\n".join(lines) + "\n"


def _domain(values: tuple[Any, ...]) -> str:
    shown = ", ".join(plain_text(value) for value in values[:12])
    return "{" + shown + (f", .. {len(values)} values" if len(values) > 12 else "") + "}"
