"""The tables and figures of pages, from what was measured on a GPU (examples/suites/results/measured).

    python examples/benches/measured.py suites|layers|products|rules|machine|summary|figures

figures: a name and a value a line, for the sentences of pages. machine: GPU and versions.
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

from dplc.codegen.target import target
from dplc.engine.bench.records import read_results
from dplc.engine.cost.predict import CLOCKS_OF_BLOCK, UNHIDDEN, agreement
from dplc.engine.language.rule import load
from dplc.engine.tune.fit import fit_points

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "examples" / "suites" / "results" / "measured"
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


RESULTS = MEASURED / "h200.json"


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def cases() -> dict[str, dict[str, Any]]:
    """Return the record of each program by suite and name, without candidates of the tuner."""
    return {f"{case['suite']}/{case['name']}": case for case in record()["cases"] if case["candidate"] is None}


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
        if chosen:
            yield title, len(chosen), *compared(chosen)


def compared(chosen: list[dict[str, Any]]) -> Iterator[object]:
    """Yield how programs compare: mean and wins next to eager and torch.compile, and the mean of predictions."""
    for way in ("eager", "torch_compile"):
        found = ratios(chosen, way)
        wins = sum(ratio >= 1 for ratio in found)
        share = wins if len(found) == len(chosen) else f"{wins} of {len(found)}"
        yield from (mean(found), share if found else "-")
    yield mean(c["predicted_us"] / ours for c in chosen if (ours := time(c, "dplc")))


def ratios(chosen: Iterable[dict[str, Any]], way: str) -> list[float]:
    """Return the time of eager or torch_compile over that of dplc, for each program that has both."""
    return [theirs / ours for c in chosen if (theirs := time(c, way)) and (ours := time(c, "dplc"))]


def summary() -> Iterator[tuple[object, ...]]:
    """Compare all programs, but those whose schedules are not the default."""
    yield "programs", "right", "compared with", "not slower", "geometric mean of their time / dplc"
    every = [case for case in cases().values() if not case["same"]]
    right, usual = sum(case["status"] == "ok" for case in every), [c for c in every if c["suite"] != "variants"]
    for way in ("eager", "torch_compile"):
        found = ratios(usual, way)
        wins = f"{sum(ratio >= 1 for ratio in found)} of {len(found)}"
        yield len(every), right, way.replace("_", "."), wins, mean(found)


def machine() -> Iterator[tuple[object, ...]]:
    yield "item", "value"
    found, pack = record()["device"], record()["pack"]
    yield "GPU", f"{found['name']}, driver for CUDA {found['driver'] // 1000}.{found['driver'] % 1000 // 10}"
    yield "torch", f"{found['torch']}, Python {found['python']}"
    yield "date", f"{pack['date']}; `torch.compile` partly one day earlier with the same versions"
    yield "command", f"`{pack['command']}`, then `python h200.dplc`"
    yield "data", f"`{RESULTS.relative_to(ROOT)}`; all rows: `dplc bench --compare {RESULTS.relative_to(ROOT)}`"


def figures() -> Iterator[tuple[str, object]]:
    """Yield the figures of sentences: what is counted or measured, by a name."""
    found = cases()
    yield "names", len(found)
    yield "programs", sum(not case["same"] for case in found.values())
    yield "right", sum(case["status"] == "ok" and not case["same"] for case in found.values())
    yield "sanitized", len({case["name"] for case in record()["sanitizer"] if case["status"] == "ok"})
    for way in ("eager", "torch_compile"):
        yield f"shapes.{way}", mean(ratios((case for case in found.values() if case["suite"] == "kernels_84"), way))
    yield "predicted", mean(c["predicted_us"] / ours for c in found.values() if (ours := time(c, "dplc")))
    for dtype, prefix in DTYPES.items():
        slowest = min(ratios((case for case in found.values() if case["name"].startswith(prefix)), "torch_compile"))
        yield f"layers.{dtype}.slowest", f"{1 / slowest:.2f}"
    points = fit_points(read_results(RESULTS))
    for name, device in {"published": "h200", "fitted": str(MEASURED / "h200.toml")}.items():
        constants = target(device)
        yield f"error.{name}", f"{100 * agreement(point.variant(constants) for point in points).error:.0f} %"
    yield "unhidden", UNHIDDEN
    yield "block_start", f"{CLOCKS_OF_BLOCK / target('h200').clock * 1e9:.2f}"
    for names, values in rule_times().items():
        logs = [math.log(without / given) for given, without, *_ in values]
        yield f"without.{names}", f"{math.exp(sum(logs) / len(logs)):.2f}"


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
    for group, programs in rule_times().items():
        names = group.split("+")
        times = [without / given for given, without, *_ in programs]
        predicted = mean(without / given for *_, given, without in programs)
        title = ", ".join(f"`{name}`" for name in names) + ("" if known.keys() >= set(names) else " (removed)")
        logs = sum(map(math.log, times)) / len(times)
        rows.append(
            (logs, title, len(times), f"{math.exp(logs):.3f}", f"{min(times):.2f}", f"{max(times):.2f}", predicted)
        )
    for _, *row in sorted(rows, reverse=True):
        yield tuple(row)


def rule_times() -> dict[str, list[list[float]]]:
    """Return, by the rules left out, for each program: measured with and without, predicted with and without."""
    found = json.loads((MEASURED / "rules_h200.json").read_text())["rules"]
    return {names: list(programs.values()) for names, programs in found.items()}


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def main() -> None:
    if sys.argv[1] == "figures":
        print("\n".join(f"{name} {value}" for name, value in figures()))
        return
    tables = {table.__name__: table for table in (suites, layers, products, rules, machine, summary)}
    head, *rows = tables[sys.argv[1]]()
    words = {"layers": 2, "machine": 2}.get(sys.argv[1], 1)  # columns of words; the others are numbers
    print("|", " | ".join(map(str, head)), "|")
    print("|" + "---|" * words + "--:|" * (len(head) - words))
    for row in rows:
        print("|", " | ".join(map(str, row)), "|")


if __name__ == "__main__":
    main()
