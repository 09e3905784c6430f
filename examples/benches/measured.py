"""The tables of docs/results, from what was measured on a GPU (examples/suites/results/measured).

    python examples/benches/measured.py suites|layers|products|rules

suites: geometric means over the programs of each suite. layers: microseconds of layers of models. products:
microseconds of 16-bit products and attention by several schedules. rules: time without a rule over time with it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dplc.engine.language.rule import load

MEASURED = Path(__file__).resolve().parents[1] / "suites" / "results" / "measured"
SUITES = {
    "`families.json`: each family of kernels, small": ("families", ""),
    "`kernels_84.json`: 84 shapes, float32": ("kernels_84", ""),
    "`limits.json`: layers of four models, float32": ("limits", "layer."),
    "`limits.json`: other programs": ("limits", "!layer."),
    "`layers.json`: layers of four models, bfloat16": ("layers", ""),
    "`halves.json`: 16-bit kernels": ("halves", ""),
    "`held_out.json`: programs that no rule was made for": ("held_out", ""),
    "`variants.json`: 16-bit products and attention by other schedules": ("variants", ""),
}
DTYPES = {"float32": "layer.", "bfloat16": "half_layer."}
SCHEDULES = ("default", "single_warps")


def cases() -> dict[str, dict[str, Any]]:
    """Return the record of each program by suite and name, without candidates of the tuner."""
    record = json.loads((MEASURED / "h200.json").read_text())
    return {f"{case['suite']}/{case['name']}": case for case in record["cases"] if case["candidate"] is None}


def time(case: dict[str, Any], way: str) -> float | None:
    """Return the median of dplc, eager or torch_compile in microseconds, None if it was not measured."""
    return case[way]["median_us"] if case.get(way) else None


def mean(values: Iterable[float]) -> str:
    logs = [math.log(value) for value in values]
    return f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else "-"


def suites() -> Iterator[tuple[object, ...]]:
    yield ("suite", "cases", "eager / dplc", "not slower than eager", "torch.compile / dplc",
           "not slower than torch.compile", "predicted / measured")  # fmt: skip
    found = cases()
    for title, (suite, prefix) in SUITES.items():
        begins, wanted = prefix.lstrip("!"), not prefix.startswith("!")
        chosen = [
            c for key, c in found.items() if key.startswith(f"{suite}/") and c["name"].startswith(begins) == wanted
        ]
        if not chosen:
            continue
        row: list[object] = [title, len(chosen)]
        for way in ("eager", "torch_compile"):
            ratios = [theirs / ours for c in chosen if (theirs := time(c, way)) and (ours := time(c, "dplc"))]
            wins = sum(ratio >= 1 for ratio in ratios)
            share = wins if len(ratios) == len(chosen) else f"{wins} of {len(ratios)}"
            row += [mean(ratios), share if ratios else "-"]
        yield (*row, mean(c["predicted_us"] / ours for c in chosen if (ours := time(c, "dplc"))))


def layers() -> Iterator[tuple[object, ...]]:
    yield "layer, tokens", "dtype", "dplc, µs", "eager, µs", "torch.compile, µs", "predicted, µs"
    for dtype, prefix in DTYPES.items():
        for case in cases().values():
            if case["name"].startswith(prefix):
                model, tokens = case["name"].removeprefix(prefix).rsplit(".s", 1)
                times = [time(case, way) for way in ("dplc", "eager", "torch_compile")]
                yield f"{model}, {tokens}", dtype, *map(shown, (*times, case["predicted_us"]))


def products() -> Iterator[tuple[object, ...]]:
    yield "case", "dplc, µs", "by single warps, µs", "eager, µs"
    found = {name.removeprefix("variants/"): case for name, case in cases().items() if name.startswith("variants/")}
    for name, case in found.items():
        if name.endswith("bf16.default"):
            base = name.removesuffix(".default")
            times = [time(found.get(f"{base}.{schedule}", {}), "dplc") for schedule in SCHEDULES]
            yield base, *map(shown, (*times, time(case, "eager")))


def rules() -> Iterator[tuple[object, ...]]:
    yield "left out", "programs", "measured", "least", "most", "predicted"
    known, rows = load().rules, []
    for group, programs in json.loads((MEASURED / "rules_h200.json").read_text())["rules"].items():
        names = group.split("+")
        times = [without / given for given, without, *_ in programs.values()]
        predicted = mean(without / given for *_, given, without in programs.values())
        title = ", ".join(f"`{name}`" for name in names) + ("" if known.keys() >= set(names) else " (removed)")
        logs = sum(map(math.log, times)) / len(times)
        rows.append(
            (logs, title, len(times), f"{math.exp(logs):.3f}", f"{min(times):.2f}", f"{max(times):.2f}", predicted)
        )
    for _, *row in sorted(rows, reverse=True):
        yield tuple(row)


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def main() -> None:
    tables = {table.__name__: table for table in (suites, layers, products, rules)}
    head, *rows = tables[sys.argv[1]]()
    words = {"layers": 2}.get(sys.argv[1], 1)  # columns of words; the others are numbers
    print("|", " | ".join(map(str, head)), "|")
    print("|" + "---|" * words + "--:|" * (len(head) - words))
    for row in rows:
        print("|", " | ".join(map(str, row)), "|")


if __name__ == "__main__":
    main()
