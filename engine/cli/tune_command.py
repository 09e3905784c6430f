"""`dplc tune`."""

from __future__ import annotations

import contextlib
import gc
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.program import Kernel
from ..compiler import Stopwatch, cut_into_kernels
from ..toolchain import Toolchain
from ..tune.chronicle import Chronicle
from ..tune.describe import Level, levels, plain_text, size
from ..tune.page import html as html_page
from ..tune.page import micro
from ..tune.running import SEARCHES, Budget, Run
from ..tune.search import Tried
from ..tune.space import Space, Start
from ..tune.store import open_store
from ..tune.tuning import Outcome, Wishes, distinct, tune_kernel
from ..tune.tuning_job import evaluator_for
from .compiling import captured_text, machine_for, tools_for
from .show import bars, print_json, print_note, write

THREADS = 2  # that assemble


@dataclass(frozen=True)
class Asked:
    """The options of the command line."""

    text: str
    search: str
    budget: Budget
    seed: int
    target: str | None
    free: list[str]
    predict: bool
    assemble: bool
    as_json: bool
    html: Path | None
    db: Path | None
    keep: bool
    rules: list[Path]
    settings: list[str]


def check_search(name: str) -> None:
    """Raises UsageError for a search that is not there."""
    if name not in SEARCHES:
        options = ", ".join(SEARCHES)
        raise UsageError(
            f"--search {name}: there is no such search",
            notes=(f"searches are {options}",),
            hint=did_you_mean(name, SEARCHES),
        )


def tune_expression(asked: Asked) -> bool:
    """Tune every distinct kernel of an expression; whether it was interrupted."""
    check_search(asked.search)
    tools, machine, kernels = _kernels(asked)
    ahead = THREADS if asked.assemble else 1
    wishes = Wishes(asked.search, asked.seed, asked.budget, _free(asked.free, tools), ahead)
    gc.collect()
    gc.freeze()  # torch is large, and looked through for garbage again and again
    told: list[tuple[Outcome, Chronicle]] = []
    judge = {"predict": asked.predict, "assemble": asked.assemble}
    with evaluator_for(machine, judge) as evaluator, _store(asked, tools) as store, bars() as show:
        for kernel, count in kernels:
            chronicle = Chronicle()

            def heard(run: Run, tried: Tried, kernel: Kernel = kernel, chronicle: Chronicle = chronicle) -> None:
                chronicle.heard(run, tried)
                show(_line(kernel.name, run), run.tries, asked.budget.tries or 0)

            outcome = tune_kernel(kernel, tools, machine, evaluator, wishes, store, heard)
            outcome.count = count
            told.append((outcome, chronicle))
            if outcome.run.interrupted:
                break
    _report(asked, machine, told)
    return any(outcome.run.interrupted for outcome, _ in told)


def _kernels(asked: Asked) -> tuple[Toolchain, Target, list[tuple[Kernel, int]]]:
    """The rules, the target, and the kernels that the expression becomes, each once."""
    tools, machine = tools_for(asked.rules, asked.settings), machine_for(asked.target)
    captured, _ = captured_text(asked.text, 0)
    return tools, machine, distinct(cut_into_kernels(captured, tools, machine, None, Stopwatch())[2].kernels)


def _free(wanted: list[str], tools: Toolchain) -> frozenset[str] | None:
    labels = [step.label for step in tools.pipelines["tile"]]
    for name in wanted:
        if name not in labels:
            raise UsageError(f"--free {name}: there is no such pass", hint=did_you_mean(name, labels))
    return frozenset(wanted) or None


@contextlib.contextmanager
def _store(asked: Asked, tools: Toolchain) -> Iterator[Any]:
    if not asked.keep:
        yield None
        return
    store = open_store(asked.db, tools.rules)
    try:
        yield store
    finally:
        store.close()


def _line(name: str, run: Run) -> str:
    best = "nothing yet" if run.best is None else f"best {micro(run.best[0])} us ({run.gain:.2f}x), {run.default.basis}"
    return f"{name}: {best}, {run.programs} programs, {run.pruned} refused, {run.failed} failed"


