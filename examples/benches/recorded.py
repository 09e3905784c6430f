"""The model held against products that others measured on GPUs, with the schedules that they measured.

    python examples/benches/recorded.py [--only DEVICE] [--json]

Each point of `results/recorded/products.json` is compiled with its tile, registers, chunk, ring and split; a point that
the rules cannot express so (a side of 112, a split that they refuse) is left out and counted. The kernels that were
measured are not ours: they copy by TMA where ours use cp.async, and read their shared tiles in another order; blocks
that share a sum add theirs to the result, so that one launch does it, and of ours the second launch is not counted.
What is held against the clock is the model and the way it counts, not our code. Nothing is run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import dplc
from dplc.codegen.target import load_device
from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.predict import Agreement, MeasuredVariant, agreement, predict

POINTS = Path(__file__).resolve().parents[1] / "suites" / "results" / "recorded" / "products.json"
WHOLE = "without split_matmul_k\n"
FACTORS = [step / 100 for step in range(60, 121)]


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


def counted(point: dict[str, Any], whole: Path) -> InstructionCounts | None:
    """What the product asks of the device; None where the rules do not make that schedule."""
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
    return instruction_counts(made.kernels[made.launched[0]])


def expressed(found: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], InstructionCounts]]:
    """Each point that the rules can express, and what it asks."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.rw"
        whole.write_text(WHOLE)
        for point in found:
            counts = counted(point, whole)
            if counts is not None:
                yield point, counts


def variant(point: dict[str, Any], counts: InstructionCounts, factor: float = 1.0) -> MeasuredVariant:
    """A point as measured and as predicted. factor: on the clock that the device file says."""
    device = load_device(point["device"])
    device = dataclasses.replace(device, clock=factor * device.clock)
    return MeasuredVariant(shape(point), point["us"] * 1e-6, predict(counts, device).seconds)


Expressed = list[tuple[dict[str, Any], InstructionCounts]]


def by_device(made: Expressed) -> dict[str, Agreement]:
    """Of each device, over all of its points: tau within shapes, errors over all."""
    names = sorted({point["device"] for point, _ in made})
    return {name: agreement(variant(*one) for one in made if one[0]["device"] == name) for name in names}


def held_out(made: Expressed) -> dict[str, tuple[float, Agreement]]:
    """Of each device the factor on its clock that fits every second point best, and how the others agree with it."""
    found = {}
    for name in sorted({point["device"] for point, _ in made}):
        own = [one for one in made if one[0]["device"] == name]
        best = min(FACTORS, key=lambda factor: agreement(variant(*one, factor) for one in own[::2]).error)
        found[name] = best, agreement(variant(*one, best) for one in own[1::2])
    return found


def table(made: Expressed, total: int) -> str:
    lines = [
        "| device | points | predicted / measured, median | error, median | tau within a shape | loss of its choice |"
        " clock fitted to half | error of the other half |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    fitted = held_out(made)
    for name, found in by_device(made).items():
        tau = "-" if found.tau is None else f"{found.tau:.2f}"
        factor, rest = fitted[name]
        lines.append(
            f"| {name} | {found.variants} | {found.ratio:.2f} | {found.error:.2f} | {tau} | {found.loss:.2f} |"
            f" {factor:.2f} | {rest.error:.2f} |"
        )
    lines += ["", f"{len(made)} of {total} points can be expressed.", ""]
    lines += ["| product | tile | thread | chunk | slots | split | measured us | predicted us | ratio | cuBLAS us |"]
    lines += ["|---|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for point, counts in made:
        one = variant(point, counts)
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
    made = list(expressed(found))
    if asked.json:
        json.dump({name: one.__dict__ for name, one in by_device(made).items()}, sys.stdout, indent=1)
    else:
        print(table(made, len(found)))


if __name__ == "__main__":
    main()
