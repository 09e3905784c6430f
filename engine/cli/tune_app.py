"""`dplc tune`: the options. The work is in tune_command.py and tune_many.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from .options import (
    Batch,
    DatabaseFile,
    Exact,
    Expression,
    Flags,
    FloatDtype,
    Json,
    Layers,
    Lengths,
    RuleFiles,
    Settings,
    TargetName,
)

INTERRUPTED = 130

Subject = Annotated[
    str | None,
    typer.Argument(metavar="[SUITE.json|MODEL]", help="A suite or a model: every distinct kernel of it once."),
]
Search = Annotated[str | None, typer.Option("--search", metavar="NAME", help="Search: hill (default), mcts or random.")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="Candidates to look at, for each kernel.")]
Programs = Annotated[
    int | None, typer.Option("--programs", min=1, help="Stop after so many different programs, for each kernel.")
]
Seconds = Annotated[
    float | None, typer.Option("--time", metavar="SECONDS", min=0.0, help="Stop after so long, for each kernel.")
]
Patience = Annotated[
    int | None, typer.Option("--patience", min=1, help="Stop after so many programs without an improvement.")
]
SearchSeed = Annotated[int, typer.Option("--seed", help="Seeds the search.")]
ShowSpace = Annotated[bool, typer.Option("--space", help="Print what there is to decide; try nothing.")]
Free = Annotated[
    list[str] | None,
    typer.Option("--free", metavar="PASS", help="Decide only these passes; the others do as by default."),
]
Assemble = Annotated[
    bool, typer.Option("--assemble", help="Assemble what may win: registers as they are, nothing that spills.")
]
Predict = Annotated[
    bool, typer.Option("--predict", help="Let the model judge, even where there is a GPU to measure on.")
]
Grid = Annotated[
    list[str] | None, typer.Option("--grid", metavar="M=1,8,64", help="Tune -c at each of these sizes; repeatable.")
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="PATTERN", help="Of a suite: cases with this in their names.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Of a suite or grid: kernels at a time.")]
Executor = Annotated[
    str, typer.Option("--executor", metavar="NAME", help="Where jobs run: processes, or ray (a cluster).")
]
Top = Annotated[
    int,
    typer.Option("--top", metavar="K", min=1, help="Candidates of fusion to choose among; 1: what the rules decide."),
]
Page = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page: progress, decisions, what values did.")
]
Row = Annotated[
    list[str] | None,
    typer.Option(
        "--row",
        metavar="[NAME=]A..B",
        help="With --seq-len A..B or dim(s, A..B): tune the part of the range that `--rows` compiles alone; A..B:N "
        "times it at N (default: at B).",
    ),
]
NotKept = Annotated[bool, typer.Option("--no-db", help="Do not remember what is found.")]


def tune(
    subject: Subject = None,
    expression: Expression = None,
    layers: Layers = None,
    length: Lengths = "32",
    batch: Batch = "1",
    row: Row = None,
    dtype: FloatDtype = None,
    search: Search = None,
    tries: Tries = 200,
    programs: Programs = None,
    seconds: Seconds = None,
    patience: Patience = None,
    seed: SearchSeed = 0,
    top: Top = 4,
    target: TargetName = None,
    space: ShowSpace = False,
    free: Free = None,
    assemble: Assemble = False,
    predict: Predict = False,
    grid: Grid = None,
    only: Only = None,
    jobs: Jobs = 1,
    executor: Executor = "processes",
    as_json: Json = False,
    html: Page = None,
    db: DatabaseFile = None,
    no_db: NotKept = False,
    rules: RuleFiles = None,
    settings: Settings = None,
    exact: Exact = False,
) -> None:
    """Search the candidates of fusion and the schedules that the rules allow; remember the fastest that is right."""
    from ..tune.running import DEFAULT_SEARCH, Budget
    from ..tune.tuning import SearchOptions
    from .tune_command import TuneView, tune_expression

    many = subject is not None or bool(grid) or jobs > 1 or executor != "processes"
    _check(subject, expression, executor, space and many, html is not None and many)
    _check_subject(subject, bool(grid), only, layers)
    text = sys.stdin.read() if expression == "-" else expression or ""
    flags = Flags(
        text, 0, dtype, rules, settings, None, target, 0, as_json, db, no_db, length=length, layers=layers, exact=exact,
        batch=batch, row=row,
    )  # fmt: skip
    budget, passes = Budget(tries, programs, seconds, patience), frozenset(free or ()) or None
    wanted = SearchOptions(search or DEFAULT_SEARCH, seed, budget, passes, True, predict, assemble)
    interrupted = False
    if space:
        from .tune_space import show_space

        show_space(flags, wanted, top)
    elif many:
        from .tune_many import Many, tune_many

        interrupted = tune_many(flags, wanted, Many(subject, only, grid or [], jobs, executor, top))  # type: ignore[arg-type]
    else:
        interrupted = tune_expression(flags, wanted, TuneView(top, html))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _check(subject: str | None, expression: str | None, executor: str, space_of_many: bool, page_of_many: bool) -> None:
    """Raises UsageError for options that do not go together."""
    if expression is not None and subject is not None:
        raise UsageError("tune either a suite, a model or an expression")
    if executor not in ("processes", "ray"):
        raise UsageError(f"--executor {executor}: executors are processes and ray")
    if expression is None and subject is None:
        hint = 'for example -c "torch.relu(torch.randn(8))"; or a suite or a model'
        raise UsageError("an expression is needed: -c EXPR", hint=hint)
    if space_of_many:
        raise UsageError("--space shows one expression: it goes with -c alone")
    if page_of_many:
        raise UsageError("--html shows one search: it goes with -c alone")


def _check_subject(subject: str | None, grid: bool, only: str | None, layers: int | None) -> None:
    """Raises UsageError for options that would mean nothing of what is tuned."""
    suite = subject is not None and subject.endswith(".json")  # or a model's configuration, where it means nothing
    if grid and subject is not None:
        raise UsageError("--grid gives sizes to an expression: it goes with -c")
    if only is not None and not suite:
        raise UsageError("--only chooses cases of a suite", hint="dplc tune SUITE.json --only PATTERN")
    if layers is not None and subject is None:
        raise UsageError("--layers goes with a model", hint="dplc tune MODEL --layers N")
