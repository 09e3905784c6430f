"""`dplc compile`, `run` and `rewrite` of texts and dumps, and how the options of a command describe a compile."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.text import Text
from torch import Tensor

from ...codegen.arrays import check_room
from ...codegen.emulator.executor import DEFAULT_BLOCKS, ORDERS, SMALL, CheckedLaunch, CheckingExecutor, run_kernels
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.judge import Judgement, judge
from ...codegen.kernel import CudaKernel
from ...codegen.launch import memory_of
from ...codegen.materialise import materialise
from ...codegen.target import Target
from ...ir import interp
from ...ir.diagnostic import Diagnostics, DplcError, UsageError, did_you_mean, no_such
from ...ir.expr import Size, extents_of, is_int
from ...ir.interp.torch import in_tf32
from ...ir.kernel import Launch
from ...ir.node import Node
from ...ir.program import LEVELS, Kernel, Param, TensorType, delivered, disagreements, supplied
from ...ir.sizes import AT_HINTS, Binding, sizes_in
from ...ir.tensor import TensorGraph, delivered as delivered_outputs, dtype, inputs
from ...ir.text.programs import print_program, read_program, sizes_of
from ...ir.tile import Tile
from ...ir.torch import TorchGraph
from ...ir.verify import kernel, loop, tensor, tile
from ...ir.verify.sorts import sort_problems
from ..api import Compiled, choose_device, target_for
from ..bench.bench import BenchSteps, bench_program
from ..bench.records import BenchRecord, TableLayout, kernel_layout, summary
from ..capture.capture import capture_text, check_types
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.signature import Capture, Tensors
from ..compiler import Compilation, Compiler, Stopwatch, Values, compiler_with
from ..kernels.index_maps import push_renamings
from ..kernels.kernels import Plan
from ..kernels.tracing import trace_lowering
from ..language.pipeline import PIPELINES
from ..language.rule import Rule, pass_name
from ..rewrite.statements.driver import names_of, only as only_steps, tell_unheard
from ..rewrite.terms.rewriter import TermRules, mentions_mat
from ..rewrite.torch_rules.lower import TorchRule, lower_graph
from ..rewrite.trace import EACH, PREFIXES, Event, Firing, Trace, lines_of
from ..ruleset import Toolchain
from ..run.calls import Row, at_binding, in_float64, judge_program, narrowed, random_tensor
from ..schedule.scheduling import stored_schedules
from .options import Flags, check_known
from .output import (
    ARRAYS,
    Record,
    bars,
    command_line,
    print_json,
    print_note,
    print_remark,
    print_rows,
    print_text,
    write,
    write_lines,
    writing,
)

TOLD = 4  # kernels whose schedules are listed one by one


def compile_text(flags: Flags, device: str | None = None, values: bool = True) -> Compilation:
    """Compile a `-c` text for the requested target, by default that of the device. `-v` and `-vv` record a trace.

    values: whether the program will run, and be compared with the eager results.
    """
    compiler, watch = compile_options(flags, device), Stopwatch()
    with watch.stage("capture"):
        captured = captured_text(flags, values)
    return _told(partial(compiler.compile, captured, watch))


def _told(compile: Callable[[], Compilation]) -> Compilation:
    """Compile. Warn of settings without effect, and list the schedules that come from a store. Raises UsageError."""
    with bars("compiling"):
        compilation = compile()
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    print_schedules(compilation)
    for line in compilation.calls_told:
        print_remark(line)
    return compilation


def compile_options(flags: Flags, device: str | None = None) -> Compiler:
    """Return the compiler that the flags of a command describe.

    Raises UsageError if the store of `--db` is missing, or for an unknown rule of `--why-not`.

    The store decides the fusion if it has an entry for the program, else `--explore`, else the rules.
    """
    compiler = compiler_for(flags, device)
    if flags.db is not None and not flags.db.is_file():
        raise UsageError(f"--db {flags.db}: there is no such file", hint="`dplc tune --db` makes one")
    schedules = stored_schedules(compiler.tools, flags.db, not flags.no_db)
    rules = compiler.tools.rules
    asked = frozenset(map(rules.plain, flags.why_not))
    for name in asked - {EACH}:
        rules.rule(name)
    trace = Trace(asked=asked) if flags.verbose or asked else None
    compiler = replace(compiler, trace=trace, schedules=schedules)
    if schedules is None and not flags.explore:
        return compiler
    from ..explore.explore import best, remembered

    explored = partial(best, tell=print_remark) if flags.explore else None
    return replace(compiler, explore=remembered(explored, print_remark))


def compiler_for(flags: Flags, device: str | None = None) -> Compiler:
    """Return a compiler without a store: with the rules and the target that the flags select.

    The rules are those of `--rules` with the parameters of `--set` and `--prefer`, with `--exact` without @approx
    rules. The target is that of `--target`, else the GPU of this machine unless another device is requested, else
    sm_80. Rules and policy numbers for one device are in force only if the target is that device.
    """
    machine = target_for(choose_device(device), flags.target)
    made = compiler_with(machine, flags.rules, flags.pinned, flags.exact, tf32=flags.tf32)
    return replace(made, calls=flags.calls)


def captured_text(flags: Flags, values: bool = True, sizes: Binding = AT_HINTS) -> Capture:
    """Capture the `-c` text. values, sizes: see `capture_text`.

    Prints of the text go to standard error, because standard output is for results.
    """
    with bars("capturing"), contextlib.redirect_stdout(sys.stderr):
        return capture_text(flags.text, flags.seed, flags.dtype, values, sizes)


def print_trace(compilation: Compilation, flags: Flags) -> None:
    """Print the trace of `-v`, `-vv` and `--why-not` to standard error, because the result goes to standard output."""
    if compilation.trace and not flags.as_json:
        print_text(compilation.trace.render(flags.verbose), "diff", error=True)


def print_schedules(compilation: Compilation) -> None:
    """Print which schedules come from the store."""
    lines = [origin.line for origin in compilation.origins if origin.line]
    for line in lines[:TOLD]:
        print_remark(line)
    if len(lines) > TOLD:
        print_remark(f"and of {len(lines) - TOLD} more kernels out of the store (-v lists them)")


# ---- numbers, lists and ranges on the command line


_RANGE = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?(?:\s*:\s*(\d{1,9}))?\s*")
_NUMBERS = re.compile(r"\s*\d{1,15}(\s*,\s*\d{1,15})*\s*")
MOST_RUNS = 1000


def numbers_of(text: str) -> list[int]:
    """Read `1,7,100`. Returns no numbers for anything else."""
    return [int(number) for number in text.split(",")] if _NUMBERS.fullmatch(text) else []


def range_written(text: str) -> tuple[str | None, int, int | None, int | None] | None:
    """Read `[NAME=]A[..B][:HINT]`. Returns None for anything else."""
    if (found := _RANGE.fullmatch(text)) is None:
        return None
    name, low, high, hint = found.groups()
    return name, int(low), int(high) if high else None, int(hint) if hint else None


def tokens_of(text: str, words: int | None) -> list[int]:
    """Read the token ids of `--ids` from a vocabulary of `words` tokens. Raises UsageError."""
    tokens = numbers_of(",".join(text.replace(",", " ").split()))
    if not tokens or (words is not None and max(tokens) >= words):
        raise UsageError(f"--ids {text}: numbers from 0 {'up' if words is None else f'to {words - 1}'} are expected")
    return tokens


def numbers_by_name(option: str, asked: Sequence[str]) -> dict[str, list[int]]:
    """Read `NAME=7` and `NAME=1,7,100`, each name once. Raises UsageError."""
    found: dict[str, list[int]] = {}
    for written in asked:
        name, _, numbers = map(str.strip, written.partition("="))
        if name in found:
            raise UsageError(f"{option} {written}: `{name}` has its numbers already")
        found[name] = list(dict.fromkeys(numbers_of(numbers)))
        if not (name.isidentifier() and found[name]):
            raise UsageError(f"{option} {written}: write NAME=7 or NAME=1,7,100")
    return found


def combinations(option: str, numbers: Mapping[str, Sequence[int]], most: int = MOST_RUNS) -> list[dict[str, int]]:
    """Return every combination of the numbers of some names, the last name fastest. Raises UsageError for too many."""
    if math.prod(map(len, numbers.values())) > most:
        raise UsageError(f"{option}: more than {most} combinations")
    return [dict(zip(numbers, point)) for point in itertools.product(*numbers.values())]


def bindings(sizes: Mapping[str, Size], asked: Sequence[str], single: str = "") -> list[dict[str, int]]:
    """Return every combination of the numbers that `--size` gives to the symbolic dimensions of a program.

    A dimension without numbers has its example value, and a note says so. single: the reason why only one combination
    is allowed, "" for none. Raises UsageError for several in that case, and for an unknown dimension.
    """
    given = numbers_by_name("--size", asked)
    for name in given:
        check_known("size", name, sizes)
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
            given[name] = [size.hint]
    found = combinations("--size", {name: given[name] for name in sizes})
    if single and len(found) > 1:
        raise UsageError(f"{single}: give one number of each size")
    return found


def each_binding(found: Sequence[dict[str, int]]) -> Iterator[dict[str, int]]:
    """Yield bindings. Print each to standard output if there are several."""
    for binding in found:
        if len(found) > 1:
            write(", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n")
        yield binding


def row_of(asked: Sequence[str], captured: Capture) -> Row:
    """Read `--row` for the symbolic dimensions of a program, each at most once.

    The result is a bucket of lengths. Its largest length is the example value unless another is named. Raises
    UsageError.
    """
    found, sizes = dict[str, Dim](), sizes_in(captured.graph)
    first = next(iter(sizes), "")
    for written in asked:
        option = f"--row {written}"
        if (parts := range_written(written)) is None:
            hint = "NAME=A..B where there are several sizes, A..B:N for N as a rule"
            raise UsageError(f"{option}: write A..B, as 129..512", hint=hint)
        if not sizes:
            hint = "`dim(s, 1..4096)` in -c, or --seq-len 1..4096 of a model"
            raise UsageError(f"{option}: nothing in it is a size", hint=hint)
        named, low, high, length = parts
        if named is None and len(sizes) > 1:
            raise UsageError(
                f"{option}: its sizes are {', '.join(sizes)}", hint=f"say of which: --row {first}={written}"
            )
        name = named or first
        if name not in sizes:
            raise no_such("size", name, sizes)
        if name in found:
            raise UsageError(f"{option}: `{name}` has its row already")
        whole, high = sizes[name], high or low
        if not whole.low <= low <= high <= whole.high:
            raise UsageError(f"{option}: `{name}` is {range_of(whole)}, and a row is a part of that")
        found[name] = Dim(name, low, high, whole.multiple, length)
    return tuple(found.values())


def captured_row(flags: Flags) -> Capture:
    """Capture the text of `-c` for the lengths of `--row`. Random inputs have the example lengths of the bucket."""
    captured = captured_text(flags)
    row = row_of(flags.row, captured)
    if row:
        drawn = captured_text(flags, sizes={dim.name: dim.size().hint for dim in row})
        captured = replace(captured, tensors={**captured.tensors, **drawn.tensors}, reference=drawn.reference)
    return in_row(captured, row)


def in_row(captured: Capture, row: Row) -> Capture:
    """Return a program for the lengths of a bucket. Print the lengths that a search assumes."""
    captured = narrowed(captured, row, sizes_in(captured.graph))
    for size in sizes_in(captured.graph).values():
        print_remark(f"`{size.name}` is {range_of(size)}; times are those of {size.hint}")
    return captured


# ---- Compile a dump of any IR, edited or written by hand, from its level on.
#
#     dplc compile softmax.tile.ir        # CUDA of an edited schedule
#     dplc run program.tensor.ir          # on random inputs, compared with the meaning of the text in float64
#
# Nothing in a text is executed. The text is parsed, checked by the verifiers, and compiled like the output of rules.
# The first line names the level, `## level: tile`, as in every dump.

REFERENCE_BYTES = 8  # of an element whose meaning is computed: all floats are float64 there
WHOLE_NUMBERS = 4  # drawn integers are below: they are often indices
VERIFIERS: dict[str, Callable[[Any], Sequence[str]]] = {
    "tensor": tensor.check,
    "loop": loop.problems,
    "tile": tile.problems,
    "kernel": kernel.problems,
}


@dataclass(frozen=True, kw_only=True)
class Dump(Capture):
    """Program of a dump, captured without values. At levels after torch its graph only names the inputs.

    plan: its kernels in the order of their launches, or one graph in place of kernels, at a binding of the symbolic
    dimensions; units: the same kernels before that binding, if scheduled.
    """

    level: str
    plan: Plan
    units: tuple[Any, ...]
    sizes: Binding


def dump_of(level: str, bound: tuple[Any, ...], units: tuple[Any, ...], sizes: Binding) -> Dump:
    """Return a program as a dump. bound: its kernels or its graph at the binding.

    Its temporaries are the buffers between kernels; of Torch IR the types of all values, of Tensor IR nothing.
    """
    graph = bound[0]
    if level == "torch":
        ins, outs, between = graph.ins, graph.outs, [kind for op in graph.body for kind in op.types]
    elif level == "tensor":
        returned = delivered_outputs(graph)
        outs = tuple(Param(out.name, dtype(out.value), extents_of(out.axes)) for out in returned)
        ins, between = inputs(graph), []
    else:
        ins, outs = supplied(bound), delivered(bound)
        ends = {end.name for end in (*ins, *outs)}
        between = [*{out.name: out for unit in bound for out in unit.outs if out.name not in ends}.values()]
    captured = graph if level == "torch" else TorchGraph(graph.name, ins, (), ())
    plan = Plan(graph.name, bound, ins, outs, tuple(between), tuple(TensorType(p.dtype, p.shape) for p in outs))
    names = [param.name for param in ins]
    return Dump(
        captured, dict.fromkeys(names), dict.fromkeys(names, "input"), {}, level=level, plan=plan, units=units,
        sizes=sizes,
    )  # fmt: skip


def read_text(path: Path) -> str:
    """Read a file. Raises DplcError if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DplcError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def read_dump(path: Path, sizes: Binding = AT_HINTS) -> Dump:
    """Read the program in a file, at a binding of its symbolic dimensions.

    Raises DplcError if the file cannot be read or a verifier rejects the program.
    """
    text, name = read_text(path), str(path)
    level, units = read_program(text, name, sizes)
    if level is None:
        raise DplcError(f"{name} does not say its level", hint=f"begin with `## level: LEVEL`, of {', '.join(LEVELS)}")
    if not units:
        raise DplcError(f"{name} holds no program")
    kind: Any = {"torch": TorchGraph, "tensor": TensorGraph}.get(level, Kernel)
    if any(type(unit) is not kind for unit in units) or (kind is not Kernel and len(units) > 1):
        raise DplcError(f"{name}: {level} IR is {'kernels' if kind is Kernel else 'one graph'}")
    found = [problem for unit in units for problem in _problems(unit, level, name)]
    scheduled = read_program(text, name, None)[1] if sizes and level in ("tile", "kernel") else units
    if not found and level == "tile":  # a size may be the extent of a block axis alone
        found = [problem for unit in scheduled for problem in VERIFIERS[level](unit)]
    if not found:
        found = [*disagreements([unit for unit in units if isinstance(unit, Kernel)])]
    if found:
        raise Diagnostics(DplcError(f"{name}: {problem}") for problem in found)
    return dump_of(level, units, scheduled, sizes)


