"""A compile as data for the page. Its trace is the trace that `-vv --json` prints."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...codegen.compiler import BuildError
from ...codegen.emulator.executor import CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from ...ir.expr import is_int
from ...ir.interp.scalar import ScheduleError
from ...ir.kernel import Launch
from ...ir.program import Kernel, Param
from ...ir.tile import Tile
from ...version import __version__
from ..api import Compiled
from ..bench.cases import Suite, assembled, assembler, read_suite, subject_of
from ..capture.signature import Capture
from ..compiler import Compilation, Compiler
from ..cost.instruction_counts import instruction_counts
from ..cost.kernel_estimate import bits
from ..cost.predict import occupancy, predict
from ..kernels.sharing import share
from ..language.rule import pass_name
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import run_pipeline
from ..rewrite.trace import Event, Firing, Trace
from ..ruleset import Toolchain
from ..schedule.scheduling import predicted_registers
from .provenance import column_records, columns
from .server import Record

if TYPE_CHECKING:
    from ..explore.candidates import Fusing
    from ..explore.problem import EGraph
    from ..explore.solution import PricedSolution
    from ..schedule.space import ScheduleCandidate
    from ..tune.search import SearchLog, SearchRun, Tried

# ---- effects of firings


NEST, TILE, LEVELS = "l", "t", "ltk"
REST = "rest"  # third item of an effect: both sides went through the remaining passes first
# how the figures of launches are combined
COMBINED: dict[str, Callable[[Iterable[Any]], Any]] = {
    "us": sum, "dram": sum, "blocks": sum, "shared": max, "threads": max, "registers": max, "occupancy": min,
}  # fmt: skip
UNPRICED = (DplcError, ScheduleError, ArithmeticError, LookupError, TypeError, AssertionError)


class Effects:
    """Predictions of kernels of a compile at any point of their schedule, each kernel once.

    seconds: limit of processor time.
    """

    def __init__(self, compilation: Compilation, seconds: float | None = None):
        self.compiler = compilation.compiler.untraced
        self.ends = None if seconds is None else time.process_time() + seconds
        self._tiles = {kernel.name: kernel for kernel in compilation.tile}  # from which registers are predicted
        self._known: dict[Kernel, Record | None] = {}
        self._made: dict[Program, Program] = {}

    def of_all(self, events: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Yield (number, [before, after]) for each firing on kernels, loop nests last, scheduled by the default order.

        A side that the lowering rejects is None. A kernel half way through its schedule often cannot be launched (one
        thread for each element). For such a firing (number, [before, after, REST]) follows: both sides after the
        remaining passes, without and with it.
        """
        firings = [(n, event) for n, event in enumerate(events) if isinstance(event, Firing) and event.prefix in LEVELS]
        half_way = []
        for number, event in sorted(firings, key=lambda one: one[1].prefix == NEST):
            sides = (event.before, event.after)
            effect = [self.together(self._scheduled(side) if event.prefix == NEST else side) for side in sides]
            yield number, effect
            if event.prefix == TILE and None in effect:
                half_way.append((number, event))
        for number, event in half_way:
            rest = self._through_the_rest(event)
            if all(rest) and not self._over():
                yield number, [*rest, REST]

    def _through_the_rest(self, event: Firing) -> Sequence[Record | None]:
        """Run the remaining passes on both sides of a firing. Returns [before, after], with None for a failed side.

        The side after the firing skips the other passes of the same `one of`.
        """
        tools, target = self.compiler.tools, self.compiler.target
        steps = tools.pipelines["tile"]
        place = max((n for n, step in enumerate(steps) if step.label == pass_name(event.label)), default=None)
        if place is None or self._over():
            return (None,)
        rest, group = steps[place + 1 :], steps[place].group
        others = [step for step in rest if group is None or step.group != group]
        try:
            sides = [run_pipeline(tools.engine, rest, event.before, target)]
            sides.append(run_pipeline(tools.engine, others, event.after, target))
        except UNPRICED:
            return (None,)
        return [self.together(side) for side in sides]

    def _scheduled(self, nests: Program) -> Program:
        """Schedule loop nests by the default order. Returns no kernels if that fails or time is over."""
        if nests not in self._made and not self._over():
            try:
                self._made[nests] = self.compiler.passes("tile", nests)
            except UNPRICED:
                self._made[nests] = ()
        return self._made.get(nests, ())

    def together(self, kernels: Sequence[Kernel]) -> Record | None:
        """Combine launches: sums of times, bytes and blocks, the least occupancy, the largest of the rest."""
        found = [self.kernel(kernel) for kernel in kernels]
        priced = [one for one in found if one is not None]
        if not priced or len(priced) < len(found):
            return None
        each = {name: [one[name] for one in priced if one[name] is not None] for name in COMBINED}
        combined = {name: combine(each[name]) if each[name] else None for name, combine in COMBINED.items()}
        return combined | {"binding": max(priced, key=lambda one: one["us"])["binding"]}

    def kernel(self, kernel: Kernel) -> Record | None:
        """Predict one kernel of Loop, Tile or Kernel IR. `registers` is None without its Tile IR."""
        if kernel not in self._known and not self._over():
            self._known[kernel] = self._priced(kernel)
        return self._known.get(kernel)

    def _over(self) -> bool:
        return self.ends is not None and time.process_time() > self.ends

    def _priced(self, kernel: Kernel) -> Record | None:
        target = self.compiler.target
        try:
            lowered = isinstance(kernel.body[0], Launch)
            (made,) = (kernel,) if lowered else self.compiler.kernel_ir((kernel,))
            tile = self._tiles.get(kernel.name, kernel) if lowered else kernel
            registers = predicted_registers((tile,), 0, target) if isinstance(tile.body[0], Tile) else None
            counts = instruction_counts(made)
        except UNPRICED:
            return None  # a partly scheduled kernel may have no launch
        prediction = predict(counts, target)
        filled, held = occupancy(counts, target)
        return {
            "us": prediction.seconds * 1e6, "dram": counts.dram, "shared": counts.shared, "threads": counts.threads,
            "blocks": counts.blocks, "occupancy": filled, "held_by": held, "binding": prediction.binding,
            "registers": registers, "waves": prediction.waves, "resident": prediction.resident,
            "bounds": {name: seconds * 1e6 for name, seconds in prediction.bounds.items()},
        }  # fmt: skip


