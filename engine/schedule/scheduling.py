"""Lowering of Loop IR to Tile IR, by remembered schedules where there are any, else by the passes in default order."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile, zip_longest
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

from ...codegen.cuda import print_cuda
from ...codegen.kernel import MAX_THREADS_PER_BLOCK, CudaKernel
from ...codegen.materialise import materialise
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Size, Var
from ...ir.facts.layout import params, thread_count
from ...ir.node import Node, contents, immutable
from ...ir.program import Kernel
from ...ir.sizes import AT_HINTS, Binding
from ...ir.substitute import substitute, with_hints, with_sizes
from ...ir.text.print_statements import print_expr, print_value
from ...ir.tile import Tile
from ..capture.dynamic_shapes import Dim
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import Prediction, predict, register_budget
from ..facts.accesses import registers
from ..facts.shared_memory import smem_left
from ..kernels.sharing import key_of_range, sizes_of
from ..language.pipeline import PassStep
from ..language.rule import RuleSet, policy
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import Decide, RuleSite, Shaped, repeats, run_pipeline, spots
from ..rewrite.statements.site import Site, unused
from ..rewrite.trace import Firing, Remark, Trace
from ..ruleset import Toolchain
from ..store.store import (
    Decision,
    Entry,
    Schedule,
    SqliteStore,
    TuningKey,
    default_path,
    distance,
    key_of,
    written_extents,
)

SCHEDULING = ("loop", "tile")


@immutable
class Origin:
    """Origin of the schedule of a kernel of Loop IR.

    source: the default order; the store, for this very kernel; the store, for the same kernel at other sizes. basis,
    seconds: of the remembered schedule, at the sizes it was found for. text: one line for people.
    """

    kernel: str
    source: Literal["default", "store", "nearest"]
    text: str
    basis: str = ""
    seconds: float | None = None

    @property
    def line(self) -> str:
        """For people, where it is not the default order; else ""."""
        return "" if self.source == "default" else f"schedule of `{self.kernel}`: {self.text}"

    def record(self) -> dict[str, object]:
        """Return the record for `--json`."""
        return {
            "kernel": self.kernel, "source": self.source, "basis": self.basis or None,
            "microseconds": microseconds(self.seconds), "about": self.text,
        }  # fmt: skip


# Returns a kernel of Loop IR as kernels of Tile IR, None for the default order; and where that comes from.
Schedules = Callable[[Kernel, "Scheduler", Shaped], tuple[Program | None, Origin]]


@immutable
class Scheduler:
    """Rules and target of a compile, the trace that the compile fills, and the store of schedules.

    The rules and numbers that are declared for the target alone are in force in both. trace: None if it is not needed.
    """

    tools: Toolchain
    target: Target
    trace: Trace | None = None
    schedules: Schedules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", self.tools.at(self.target))
        object.__setattr__(self, "target", self.tools.on(self.target))

    @property
    def untraced(self) -> Self:
        """A copy without a trace."""
        return replace(self, trace=None)

    def passes(
        self, pipeline: str, program: Program, shaped: Shaped | None = None, decide: Decide | None = None,
        steps: Sequence[PassStep] | None = None,
    ) -> Program:  # fmt: skip
        """Return kernels after the passes of a pipeline, or after `steps` of it. shaped, decide: see `run_pipeline`."""
        trace, tools = self.trace and self.trace.at(pipeline), self.tools
        steps = tools.pipelines[pipeline] if steps is None else steps
        return run_pipeline(tools.engine, steps, program, self.target, trace, shaped, decide)

    def tiles(self, loops: Program, shaped: Shaped) -> tuple[Program, tuple[Origin, ...]]:
        """Schedule the kernels of a program, and say where the schedules come from.

        Without a store this is the default order for the whole program. shaped: receives the passes that changed each
        kernel.
        """
        if self.schedules is None:
            return self.by_default(loops, shaped), ()
        found = [self.schedules(kernel, self, shaped) for kernel in loops]
        origins = tuple(origin for _, origin in found)
        if self.trace is not None:
            self.trace.at("tile").events += [Remark("t", "store", o.kernel, o.text) for o in origins]
        out: list[Kernel] = []
        taken = names_of_all(loops)
        # neighbours without a stored schedule are scheduled together: some rules look at several kernels
        for by_default, group in groupby(zip(loops, found, strict=True), key=lambda pair: pair[1][0] is None):
            if by_default:
                kernels = tuple(kernel for kernel, _ in group)
                out += placed(self.by_default(kernels, shaped), kernels, taken)
            else:
                for kernel, (made, _) in group:
                    out += placed(made or (), (kernel,), taken)
        return tuple(out), origins

    def by_default(self, program: Program, shaped: Shaped | None = None) -> Program:
        """Return kernels of Loop IR in Tile IR, in the default order."""
        for pipeline in SCHEDULING if program else ():
            program = self.passes(pipeline, program, shaped)
        return program

    def kernel_ir(self, tile: Program, shaped: Shaped | None = None) -> Program:
        """Lower kernels from Tile IR to Kernel IR. Raises DplcError for a kernel that the target cannot launch."""
        return self.passes("kernel", tuple(materialise(kernel, self.target) for kernel in tile), shaped)


def names_of_all(kernels: Program) -> set[str]:
    """Return the names of kernels and of their buffers."""
    return {name for kernel in kernels for name in (kernel.name, *params(kernel))}


def placed(made: Program, before: Program, taken: set[str]) -> Program:
    """Rename the kernels and buffers that some kernels became, so that their names are free in the whole program.

    A schedule is carried out without a look at its neighbours, so new names are new only among its own.
    """
    own = names_of_all(made) - names_of_all(before)
    again = {}
    for name in sorted(own & taken):
        again[name] = Var(unused(name, taken | own))
        own.add(again[name].name)
    taken |= own
    return substitute(made, again)


# ---- Print kernels as CUDA, and predict their times.


def cuda_of(kernels: Program, shaped: Shaped | None = None, sizes: Binding = AT_HINTS) -> tuple[CudaKernel, ...]:
    """Return the CUDA of kernels. shaped: the rules that a comment names; sizes: the numbers of the kernels' sizes."""
    named = shaped or {}
    return tuple(print_cuda(kernel, tuple(dict.fromkeys(named.get(kernel.name, ()))), sizes) for kernel in kernels)