def _report(asked: Asked, machine: Target, told: list[tuple[Outcome, Chronicle]]) -> None:
    if asked.html is not None:
        command = " ".join(["dplc", *map(shlex.quote, sys.argv[1:])])
        page = html_page(told, asked.text.strip().splitlines()[-1], machine.name, command)
        try:
            asked.html.write_text(page)
        except OSError as error:
            raise DplcError(f"cannot write {asked.html}: {error.strerror}") from None
    outcomes = [outcome for outcome, _ in told]
    if asked.as_json:
        print_json({"target": machine.name, "kernels": [outcome.record() for outcome in outcomes]})
    else:
        write("".join(_said(outcome) for outcome in outcomes))
    for outcome in outcomes:
        for candidate, why in outcome.wrong:
            rules = ", ".join(dict.fromkeys(d.rule for d in candidate.schedule))
            print_note(f"defect: a schedule of `{outcome.kernel}` gave a wrong result and was not kept: {why}")
            print_note(f"  rules that took part: {rules}; `--json` has the whole schedule; please report it")


def _said(outcome: Outcome) -> str:
    """One kernel, for people."""
    run, times = outcome.run, "" if outcome.count == 1 else f" ({outcome.count} times)"
    before, after = micro(run.default.seconds), micro(outcome.seconds)
    kept = "kept" if outcome.kept else "what is remembered is as good" if outcome.before else "not kept"
    lines = [
        f"{outcome.kernel}{times}: {before} us by default, {after} us tuned, {outcome.gain:.2f}x, {run.default.basis}",
        f"  {run.search.name}: {run.tries} tries in {run.seconds:.1f} s, {run.programs} programs, "
        f"{run.pruned} refused, {run.failed} failed, {run.again} seen before"
        + (", interrupted" if run.interrupted else ""),
        f"  checked: {outcome.checked or 'no'}; {kept}",
    ]
    changed = outcome.winner.key != outcome.default.key
    for decision in outcome.winner.schedule if changed else ():
        values = ", ".join(f"{name}={_text(value)}" for name, value in decision.parameters.items())
        lines.append(f"  {decision.step}: {decision.rule}{f'({values})' if values else ''}")
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return "(" + ", ".join(map(_text, value)) + ")" if isinstance(value, list) else str(value)


# ---- --space


def show_space(asked: Asked) -> None:
    """`dplc tune --space`: what there is to decide, nothing tried."""
    tools, machine, kernels = _kernels(asked)
    described = []
    for kernel, count in kernels:
        space = Space(tools, (Start((kernel,)),), machine, _free(asked.free, tools))
        described.append((kernel, count, levels(space), size(space, asked.seed)))
    if asked.as_json:
        print_json(
            {
                "target": machine.name,
                "kernels": [
                    {"kernel": kernel.name, "count": count, "schedules": ways, "passes": [f.record() for f in found]}
                    for kernel, count, found, ways in described
                ],
            }
        )
        return
    write("\n".join(_space(kernel, count, found, ways) for kernel, count, found, ways in described))


def _space(kernel: Kernel, count: int, found: tuple[Level, ...], ways: float) -> str:
    times = "" if count == 1 else f" ({count} times)"
    lines = [f"{kernel.name}{times}: {len(found)} passes to decide, about {ways:.0e} schedules (estimated)"]
    for level in found:
        opens = f"; opens {', '.join(level.opens)}" if level.opens else ""
        lines.append(f"  {level.step}: by default {level.reference}{opens}")
        for site in level.sites:
            lines.append(f"    {site.rule} at {site.where}")
            for name, values, _ in site.parameters:
                lines.append(f"      {name} in {_domain(values)}")
    return "\n".join(lines) + "\n"


def _domain(values: tuple[Any, ...]) -> str:
    shown = ", ".join(plain_text(value) for value in values[:12])
    return "{" + shown + (f", .. {len(values)} values" if len(values) > 12 else "") + "}"