SECONDS = 1.5  # of processor time, for predicting all firings of one page


def view_record(compilation: Compilation, title: str, seconds: float | None = SECONDS) -> Record:
    """Return the record of a traced compile, with times in microseconds and sizes in bytes.

    seconds: processor time for predicting firings. Firings beyond it get no prediction.
    """
    effects = {str(number): found for number, found in Effects(compilation, seconds).of_all(compilation.events)}
    return compile_record(compilation, title) | {"effects": effects}


def compile_record(compilation: Compilation, title: str) -> Record:
    """Return the record without predictions of firings."""
    events, target, pricing = compilation.events, compilation.target, Effects(compilation)
    kernels = [_kernel(number, compilation, pricing) for number in range(len(compilation.kernels))]
    return {
        "dplc": __version__,
        "title": title,
        "target": {"name": target.name, "arch": target.arch},
        "timings": compilation.timings,
        "launches": len(compilation.launched),
        "kernels": kernels,
        "columns": column_records(columns(compilation)),
        "trace": [event.record() for event in events],
        "effects": {},
        "fusion": fusion_graph(compilation),
        "rules": _rules(events, compilation.compiler.tools),
        "schedules": [origin.record() for origin in compilation.origins],
    }


def _kernel(number: int, compilation: Compilation, pricing: Effects) -> Record:
    made, has_tiles = compilation.cuda_kernels[number], len(compilation.tile) == len(compilation.kernels)
    return {
        "name": made.name, "grid": list(made.grid), "block": made.block, "shared": made.smem,
        "launches": compilation.launched.count(number), "predicted": pricing.kernel(compilation.kernels[number]),
        "registers": predicted_registers(compilation.tile, number, compilation.target) if has_tiles else None,
        "assembled": None,
    }  # fmt: skip


def _rules(events: Sequence[Event], tools: Toolchain) -> Record:
    """Describe each rule in the trace: location, documentation, level, parameters, number of firings."""
    fired = Counter(event.rule for event in events if isinstance(event, Firing))
    named = (tools.rules.rules[name] for name in dict.fromkeys(e.rule for e in events) if name in tools.rules.rules)
    return {
        rule.name: {
            "location": rule.location, "docs": " ".join(rule.docs).strip(), "level": rule.level, "pass": rule.file,
            "parameters": [parameter.name for parameter in rule.parameters], "fired": fired[rule.name],
        }
        for rule in named
    }  # fmt: skip


