"""Predicted times of KernelBench (github.com/ScalingIntelligence/KernelBench) next to its published times.

    python examples/benches/kernelbench.py run CHECKOUT          benchmark levels 1 to 3, write the data, print the page
    python examples/benches/kernelbench.py record CHECKOUT FILE  the same from the results of `dplc bench -o FILE`
    python examples/benches/kernelbench.py machine|levels|fast|behind|problems|failed

`run` takes hours on two cores, and continues after Ctrl-C. With `--no-shrink` nothing is checked with smaller extents,
and it takes ten minutes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "suites" / "results" / "predicted" / "kernelbench.json"
PAGE = ROOT / "docs" / "results" / "kernelbench.md"
BUILD = ROOT / "build" / "kernelbench"
TIMES = {
    "torch.compile": "results/timing/H100_Modal/baseline_time_torch_compile_inductor_default.json",
    "eager": "results/timing/H100_Modal/baseline_time_torch.json",
}
MODES = ("BatchNorm", "Dropout")  # modules that compute less in evaluation mode
NEAR, FAR = 1.05, 1.5  # times torch.compile
AT_LIMIT = 1.35  # times the least time of its kernel: what is left is not the schedule
TITLES = ("predicted, ms", "torch.compile, ms", "eager, ms", "torch.compile / dplc")
Row = tuple[object, ...]
Case = dict[str, Any]


# ---- the data


def run(checkout: Path, shrink: bool) -> None:
    """Benchmark the problems, and record the results."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for title, name in TIMES.items():
        (BUILD / f"{title}.json").write_text((checkout / name).read_text())
    published = [f"--published={(BUILD / title).relative_to(ROOT)}.json" for title in TIMES]
    results = BUILD / "results.json"
    command = [
        sys.executable,
        "-m",
        "dplc",
        "bench",
        str(checkout / "KernelBench"),
        "--only",
        "level[123]/*",
        "--target",
        "h100",
        "--time",
        "1200",
    ]
    command += [*published, "-o", str(results), *["--shrink"] * shrink]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code > 1:  # 1 is a problem that failed, which the page lists
        sys.exit(code)
    record(checkout, results)


def record(checkout: Path, results: Path) -> None:
    """Write the data from the results of `dplc bench -o FILE`, and print them into the page."""
    found = json.loads(results.read_text())
    cases = {case["name"]: compact(case, checkout) for case in found["cases"]}
    head = {name: found[name] for name in ("date", "target", "machine", "versions")}
    head["command"] = found["command"].replace(str(checkout), "CHECKOUT")
    for folder in (f"{BUILD}/", f"{BUILD.relative_to(ROOT)}/"):
        head["command"] = head["command"].replace(folder, "")
    texts = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    DATA.write_text(json.dumps(head)[:-1] + ', "problems": {\n' + ",\n".join(texts) + "\n}}\n")
    subprocess.run([sys.executable, str(ROOT / "examples" / "benches" / "pages.py"), str(PAGE)], check=True)


def compact(case: Case, checkout: Path) -> Case:
    """Return what the page shows of a problem. Times are in microseconds."""
    text = (checkout / "KernelBench" / f"{case['name']}.py").read_text()
    longest = max(case["kernels"], key=lambda kernel: kernel["predicted_us"], default={})
    small, error = case["run"] or {}, case["error"] or (case["run"] or {}).get("finding") or ""
    error = error.replace(f"{checkout / 'KernelBench'}/", "")
    return {
        "us": case["predicted_us"] and round(case["predicted_us"], 2), "launches": len(case["kernels"]),
        "least_us": case["least_us"] and round(case["least_us"], 2),
        "limit": case["times_limit"] and round(case["times_limit"], 2),
        "kernel": longest.get("name"), "bound": longest.get("predicted_bound"),
        "share": case["predicted_us"] and round(longest["predicted_us"] / case["predicted_us"], 2),
        "right": small.get("ok"), "error": error.splitlines()[0] if error else "",
        "compile_ms": round(case["compile_ms"]), "modes": any(mode in text for mode in MODES), **case["published"],
    }  # fmt: skip


# ---- tables


def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text())
    return found


def problems() -> dict[str, Case]:
    found: dict[str, Case] = data()["problems"]
    return found


def ratio(case: Case, title: str = "torch.compile") -> float | None:
    """Return a published time divided by the predicted time."""
    return case[title] / case["us"] if case["us"] and case.get(title) and not case["error"] else None