def predictions(
    kernels: Program, target: Target, registers: Sequence[int | None] | None = None
) -> tuple[Prediction, ...]:
    """Return the predictions of the model for kernels of Kernel IR, with their sizes at the hints.

    registers: of a thread of each, where they are known.
    """
    pairs = zip_longest(with_hints(kernels), registers or ())
    return tuple(predict(instruction_counts(kernel, count), target) for kernel, count in pairs)


def seconds_of(kernels: Program, target: Target, registers: Sequence[int | None] | None = None) -> float:
    """Return the predicted seconds of kernels of Kernel IR, one after the other."""
    return sum(prediction.seconds for prediction in predictions(kernels, target, registers))


def microseconds(seconds: float | None) -> float | None:
    """Return a time in microseconds; None for an unknown or infinite one."""
    return None if seconds is None or seconds == inf else seconds * 1e6


# ---- Reject schedules that the target cannot launch, before anything is built.


def predicted_registers(kernel: Kernel, target: Target) -> int:
    """Return the registers of a thread, predicted from Tile IR.

    NVRTC took 0.86 to 1.11 times as many for norms, products and attention, 0.45 to 1.65 for small kernels (scans, a
    convolution of 3 channels), in 11 kernels on sm_80.
    """
    site = Site((kernel,), (0,), target)
    return min(_estimate(site), _register_budget(site))


def estimated_registers(program: Program, target: Target) -> int:
    """Return the largest estimate of a thread's registers among the kernels, regardless of the budget."""
    sites = (Site(program, (number,), target) for number in range(len(program)))
    return max((_estimate(site) for site in sites if site.tile), default=0)


def _estimate(site: Site) -> int:
    tile: Any = site.tile
    return int(registers(site, tile.axes, tile.body))


def _register_budget(site: Site) -> int:
    """Return the registers that the compiler may give to a thread of a block."""
    tile: Any = site.tile
    return int(register_budget(thread_count(tile), site.target))


def refusal(program: Program, target: Target, granted: float = 0) -> str | None:
    """Return why a program cannot be launched, or would spill its registers; None if nothing is known against it.

    granted: the estimate for a schedule that is known to fit, the default one: if that estimate is too high, so are
    others. It is infinite if no program is refused for its registers.
    """
    for number, kernel in enumerate(program):
        site = Site(program, (number,), target)
        if (tile := site.tile) is None:
            return f"kernel `{kernel.name}` has no tile"
        for axis in tile.axes:
            if axis.role != "BLOCK" and axis.extent.__class__ is not int:
                extent = print_expr(axis.extent)
                return f"axis `{axis.name}` of a block is as long as `{extent}`, known at a call only"
        if (threads := thread_count(tile)) > MAX_THREADS_PER_BLOCK:
            return f"{threads} threads per block; {MAX_THREADS_PER_BLOCK} are possible"
        if (left := smem_left(site)) < 0:
            return f"{target.smem - left} bytes of shared memory; {target.smem} are possible"
        if granted < inf:
            wanted, budget = _estimate(site), _register_budget(site)
            if wanted > max(budget + policy(target).register_slack, granted):
                return f"about {wanted} registers per thread; {budget} are possible"
    return None