def measured_registers(compilation: Compilation) -> Iterator[Record | None]:
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


def access_counts(compilation: Compilation) -> Record:
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
    first = {launch.kernel.name: launch for launch in reversed(checker.launches)}
    lines: dict[str, list[Record]] = {}
    start = 0
    for kernel in compilation.cuda_kernels:
        for site in first[kernel.name].sites if kernel.name in first else ():
            lines.setdefault(str(start + site.line - 1), []).append(asdict(site) | {"unit": site.unit})
        start += kernel.text.count("\n") + 1  # an empty line between two kernels
    findings = [{"kernel": one.kernel, "message": one.message, "lines": list(one.lines)} for one in checker.findings]
    return {"lines": lines, "findings": findings, "ended": ended, "whole": all(one.whole for one in checker.launches)}


def fusion_graph(compilation: Compilation) -> Record:
    """Return kernels as nodes and buffers as edges, with bytes and why fusion kept each buffer."""
    plan = compilation.plan
    reasons = {
        param.name: {"reason": why.reason, "location": why.location}
        for cut, values in zip(plan.stores, plan.kernels, strict=False)
        for term, param in zip(cut, values.outs, strict=False)
        for why in reversed(plan.why)  # the first that is about the value
        if why.value is term
    }
    nodes: list[Record] = []
    edges: list[Record] = []
    made: dict[str, int] = {}
    for number, (kernel, place) in enumerate(zip(plan.kernels, share(plan.kernels).place, strict=True)):
        stored = {param.name: number for param in kernel.outs}
        inside = dict.fromkeys(plan.values[number]) if number < len(plan.values) else ()
        nodes.append({"name": kernel.name, "kernel": place, "values": [name for name in inside if name not in stored]})
        for param in kernel.ins:
            read = {"to": number, "from": made.get(param.name, -1)}
            edges.append(read | _buffer(param) | reasons.get(param.name, {}))
        made |= stored
    edges += [{"from": made[param.name], "to": -1} | _buffer(param) for param in plan.outputs if param.name in made]
    return {"nodes": nodes, "edges": edges, "outputs": sorted({param.name for param in plan.outputs})}


def _buffer(param: Param) -> Record:
    shape = [extent if is_int(extent) else str(extent) for extent in param.shape]
    size = math.prod(n for n in shape if isinstance(n, int)) * DTYPES[param.dtype].item_bytes
    return {"buffer": param.name, "type": f"{param.dtype}{shape}", "bytes": size}


# ---- suites


CASE_SECONDS = 0.5  # of processor time, for predicting the firings of one case
Fired = dict[str, list[tuple[str, int, float]]]
Report = Callable[[str, int, int], None]


def fired_in(path: Path, compiler: Compiler, report: Report, priced: bool = False) -> Fired:
    """Return {rule: [(case, firings, predicted speed-up)]} for a suite file.

    report: called with (case, number, count) as each case begins. priced: predict speed-ups, which are 1.0 otherwise.
    Cases that do not compile are left out.
    """
    cases, credits = _credited(read_suite(path), compiler, report, priced)
    return {rule: [(cases[n]["name"], *credit) for n, credit in found.items()] for rule, found in credits.items()}


def suite_record(path: Path, compiler: Compiler, report: Report) -> Record:
    """Return the record of a suite for the page.

    A cell holds how often a rule fired in a case, and the predicted speed-up of all its firings there.
    """
    suite, target, known = read_suite(path), compiler.target, compiler.tools.rules.rules
    cases, credits = _credited(suite, compiler, report, True)
    rules = [
        {"name": name, "location": known[name].location, "cells": {str(n): list(credit) for n, credit in found.items()}}
        for name, found in sorted(credits.items(), key=lambda item: (-len(item[1]), item[0]))
        if name in known and known[name].level != "torch"
    ]
    return {
        "dplc": __version__, "title": f"{path.name}: {suite.about}" if suite.about else path.name,
        "target": {"name": target.name, "arch": target.arch}, "heat": {"cases": cases, "rules": rules},
    }  # fmt: skip


