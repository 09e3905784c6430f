"""A compile as data for the page. Its trace is the trace that `-vv --json` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...codegen.build import BuildError
from ...codegen.emulator.checking import CheckedLaunch, CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...ir.dtypes import DTYPES
from ...ir.expr import is_int
from ...ir.program import Param
from ...version import __version__
from ..api import Compiled
from ..bench.assembling import assembled, assembler
from ..compiler import Compilation
from ..kernels.sharing import share
from ..rewrite.trace import Firing
from ..ruleset import Toolchain
from ..schedule.limits import predicted_registers
from .effects import Effects
from .provenance import Column, columns

SECONDS = 1.5  # of processor time, for predicting all firings of one page


def view_record(
    compilation: Compilation, tools: Toolchain, title: str, seconds: float | None = SECONDS
) -> dict[str, Any]:
    """Return the record of a traced compile, with times in microseconds and sizes in bytes.

    seconds: processor time for predicting firings. Firings beyond it get no prediction.
    """
    events = compilation.trace.events if compilation.trace is not None else []
    pricing = Effects(tools, compilation.target, seconds, compilation.tile)
    effects = {str(number): found for number, found in pricing.of_all(events)}
    return compile_record(compilation, tools, title) | {"effects": effects}


def compile_record(compilation: Compilation, tools: Toolchain, title: str) -> dict[str, Any]:
    """Return the record without predictions of firings."""
    events = compilation.trace.events if compilation.trace is not None else []
    target, pricing = compilation.target, Effects(tools, compilation.target, tiles=compilation.tile)
    kernels = [_kernel(number, compilation, pricing) for number in range(len(compilation.kernels))]
    return {
        "dplc": __version__,
        "title": title,
        "target": {"name": target.name, "arch": target.arch},
        "timings": compilation.timings,
        "launches": len(compilation.launched),
        "kernels": kernels,
        "columns": [column_record(column) for column in columns(compilation, events)],
        "trace": [event.record() for event in events],
        "effects": {},
        "fusion": fusion_graph(compilation),
        "rules": _rules(events, tools),
        "schedules": [origin.record() for origin in compilation.origins],
    }


def column_record(column: Column) -> dict[str, Any]:
    """Return a column as data."""
    return {
        "name": column.name, "lines": column.lines, "up": [list(found) for found in column.up],
        "made": [list(found) for found in column.made], "units": [list(unit) for unit in column.units],
    }  # fmt: skip


def _kernel(number: int, compilation: Compilation, pricing: Effects) -> dict[str, Any]:
    made = compilation.cuda_kernels[number]
    return {
        "name": made.name, "grid": list(made.grid), "block": made.block, "shared": made.smem,
        "launches": compilation.launched.count(number), "predicted": pricing.kernel(compilation.kernels[number]),
        "registers": _registers(compilation, number), "assembled": None,
    }  # fmt: skip


def _registers(compilation: Compilation, number: int) -> int | None:
    """Predict registers of a thread from Tile IR. Returns None for a program that started below Tile IR."""
    if len(compilation.tile) != len(compilation.kernels):
        return None
    return predicted_registers(compilation.tile, number, compilation.target)


def _rules(events: Any, tools: Toolchain) -> dict[str, Any]:
    """Describe each rule in the trace: location, documentation, level, parameters, number of firings."""
    named = dict.fromkeys(event.rule for event in events if event.rule in tools.rules.rules)
    found = {}
    for name in named:
        rule = tools.rules.rules[name]
        found[name] = {
            "location": rule.location, "docs": " ".join(rule.docs).strip(), "level": rule.level, "pass": rule.file,
            "parameters": [parameter.name for parameter in rule.parameters],
            "fired": sum(isinstance(event, Firing) and event.rule == name for event in events),
        }  # fmt: skip
    return found


def measured_registers(compilation: Compilation) -> Iterator[dict[str, Any] | None]:
    """Assemble each kernel in order. Yields registers of a thread, spilled bytes and the name of the assembler.

    Yields None for a kernel that the assembler rejects, and nothing without an assembler.
    """
    by = assembler()
    for kernel in compilation.cuda_kernels if by else ():
        try:
            found = assembled(kernel, compilation.target.arch)
        except BuildError:
            yield None
        else:
            yield {"registers": found.registers, "spill_bytes": found.spill_bytes, "by": by}


def access_counts(compilation: Compilation) -> dict[str, Any]:
    """Run a program on its captured inputs in the emulator's checked mode, and count accesses by line of CUDA.

    Counts are sectors of global memory and wavefronts of shared memory, with the least number for as many bytes.
    `lines` maps a line of the whole CUDA text, from 0, to the counts of its accesses at the kernel's first launch.
    `findings` are races, reads out of bounds and the like.
    """
    checker = CheckingExecutor(None)
    compiled = Compiled(compilation, "emulator")
    compiled.executor = checker
    try:
        compiled.run({})
        ended = True
    except EmulatorError:  # the findings hold it
        ended = False
    starts = _first_lines(compilation)
    lines: dict[str, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for launch in checker.launches:
        if launch.kernel.name not in seen:
            seen.add(launch.kernel.name)
            _add_counts(lines, launch, starts[launch.kernel.name])
    findings = [{"kernel": one.kernel, "message": one.message, "lines": list(one.lines)} for one in checker.findings]
    return {"lines": lines, "findings": findings, "ended": ended, "whole": all(one.whole for one in checker.launches)}


def _first_lines(compilation: Compilation) -> dict[str, int]:
    """Return the first line of each kernel in the whole CUDA text, with an empty line between two kernels."""
    found, start = {}, 0
    for kernel in compilation.cuda_kernels:
        found[kernel.name] = start
        start += kernel.text.count("\n") + 1
    return found


def _add_counts(lines: dict[str, list[dict[str, Any]]], launch: CheckedLaunch, start: int) -> None:
    for site in launch.sites:
        told = {
            "access": site.access, "unit": site.unit, "width": site.width, "requests": site.requests,
            "cost": site.cost, "ideal": site.ideal,
        }  # fmt: skip
        lines.setdefault(str(start + site.line - 1), []).append(told)


def fusion_graph(compilation: Compilation) -> dict[str, Any]:
    """Return kernels as nodes and buffers as edges, with bytes and why fusion kept each buffer."""
    plan = compilation.plan
    shared = share(plan.kernels)
    reasons = {}
    for cut, values in zip(plan.stores, plan.kernels, strict=False):
        for term, param in zip(cut, values.outs, strict=False):
            told = next((why for why in plan.why if why.value is term), None)
            if told is not None:
                reasons[param.name] = {"reason": told.reason, "location": told.location}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    made: dict[str, int] = {}
    for number, kernel in enumerate(plan.kernels):
        inside = list(dict.fromkeys(plan.values[number])) if number < len(plan.values) else []
        stored = {param.name for param in kernel.outs}
        nodes.append(
            {"name": kernel.name, "kernel": shared.place[number], "values": [v for v in inside if v not in stored]}
        )
        for param in kernel.ins:
            edges.append(
                {"to": number, "from": made.get(param.name, -1), **_buffer(param), **reasons.get(param.name, {})}
            )
        for param in kernel.outs:
            made[param.name] = number
    outs = {param.name for param in plan.outputs}
    edges += [{"from": made[param.name], "to": -1, **_buffer(param)} for param in plan.outputs if param.name in made]
    return {"nodes": nodes, "edges": edges, "outputs": sorted(outs)}


def _buffer(param: Param) -> dict[str, Any]:
    shape = [extent if is_int(extent) else str(extent) for extent in param.shape]
    size = math.prod(n for n in shape if isinstance(n, int)) * DTYPES[param.dtype].item_bytes
    return {"buffer": param.name, "type": f"{param.dtype}{shape}", "bytes": size}
