"""A compile as data: what the page shows, and nothing else. The trace in it is the trace of `-vv --json`."""

from __future__ import annotations

from typing import Any

from ...version import __version__
from ..compiler import Compilation
from ..rewrite.trace import Firing
from ..ruleset import Toolchain
from ..schedule.limits import predicted_registers
from .effects import Effects
from .fusion_graph import fusion_graph
from .provenance import Column, columns

SECONDS = 1.5  # of processor time, for the model's word on every firing of one page


def view_record(
    compilation: Compilation, tools: Toolchain, title: str, seconds: float | None = SECONDS
) -> dict[str, Any]:
    """The record of a compile that was traced.

    seconds: how long the model may price firings; what is left says nothing. Times in microseconds, sizes in bytes.
    """
    events = compilation.trace.events if compilation.trace is not None else []
    pricing = Effects(tools, compilation.target, seconds, compilation.tile)
    effects = {str(number): found for number, found in pricing.of_all(events)}
    return compile_record(compilation, tools, title) | {"effects": effects}


def compile_record(compilation: Compilation, tools: Toolchain, title: str) -> dict[str, Any]:
    """All of the record but what the model says of firings."""
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
    """A column as data."""
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
    """Registers of a thread as predicted from Tile IR; None for what began below it."""
    if len(compilation.tile) != len(compilation.kernels):
        return None
    return predicted_registers(compilation.tile, number, compilation.target)


def _rules(events: Any, tools: Toolchain) -> dict[str, Any]:
    """What the page says of each rule that the trace names: its place, its first words, its parameters."""
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