def _problems(unit: Any, level: str, name: str) -> Sequence[str]:
    if level == "tensor":
        found = VERIFIERS[level](unit)
        for call in unit.calls if not found else ():
            check_types(TorchGraph(unit.name, call.given, (), (call.statement,)), name)
        return found
    loose = [param.name for param in (*unit.ins, *unit.outs) if not all(map(is_int, param.shape))]
    if loose:
        return [f"`{name}` has an extent that is neither a number nor made of sizes" for name in loose]
    if level != "torch":
        return sort_problems(unit) or VERIFIERS[level](unit)
    check_types(unit, name)
    return ()


def compile_dump(dump: Dump, options: Compiler, seed: int | None = None) -> Compilation:
    """Compile a dump from its level to CUDA. The inputs are random, or without values if there is no seed.

    Raises DplcError if that is not possible, or if the arrays do not fit into the memory of this machine.
    """
    plan, watch = dump.plan, Stopwatch()
    if seed is not None:
        elements = sum(math.prod(kind.shape) for kind in (*plan.inputs, *plan.outputs, *plan.temporaries))
        check_room(elements * REFERENCE_BYTES, f"the arrays of {plan.name}")
        dump = replace(dump, tensors=draw(plan.inputs, seed))
    if dump.level == "torch":
        made = options.compile_values(options.values(dump, watch), watch)
    elif dump.level == "tensor":
        graph: Node = plan.kernels[0]
        assert isinstance(graph, TensorGraph)
        settled = push_renamings(graph)
        values = Values(dump, options, settled, options.simplified(settled, {}), {}, plan.results)
        made = options.compile_values(values, watch)
    else:
        since: Any = dump.level
        made = options.compile_plan(dump, None, plan, watch, since=since, units=dump.units, sizes=dump.sizes)
    return replace(made, since=dump.level)


