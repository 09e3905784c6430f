"""The model held against products that others measured on GPUs, with the schedules that they measured.

    python examples/benches/recorded.py [--only DEVICE] [--json]

Each point of `results/recorded/products.json` is compiled with its tile, registers, chunk, ring and split; a point that
the rules cannot express so (a side of 112, a split that they refuse) is left out and counted. The kernels that were
measured are not ours: they copy by TMA where ours use cp.async, and read their slabs in another order. What is held
against the clock is the model and the way it counts, not our code. Nothing is run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import dplc
from dplc.codegen.target import load_device
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.cost.validate import Agreement, MeasuredVariant, agreement

POINTS = Path(__file__).resolve().parents[1] / "suites" / "results" / "recorded" / "products.json"
WHOLE = "without split_matmul_k\n"


def points(only: str = "") -> list[dict[str, Any]]:
    """Those of a device whose name has `only` in it."""
    return [point for point in json.loads(POINTS.read_text())["points"] if only in point["device"]]


def shape(point: dict[str, Any]) -> str:
    batch = f"{point['batch']} x " if point["batch"] > 1 else ""
    return f"{point['device']} {batch}{point['m']} x {point['n']} x {point['k']}"


def settings(point: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of rules that make the schedule of a point."""
    rows, columns = point["tile"]
    down, across = point["thread"]
    made: dict[str, dict[str, Any]] = {
        "blockify_launch": {"BM": rows, "BN": columns},
        "register_tile": {"FM": down, "FN": across},
        "chunk_matmul_k": {"BK": point["chunk"]},
    }
    if point["slots"] > 1:
        made["double_buffer"] = {"N": point["slots"]}
    if point["split"] > 1:
        made["split_matmul_k"] = {"S": point["split"], "prefer": False}  # whether or not we would share the sum
    return made


def predicted(point: dict[str, Any], whole: Path) -> float | None:
    """Seconds, by the model; None where the rules do not make that schedule."""
    if any(side & (side - 1) for side in (*point["tile"], *point["thread"])):
        return None
    lead = (point["batch"],) * (point["batch"] > 1)
    left = torch.empty(1).expand(*lead, point["m"], point["k"])
    right = torch.empty(1).expand(*lead, point["k"], point["n"])
    try:
        compiled = dplc.compile(
            torch.matmul, (left, right), target=point["device"], settings=settings(point), trace=False, db=False,
            device="reference", rules=whole if point["split"] == 1 else None,
        )  # fmt: skip
    except dplc.DplcError:
        return None
    made = compiled.compilation
    if len(made.launched) != (2 if point["split"] > 1 else 1):
        return None
    device = load_device(point["device"])
    return sum(predict(instruction_counts(made.kernels[index]), device).seconds for index in made.launched)


def variants(found: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], MeasuredVariant]]:
    """Each point that the rules can express, as measured and as predicted."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.rw"
        whole.write_text(WHOLE)
        for point in found:
            seconds = predicted(point, whole)
            if seconds is not None:
                yield point, MeasuredVariant(shape(point), point["us"] * 1e-6, seconds)


def by_device(made: list[tuple[dict[str, Any], MeasuredVariant]]) -> dict[str, Agreement]:
    """Of each device, over all of its points: tau within shapes, errors over all."""
    names = sorted({point["device"] for point, _ in made})
    return {name: agreement(variant for point, variant in made if point["device"] == name)[-1] for name in names}


def table(made: list[tuple[dict[str, Any], MeasuredVariant]], total: int) -> str:
    lines = [
        "| device | points | predicted / measured, median | error, median | tau within a shape | loss of its choice |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in by_device(made).items():
        tau = "-" if found.tau is None else f"{found.tau:.2f}"
        lines.append(
            f"| {name} | {found.variants} | {found.ratio:.2f} | {found.error:.2f} | {tau} | {found.loss:.2f} |"
        )
    lines += ["", f"{len(made)} of {total} points can be expressed.", ""]
    lines += ["| product | tile | thread | chunk | slots | split | measured us | predicted us | ratio | cuBLAS us |"]
    lines += ["|---|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for point, one in made:
        tile, thread = ("x".join(map(str, point[key])) for key in ("tile", "thread"))
        lines.append(
            f"| {one.kernel} | {tile} | {thread} | {point['chunk']} | {point['slots']} | {point['split']} | "
            f"{point['us']:.1f} | {one.predicted * 1e6:.1f} | {one.predicted / one.measured:.2f} | "
            f"{point['library_us']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="devices with this in their name")
    parser.add_argument("--json", action="store_true", help="what is said of each device, as JSON")
    asked = parser.parse_args()
    found = points(asked.only)
    made = list(variants(found))
    if asked.json:
        json.dump({name: one.__dict__ for name, one in by_device(made).items()}, sys.stdout, indent=1)
    else:
        print(table(made, len(found)))


if __name__ == "__main__":
    main()
