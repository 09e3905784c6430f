"""What every program of the manifest compiles to: a digest of its CUDA, its launches and its predicted time, by device;
digests of traces. A change of the tree that should change no kernel changes nothing here; one that should, shows what.

    python tests/manifest/manifest.py             # what differs from manifest.json, and what the model says of it
    python tests/manifest/manifest.py --update    # writes it anew: read the diff
    python tests/manifest/manifest.py --against FILE   # compare with another manifest
    python tests/manifest/manifest.py --every 8   # only every eighth program: a quick look while you work
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from manifest_programs import Program, programs

from dplc.codegen.target import target
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.diagnostic import DplcError

FILE = Path(__file__).parent / "manifest.json"
TARGETS = ("sm_80", "sm_90a", "sm_120")
TRACED = "sm_90a"

# {program: {target or "trace": [digest, launches, predicted microseconds] or [digest, lines]}}, or a refusal's text.
Entries = dict[str, Any]


def made(every: int = 1) -> Entries:
    """The manifest of this tree (of every n-th program), with the version of torch that captured the programs."""
    chosen = itertools.islice(programs(), 0, None, every)
    return {"torch": torch.__version__.split("+")[0], "programs": {p.name: entry(p) for p in chosen}}


def entry(program: Program) -> Entries:
    """One program on every target. A refusal is an entry too."""
    try:
        captured = program.capture()
        found: Entries = {name: compiled(captured, name) for name in TARGETS}
        if program.traced:
            found["trace"] = traced(captured)
    except DplcError as error:
        return {"refused": error.render().splitlines()[0]}
    return found


def compiled(captured: Capture, name: str) -> list[Any]:
    device = target(name)
    compilation = compiler_with(device).compile(captured)
    return [digest(compilation.cuda), len(compilation.launched), round(microseconds(compilation), 2)]


def microseconds(compilation: Compilation) -> float:
    """The predicted time of all launches."""
    each = [predict(instruction_counts(kernel), compilation.target).seconds * 1e6 for kernel in compilation.kernels]
    return sum(each[index] for index in compilation.launched)


def traced(captured: Capture) -> list[Any]:
    """The trace of `-vv`: firings with their diffs, and every refusal with its reason."""
    from dplc.engine.rewrite.trace import Trace

    trace = Trace()
    compiler_with(target(TRACED), trace=trace).compile(captured)
    text = re.sub(r"\bt:\d{3}_", "t:", trace.render(2, ["each"]))  # the numbers of passes are for people
    return [digest(text), text.count("\n")]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(old: Entries, new: Entries) -> Iterator[str]:
    """A line for every program and target that differs, then the geometric mean of the predicted ratios by target."""
    ratios: dict[str, list[float]] = {name: [] for name in TARGETS}
    before, after = old["programs"], new["programs"]
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            yield f"{name}: {'is new' if a is None else 'is gone'}"
            continue
        for part in sorted(a.keys() | b.keys()):
            x, y = a.get(part), b.get(part)
            if part in ratios and x is not None and y is not None:
                ratios[part].append(y[2] / x[2])
            if x != y:
                yield f"{name} {part}: {said(x)} -> {said(y)}" + ratio(part, x, y)
    for name, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found)) if found else 1.0
        if any(value != 1.0 for value in found):
            yield f"{name}: predicted time, new over old: geometric mean {mean:.4f}, worst {max(found):.3f}"


def said(value: Any) -> str:
    if isinstance(value, list) and len(value) == 3:
        return f"{value[0]} {value[1]} launches {value[2]:g} us"
    if isinstance(value, list):
        return f"{value[0]} {value[1]} lines"
    return "nothing" if value is None else str(value)


def ratio(part: str, x: Any, y: Any) -> str:
    return f"  x{y[2] / x[2]:.3f}" if part in TARGETS and x and y else ""


def written(entries: Entries) -> str:
    """A program a line, so that a diff names it."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in entries["programs"].items())
    return f'{{\n "torch": {json.dumps(entries["torch"])},\n "programs": {{\n{rows}\n }}\n}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description="What has changed in the CUDA of the manifest's programs.")
    parser.add_argument("--update", action="store_true", help="write the manifest anew")
    parser.add_argument("--against", type=Path, default=FILE, help="another manifest to compare with")
    parser.add_argument("--output", type=Path, default=FILE, help="where --update writes")
    parser.add_argument("--every", type=int, default=1, help="compare only every n-th program (not with --update)")
    options = parser.parse_args()
    if options.every > 1 and options.update:
        parser.error("--update writes every program: leave --every out")
    new = made(options.every)
    old = json.loads(options.against.read_text()) if options.against.exists() else new
    if options.every > 1:
        old["programs"] = {name: entry for name, entry in old["programs"].items() if name in new["programs"]}
    lines = list(differences(old, new))
    print("\n".join(lines) if lines else "nothing has changed")
    if options.update:
        options.output.write_text(written(new))
    return 1 if lines and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
