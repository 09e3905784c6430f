"""`dplc tune`."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..compiler import CompileOptions, values_of
from ..explore.candidates import Fusing
from ..explore.explore import HINT
from ..explore.saturate import available
from ..ruleset import Toolchain
from ..schedule.space import Start
from ..store.protocol import Decision, Schedule
from ..store.store import open_store
from ..tune.running import SEARCHES, SearchProgress
from ..tune.search import Tried
from ..tune.search_log import SearchLog, micro
from ..tune.tuning import SearchOptions, TuningOutcome
from ..tune.tuning_job import evaluator_for
from ..tune.tuning_program import CANDIDATE, Programmed, tune_program
from .compiling import machine_for, tools_for
from .narrowing import captured_row, tell_lengths
from .options import Flags
from .show import bars, print_json, print_note, print_remark, write

CHECK = "`dplc check` finds a rule that is wrong; if no rule of yours took part, please report it"


@dataclass(frozen=True)
class TuneView:
    """How a text is tuned. top: number of fusion candidates."""

    top: int = 1


def check_search(name: str) -> None:
    """Raises UsageError for a search that is not there."""
    if name not in SEARCHES:
        options = ", ".join(SEARCHES)
        raise UsageError(
            f"--search {name}: there is no such search",
            notes=(f"searches are {options}",),
            hint=did_you_mean(name, SEARCHES),
        )


def tune_expression(flags: Flags, search: SearchOptions, view: TuneView) -> bool:
    """Tune an expression: which candidate of fusion, and every kernel's schedule; whether it was interrupted."""
    check_search(search.search)
    tools, fusing = fusing_of(flags, view.top)
    check_passes(search.free, tools)
    gc.collect()
    gc.freeze()  # torch is large, and looked through for garbage again and again
    log, tried_so_far = SearchLog(), Candidates(flags.verbose)
    kept = contextlib.nullcontext() if flags.no_db else open_store(flags.db, tools.rules)
    with evaluator_for(fusing.target, search) as evaluator, kept as store, bars() as show:

        def heard(run: SearchProgress, tried: Tried) -> None:
            log.heard(run, tried)
            tried_so_far.heard(run, tried)
            show(searching(run), run.tries, run.limit or 0)

        with ended_by(signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            found = tune_program(fusing, evaluator, search, store, heard)
    _report(flags, view, found, log)
    if why := found.wrong.get(found.way):
        raise DplcError(f"the program is wrong in every way of computing it that was compared: {why}", hint=CHECK)
    return found.run.interrupted


@contextlib.contextmanager
def ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """These signals end a search as Ctrl-C does: what was found is checked and kept."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only there does Python hear of them
        yield
        return
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in reversed(before):
            signal.signal(number, handler)


def fusing_of(flags: Flags, top: int) -> tuple[Toolchain, Fusing]:
    """The rules, and the ways to compute the expression: so many candidates of fusion."""
    tools, machine = tools_for(flags), machine_for(flags)
    captured = captured_row(replace(flags, seed=0))
    tell_lengths(captured)
    values = values_of(captured, CompileOptions(tools, machine))
    if top > 1 and not available():
        print_remark(HINT)
    return tools, Fusing(values, tools, machine, top)


def check_passes(wanted: Iterable[str] | None, tools: Toolchain) -> None:
    """Raises UsageError for a pass of `--free` that is not there."""
    labels = [CANDIDATE, *(step.label for step in tools.pipelines["tile"])]
    for name in wanted or ():
        if tools.rules.plain(name) not in labels:
            raise UsageError(f"--free {name}: there is no such pass", hint=did_you_mean(name, labels))


class Candidates:
    """The candidates of a search, on standard error while it runs: each improvement with `-v`, each one with `-vv`.

    A candidate has its time, and the rules and parameters in which it differs from the best one before it.
    """

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.way = 0
        self.best: dict[Start, Schedule] = {}  # of the kernels of the best one

    def heard(self, run: SearchProgress, tried: Tried) -> None:
        """Another candidate was tried."""
        improved = bool(run.curve) and run.curve[-1][0] == run.tries
        if self.verbose > 1 or (self.verbose and improved):
            print_note("\n".join((f"try {run.tries}: {_scored(run, tried)}", *self._changes(run, tried))))
        if improved:
            self.way = tried.candidate.way
            self.best |= {candidate.start: candidate.schedule for candidate, _, _ in tried.parts}

    def _changes(self, run: SearchProgress, tried: Tried) -> Iterator[str]:
        if tried.candidate.way != self.way:
            yield f"  fusion: {run.search.space.ways[tried.candidate.way]}"
        for candidate, _, _ in tried.parts:
            before = self.best.get(candidate.start)
            if before is not None and (found := changes(before, candidate.schedule)):
                yield f"  {candidate.start.kernels[0].name}: {'; '.join(found)}"


def _scored(run: SearchProgress, tried: Tried) -> str:
    """The time of a candidate, and how much faster than the default it is; or why it has none."""
    score, default = tried.score, run.default.seconds
    if score.seconds is None:
        return f"{score.status}: {score.detail}" if score.detail else score.status
    faster = f", {default / score.seconds:.2f}x" if default is not None else ""
    return f"{micro(score.seconds)} us{' by default' if run.tries == 1 else faster}, {score.basis}"


def changes(before: Schedule, after: Schedule) -> list[str]:
    """The rules that only one of two schedules fires and the parameters that differ; else the sites that differ."""
    old, new = _firings(before), _firings(after)
    found, moved = [], []
    for rule in dict.fromkeys((*old, *new)):
        for one, other in itertools.zip_longest(old.get(rule, ()), new.get(rule, ())):
            if one is None or other is None:
                found.append(f"with {_fired(other)}" if one is None else f"without {_fired(one)}")
                continue
            pairs = ((name, one.parameters.get(name), value) for name, value in other.parameters.items())
            values = [f"{name} from {_text(a)} to {_text(b)}" for name, a, b in pairs if a != b]
            found += [f"{rule[1]} {', '.join(values)}"] if values else []
            moved += [f"{rule[1]} at {other.site}"] if one.site != other.site else []
    return found or moved


def _firings(schedule: Schedule) -> dict[tuple[str, str], list[Decision]]:
    """{(pass, rule): its firings}"""
    found: dict[tuple[str, str], list[Decision]] = {}
    for decision in schedule:
        found.setdefault((decision.step, decision.rule), []).append(decision)
    return found


def _fired(decision: Decision) -> str:
    """A rule with the values of its parameters."""
    values = ", ".join(f"{name}={_text(value)}" for name, value in decision.parameters.items())
    return f"{decision.rule}({values})" if values else decision.rule


def searching(run: SearchProgress) -> str:
    """How far a search is."""
    best = "nothing yet" if run.best is None else f"best {micro(run.best[0])} us ({run.gain:.2f}x), {run.default.basis}"
    return f"{best}, {run.programs} programs, {run.pruned} refused, {run.failed} failed"


def _report(flags: Flags, view: TuneView, found: Programmed, log: SearchLog) -> None:
    if flags.as_json:
        print_json({"target": found.space.target.name, **found.record()})
    else:
        write(_said(found) + "".join(map(_kernel, found.kernels)))
    for way, why in found.wrong.items():
        print_note(f"defect: {found.space.ways[way]} gave a wrong result and was not kept: {why}")
    for outcome in found.kernels:
        for candidate, why in outcome.wrong:
            rules = ", ".join(dict.fromkeys(d.rule for d in candidate.schedule))
            print_note(f"defect: a schedule of `{outcome.kernel}` gave a wrong result and was not kept: {why}")
            print_note(f"  rules that took part: {rules}; `--json` has the whole schedule; please report it")


def _said(found: Programmed) -> str:
    """A program, for people."""
    run, before, after = found.run, micro(found.default.seconds), micro(found.score.seconds)
    lines = [
        f"{before} us by default, {after} us tuned, {found.gain:.2f}x, {found.default.basis}",
        f"  {run.search.name}: {run.tries} tries in {run.seconds:.1f} s, {run.programs} programs, "
        f"{run.pruned} refused, {run.failed} failed, {run.again} seen before"
        + (", interrupted" if run.interrupted else ""),
    ]
    if len(found.space.ways) > 1:
        kept = _kept(found.kept, found.before is not None)
        lines.append(f"  fusion: {found.label}; checked: {found.checked or 'no'}; {kept}")
        for one in found.candidates():
            told = one["problem"] or ("not tried" if not one["tried"] else "")
            best = f"{one['best_us']:.2f} us" if one["best_us"] else "-"
            lines.append(f"    {one['candidate']}: {best}{f' ({told})' if told else ''}")
    return "\n".join(lines) + "\n"


def _kept(kept: bool, before: bool) -> str:
    return "kept" if kept else "what is remembered is as good" if before else "not kept"


def _kernel(outcome: TuningOutcome) -> str:
    """One kernel, for people."""
    times = "" if outcome.count == 1 else f" ({outcome.count} times)"
    before, after = micro(outcome.default_seconds), micro(outcome.seconds)
    kept = _kept(outcome.kept, outcome.before is not None)
    lines = [
        f"{outcome.kernel}{times}: {before} us by default, {after} us tuned, {outcome.gain:.2f}x",
        f"  checked: {outcome.checked or 'no'}; {kept}",
    ]
    changed = outcome.winner.key != outcome.default.key
    lines += [f"  {decision.step}: {_fired(decision)}" for decision in outcome.winner.schedule if changed]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return "(" + ", ".join(map(_text, value)) + ")" if isinstance(value, list) else str(value)