def shown(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def named(name: str, case: Case) -> str:
    level, _, rest = name.partition("/")
    return f"{level.removeprefix('level')}/{rest.strip('_')}" + " †" * case["modes"]


def machine() -> Iterator[Row]:
    yield "item", "value"
    found = data()
    versions = found["versions"]
    yield "dplc", f"{found['target']}: **predicted** by the cost model, on {found['date']}; nothing was measured"
    yield "command", f"`{found['command']}`"
    yield "versions", f"rules {versions['rules']}, torch {versions['torch']}, Python {versions['python']}"
    yield "published", "NVIDIA H100 80GB HBM3: **measured** by the authors of KernelBench (commit 423217d, torch 2.5)"
    yield "data", f"`{DATA.relative_to(ROOT)}`"


def levels() -> Iterator[Row]:
    yield (
        "level", "problems", "compile", "right", "checked", "geometric mean", "not slower", "within 5 %",
        "slower than 1.5 times", "above three times its least",
    )  # fmt: skip
    every = problems()
    groups = {
        f"{number}": [case for name, case in every.items() if name.startswith(f"level{number}/")]
        for number in (1, 2, 3)
    }
    groups |= {"all": [*every.values()], "all without †": [case for case in every.values() if not case["modes"]]}
    for title, cases in groups.items():
        found = [value for case in cases if (value := ratio(case)) is not None]
        checked = [case["right"] for case in cases if case["right"] is not None]
        far = sum(case["us"] > 3 * case["least_us"] for case in cases if case["us"])
        mean = math.exp(sum(map(math.log, found)) / max(len(found), 1))
        yield (
            title, len(cases), sum(bool(case["launches"]) for case in cases), sum(checked), len(checked), shown(mean),
            sum(value >= 1 for value in found), sum(value * NEAR >= 1 for value in found),
            sum(value * FAR < 1 for value in found), far,
        )  # fmt: skip


def fast() -> Iterator[Row]:
    ways = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
    yield "compared with", *(f"p = {p:g}" for p in ways)
    for title in TIMES:
        known = [case for case in problems().values() if case.get(title)]
        yield title, *(shown(sum((ratio(case, title) or 0.0) > p for case in known) / len(known)) for p in ways)


def reason(case: Case) -> str:
    """Return why a problem is behind, as the data say."""
    if case["limit"] is None:
        return "-"
    if case["limit"] < 1:
        return f"{case['bound']}; TF32, and limits are of float32"
    if case["limit"] <= AT_LIMIT:
        return f"{case['bound']}; all kernels are at their limits: another algorithm, or fewer kernels"
    furthest = f"a kernel takes {case['limit']:.1f} times its limit"
    return f"{case['bound']}; {furthest}; the longest has {case['share']:.0%} of the time"


def behind() -> Iterator[Row]:
    yield "problem", "why", *TITLES[:2], TITLES[3], "least, ms", "kernels"
    found = [(value, name, case) for name, case in problems().items() if (value := ratio(case)) and value * NEAR < 1]
    for value, name, case in sorted(found, key=lambda each: each[0]):
        times = (case["us"], case["torch.compile"])
        yield (
            named(name, case), reason(case), *(shown(us / 1e3, 3) for us in times), shown(value),
            shown(case["least_us"] / 1e3, 3), case["launches"],
        )  # fmt: skip


def failed() -> Iterator[Row]:
    yield "problem", "error"
    for name, case in problems().items():
        if case["error"]:
            yield named(name, case), case["error"].replace("|", "/")


def every() -> Iterator[Row]:
    yield "problem", *TITLES, "kernels", "right"
    for name, case in problems().items():
        times = (case["us"], case.get("torch.compile"), case.get("eager"))
        right = {None: "-", True: "yes", False: "no"}[case["right"]]
        yield (
            named(name, case),
            *(shown(us and us / 1e3, 3) for us in times),
            shown(ratio(case)),
            case["launches"],
            right,
        )


TABLES = {
    "machine": (machine, 2),
    "levels": (levels, 1),
    "fast": (fast, 1),
    "behind": (behind, 2),
    "failed": (failed, 2),
    "problems": (every, 1),
}


def table(rows: Iterable[Row], words: int) -> str:
    """Return a table in Markdown. words: columns of words; the others are numbers."""
    head, *below = rows
    if not below:
        return "None."
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *below)]
    return "\n".join((lines[0], "|" + "---|" * words + "--:|" * (len(head) - words), *lines[1:]))


def main() -> None:
    if sys.argv[1] in TABLES:
        rows, words = TABLES[sys.argv[1]]
        print(table(rows(), words))
    elif sys.argv[1] == "run":
        run(Path(sys.argv[2]).resolve(), "--no-shrink" not in sys.argv)
    else:
        record(Path(sys.argv[2]).resolve(), Path(sys.argv[3]))


if __name__ == "__main__":
    main()
