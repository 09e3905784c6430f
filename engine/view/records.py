"""A compile as data for the page. Its trace is the trace that `-vv --json` prints."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...codegen.compiler import BuildError
from ...codegen.emulator.executor import CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.interp.scalar import ScheduleError
from ...ir.kernel import Launch
from ...ir.program import Kernel, Param, TensorType
from ...ir.substitute import with_hints
from ...ir.tensor import Term
from ...ir.text.print_statements import print_value
from ...ir.tile import Tile
from ..api import Compiled
from ..bench.bench import assembled, assembler, kernel_record
from ..bench.cases import read_suite, subject_of
from ..compiler import Compilation, Compiler, Values, buffer
from ..cost.instruction_counts import instruction_counts
from ..cost.kernel_estimate import bits
from ..cost.predict import occupancy, predict
from ..kernels.fusion_pass import called_in
from ..language.pipeline import PassStep
from ..language.rule import pass_name
from ..rewrite.statements.compiled import Program
from ..rewrite.trace import Firing, Trace
from ..schedule.scheduling import predicted_registers
from .provenance import column_records, columns
from .server import Record

if TYPE_CHECKING:
    from ..explore.problem import EGraph
    from ..explore.solution import PricedSolution

# ---- effects of firings


NEST, TILE, LEVELS = "l", "t", "ltk"
REST = "rest"  # third item of an effect: both sides went through the remaining passes first
# how the figures of launches are combined
COMBINED: dict[str, Callable[[Iterable[Any]], Any]] = {
    "us": sum, "dram": sum, "blocks": sum, "shared": max, "threads": max, "registers": max, "occupancy": min,
}  # fmt: skip
UNPRICED = (DplcError, ScheduleError, ArithmeticError, LookupError, TypeError, AssertionError)


def predicted_effects(compilation: Compilation, seconds: float = math.inf) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number, [before, after]) for each firing on kernels, loop nests last, scheduled by the default order.

    A side that the lowering rejects is None. A kernel half way through its schedule often cannot be launched (one
    thread for each element). For such a firing (number, [before, after, REST]) follows: both sides after the remaining
    passes, without and with it. The side after the firing skips the other passes of the same `one of`.

    seconds: limit of processor time.
    """
    compiler = compilation.compiler.untraced
    passes = compiler.tools.pipelines["tile"]
    tiles = {kernel.name: kernel for kernel in compilation.tile}  # from which registers are predicted
    ends = time.process_time() + seconds

    @functools.cache
    def figures(kernel: Kernel) -> Record:
        lowered = isinstance(kernel.body[0], Launch)
        (made,) = with_hints((kernel,) if lowered else compiler.kernel_ir((kernel,)))
        counts = instruction_counts(made)
        prediction = predict(counts, compiler.target)
        return {
            "us": prediction.seconds * 1e6, "dram": counts.dram, "shared": counts.shared, "threads": counts.threads,
            "blocks": counts.blocks, "occupancy": occupancy(counts, compiler.target)[0], "binding": prediction.binding,
            "registers": registers_of(tiles.get(kernel.name, kernel) if lowered else kernel, compiler.target),
        }  # fmt: skip

    @functools.cache
    def predicted(kernels: Program, steps: tuple[PassStep, ...] = ()) -> Record | None:
        """Predict the launches that kernels become after some passes, with the binding resource of the slowest one."""
        if time.process_time() > ends:
            return None
        try:
            launches = [figures(kernel) for kernel in compiler.passes("tile", kernels, steps=steps)]
        except UNPRICED:
            return None  # a partly scheduled kernel may have no launch
        combined = {name: combine(one[name] for one in launches) for name, combine in COMBINED.items()}
        return combined | {"binding": max(launches, key=itemgetter("us"))["binding"]}

    half_way = []
    firings = [(n, one) for n, one in enumerate(compilation.events) if isinstance(one, Firing) and one.prefix in LEVELS]
    for number, event in sorted(firings, key=lambda firing: firing[1].prefix == NEST):
        steps = passes if event.prefix == NEST else ()
        effect = [predicted(side, steps) for side in (event.before, event.after)]
        yield number, effect
        places = [n for n, step in enumerate(passes) if step.label == pass_name(event.label)]
        if event.prefix == TILE and None in effect and places:
            half_way.append((number, event, places[-1]))
    for number, event, place in half_way:
        rest, group = passes[place + 1 :], passes[place].group
        others = tuple(step for step in rest if group is None or step.group != group)
        effect = [predicted(event.before, rest), predicted(event.after, others)]
        if None not in effect:
            yield number, [*effect, REST]


