"""`dplc tune`."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..api import choose_device
from ..bench.cases import read_suite
from ..compiler import Compiler
from ..explore.explore import HINT, ExplorationOptions, Fusing, exploration
from ..explore.saturate import available
from ..kernels.kernels import FIGURES
from ..models import sources
from ..models.compiling import drawn
from ..rewrite.statements.compiled import Program
from ..store.store import Decision, Schedule, SqliteStore, default_path
from ..tune.search import (
    DEFAULT_SEARCH,
    SEARCHES,
    Budget,
    Observer,
    SearchOptions,
    SearchRun,
    Tried,
    firing_text,
    gain,
    micro,
    plain_text,
)
from ..tune.tuning import (
    CANDIDATE,
    Job,
    JobOutcome,
    Programmed,
    TunedTimes,
    TuningProgram,
    carry_out,
    choose,
    distinct,
    evaluator_for,
    of_grid,
    of_suite,
    program_of,
    summary,
    tune_job,
    tune_program,
)
from .models import captured_model
from .options import Flags, check_known
from .output import bars, print_json, print_note, print_remark, print_rows, print_text, write, write_lines
from .programs import (
    captured_row,
    captured_text,
    combinations,
    compiler_for,
    in_row,
    numbers_by_name,
    report_run,
    row_of,
)

LARGEST_GRID = 10_000  # points
CHECK = "`dplc check` finds a rule that is wrong; if no rule of yours took part, please report it"


def tune(flags: Flags) -> None:
    """Run `dplc tune`.

    Raises UsageError for an unknown search or pass. Raises KeyboardInterrupt after an interrupt, once the results are
    stored.
    """
    name = flags.search or DEFAULT_SEARCH
    check_known("search method", name, SEARCHES)
    many = flags.subject.kind != "text" or flags.grid or flags.jobs > 1
    budget = Budget(flags.tries, flags.programs, flags.seconds, flags.patience)
    search = SearchOptions(name, flags.seed, budget, frozenset(flags.free) or None, True, flags.predict, flags.assemble)
    compiler = compiler_for(flags)
    labels = [CANDIDATE, *(step.label for step in compiler.tools.pipelines["tile"])]
    for free in flags.free:
        if compiler.tools.rules.plain(free) not in labels:
            raise UsageError(f"--free {free}: there is no such pass", hint=did_you_mean(free, labels))
    flags = replace(flags, seed=0)  # of the text: `--seed` is the search's
    if tune_many(flags, search, compiler) if many else tune_expression(flags, search, compiler):
        raise KeyboardInterrupt


def tune_expression(flags: Flags, search: SearchOptions, compiler: Compiler) -> bool:
    """Tune the fusion of an expression and the schedule of every kernel. Return whether the user interrupted it."""
    fusing = Fusing(compiler.values(captured_row(flags)), flags.top)
    if flags.top > 1 and not available():
        print_remark(HINT)
    gc.collect()
    gc.freeze()  # torch is large, and looked through for garbage again and again
    kept = contextlib.nullcontext() if flags.no_db else SqliteStore(flags.db, compiler.tools.rules)
    with evaluator_for(compiler.target, search) as evaluator, kept as store, bars() as show:
        observe = printer(flags.verbose, lambda run: show(searching(run), run.tries, run.limit or 0))
        with ended_by_signals():
            found = tune_program(fusing, evaluator, search, store, observe)
    _report(flags, found)
    if why := found.wrong.get(found.way):
        raise DplcError(f"the program is wrong in every way of computing it that was compared: {why}", hint=CHECK)
    return found.run.interrupted


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals that end the process end a search like Ctrl-C: the best schedules are checked and stored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def printer(verbose: int, show: Callable[[SearchRun], None]) -> Observer:
    """Return a printer of search candidates on standard error: each improvement with `-v`, each candidate with `-vv`.

    A line has the time of the candidate, and the rules and parameters in which it differs from the best preceding one.
    show: shows the progress of the search.
    """
    best_way, schedules = 0, dict[Program, Schedule]()  # of the best candidate, and of its kernels

    def observe(run: SearchRun, tried: Tried) -> None:
        nonlocal best_way
        improved = bool(run.curve) and run.curve[-1][0] == run.tries
        made, way = [candidate for candidate, _, _ in tried.parts], tried.candidate.way
        if verbose > 1 - improved:
            score, default = tried.score, run.default.seconds
            result = ": ".join(filter(None, (score.status, score.detail)))
            if score.seconds is not None:
                faster = f", {default / score.seconds:.2f}x" if default is not None else ""
                result = f"{micro(score.seconds)} us{' by default' if run.tries == 1 else faster}, {score.basis}"
            print_note(f"try {run.tries}: {result}")
            if way != best_way:
                print_note(f"  fusion: {run.search.space.ways[way]}")
            for one in made:
                if found := changes(schedules.get(one.loops, one.schedule), one.schedule):
                    print_note(f"  {one.loops[0].name}: {'; '.join(found)}")
        if improved:
            best_way = way
            schedules.update({one.loops: one.schedule for one in made})
        show(run)

    return observe


def changes(before: Schedule, after: Schedule) -> list[str]:
    """Return the rules that only one of two schedules fires and the changed parameters; else the changed sites."""
    found, moved = [], []
    for step, rule in dict.fromkeys((one.step, one.rule) for one in (*before, *after)):
        firings = ([one for one in each if (one.step, one.rule) == (step, rule)] for each in (before, after))
        for old, new in itertools.zip_longest(*firings):
            if old is None or new is None:
                found.append(f"with {_fired(new)}" if old is None else f"without {_fired(old)}")
                continue
            pairs = ((name, old.parameters.get(name), value) for name, value in new.parameters.items())
            if values := [f"{name} from {plain_text(a)} to {plain_text(b)}" for name, a, b in pairs if a != b]:
                found.append(f"{rule} {', '.join(values)}")
            if old.site != new.site:
                moved.append(f"{rule} at {new.site}")
    return found or moved


def _fired(decision: Decision) -> str:
    """Return a rule with the values of its parameters."""
    return firing_text(decision.rule, decision.parameters.items())


def searching(run: SearchRun) -> str:
    """Return the progress of a search as a line."""
    best = "nothing yet"
    if run.best is not None:
        best = f"best {micro(run.best)} us ({gain(run.default.seconds, run.best):.2f}x), {run.default.basis}"
    return f"{best}, {run.programs} programs, {run.refused} refused, {run.failed} failed"


def _report(flags: Flags, found: Programmed) -> None:
    """Print the result for a program and each of its kernels, and the defects on standard error."""
    run, ways = found.run, found.space.ways
    if flags.as_json:
        print_json({"target": found.space.target.name, **found.record()})
    else:
        lines = [
            f"{found.times}, {run.default.basis}",
            f"  {run.options.search}: {run.tries} tries in {run.seconds:.1f} s, {run.programs} programs, {run.refused} "
            f"refused, {run.failed} failed, {run.repeated} seen before{', interrupted' * run.interrupted}",
        ]
        if len(ways) > 1:
            lines.append(f"  fusion: {found.label}; {_checked(found)}")
            for one in found.candidates():
                remark = one["problem"] or ("" if one["tried"] else "not tried")
                best = f"{one['best_us']:.2f} us" if one["best_us"] else "-"
                lines.append(f"    {one['candidate']}: {best}{f' ({remark})' if remark else ''}")
        for outcome in found.kernels:
            times = "" if outcome.count == 1 else f" ({outcome.count} times)"
            lines.append(f"{outcome.kernel}{times}: {outcome.times}")
            lines.append(f"  {_checked(outcome)}")
            if outcome.winner.key != outcome.default.key:
                lines += [f"  {decision.step}: {_fired(decision)}" for decision in outcome.winner.schedule]
        write_lines(*lines)
    for way, why in found.wrong.items():
        print_note(f"defect: {ways[way]} gave a wrong result and was not kept: {why}")
    for outcome in found.kernels:
        for candidate, why in outcome.wrong:
            rules = ", ".join(dict.fromkeys(decision.rule for decision in candidate.schedule))
            print_note(f"defect: a schedule of `{outcome.kernel}` gave a wrong result and was not kept: {why}")
            print_note(f"  rules that took part: {rules}; `--json` has the whole schedule; please report it")


def _checked(found: TunedTimes) -> str:
    kept = "kept" if found.kept else "not kept" if found.before is None else "what is remembered is as good"
    return f"checked: {found.checked or 'no'}; {kept}"


# ---- several programs


def tune_many(flags: Flags, search: SearchOptions, compiler: Compiler) -> bool:
    """Tune every distinct kernel. Return whether the user interrupted it. Raises DplcError if a job failed."""
    machine = compiler.target.name
    with bars("capturing"):
        programs = list(_programs(flags, search, compiler))
    db = None if flags.no_db else flags.db or default_path()
    jobs = distinct(programs, search, db)
    done = _carried_out(flags, jobs)
    interrupted = len(done) < len(jobs) or any(outcome.interrupted for _, outcome in done)
    tuned = {(one.key.kernel, one.key.rules): one.tuned for _, one in done if one.key and one.tuned}
    found = (choose(program, tuned, db) for program in programs if not interrupted)
    choices = [choice for choice in found if choice]  # of programs that have several fusion variants
    for choice in choices:
        for way, why in choice.wrong.items():
            label = f"candidate {way}" if way else "what the rules decide"
            print_note(f"defect: {choice.name}, {label} gave a wrong result and was not kept: {why}")
    if flags.as_json:
        kernels = [
            {"names": job.names, "failed": outcome.failed or None, "about": outcome.line, "tuned": outcome.tuned}
            for job, outcome in done
        ]
        print_json({"target": machine, "kernels": kernels, "programs": choices})
    else:
        lines = [f"{choice.name}: {choice.line}" for choice in choices if choice.right]
        write_lines(*lines, f"{machine}: {summary([outcome for _, outcome in done])}")
    if failed := [_named(job) for job, outcome in done if outcome.failed]:
        raise DplcError(f"{len(failed)} of {len(jobs)} kernels were not tuned", notes=failed[:10])
    if wrong := [f"{choice.name}: {choice.wrong[choice.way]}" for choice in choices if not choice.right]:
        what = f"{len(wrong)} of {len(programs)} programs are wrong in every way of computing them"
        raise DplcError(what, notes=wrong[:10], hint=CHECK)
    return interrupted


def _carried_out(flags: Flags, jobs: list[Job]) -> list[tuple[Job, JobOutcome]]:
    """Tune the kernels one by one. Report each when it is done. Ctrl-C leaves the others out."""
    done: list[tuple[Job, JobOutcome]] = []
    with bars() as show, ended_by_signals(), contextlib.suppress(KeyboardInterrupt):
        observe = printer(
            flags.verbose, lambda run: show(f"{_named(jobs[len(done)])}: {searching(run)}", len(done), len(jobs))
        )
        show("tuning", 0, len(jobs))
        for job, outcome in carry_out(jobs, tune_job, flags.jobs, observe):
            done.append((job, outcome))
            if not flags.as_json:
                write(f"{_named(job)}: {outcome.failed or outcome.line}\n")
            show(f"{_named(job)}: tuned", len(done), len(jobs))
            if outcome.interrupted:
                break
    return done


def _programs(flags: Flags, search: SearchOptions, compiler: Compiler) -> Iterator[TuningProgram]:
    top = flags.top if search.free is None or CANDIDATE in search.free else 1
    if flags.subject.kind == "text":
        grid = combinations("--grid", numbers_by_name("--grid", flags.grid), LARGEST_GRID)
        yield from of_grid(flags.text, grid, compiler, top, lambda text: captured_row(replace(flags, text=text)))
    elif flags.subject.kind == "suite":
        suite = read_suite(flags.subject.path)
        yield from of_suite(suite, suite.select(flags.only), compiler, top)
    else:
        source, model = captured_model(flags)
        captured = in_row(model.captured, row_of(flags.row, model.captured))
        inputs = [p for p in captured.graph.ins if p.name in captured.inputs]
        yield program_of(
            source.name, captured, compiler, top,
            lambda: sources.make(model.weights) | drawn(inputs, source.config),  # random, in a check of the whole
        )  # fmt: skip


def _named(job: Job) -> str:
    """Return the name of a kernel: the first case that needs it, and the number of further cases."""
    more = len(job.names) - 1
    return job.names[0] + (f" and {more} more" if more else "")


# ---- fuse


def fuse(flags: Flags) -> None:
    """Run `dplc fuse`."""
    compiler = compiler_for(flags, flags.device)
    values = compiler.values(captured_text(flags, values=flags.run))
    number = flags.candidate or 1
    made = exploration(values, ExplorationOptions(top=max(flags.top, number)))
    with bars("exploring"):
        found = made.candidates() if flags.explore else [made.by_rules()]
    for note in made.notes if flags.explore else ():
        print_remark(note)
    if flags.ir or flags.run:
        if number > len(found):
            raise UsageError(f"--candidate {number}: there are {len(found)}", hint="--explore --top K finds more")
        chosen = found[number - 1]
        if chosen.problem:
            raise DplcError(f"candidate {number} cannot be lowered: {chosen.problem}")
        compilation = replace(compiler, explore=lambda _: chosen).compile_values(values)
        if flags.ir is not None:
            print_text(compilation.ir(flags.ir), flags.ir)
        if flags.run:
            report_run(compilation, choose_device(flags.device), flags)
    elif flags.as_json:
        print_json(
            {
                "candidates": [candidate.record() for candidate in found], "target": compiler.target.arch,
                "basis": "predicted",
            }
        )  # fmt: skip
    else:
        rows = [(place, *one.cells) for place, one in enumerate(found, 1)]
        print_rows(("", *FIGURES), rows, left=FIGURES[-1:])
        what = f"times are predicted for {compiler.target.name} by the model, of the kernels that the rules make"
        write(f"{what}; nothing was measured\n")