def draw(params: Sequence[Param], seed: int) -> Tensors:
    """Return {input: values}, reproducible from the seed: normal floats, small whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    return {p.name: random_tensor(p.dtype, p.shape, generator, 2 if p.dtype == "b8" else WHOLE_NUMBERS) for p in params}


def reference_of(dump: Dump, tensors: Tensors) -> list[Tensor]:
    """Return the outputs by the semantics of the dump's own level: floats in float64, integers and bools exact.

    Kernel IR means its CUDA text in checked mode: floats are as the kernels compute them. Raises EmulatorError.
    """
    units: Any = dump.plan.kernels
    if dump.level == "kernel":
        found: Any = run_kernels(units, tensors)
    else:
        run = importlib.import_module(f"{interp.__name__}.{dump.level}").run
        if dump.level == "torch":
            return list(run(*units, tensors))
        found = run(units[0] if dump.level == "tensor" else units, in_float64(tensors))
    arrays = found if dump.level == "tensor" else [found[param.name] for param in dump.plan.outputs]
    return [torch.from_numpy(array.copy()) for array in arrays]


# ---- Compile and run expressions and dumps.


def compile_program(flags: Flags) -> None:
    """Run `dplc compile`: print a program at a stage, CUDA by default. `--json` prints the kernels as well."""
    single = "a compile is of one program (`dplc run` takes several)"
    (compilation,) = prepared(flags, None, single, values=False)
    if flags.as_json:
        print_json(compile_record(compilation, flags.ir))
    else:
        stage = flags.ir or "cuda"
        print_text(compilation.ir(stage), stage)


def run_program(flags: Flags) -> None:
    """Run `dplc run`: run a program at each binding of its sizes, and compare the results with float64.

    Raises DplcError for a wrong result, and for findings of checked mode.
    """
    if flags.check and flags.device not in (None, "emulator"):
        raise UsageError(f"--check looks at kernels in the emulator; it cannot on `{flags.device}`")
    device = "emulator" if flags.check else choose_device(flags.device)
    if flags.subject.is_dump and device == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    single = "--out and --json are of one run" if flags.out is not None or flags.as_json else ""
    report = _report_check if flags.check else report_run
    for compilation in prepared(flags, device, single):
        report(compilation, device, flags)


def prepared(flags: Flags, device: str | None, single: str, values: bool = True) -> Iterator[Compilation]:
    """Yield a compiled program at each binding of its sizes, with the capture of its text at these sizes.

    device: None for a program that will not run; single: see `bindings`; values: see `capture_text`.
    """
    if flags.subject.is_dump:
        path, seed = flags.subject.path, None if device is None else flags.seed
        for binding in each_binding(bindings(sizes_of(read_text(path), str(path)), flags.sizes, single)):
            dump, compiler = read_dump(path, binding), compile_options(flags, device)
            compilation = _told(partial(compile_dump, dump, compiler, seed))
            print_trace(compilation, flags)
            yield compilation
        return
    compilation = compile_text(flags, device, values)
    print_trace(compilation, flags)
    captured = compilation.captured
    if device is None or not (compilation.sizes or flags.sizes):
        yield compilation
        return
    for binding in each_binding(bindings(compilation.sizes, flags.sizes, single)):
        drawn = captured_text(flags, values, binding)
        tensors = {**captured.tensors, **drawn.tensors}
        yield at_binding(compilation, binding, replace(drawn, tensors=tensors, kinds=captured.kinds))


def compile_record(compilation: Compilation, stage: str | None) -> Record:
    """Return the JSON of `dplc compile`."""
    kernels = [_kernel_record(kernel) | {"text": kernel.text} for kernel in compilation.cuda_kernels]
    record: Record = {"kernels": kernels, "timings": compilation.timings, "target": compilation.target.arch}
    if stage is not None:
        record["ir"] = compilation.ir(stage)
    record |= _schedules_record(compilation)
    if compilation.trace:
        record["trace"] = [event.record() for event in compilation.events]
    return record


def _kernel_record(kernel: CudaKernel) -> Record:
    return {"name": kernel.name, "grid": kernel.grid, "block": kernel.block, "smem": kernel.smem}


def _schedules_record(compilation: Compilation) -> Record:
    return {"schedules": [origin.record() for origin in compilation.origins]} if compilation.origins else {}


def benched(compilation: Compilation, flags: Flags, steps: BenchSteps, measuring: bool) -> BenchRecord:
    """Return the record of a benchmark. measuring: whether it measures on a GPU."""
    with bars() as tell:
        return bench_program(compilation, flags.text.strip(), steps, tell, measuring)


def print_table(record: BenchRecord, layout: TableLayout) -> None:
    """Print the table of a benchmark, wrong cases in red; below it the totals and the problems."""
    titles, texts = layout.table(record)
    pairs = zip(record.cases, texts)
    rows = [[Text(cell, "red" if case.problem else "") for cell in cells] for case, cells in pairs]
    print_rows(titles, rows, left=(titles[0], "bound"))
    write(f"{record.target} ({record.arch}): {layout.summary(record)}.\n")
    for case in record.cases:
        if case.problem:
            write(f"\n{case.name}: {case.problem}\n")


def report_run(compilation: Compilation, device: str, flags: Flags) -> None:
    """Run a compilation and print its difference from float64, and with `--bench` its table.

    Raises DplcError if the difference is too large.
    """
    compiled, captured, inputs = Compiled(compilation, device), compilation.captured, dict[str, Tensor]()
    on_gpu = device.startswith("cuda")
    if on_gpu and compiled.executor:  # which says what is missing
        inputs = {name: tensor.to(memory_of(device)) for name, tensor in captured.tensors.items()}
    steps = BenchSteps(False, True, command_line())
    table = benched(compilation, flags, steps, on_gpu) if flags.bench else None
    start = time.perf_counter()
    with bars(f"running on {device}"):
        results = compiled.run(inputs)
        if on_gpu:
            torch.cuda.synchronize(device)
    elapsed = time.perf_counter() - start
    found = _judged(captured, results, compilation.target)
    if flags.out is not None:
        save_outputs(flags.out, results)
    for note in (*compiled.notes, *found.notes):
        print_remark(note)
    kernels = compilation.cuda_kernels if device != "reference" else ()
    if flags.as_json:
        record = {"ok": found.ok, "device": device, "kernels": [*map(_kernel_record, kernels)], **judged_record(found)}
        print_json(record | _schedules_record(compilation) | ({"bench": table} if table is not None else {}))
    else:
        for kernel in kernels:
            grid = " x ".join(map(str, kernel.grid))
            write(f"kernel {kernel.name}: grid {grid}, {kernel.block} threads, {kernel.smem} bytes of shared memory\n")
        took = f"device {device}: {elapsed * 1e3:.1f} ms, building included"
        write_lines(*outputs_told(results), took, judged_line(found, compilation.since))
        if table is not None:
            print_table(table, kernel_layout(flags.profile, summary))
    _check(found)


def _judged(captured: Capture, results: list[Tensor], target: Target) -> Judgement:
    with bars("computing what it means"):
        if isinstance(captured, Dump) and captured.level != "torch":
            given = captured.tensors
            tf32 = any(isinstance(unit, Kernel) and unit.precision == "tf32" for unit in captured.units)
            eager = reference_of(captured, {n: in_tf32(x) for n, x in given.items()}) if tf32 else None
            return judge(results, reference_of(captured, given), eager)
        own = None if isinstance(captured, Dump) else captured.reference
        return judge_program(captured, captured.tensors, results, own, target)


def _check(found: Judgement) -> None:
    """Raise DplcError for a wrong result."""
    if not found.ok:
        what = f"the result is off by {found.relative:.2e} of the largest value"
        raise DplcError(f"{what}; the gate is 1e-5, or twice eager's own error")


def judged_record(found: Judgement) -> Record:
    """Return the JSON of a comparison with float64, with counts of elements if float64 did not decide all."""
    counts = {"wrong": found.wrong, "as_eager": found.as_eager, "unjudged": found.unjudged}
    record: Record = {"max_abs_err": found.absolute, "max_rel_err": found.relative}
    return record | counts if any(counts.values()) else record


def judged_line(found: Judgement, since: str) -> str:
    """Return the line of a comparison. since: the level of the program; Kernel IR means its text in checked mode."""
    reference = "the checked emulator" if since == "kernel" else "float64"
    largest = f"max|error| {found.absolute:.2e}, over max|reference| {found.relative:.2e}"
    return f"against {reference}: {largest}: {found.verdict}"


def outputs_told(results: Sequence[Tensor]) -> Iterator[str]:
    """Yield a line for each output: dtype and shape."""
    for place, value in enumerate(results):
        yield f"out{place}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def save_outputs(path: Path, results: list[Tensor]) -> None:
    """Save outputs as out0, out1, .. in a numpy file, bf16 converted to f32, which numpy has. Raises DplcError."""
    import numpy as np

    arrays = [(value.float() if value.dtype is torch.bfloat16 else value).numpy(force=True) for value in results]
    with writing(path, ARRAYS) as file:
        np.savez(file, **{f"out{place}": array for place, array in enumerate(arrays)})


# ---- run --check


LINE_WIDTH = 72
COST_TABLE = ("line", "access", "bytes", "requests", "cost", "ideal", "per request", "")


def _report_check(compilation: Compilation, device: str, flags: Flags) -> None:
    """Run the kernels in checked mode and report what it finds. Raises DplcError if it finds anything."""
    checker = CheckingExecutor(None if flags.blocks is None else tuple(map(str.strip, flags.blocks.split(","))))
    compiled, judged = Compiled(compilation, device), None
    compiled.executor = checker
    with contextlib.suppress(EmulatorError):  # a kernel that does not end is a finding
        with bars("running in checked mode"):
            results = compiled.run({})
        judged = _judged(compilation.captured, results, compilation.target)
    found, launches = checker.findings, checker.launches
    if flags.as_json:
        errors = {"max_abs_err": None, "max_rel_err": None} if judged is None else judged_record(judged)
        ok = judged is not None and judged.ok and not found
        kernels = [
            {"name": launch.kernel.name, "grid": launch.kernel.grid, "blocks": launch.blocks, "whole": launch.whole}
            | {"sites": [asdict(site) | {"unit": site.unit, "text": launch.line(site)} for site in launch.sites]}
            for launch in launches
        ]
        print_json({"ok": ok, "findings": found, "kernels": kernels, "orders": checker.orders, **errors})
    else:
        for launch in launches:
            _print_launch(launch)
        if flags.blocks is None and not all(launch.whole for launch in launches):
            blocks = ", ".join(DEFAULT_BLOCKS)
            write(f"grids of more than {SMALL} threads: {blocks} blocks; `--blocks all` checks every one\n")
        if judged is not None:
            write_lines(*(f"note: {note}" for note in judged.notes), judged_line(judged, compilation.since))
        write(f"{len(found) or 'no'} finding{'' if len(found) == 1 else 's'}\n")
    if found:
        raise DplcError(f"checked mode found {len(found)} fault{'s' if len(found) > 1 else ''}")
    if judged is not None:
        _check(judged)


def _print_launch(launch: CheckedLaunch) -> None:
    """Print the cost of each access of a kernel, and the findings in it.

    Costs are 32-byte sectors of global memory and wavefronts of shared memory, per request of a warp.
    """
    kernel, blocks = launch.kernel, launch.blocks
    some = f"blocks {', '.join(map(str, blocks[:16]))}{', ..' if len(blocks) > 16 else ''} of {kernel.blocks}"
    which = f"all {kernel.blocks} blocks" if launch.whole else some
    write(f"kernel {kernel.name}: {which} of {kernel.block} threads, {len(ORDERS)} orders of threads\n")
    rows = []
    for site in sorted(launch.sites, key=lambda site: (site.line, site.access)):
        text = launch.line(site)
        short = text if len(text) <= LINE_WIDTH else text[: LINE_WIDTH - 2] + ".."
        rows.append((*asdict(site).values(), f"{site.cost / site.requests:.2f} {site.unit}", short))
    print_rows(COST_TABLE, rows, left=("access", ""))
    write("\n")
    for finding in launch.findings:
        order = ("forwards", "backwards", "shuffled")[finding.order]
        lines = (f"  {line}" for line in finding.lines)
        write_lines(f"FOUND {finding.message}", f"  threads started {order}", *lines, "")


# ---- Apply rules to an expression after its capture, or to a dump at its level.
#
# For an expression, `--only RULE` shows the effect of the rule at its position in the pipeline. The preceding passes
# run as in a compile, only this rule is traced, and dplc prints the program after it. For a file, no other rule fires.

Program = tuple[str, tuple[Any, ...]]  # its level, its graphs or kernels


def rewrite_program(flags: Flags) -> None:
    """Run `dplc rewrite`. Raises UsageError for an unknown name."""
    compiler = compiler_for(flags)
    tools = compiler.tools
    only, about = ([*map(tools.rules.plain, names)] for names in (flags.only_rules, flags.about))
    for name in about:
        if not rules_named(tools, name):
            pipeline_of(tools, name, "--about")
    if flags.trace:
        _explain(flags, compiler, only, about or only)
        return
    level, units = (rewrite_file if flags.subject.is_dump else rewrite_expression)(flags, compiler, only)
    print_text(print_program(units, level), "ir")


def why_rule(flags: Flags) -> None:
    """Run `dplc rules why`: print where a rule fires with the values it compared, else why it does not fire."""
    compiler = compiler_for(flags)
    name = compiler.tools.rules.plain(flags.name)
    if not (flags.subject.is_dump and rules_named(compiler.tools, name)):
        pipeline_of(compiler.tools, name, "rules why")
    _explain(flags, compiler, [name], [name])


def _explain(flags: Flags, compiler: Compiler, only: Sequence[str], shown: Sequence[str]) -> None:
    """Rewrite, and print the events about the shown rules, passes, files and aliases (all without any), or why none."""
    trace = Trace(asked=frozenset(shown))
    rewrite = rewrite_file if flags.subject.is_dump else rewrite_expression
    rewrite(flags, replace(compiler, trace=trace), only)
    events = [event for event in trace.events if not shown or not trace.asked.isdisjoint(_names_in(event))]
    if flags.as_json:
        print_json([event.record() | ({"held": event.held()} if isinstance(event, Firing) else {}) for event in events])
    elif events:
        print_text("\n".join(lines_of(events, flags.trace)), "diff")
    else:
        reasons = "\n".join(_unmatched(compiler.tools, name, trace) for name in shown)
        print_remark(reasons or "no rule fired, and none was refused")


def _names_in(event: Event) -> tuple[str, ...]:
    return event.rule, event.label, pass_name(event.label), *(event.cleaned if isinstance(event, Firing) else ())


def _unmatched(tools: Toolchain, name: str, trace: Trace) -> str:
    """Explain why a trace has no event of a rule. For a rule on torch, list its root op and the ops of the program."""
    rule = tools.rules.rules.get(name)
    if rule is not None and rule.level == "torch":
        ops = [f"  {op}" for event in trace.firings if event.prefix == PREFIXES["torch"] for op in event.before]
        starts = f"`{name}` matches nowhere: it starts from `{TorchRule(rule).key}`"
        return "\n".join((f"{starts}, and here stand", *ops)) if ops else starts
    named = (rule,) if rule is not None else rules_named(tools, name)
    if named and all("off" in one.attributes for one in named):
        return f"`{name}` is @off: no compile asks it but one with --explore"
    if rule is not None and "canonical" in rule.attributes:
        return f"`{name}` is asked after every firing of a rule on {rule.level}, and fired after none"
    files = {one.location.partition(":")[0] for one in named}
    fired = {event.rule: event.location for event in trace.firings if event.location.partition(":")[0] in files}
    said = " and ".join(f"`{other}` ({location})" for other, location in fired.items()) or "no rule"
    return f"`{name}` neither fired nor was refused: {said} of its file fired"


# ---- names of rules, passes, files and aliases


def rules_named(tools: Toolchain, name: str) -> tuple[Rule, ...]:
    """Return the rules that a name denotes: a rule, the rules of its pass or file, or the rules of a pass label."""
    found = [rule for rule in tools.rules.rules.values() if name in (rule.name, rule.file, pass_name(rule.file))]
    found += [rule for steps in tools.pipelines.values() for step in steps if step.label == name for rule in step.rules]
    return tuple(dict.fromkeys(found))


def homes(tools: Toolchain) -> dict[str, str]:
    """Return {name of a step: the first pipeline that has it}."""
    steps = [(step, pipeline) for pipeline in reversed(PIPELINES) for step in tools.pipelines[pipeline]]
    return {name: pipeline for step, pipeline in steps for name in names_of(step)}


def pipeline_of(tools: Toolchain, name: str, asked: str = "--only") -> str:
    """Return the pipeline of a rule, pass, file or alias. Raises UsageError for an unknown name."""
    found = homes(tools)
    if name in found:
        return found[name]
    rule = tools.rules.rules.get(name)
    if rule is not None and rule in tools.rules.canonical:
        return "kernel" if rule.level == "kernel" else "tile"  # after every firing there
    what = f"{asked} {name}: "
    if rule is None and name not in tools.rules.passes:
        raise UsageError(f"{what}there is no such rule or pass", hint=did_you_mean(name, found))
    removed = next((line.span for file in tools.rules.files for line in file.without if line.name == name), None)
    if removed is None:
        hint = "give a dump of its level: `dplc rewrite FILE.ir --only` fires any rule"
        raise UsageError(f"{what}it stands in no pipeline, so a compile never runs it", hint=hint)
    if removed.source.name == "--exact":
        raise UsageError(f"{what}--exact leaves it out, for it is @approx", hint="leave out --exact")
    place = f"{removed.source.name}:{removed.line}"
    raise UsageError(f"{what}`without {name}` takes it out ({place})", hint="take that line out")


# ---- an expression


def rewrite_expression(flags: Flags, compiler: Compiler, only: Sequence[str]) -> Program:
    """Return the program after the last requested pass, or after the last pass of Tile IR without a request."""
    tools, order = compiler.tools, [*PIPELINES]
    last = max((pipeline_of(tools, name) for name in only), key=order.index, default="tile")
    captured = captured_text(flags, values=False)
    with bars("rewriting"):
        graph, plan = compiler.cut(captured)
        if last in GRAPHS:
            return "tensor", (graph,)
        units = plan.kernels
        for pipeline in order[order.index("loop") : order.index(last) + 1]:
            if pipeline == "kernel":
                units = tuple(materialise(kernel, compiler.target) for kernel in units)
            steps = tools.pipelines[pipeline]
            ends = [end for end, step in enumerate(steps, 1) if not names_of(step).isdisjoint(only)]
            end = ends[-1] if ends and pipeline == last else None  # a canonical rule has no position of its own
            units = compiler.passes(pipeline, units, steps=steps[:end])
    return level_of(units), units


# ---- a file

GRAPHS = ("torch", "tensor")  # levels of graphs, the others are of kernels
# The pipelines that run over a file of a level: of a torch graph and of values only their rules.
SCHEDULE = ("loop", "tile")
RUN = {"torch": GRAPHS, "tensor": ("tensor",), "loop": SCHEDULE, "tile": SCHEDULE, "kernel": ("kernel",)}


def rewrite_file(flags: Flags, compiler: Compiler, only: Sequence[str]) -> Program:
    """Run the passes for the level of a file: lower a torch graph, simplify values, or schedule kernels."""
    file, tools = flags.subject.path, compiler.tools
    level, units = units_of(file)
    for name in only:
        check_level(tools, name, level, file)
    if level in GRAPHS:
        return "tensor", tuple(rewrite_values(unit, compiler, only) for unit in units)
    for pipeline in RUN[level]:
        steps = tools.pipelines[pipeline]
        units = compiler.passes(pipeline, units, steps=only_steps(steps, only) if only else steps)
    beside = [tools.engine.step(pass_name(name)) for name in only if name not in homes(tools)]  # of no pipeline
    units = compiler.passes(RUN[level][-1], units, steps=beside)
    return level_of(units), units


def units_of(file: Path) -> Program:
    """Return the level and the units of a file. Raises DplcError with a caret for a file that is not a dump of dplc."""
    content = read_text(file)
    if "__global__" in content:
        raise DplcError(
            f"{file} is CUDA text, which no rule rewrites",
            hint="dump a stage before it: --ir torch, tensor, loop, tile or kernel",
        )
    _, units = read_program(content, str(file))
    if not units:
        raise DplcError(f"{file} holds no kernel and no graph")
    kinds = {type(unit) for unit in units}
    if kinds == {Kernel}:
        return level_of(units), units
    if Kernel in kinds:
        raise DplcError(f"{file} holds kernels and graphs: a program is one or the other")
    for unit in units:
        if isinstance(unit, TorchGraph):
            check_types(unit, str(file))
    return "torch" if TorchGraph in kinds else "tensor", units


def level_of(kernels: tuple[Any, ...]) -> str:
    """Return the level of kernels, read from their statements."""
    statements = {type(statement) for kernel in kernels for statement in kernel.body}
    return "kernel" if Launch in statements else "tile" if Tile in statements else "loop"


def rewrite_values(graph: Any, compiler: Compiler, only: Sequence[str]) -> Any:
    """Lower a torch graph to values and simplify them, or simplify values."""
    tools, trace, algebra = compiler.tools, compiler.trace, compiler.tools.algebra
    if isinstance(graph, TorchGraph):
        lowered = lower_graph(graph, tools.torch, trace=trace is not None)
        trace_lowering(trace, lowered)
        graph = push_renamings(lowered.graph)
    if only:
        wanted = {rule.name for name in only for rule in rules_named(tools, name)}
        algebra = TermRules((rule for rule in algebra.rules if rule.name in wanted), parameters=algebra.parameters)
    return compiler.simplified(graph, {}, algebra)


def check_level(tools: Toolchain, name: str, level: str, file: Path) -> None:
    """Raise UsageError for an unknown name, or one without rules for a file of this level."""
    rules = rules_named(tools, name)
    if not rules:
        pipeline_of(tools, name)
    levels = {one for pipeline in RUN[level] for one in PIPELINES[pipeline]}
    if not any(rule.level in levels and not mentions_mat(rule) for rule in rules):
        kind = "decides what is stored" if any(map(mentions_mat, rules)) else f"is on {rules[0].level}"
        raise UsageError(
            f"--only {name}: it {kind}, and {file} holds a program of the level {level}",
            hint="give the expression with -c",
        )