# ---- Replay a schedule at the sizes it was found for, or at others where that is legal.


Numbers = Mapping[str, str]  # {parameter of a kernel: `#n`}


def numbers_of(program: Iterable[Kernel]) -> dict[str, str]:
    """Return {parameter: its number}, the written form of parameters that is independent of their names."""
    names = dict.fromkeys(name for kernel in program for name in params(kernel))
    return {name: f"#{number}" for number, name in enumerate(names)}


def written(value: Any, numbers: Numbers) -> Any:
    """Return a value of a parameter as JSON: numbers, texts, lists.

    A record is written as the first name among its fields.
    """
    if isinstance(value, Var):
        base, _, suffix = value.name.rpartition("_")  # `#0_smem`: a name derived from the first parameter
        return numbers.get(value.name) or (f"{numbers[base]}_{suffix}" if base in numbers else value.name)
    if isinstance(value, Node):
        return print_value(value)
    if hasattr(value, "_fields"):
        names = (field for field in value if isinstance(field, Var))
        return written(next(names, value[0]), numbers)
    if isinstance(value, set | frozenset):
        return sorted((written(item, numbers) for item in value), key=str)
    return [written(item, numbers) for item in value] if isinstance(value, tuple | list) else value


def decision(step: PassStep, site: RuleSite, numbers: Numbers) -> Decision:
    """Return a site whose parameters are chosen in the form that the store keeps."""
    values = {name: written(value, numbers) for name, value in site.parameters.items()}
    return Decision(step.label, site.rule, site.where, values)


def chosen(spot: RuleSite, values: Mapping[str, object], numbers: Numbers) -> RuleSite | None:
    """Return a spot with the values of a stored decision; None if one is not there or not legal."""

    def recorded(site: RuleSite) -> Iterator[object]:
        assert site.open is not None
        wanted = values.get(site.open.name)
        return (value for value in site.open.values if written(value, numbers) == wanted)

    found = spot.filled(recorded)
    if found is None or any(written(v, numbers) != values.get(n, v) for n, v in found.parameters.items()):
        return None
    return found


def untiled(program: Program) -> bool:
    """Return whether some kernel is still a loop nest: the passes that create its Tile are not decisions."""
    return not all(contents(kernel) & Tile.mark for kernel in program)


def replay(
    scheduler: Scheduler, kernel: Kernel, schedule: Schedule, shaped: Shaped | None = None, other_sizes: bool = False
) -> tuple[Program, int]:
    """Return a kernel of Loop IR as kernels of Tile IR, and how many of the recorded firings were carried out.

    Each pass has the recorded firings, once the kernel has its Tile. A firing that is not legal is an error; at sizes
    other than those that the schedule was found for, another site will do, and then the default for the rest of the
    pass. shaped: as of `run_pipeline`. Raises DplcError for a decision that is not legal any more.
    """
    numbers, engine, target = numbers_of((kernel,)), scheduler.tools.engine, scheduler.target
    done = 0

    def decide(step: PassStep, program: Program) -> Program | None:
        nonlocal done
        if untiled(program):
            return None
        waiting = schedule if other_sizes else takewhile(lambda one: one.step == step.label, schedule[done:])
        for number, decision in enumerate(one for one in waiting if one.step == step.label):
            places = (decision.site, None) if other_sizes else (decision.site,)
            sites = (
                spot for place in places for spot in spots(engine, step, program, target, None, decision.rule, place)
            )
            if found := next(filter(None, (chosen(spot, decision.parameters, numbers) for spot in sites)), None):
                program, done = fired(step, found, scheduler.trace), done + 1
            elif not other_sizes:
                what = f"the remembered schedule does not fit: `{decision.rule}` cannot fire at {decision.site}"
                raise DplcError(what, notes=(f"parameters {decision.parameters}",), hint="tune the kernel again")
            elif number and not repeats(step):
                break
            else:
                return engine.fire(step, program, target, trace=scheduler.trace)
        return program

    program = scheduler.passes("tile", scheduler.passes("loop", (kernel,), shaped), shaped, decide)
    if not other_sizes and done < len(schedule):
        step = schedule[done].step
        raise DplcError(f"the schedule of kernel `{kernel.name}` names pass `{step}`, which does not run")
    return program, done