def _credited(
    suite: Suite, compiler: Compiler, report: Report, priced: bool
) -> tuple[list[Record], dict[str, dict[int, tuple[int, float]]]]:
    """Compile each case. Returns the cases, and the credits of each rule by the number of the case.

    A credit is the number of firings and their predicted speed-up, 1.0 for a firing without a prediction.
    """
    cases: list[Record] = []
    credits: dict[str, dict[int, tuple[int, float]]] = {}
    for number, case in enumerate(suite.cases):
        report(case.name, number, len(suite.cases))
        trace = Trace()
        told: Record = {"name": case.name, "us": None, "launches": 0, "error": ""}
        cases.append(told)
        try:
            made = subject_of(suite, case).compile(replace(compiler, trace=trace))
        except DplcError as error:
            told["error"] = error.render()
            continue
        told |= {"us": made.predicted_seconds * 1e6, "launches": len(made.launched)}
        effects = dict(Effects(made, CASE_SECONDS).of_all(trace.firings)) if priced else {}
        for place, event in enumerate(trace.firings):
            of_rule = credits.setdefault(event.rule, {})
            count, times = of_rule.get(number, (0, 1.0))
            before, after, *_ = effects.get(place, (None, None))
            times *= before["us"] / after["us"] if before is not None and after is not None else 1.0
            of_rule[number] = count + 1, times
    return cases, credits


# ---- tuning


MOST_CLASSES = 4000  # of all e-graphs of a program
EFFECTS, VALUES = 24, 10  # number of parameters and values shown


def search_record(fusing: Fusing, tries: int, report: Callable[[SearchRun, SearchLog], None]) -> Record:
    """Search the schedules of a program by predicted times, keep nothing, and return the record.

    report: called after each candidate.
    """
    from ..tune.evaluators import PredictingEvaluator
    from ..tune.search import Budget, SearchLog, SearchOptions
    from ..tune.tuning import tune_program

    log = SearchLog()

    def observe(run: SearchRun, tried: Tried) -> None:
        log.observe(run, tried)
        report(run, log)

    options = SearchOptions(budget=Budget(tries), check=False, predict=True)
    found = tune_program(fusing, PredictingEvaluator(), options, None, observe)
    rows = [(one.kernel, one.count, one.default_seconds, one.seconds, one.winner) for one in found.kernels]
    return _tuning(found.run, log, found.run.seconds, found.seconds, rows) | {"running": False}


def tuning_so_far(run: SearchRun, log: SearchLog, seconds: float) -> Record:
    """Return the record of a tuning run after `seconds`, with the fastest schedules of each kernel by itself."""
    rows = []
    for start, leaders in run.fastest.items():
        if start in log.kernels:
            default, count = log.kernels[start]
            rows.append((start[0].name, count, default, *leaders[0]))
    return _tuning(run, log, seconds, run.best[0] if run.best else None, rows)


def _tuning(
    run: SearchRun, log: SearchLog, seconds: float, best: float | None,
    rows: Iterable[tuple[str, int, float | None, float | None, ScheduleCandidate]],
) -> Record:  # fmt: skip
    """Return the record of a tuning run that goes on, with times in microseconds.

    rows: (kernel, number of launches, seconds by default, best seconds, schedule). `curve` holds [tries, best time so
    far]. `tree` holds decisions with the candidates below them.
    """
    from ..tune.tuning import plain

    default = run.default.seconds
    kernels = [
        {
            "name": name, "count": count, "default": _micro(before), "best": _micro(after),
            "schedule": plain(winner), "effects": _effects(log, name, before),
        }
        for name, count, before, after, winner in rows
    ]  # fmt: skip
    return run.record() | {
        "basis": run.default.basis, "seconds": seconds, "limit": run.limit, "default": _micro(default), "running": True,
        "best": _micro(best), "tree": log.root.record(default), "kernels": kernels,
    }  # fmt: skip