def registers_of(tile: Kernel, target: Target) -> int:
    """Return the predicted registers of a thread, 0 for a kernel that is not in Tile IR."""
    return predicted_registers(tile, target) if isinstance(tile.body[0], Tile) else 0


# ---- a compile


SECONDS = 1.5  # of processor time, for predicting all firings of one page


def view_record(compilation: Compilation, title: str, seconds: float = SECONDS) -> Record:
    """Return the record of a traced compile, with times in microseconds and sizes in bytes.

    seconds: processor time for predicting firings. Firings beyond it get no prediction.
    """
    effects = {str(number): effect for number, effect in predicted_effects(compilation, seconds)}
    return compile_record(compilation, title) | {"effects": effects}


def compile_record(compilation: Compilation, title: str) -> Record:
    """Return the record without predictions of firings."""
    target = compilation.target
    kernels = zip(with_hints(compilation.kernels), compilation.cuda_kernels, compilation.tile, strict=True)
    return {
        "title": title,
        "target": {"name": target.name, "arch": target.arch},
        "timings": compilation.timings,
        "kernels": [
            msgspec.to_builtins(kernel_record(kernel, cuda, target))
            | {"launches": compilation.launched.count(number), "predicted_registers": registers_of(tile, target)}
            for number, (kernel, cuda, tile) in enumerate(kernels)
        ],
        "columns": column_records(columns(compilation)),
        "trace": [event.record() for event in compilation.events],
        "effects": {},
        "fusion": fusion_graph(compilation),
        "rules": _rules(compilation),
    }


def _rules(compilation: Compilation) -> Record:
    """Describe each rule in the trace: location, documentation, parameters, number of firings."""
    fired = Counter(event.rule for event in compilation.events if isinstance(event, Firing))
    traced = {event.rule for event in compilation.events}
    return {
        name: {
            "location": rule.location, "docs": " ".join(rule.docs).strip(), "fired": fired[name],
            "parameters": [parameter.name for parameter in rule.parameters],
        }
        for name, rule in compilation.compiler.tools.rules.rules.items() if name in traced
    }  # fmt: skip


def measured_registers(compilation: Compilation) -> Iterator[tuple[int, Record]]:
    """Assemble each kernel. Yields its number, with registers of a thread, spilled bytes and the assembler's name.

    Yields nothing for a kernel that the assembler rejects, and nothing without an assembler.
    """
    by = assembler()
    for number, kernel in enumerate(compilation.cuda_kernels if by else ()):
        with contextlib.suppress(BuildError):
            found = assembled(kernel, compilation.target.arch)
            yield number, {"registers": found.registers, "spill_bytes": found.spill_bytes, "by": by}


def access_counts(compilation: Compilation) -> Record:
    """Run a program on its captured inputs in the emulator's checked mode, and count accesses by line of CUDA.

    Counts are sectors of global memory and wavefronts of shared memory, with the least number for as many bytes.
    `lines` maps a line of the whole CUDA text, from 0, to the counts of its accesses at the kernel's first launch.
    `findings` are races, reads out of bounds and the like.
    """
    checker = CheckingExecutor(None)
    compiled = Compiled(compilation, "emulator")
    compiled.executor = checker
    with contextlib.suppress(EmulatorError):  # the findings hold it
        compiled.run({})
    first = {launch.kernel.name: launch.sites for launch in reversed(checker.launches)}
    lines = defaultdict[str, list[Record]](list)
    start = 0
    for kernel in compilation.cuda_kernels:
        for site in first.get(kernel.name, ()):
            lines[str(start + site.line - 1)].append(asdict(site) | {"unit": site.unit})
        start += kernel.text.count("\n") + 1  # an empty line between two kernels
    return {"lines": lines, "findings": [*map(asdict, checker.findings)]}


