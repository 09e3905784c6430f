"""Exploration with a toolchain: a program as values, and the candidates that rules, lowering and model find for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..codegen.materialise import materialise
from ..codegen.target import Target
from ..ir.diagnostic import UsageError
from ..ir.program import Kernel
from .compiler import Explore, Values
from .egraph.candidate import Candidate
from .egraph.explore import Exploration, Options
from .egraph.export import Exported, export
from .egraph.fallback import or_else
from .egraph.lowered import Lowering
from .egraph.recorded import NotProved, Recorded, Replayed
from .fuse.commute import commute
from .match.passes import run_pipeline
from .match.terms import rewrite_graph
from .scheduling import Book, schedule_tiles
from .toolchain import Toolchain


def exploration(
    values: Values, tools: Toolchain, target: Target, options: Options | None = None, book: Book | None = None
) -> Exploration:
    """The exploration of a program, not begun yet; of exact values if the tools are (`tools.exactly`).

    book: remembered schedules: a kernel is priced under the one that it would get.
    """
    return Exploration(*_given(values, tools, target, options, book))


def replayed(values: Values, tools: Toolchain, target: Target, remembered: Iterable[Recorded]) -> Candidate:
    """The candidate of recorded solutions, proved by the rules in force. Raises NotProved."""
    made = Replayed(*_given(values, tools, target, None, None))
    made.remembered = {one.region: one for one in remembered}
    found = made.candidate((0,) * len(made.problems), "remembered")
    if found.problem:
        raise NotProved(f"it cannot be lowered: {found.problem}")
    return found


def _given(values: Values, tools: Toolchain, target: Target, options: Options | None, book: Book | None) -> Any:
    """What an exploration is made of."""
    start = rewrite_graph(values.lowered, tools.exactly.algebra, target, None, values.origins)
    ordered = commute(values.graph, tools.commuting, target, None, values.origins)
    return (
        start, tools.fusion, exported(tools), target, lowering(tools, target, book), values.known,
        values.origins, options, ordered,
    )  # fmt: skip


def explore(values: Values, tools: Toolchain, target: Target, options: Options | None = None) -> list[Candidate]:
    """Different ways to compute a program on a device, best first; what the rules decide in their order is among them.

    A tuner may go on from each: `candidate.plan()` is the program as kernels of Loop IR.
    """
    return exploration(values, tools, target, options).candidates()


class ExplorationWarning(UserWarning):
    """Exploration could not do all that it is asked for: the note says what the rules decide instead."""


def warn(note: str) -> None:
    """Tells a Python program a note of exploration."""
    warnings.warn(f"dplc: {note}", ExplorationWarning, stacklevel=2)


def chosen(
    tools: Toolchain,
    target: Target,
    options: Options | None = None,
    number: int = 1,
    book: Book | None = None,
    tell: Callable[[str], None] = warn,
) -> Explore:
    """What compile asks: the candidate of a number, counted from 1, the best. Raises UsageError where there is none.

    The best one is asked for without knowing it: where the search fails, `tell` is told why and the rules decide.
    """

    def best(values: Values) -> Candidate | None:
        made = exploration(values, tools, target, options or Options(top=number), book)
        found = made.candidates()
        for note in made.notes:
            tell(note)
        if found[0].problem:  # even by the rules, whose own error tells more
            return None
        return _planned(found[0], values)

    def choose(values: Values) -> Candidate | None:
        if number == 1:
            return or_else(lambda: best(values), lambda: None, tell)
        found = exploration(values, tools, target, options or Options(top=number), book).candidates()
        if not 0 < number <= len(found):
            raise UsageError(f"there is no candidate {number}", notes=(f"{len(found)} were found",))
        if found[number - 1].problem:
            raise UsageError(f"candidate {number} cannot be lowered: {found[number - 1].problem}")
        return found[number - 1]

    return choose


def _planned(candidate: Candidate, values: Values) -> Candidate:
    """The candidate with its plan made already: a failure is met here, where the rules can still decide."""
    plan = candidate.plan(values.results)
    return replace(candidate, make_plan=lambda *_: plan)


def exported(tools: Toolchain) -> Exported:
    """The algebra of a toolchain as egglog text. The last few are kept."""
    key = tools.rules.digest, tuple(rule.name for rule in tools.equations)
    made = _EXPORTED.pop(key, None) or export(tools.equations)
    _EXPORTED[key] = made
    if len(_EXPORTED) > KEPT:
        del _EXPORTED[next(iter(_EXPORTED))]
    return made


KEPT = 8
_EXPORTED: dict[Any, Exported] = {}


def lowering(tools: Toolchain, target: Target, book: Book | None = None) -> Lowering:
    """What makes kernels of loop nests, to see what they take: under a remembered schedule where there is one."""

    def scheduled(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        tiled, _ = schedule_tiles(kernels, tools, target, None, {}, book)
        made = tuple(materialise(kernel, target) for kernel in tiled)
        return run_pipeline(tools.engine, tools.pipelines["kernel"], made, target, None, {})

    return Lowering(scheduled, target)
