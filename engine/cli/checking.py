"""`dplc run --check`: the kernels in the emulator's checked mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...codegen.emulator.checking import DEFAULT_BLOCKS, ORDERS, SMALL, CheckedLaunch, CheckingExecutor, Violation
from ...codegen.emulator.runtime import EmulatorError, LineCost
from ...ir.diagnostic import DplcError, UsageError
from ..api import Compiled
from ..compiler import Compilation
from ..run.judge import Judgement, judge, run_reference
from .bindings import alone, bindings, drawn_at, told
from .commands import judged_line, judged_record
from .compiling import captured_text, compile_text, print_trace
from .options import Flags
from .show import print_json, progress, write

LINE_WIDTH = 72


def check_expression(flags: Flags, blocks: str | None = None, device: str | None = None) -> None:
    """`dplc run --check`. Raises DplcError where something was found."""
    check_device(device)
    compilation = compile_text(flags, "emulator")
    print_trace(compilation, flags)
    if not (compilation.sizes or flags.sizes):
        check_compilation(compilation, flags, blocks)
        return
    asked = bindings(compilation.sizes, "the text", flags.sizes)
    alone(asked, flags.as_json, "--json is of one run")
    for binding in asked:
        if len(asked) > 1:
            write(told(binding))
        drawn, _ = captured_text(flags, sizes=binding)
        check_compilation(drawn_at(compilation, drawn, binding), flags, blocks, run_reference(drawn, drawn.tensors))


def check_device(device: str | None) -> None:
    """Raises UsageError for a device on which nothing can be checked."""
    if device not in (None, "emulator"):
        raise UsageError(f"--check looks at kernels in the emulator; it cannot on `{device}`")


def check_compilation(
    compilation: Compilation, flags: Flags, blocks: str | None, references: Sequence[Any] | None = None
) -> None:  # fmt: skip
    """One run of the kernels, reported. references: the right outputs, else those of what was captured.

    Raises DplcError where something was found.
    """
    checker = CheckingExecutor(None if blocks is None else tuple(word.strip() for word in blocks.split(",")))
    judged = _run(compilation, checker, references)
    ok = judged is not None and judged.ok
    found = checker.findings
    if flags.as_json:
        print_json(
            {"ok": ok and not found, "findings": [dataclasses.asdict(finding) for finding in found]}
            | {"kernels": [_record(launch) for launch in checker.launches], "orders": list(checker.orders)}
            | ({"max_abs_err": None, "max_rel_err": None} if judged is None else judged_record(judged))
        )
    else:
        write("\n".join(_report(checker, blocks is None, judged)) + "\n")
    if found:
        raise DplcError(f"checked mode found {len(found)} fault{'s' if len(found) > 1 else ''}")
    if judged is not None and not ok:
        raise DplcError(f"the result is off by {judged.relative:.2e} of the largest value")


def _run(
    compilation: Compilation, checker: CheckingExecutor, references: Sequence[Any] | None
) -> Judgement | None:  # fmt: skip
    """How the outputs compare with float64; None where a kernel did not end."""
    compiled = Compiled(compilation, "emulator")
    compiled.executor = checker
    captured = compilation.captured
    with progress("running in checked mode"):
        try:
            results = compiled.run({})
        except EmulatorError:
            return None  # it is among the findings
    references = run_reference(captured, captured.tensors) if references is None else references
    return judge(results, references, captured.reference)


# ---- for programs


def _record(launch: CheckedLaunch) -> dict[str, Any]:
    return {
        "name": launch.kernel.name,
        "grid": list(launch.kernel.grid),
        "blocks": list(launch.blocks),
        "whole": launch.whole,
        "sites": [dataclasses.asdict(site) | {"unit": site.unit, "text": launch.line(site)} for site in launch.sites],
    }


# ---- for people


def _report(checker: CheckingExecutor, default: bool, judged: Judgement | None) -> list[str]:
    lines: list[str] = []
    for launch in checker.launches:
        lines += [_heading(launch), *_table(launch), ""]
        for finding in launch.findings:
            lines += [*_found(finding), ""]
    if default and not all(launch.whole for launch in checker.launches):
        lines.append(
            f"grids of more than {SMALL} threads: {', '.join(DEFAULT_BLOCKS)} blocks; `--blocks all` checks every one"
        )
    if judged is not None:
        lines += [*(f"note: {note}" for note in judged.notes), judged_line(judged)]
    count = len(checker.findings)
    lines.append(f"{count or 'no'} finding{'' if count == 1 else 's'}")
    return lines


def _heading(launch: CheckedLaunch) -> str:
    kernel, blocks = launch.kernel, launch.blocks
    some = f"blocks {', '.join(map(str, blocks[:16]))}{', ..' if len(blocks) > 16 else ''} of {kernel.blocks}"
    which = f"all {kernel.blocks} blocks" if launch.whole else some
    return f"kernel {kernel.name}: {which} of {kernel.block} threads, {len(ORDERS)} orders of threads"


def _table(launch: CheckedLaunch) -> list[str]:
    """What each access costs: 32-byte sectors of global memory, wavefronts of shared memory, per request of a warp."""
    if not launch.sites:
        return []
    head = ("line", "access", "bytes", "requests", "cost", "ideal", "per request", "")
    rows = [head, *(_row(launch, site) for site in sorted(launch.sites, key=lambda s: (s.line, s.access)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    left = (1,)  # columns of words
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        + (f"  {row[-1]}" if row[-1] else "")
        for row in rows
    ]


def _row(launch: CheckedLaunch, site: LineCost) -> tuple[str, ...]:
    text = launch.line(site)
    short = text if len(text) <= LINE_WIDTH else text[: LINE_WIDTH - 2] + ".."
    each = f"{site.cost / site.requests:.2f} {site.unit}"
    return (
        str(site.line), site.access, str(site.width), str(site.requests), str(site.cost), str(site.ideal), each, short,
    )  # fmt: skip


def _found(finding: Violation) -> list[str]:
    order = ("forwards", "backwards", "shuffled")[min(finding.order, 2)]
    return [f"FOUND {finding.message}", f"  threads started {order}", *(f"  {line}" for line in finding.lines)]
