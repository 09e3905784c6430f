"""A bench from beginning to end: a suite in, a record out."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...codegen.compiler import find_program, program_identity
from ...codegen.sass import find_nvdisasm
from ...codegen.target import Target
from ...version import __version__
from ..ruleset import Toolchain
from .assembling import assemble_all, assembler
from .compiling import CompiledCase, CompileTimes, compile_all
from .emulating import build_all, run_case
from .measuring import can_measure, device_name, measure_case
from .records import BenchRecord, CaseRecord, Totals, geomean
from .subject import subject_of
from .suite_file import BenchCase, Suite

Say = Callable[[str], None]


@dataclass(frozen=True)
class BenchSteps:
    """What to do besides compiling."""

    run: bool = True
    assemble: bool = True
    command: str = ""


def bench(
    path: Path,
    suite: Suite,
    cases: list[BenchCase],
    rules: Callable[[], Toolchain],
    target: Target,
    steps: BenchSteps,
    say: Say,
) -> BenchRecord:
    """Compile the cases cold, assemble, run and measure them as wished. Raises DplcError where no case is to blame."""
    compiled, times = compile_all([subject_of(suite, case) for case in cases], rules, target, say)
    if steps.assemble and assembler():
        assemble_all(compiled, target, say)
    if steps.run:
        _run(compiled, say)
    records = [one.record for one in compiled]
    head = provenance(steps.command, target, rules())
    return BenchRecord(
        suite=str(path),
        about=suite.about,
        published=suite.published,
        totals=totals(records, times),
        cases=records,
        **head,
    )


def provenance(command: str, target: Target, tools: Toolchain) -> dict[str, Any]:
    """How a record was made, and for what."""
    return {
        "command": command, "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "machine": machine(),
        "target": target.name, "arch": target.arch, "dram_bytes_per_second": target.dram_bytes_per_second,
        "versions": versions(tools),
    }  # fmt: skip


def _run(suite: list[CompiledCase], say: Say) -> None:
    build_all(suite, say)
    for compiled in suite:
        say(f"running {compiled.record.name} on the emulator")
        run_case(compiled)
        if can_measure():
            say(f"measuring {compiled.record.name}")
            measure_case(compiled)


def totals(records: list[CaseRecord], times: CompileTimes) -> Totals:
    """What stands under the table."""
    spills = [record.spills for record in records if record.spills is not None]
    runs = [record.run for record in records if record.run is not None]
    return Totals(
        cases=len(records),
        failed=sum(bool(record.error) for record in records),
        kernels=sum(len(record.kernels) for record in records),
        compile_seconds=times.wall,
        compile_cpu_seconds=times.cpu,
        rules_ms=times.rules_ms,
        spill_bytes=sum(spills) if spills else None,
        wrong=sum(not run.ok for run in runs) if runs else None,
        predicted_geomean_us=geomean(record.predicted_us for record in records if record.predicted_us is not None),
    )


def versions(tools: Toolchain) -> dict[str, str]:
    """What took part, with versions; "" for what is not there."""
    host = find_program("g++")
    return {
        "dplc": __version__,
        "rules": tools.rules.digest[:12],
        "python": platform.python_version(),
        "torch": version("torch"),
        "assembler": assembler(),
        "disassembler": _disassembler(),
        "host compiler": program_identity(host).splitlines()[0] if host else "",
        **(_launching() if can_measure() else {}),
    }


def _launching() -> dict[str, str]:
    """What runs kernels here."""
    import pycuda.driver
    import torch

    number = pycuda.driver.get_driver_version()
    driver = f"for CUDA {number // 1000}.{number % 1000 // 10}"
    about = {"driver": driver, "gpu": device_name()}
    return {"pycuda": version("pycuda"), "CUDA of torch": str(torch.version.cuda), **about}


def _disassembler() -> str:
    found = find_nvdisasm()
    return program_identity(found).splitlines()[-1] if found else ""


def machine() -> str:
    """What this was made on."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {device_name() if can_measure() else 'no GPU'}"
