"""`dplc tune`: the options. The work is in tune_command.py and tune_many.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from .options import (
    Batch,
    DatabaseFile,
    Exact,
    Expression,
    FloatDtype,
    Json,
    Layers,
    Lengths,
    RuleFiles,
    Settings,
    TargetName,
)
from .subjects import flags_of

INTERRUPTED = 130

Subject = Annotated[
    str | None,
    typer.Argument(metavar="[SUITE.json|MODEL]", help="A suite or a model. Each distinct kernel is tuned once."),
]
Search = Annotated[str | None, typer.Option("--search", metavar="NAME", help="Search: hill (default), mcts or random.")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="Number of candidates for each kernel.")]
Programs = Annotated[
    int | None, typer.Option("--programs", min=1, help="Maximum number of distinct programs for each kernel.")
]
Seconds = Annotated[
    float | None, typer.Option("--time", metavar="SECONDS", min=0.0, help="Time limit for each kernel.")
]
Patience = Annotated[
    int | None, typer.Option("--patience", min=1, help="Maximum number of programs without an improvement.")
]
SearchSeed = Annotated[int, typer.Option("--seed", help="Seed of the search.")]
ShowSpace = Annotated[bool, typer.Option("--space", help="Print the search space and try nothing.")]
Free = Annotated[
    list[str] | None,
    typer.Option("--free", metavar="PASS", help="Search only these passes. All others run by default."),
]
Assemble = Annotated[
    bool, typer.Option("--assemble", help="Assemble candidates that may win, and reject those that spill.")
]
Predict = Annotated[bool, typer.Option("--predict", help="Use the cost model even if a GPU could measure.")]
Grid = Annotated[
    list[str] | None, typer.Option("--grid", metavar="M=1,8,64", help="Tune -c at each of these sizes; repeatable.")
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="PATTERN", help="Cases of the suite with this in their names.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of kernels tuned in parallel.")]
Executor = Annotated[
    str, typer.Option("--executor", metavar="NAME", help="Executor of jobs: processes, or ray (a cluster).")
]
Top = Annotated[
    int,
    typer.Option("--top", metavar="K", min=1, help="Number of fusion candidates. With 1, the rules decide."),
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
Told = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="-v lists each improvement with what changed, -vv every candidate."
    ),
]
NotKept = Annotated[bool, typer.Option("--no-db", help="Do not store results.")]


def tune(
    ctx: typer.Context,
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
    verbose: Told = 0,
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

    if executor not in ("processes", "ray"):
        raise UsageError(f"--executor {executor}: executors are processes and ray")
    many = ctx.obj.kind != "text" or bool(grid) or jobs > 1 or executor != "processes"
    flags = replace(flags_of(ctx), seed=0)  # that of the text; `--seed` is the search's
    budget, passes = Budget(tries, programs, seconds, patience), frozenset(free or ()) or None
    wanted = SearchOptions(search or DEFAULT_SEARCH, seed, budget, passes, True, predict, assemble)
    interrupted = False
    if space:
        from .tune_space import show_space

        show_space(flags, wanted, top)
    elif many:
        from .tune_many import Many, tune_many

        interrupted = tune_many(flags, wanted, Many(ctx.obj, only, grid or [], jobs, executor, top))  # type: ignore[arg-type]
    else:
        interrupted = tune_expression(flags, wanted, TuneView(top))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
