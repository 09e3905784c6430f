"""Everything that needs a GPU, by one command: right first, then measured. `make gpu` calls it.

    python examples/benches/gpu.py [--out DIR] [--only STEP]... [--dry-run]

Steps: every command of README.md, line by line, and its Python; what is there (`dplc doctor`), the tests of tests/gpu
(every family of kernels on the real driver), every suite
of examples/suites and every model of examples/models by `dplc bench`, which measures only what is right, and one kernel
for every length beside one for each (`dynamic.py --measured`). Each is a
process of its own, so that a step that fails does not stop the others; the exit code is 1 if one did. Results go to
examples/suites/results/DEVICE/: the records, and README.md with the date, versions, commands and how each went.

--dry-run does the same on a machine without a GPU (where nothing is measured, and the pages say so), into --out.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.api import has_gpu, target_for
from dplc.engine.bench.bench import device_name, machine, versions
from dplc.engine.ruleset import toolchain

ROOT = Path(__file__).resolve().parents[2]
OWN_TEXT = "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16))"
DTYPES = ("f32", "bf16")
LENGTHS = (32, 512)


@dataclass(frozen=True)
class Step:
    """A command of this Python: `-m` or `-c` and what follows. printed: the file its output is kept in."""

    name: str
    arguments: tuple[str, ...]
    printed: str

    @property
    def command(self) -> str:
        """As one would type it, from the root."""
        return shlex.join(["python", *(argument.removeprefix(f"{ROOT}/") for argument in self.arguments)])


@dataclass(frozen=True)
class Outcome:
    step: Step
    code: int
    seconds: float
    said: str


def steps(out: Path, arch: str, suites: list[Path], models: list[Path], dry: bool = False) -> Iterator[Step]:
    """Everything, in order."""
    yield from readme(out)
    yield Step("doctor", ("-m", "dplc", "doctor", "--json"), "doctor.json")
    yield Step("tests", ("-m", "pytest", "-q", "-n", "0", "-rs", "tests/gpu"), "tests.txt")
    for suite in suites:
        yield bench(out, suite.stem, suite, "--target", arch)
    dynamic = str(ROOT / "examples" / "benches" / "dynamic.py")
    yield Step("lengths", (dynamic, *(("--only", "softmax") if dry else ("--measured",))), "lengths.md")
    for model, dtype, length in itertools.product(models, DTYPES, LENGTHS):
        how = ("--target", arch, "--dtype", dtype, "--seq-len", str(length))
        yield bench(out, f"{model.stem}.{dtype}.s{length}", model, *how)


def readme(out: Path) -> Iterator[Step]:
    """What README.md says, as a user types it: first of all, for it is what a user meets first.

    Its places for the user's own are filled; what it writes goes to the results.
    """
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for kind, block in blocks if kind == "sh" for line in block.splitlines() if line.startswith("dplc ")]
    own = {"...": OWN_TEXT, "my_rules.rw": "examples/rules/product_of_exponentials.rw", "build": str(out / "build")}
    for number, line in enumerate(lines, 1):
        words = [own.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        yield Step(f"readme {number}", ("-m", "dplc", *words), f"readme_{number}.txt")
    for kind, block in blocks:
        if kind == "python":
            yield Step("readme python", ("-c", block), "readme_python.txt")


def bench(out: Path, name: str, what: Path, *how: str) -> Step:
    page = str(out / f"{name}.md")
    return Step(name, ("-m", "dplc", "bench", str(what), *how, "--json", "--markdown", page), f"{name}.json")


def run(step: Step, out: Path) -> Outcome:
    """One step, its output kept. What it complains of ends up on the page."""
    start = time.monotonic()
    command = [sys.executable, *step.arguments]
    with (out / step.printed).open("w") as printed:
        done = subprocess.run(command, cwd=ROOT, stdout=printed, stderr=subprocess.PIPE, text=True, check=False)
    said = done.stderr.strip() if done.returncode else ""
    return Outcome(step, done.returncode, time.monotonic() - start, said)


def page(outcomes: list[Outcome], arch: str, dry: bool) -> str:
    """README.md of the results."""
    known = "; ".join(f"{name} {what}" for name, what in versions(toolchain()).items() if what)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    how = "A dry run: nothing here was measured." if dry else "Times are measured, unless a column says predicted."
    lines = [
        f"# {device_name()}",
        "",
        f"Made by `python examples/benches/gpu.py` on {today} ({machine()}), for {arch}. {how}",
        "",
        f"{known}.",
        "",
        "| step | result | seconds | command | output |",
        "|---|---|---:|---|---|",
    ]
    for one in outcomes:
        step, result = one.step, "ok" if one.code == 0 else f"FAILED ({one.code})"
        kept = f"[{step.printed}]({step.printed})"
        command = step.command.splitlines()[0]
        lines.append(f"| {step.name} | {result} | {one.seconds:.0f} | `{command}` | {kept} |")
    for one in outcomes:
        if one.said:
            lines += ["", f"{one.step.name}:", "", *(f"    {line}" for line in one.said.splitlines()[-12:])]
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check and measure everything on the GPU that is here.")
    parser.add_argument("--out", type=Path, help="where results go (default: examples/suites/results/DEVICE)")
    parser.add_argument(
        "--only", action="append", metavar="STEP", help="a step's name: readme, doctor, kernels_84, ..."
    )
    parser.add_argument("--suite", type=Path, action="append", help="instead of every suite of examples/suites")
    parser.add_argument("--model", type=Path, action="append", help="instead of every model of examples/models")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU: everything but measuring; needs --out")
    given = parser.parse_args()
    if given.dry_run and given.out is None:
        parser.error("--dry-run needs --out: results/ holds what was measured")
    return given


def main() -> int:
    """The exit code: 0, or 1 if a step failed."""
    given = arguments()
    if not given.dry_run and not has_gpu():
        print("no GPU here, or no PyCUDA; `dplc doctor` says which, and --dry-run does all the rest", file=sys.stderr)
        return 1
    arch = target("h200").arch if given.dry_run else target_for("cuda").arch
    folder = re.sub(r"[^a-z0-9]+", "-", device_name().lower()).strip("-")
    out = (given.out or ROOT / "examples" / "suites" / "results" / folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    suites = [path.resolve() for path in given.suite or sorted((ROOT / "examples" / "suites").glob("*.json"))]
    models = [path.resolve() for path in given.model or sorted((ROOT / "examples" / "models").glob("*.json"))]
    outcomes: list[Outcome] = []
    for step in steps(out, arch, suites, models, given.dry_run):
        if given.only is None or step.name in given.only or step.name.split(" ")[0] in given.only:
            print(f"{step.name}: {step.command.splitlines()[0]}", flush=True)
            outcomes.append(run(step, out))
            result = "ok" if outcomes[-1].code == 0 else "FAILED"
            print(f"{step.name}: {result}, {outcomes[-1].seconds:.0f} s", flush=True)
            (out / "README.md").write_text(page(outcomes, arch, given.dry_run))  # kept if the rest is interrupted
    return int(any(one.code for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