def fired(step: PassStep, site: RuleSite, trace: Trace | None) -> Program:
    """Return the program after a firing, which the trace records."""
    program, made = site.fire()
    if trace is not None:
        where = (step.shown(made.rule), site.rule, made.rule.location, site.kernel, site.where)
        trace.add(Firing(trace.prefix, *where, site.parameters, made.before, made.after))
    return program


# ---- Schedules out of the store, for a compile: of this very kernel, else of the same kernel at the nearest sizes.
#
# One look-up takes tens of microseconds. A schedule of other sizes is used only if the model does not predict that it
# is slower than the default order; that is found out once for each kernel and process.


SWITCH = "DPLC_NO_DB"  # in the environment: no compile looks into the user's own store
PATIENCE = 0.25  # seconds that a compile waits for the store


def stored_schedules(tools: Toolchain, path: Path | None = None, wanted: bool = True) -> StoredSchedules | None:
    """Return the store's schedules for a compile; None without a store, or if it was switched off.

    They are not used either if the user pins parameters (`--set`): the compile then follows the pinned values.
    """
    file = path or default_path()
    switched_off = path is None and os.environ.get(SWITCH, "0") not in ("", "0")
    if not wanted or switched_off or tools.settings:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return _opened(file, (os.getpid(), status.st_dev, status.st_ino), tools.rules)


@functools.lru_cache(maxsize=4)
def _opened(file: Path, identity: tuple[int, int, int], rules: RuleSet) -> StoredSchedules:
    """Return the schedules of a store, kept open until the file changes or the process forks."""
    return StoredSchedules(SqliteStore(file, rules, patience=PATIENCE))


class StoredSchedules:
    """The schedules of a store, as a compiler looks them up."""

    def __init__(self, store: SqliteStore):
        self.store = store
        self._slower: dict[tuple[TuningKey, str], bool] = {}

    def __call__(self, kernel: Kernel, scheduler: Scheduler, shaped: Shaped) -> tuple[Program | None, Origin]:
        """Return the kernel under the best schedule that there is, None for the default order; and its origin."""
        key = key_of(kernel, scheduler.target, scheduler.tools.rules)
        entries = self.store.exact(key)
        if not entries:
            return self._nearest(key, kernel, scheduler, shaped)
        refused = f"the rules have changed since `{kernel.name}` was tuned"
        for entry in self.store.valid(entries, key):
            try:
                with _attempt(scheduler, shaped) as own:
                    program, _ = replay(scheduler, kernel, entry.tuned.schedule, own)
                    if why := refusal(program, scheduler.target, inf):
                        raise DplcError(why)
            except DplcError as error:
                refused = error.what
                self.store.say_once(f"note: the remembered schedule of kernel `{kernel.name}` is not taken: {refused}")
                continue
            brief = f"{entry.tuned.basis} for {entry.key.device}"
            if not entry.current(key):
                brief += f" with other tools ({entry.key.tools})"
            if entry.key.rules != key.rules:
                brief += ", before rules were changed that it does not use"
            return program, _origin(kernel, "store", entry, brief)
        return None, Origin(kernel.name, "default", f"default order: {refused}")

    # ---- other sizes
    def _nearest(
        self, key: TuningKey, kernel: Kernel, scheduler: Scheduler, shaped: Shaped
    ) -> tuple[Program | None, Origin]:
        farthest, family = policy(scheduler.target).farthest_octaves, self.store.family(key)
        near = {one.key.extents: distance(key.extents, one.key.extents, farthest) for one in family}
        held = self.store.valid((one for one in family if near[one.key.extents] < inf), key)
        entry = min(held, key=lambda one: (near[one.key.extents], one.key.extents), default=None)
        if entry is None:
            return None, Origin(kernel.name, "default", "default order: never tuned, nor at sizes near these")
        schedule, at = entry.tuned.schedule, f"at the nearest sizes ({sizes(entry)})"
        try:
            with _attempt(scheduler, shaped) as own:
                program, kept = replay(scheduler, kernel, schedule, own, True)
                known = key, f"{entry.key.kernel} {entry.tuned.basis} {entry.tuned.seconds}"
                if known not in self._slower:
                    quiet = scheduler.untraced
                    self._slower[known] = _seconds(program, quiet) > _seconds(quiet.by_default((kernel,)), quiet)
                if self._slower[known]:  # by the model, than the default order
                    raise DplcError("slower")
        except DplcError:
            said = f"default order: the schedule {at} is predicted to be slower here"
            return None, Origin(kernel.name, "default", said)
        return program, _origin(
            kernel, "nearest", entry, f"{entry.tuned.basis} {at}, {kept} of {len(schedule)} choices"
        )