def fusion_graph(compilation: Compilation) -> Record:
    """Return kernels as nodes and buffers as edges, with bytes and why fusion kept each buffer."""
    plan = compilation.plan
    why = {stored.value: {"reason": stored.reason, "location": stored.location} for stored in plan.why}
    nodes: list[Record] = []
    edges: list[Record] = []
    made: dict[str, Record] = {}  # the kernel that stores a buffer, and why it does
    for number, (kernel, values, terms) in enumerate(zip(plan.kernels, plan.values, plan.stores, strict=True)):
        edges += [{"from": -1, "to": number} | _buffer(param) | made.get(param.name, {}) for param in kernel.ins]
        stored = {
            param.name: {"from": number} | why.get(term, {}) for param, term in zip(kernel.outs, terms, strict=True)
        }
        nodes.append({"name": kernel.name, "values": [name for name in values if name not in stored]})
        made |= stored
    edges += [
        {"from": made[param.name]["from"], "to": -1} | _buffer(param) for param in plan.outputs if param.name in made
    ]
    return {"nodes": nodes, "edges": edges}


def _buffer(param: Param) -> Record:
    shown = print_value(TensorType(param.dtype, param.shape))
    return {"buffer": param.name, "type": shown, "bytes": buffer(with_hints(param)).nbytes}


# ---- suites


CASE_SECONDS = 0.5  # of processor time, for predicting the firings of one case
Fired = dict[str, list[tuple[str, int, float]]]
Report = Callable[[str, int, int], None]


def fired_in(path: Path, compiler: Compiler, report: Report, priced: bool = False) -> Fired:
    """Return {rule: [(case, firings, predicted speed-up)]} for a suite file, without the cases that do not compile.

    The speed-up is 1.0 for a firing without a prediction.

    report: called with (case, number, count) as each case begins. priced: predict speed-ups.
    """
    suite, found = read_suite(path), Fired()
    for number, case in enumerate(suite.cases):
        report(case.name, number, len(suite.cases))
        try:
            made = subject_of(suite, case).compile(replace(compiler, trace=Trace()))
        except DplcError:
            continue
        fired: dict[str, tuple[int, float]] = {}
        effects = dict(predicted_effects(made, CASE_SECONDS)) if priced else {}
        for place, event in enumerate(made.events):
            if isinstance(event, Firing):
                count, speedup = fired.get(event.rule, (0, 1.0))
                before, after, *_ = effects.get(place, (None, None))
                fired[event.rule] = count + 1, speedup * (before["us"] / after["us"] if before and after else 1.0)
        for rule, credit in fired.items():
            found.setdefault(rule, []).append((case.name, *credit))
    return found


# ---- the e-graph


MOST_CLASSES = 4000  # of all e-graphs of a program


def egraph_record(values: Values) -> Record:
    """Explore a program. Return the e-classes of each region, the best solution and the candidates.

    An e-class has its members, and the members that the best solution uses. `left_out` counts classes beyond
    MOST_CLASSES.
    """
    from ..explore.explore import exploration

    made = exploration(values)
    found, names = made.candidates(), called_in(made.graph)
    regions: dict[int, Record] = {}
    for _, solved in made.problems:
        if id(solved) not in regions:
            regions[id(solved)] = _region(solved.search.graph, solved.found[0], names)
        regions[id(solved)]["times"] += 1
    room = MOST_CLASSES
    for region in regions.values():
        classes = region["classes"]
        region["classes"] = classes[: max(room, 0)]
        room -= len(classes)
    return {
        "regions": [*regions.values()], "left_out": max(-room, 0), "candidates": [one.record() for one in found]
    }  # fmt: skip


def _region(graph: EGraph, best: PricedSolution, names: Mapping[Term, str]) -> Record:
    """Return the e-classes of a region with all members, and the kernels of the best solution."""
    problem, solution = graph.problem, best.solution
    axes = {1 << place: axis.name for place, axis in enumerate(problem.axes)}
    pairs = reversed([*zip(graph.of, problem.terms)])
    named = {cls: names[term] for cls, term in pairs if term in names}  # the first name of each class

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
