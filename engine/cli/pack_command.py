"""bench --pack, --unpack and --compare."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ...codegen.pack import runner
from ...codegen.pack.contents import CONTENTS, OpenPack
from ...ir.diagnostic import DplcError
from ..bench.packed import comparison, read_results
from .options import Flags
from .output_file import writing
from .show import write

PACK = re.compile(rb"\APK\x03\x04.{26}" + re.escape(CONTENTS.encode()), re.DOTALL)
MINUTES = 8.0


def pack_suites(subjects: Sequence[str], path: Path, candidates: int, flags: Flags, command: str) -> None:
    """`dplc bench SUITE.. --pack FILE`. Raises DplcError where cases were left out, after the rest was written."""
    from ..bench.suite_file import read_suite
    from ..models.packing import PickedSuite, pack
    from .bench_command import teller
    from .compiling import machine_for, tools_for

    suites, known = list[PickedSuite](), set[tuple[str, str]]()
    for subject in subjects:
        name, _, pattern = subject.partition(":")
        suite = read_suite(Path(name))
        stem = Path(name).stem
        cases = [case for case in suite.select(pattern or None) if (stem, case.name) not in known]
        known |= {(stem, case.name) for case in cases}
        suites.append(PickedSuite(Path(name), suite, cases, f"{stem}:{pattern}" if pattern else stem))
    with writing(path, PACK) as file:
        made = pack(file, suites, tools_for(flags), machine_for(flags), command, candidates, say=teller())
    write(f"{path}: {made.cases} cases, {made.kernels} kernels, {path.stat().st_size / 1e6:.1f} MB\n")
    if made.refused:
        notes = [f"{name}: {error.what}" for name, error in made.refused.items()]
        raise DplcError(f"{len(notes)} cases are not in the pack", notes=notes[:10])


def measure_pack(path: Path, minutes: float | None, plan: bool, out: Path | None) -> None:
    """`dplc bench --unpack FILE`. The exit code is 1 where a case was wrong."""
    if plan:
        write(runner.plan(OpenPack(path)) + "\n")
        return
    limit = ["--minutes", str(MINUTES if minutes is None else minutes)]
    code = runner.main([str(path), *limit, "-o", str(out or "results.json")])
    if code:
        sys.exit(code)


def compare_results(path: Path) -> None:
    """`dplc bench --compare RESULTS`: every suite that was measured."""
    write(comparison(read_results(path)))