@contextlib.contextmanager
def _attempt(scheduler: Scheduler, shaped: Shaped) -> Iterator[Shaped]:
    """Yield what receives the passes of a replay. An error leaves nothing of it in the trace and in `shaped`."""
    own, events = Shaped(), scheduler.trace.events if scheduler.trace is not None else []
    mark = len(events)
    try:
        yield own
    except DplcError:
        del events[mark:]
        raise
    shaped.update(own)


def _seconds(program: Program, scheduler: Scheduler) -> float:
    """Return the predicted seconds of kernels of Tile IR, infinite if one cannot be launched."""
    if refusal(program, scheduler.target) is not None:
        return inf
    registers = [predicted_registers(kernel, scheduler.target) for kernel in program]
    return seconds_of(scheduler.kernel_ir(program), scheduler.target, registers)


def _origin(kernel: Kernel, source: Literal["store", "nearest"], entry: Entry, brief: str) -> Origin:
    text = f"from the store, {brief}: {figures(entry)}"
    return Origin(kernel.name, source, text, entry.tuned.basis, entry.tuned.seconds)


def figures(entry: Entry) -> str:
    """Return the text `12.3 us, default order 15.0 us`, measured or predicted, as `basis` says."""
    tuned = entry.tuned
    return f"{tuned.seconds * 1e6:.4g} us, default order {tuned.default_seconds * 1e6:.4g} us, {tuned.basis}"


def sizes(entry: Entry) -> str:
    """Return the extents of an entry, without repetitions, as they come: `512x2048`."""
    return "x".join(map(str, dict.fromkeys(entry.key.extents)))


# ---- Find the parts of a size's range for which the store has a schedule.


def tuned_ranges(
    schedules: StoredSchedules, kernel: Kernel, rules: RuleSet, target: Target
) -> Iterator[tuple[tuple[Dim, ...], float]]:
    """Yield the parts of a kernel's ranges, and lengths in them, with schedules that are faster than the default order.

    The second item is the time of the default order divided by the time of the schedule. Such an entry is of this very
    kernel with narrower sizes, and holds under the rules in force.
    """
    if not sizes_of(kernel):
        return
    for form in (kernel, with_hints(kernel)):  # a family has numbers for numbers, not for sizes
        key = key_of(form, target, rules)
        best = dict[str, Entry]()
        for entry in schedules.store.valid(schedules.store.family(key), key):
            best.setdefault(entry.key.kernel, entry)
        for entry in best.values():
            gain, row = entry.tuned.default_seconds / entry.tuned.seconds, _part(kernel, entry)
            if not row or gain <= 1:
                continue
            if key_of_range(with_sizes(kernel, {dim.name: dim.number() for dim in row})) == entry.key.kernel:
                yield row, gain


def _part(kernel: Kernel, entry: Entry) -> tuple[Dim, ...]:
    """Return the sizes as an entry has them; () if they are not a part of a kernel's."""
    sizes, ranges, extents = sizes_of(kernel), entry.key.ranges, entry.key.extents
    written = written_extents(kernel)
    if len(written) != len(extents) or len(ranges) not in (0, len(sizes)):
        return ()
    # the sizes at which the kernel has such extents, from its dimensions or loops that are sizes
    usual = {size.name: extent for size, extent in zip(written, extents, strict=True) if isinstance(size, Size)}
    if len(usual) != len(sizes) or ranges == tuple((size.low, size.high, size.multiple) for size in sizes):
        return ()
    found = list[Dim]()
    for size, given in zip_longest(sizes, ranges):
        hint = usual[size.name]
        low, high, multiple = given or (hint, hint, size.multiple)
        if not size.low <= low <= hint <= high <= size.high or multiple % size.multiple or hint % multiple:
            return ()
        found.append(Dim(size.name, low, high, multiple, hint) if given else Dim(size.name, hint, hint))
    return tuple(found)
