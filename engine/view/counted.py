"""What checked mode counts of every access, by the line of CUDA that makes it: sectors of global memory, wavefronts of
shared memory, beside the least that as many bytes can take."""

from __future__ import annotations

from typing import Any

from ...codegen.emulator.checking import CheckedLaunch, CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ..api import Compiled
from ..compiler import Compilation


def counted(compilation: Compilation) -> dict[str, Any]:
    """Runs a program in the emulator's checked mode, on what was captured.

    lines: {line of all CUDA text together, from 0: counts of each access}; findings: what a kernel must not do. Where a
    kernel is launched more than once, the counts are of its first launch.
    """
    checker = CheckingExecutor(None)
    compiled = Compiled(compilation, "emulator")
    compiled.executor = checker
    try:
        compiled.run({})
        ended = True
    except EmulatorError:  # it is among the findings
        ended = False
    starts = _starts(compilation)
    lines: dict[str, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for launch in checker.launches:
        if launch.kernel.name not in seen:
            seen.add(launch.kernel.name)
            _add(lines, launch, starts[launch.kernel.name])
    findings = [{"kernel": one.kernel, "message": one.message, "lines": list(one.lines)} for one in checker.findings]
    return {"lines": lines, "findings": findings, "ended": ended, "whole": all(one.whole for one in checker.launches)}


def _starts(compilation: Compilation) -> dict[str, int]:
    """The line at which each kernel begins in the text of all, which has an empty line between two."""
    found, start = {}, 0
    for kernel in compilation.cuda_kernels:
        found[kernel.name] = start
        start += kernel.text.count("\n") + 1
    return found


def _add(lines: dict[str, list[dict[str, Any]]], launch: CheckedLaunch, start: int) -> None:
    for site in launch.sites:
        told = {
            "access": site.access, "unit": site.unit, "width": site.width, "requests": site.requests,
            "cost": site.cost, "ideal": site.ideal,
        }  # fmt: skip
        lines.setdefault(str(start + site.line - 1), []).append(told)