def _effects(log: SearchLog, kernel: str, default: float | None) -> list[Record]:
    """Return the parameters of a kernel with several tried values, those with the largest effect first.

    Each value has the number of candidates with and without a time, and the best and mean time over the default.
    """
    ranked = []
    for (owner, step, rule, name), values in log.effects.items():
        if owner == kernel and len(values) > 1:
            best = [times.best for times in values.values() if times.count] or [1.0]
            ranked.append((-math.log(max(best) / min(best)), (step, rule, name), values))
    rows = []
    for _, (step, rule, name), values in sorted(ranked, key=lambda one: one[:2])[:EFFECTS]:
        shown = sorted(values.items(), key=lambda pair: -(pair[1].count + pair[1].without))[:VALUES]
        shown.sort(key=lambda pair: (not pair[0].isdigit(), float(pair[0]) if pair[0].isdigit() else 0.0, pair[0]))
        told = [
            {
                "value": value, "tried": times.count, "without": times.without,
                "best": f"{times.best / (default or 1.0):.3f}" if times.count else "-",
                "mean": f"{times.mean / (default or 1.0):.3f}" if times.count else "-",
            }
            for value, times in shown
        ]  # fmt: skip
        rows.append({"title": f"{step}: {name}" if step == rule else f"{step}: {rule}.{name}", "values": told})
    return rows


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == math.inf else seconds * 1e6


# ---- the e-graph


def egraph_record(captured: Capture, compiler: Compiler) -> Record:
    """Explore a program. Return the e-classes of each region, the best solution and the candidates.

    An e-class has its members, and the members that the best solution uses. `left_out` counts classes beyond
    MOST_CLASSES.
    """
    from ..explore.candidates import exploration

    made = exploration(compiler.values(captured))
    found = made.candidates()
    names = {n.value: n.name for n in made.graph.names} | {out.value: out.name for out in made.graph.outs}
    regions: dict[int, Record] = {}
    for problem, solved in made.problems:
        if id(solved) not in regions:
            terms = [str(getattr(term, "name", "") or names.get(term, "")) for term in problem.terms]
            regions[id(solved)] = _region(solved.search.graph, solved.found[0], terms)
        regions[id(solved)]["times"] += 1
    left_out, room = 0, MOST_CLASSES
    for region in regions.values():
        classes = region["classes"]
        region["classes"] = classes[:room]
        left_out += len(classes[room:])
        room -= len(region["classes"])
    return {"regions": [*regions.values()], "left_out": left_out, "candidates": [one.record() for one in found]}


def _region(graph: EGraph, best: PricedSolution, names: list[str]) -> Record:
    """Return the e-classes of a region with all members, and the kernels of the best solution."""
    problem, solution = graph.problem, best.solution
    axes = {1 << place: axis.name for place, axis in enumerate(problem.axes)}
    named = {cls: name for cls, name in reversed([*zip(graph.of, names, strict=False)]) if name}  # by its first name

    def title(cls: int) -> str:
        return named.get(cls, f"c{cls}")

    def spelled(node: Any) -> str:
        op, attributes, children = node
        below = ", ".join(title(child) for child in children)
        if op == "E":
            return f"{attributes[0]}({below})"
        if name := {"Red": "Reduce", "Fold": "Fold"}.get(op):
            return f"{name}({attributes[0]}, {', '.join(axes[bit] for bit in bits(attributes[1]))}, {below})"
        if op == "Num":
            return str(attributes[0])
        if op == "Leaf":
            return "read from memory" if problem.leaves[attributes[0]].memory else "index"
        return f"{op.lower()} {attributes[0]} of {below}"

    classes = [
        {
            "title": title(cls),
            "axes": ", ".join(f"{axes[bit]}:{problem.extents[bit]}" for bit in bits(graph.mask[cls])),
            "dtype": graph.dtype[cls],
            "known": cls in graph.known,
            "stored": cls in solution.stored,
            "needed": cls in solution.choice,
            "spellings": [
                {"text": spelled(node), "chosen": solution.choice.get(cls) == place} for place, node in enumerate(nodes)
            ],
        }
        for cls, nodes in enumerate(graph.classes)
    ]
    stop = graph.stop
    return {
        "times": 0, "classes": classes, "enodes": sum(map(len, graph.classes)), "operations": len(problem.nodes),
        "stop": f"{stop.reason} after {stop.iterations} iterations" if stop else "without egglog",
        "rules": graph.fired, "kernels": [" and ".join(title(cls) for cls in group) for group in best.table],
    }  # fmt: skip
