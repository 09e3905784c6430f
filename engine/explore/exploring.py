"""Exploration with a toolchain: a program as values, and the candidates that rules, lowering and model find for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import UsageError
from ...ir.program import Kernel
from ..compiler import Explore, Values
from ..kernels.candidate import Candidate
from ..kernels.commute import commute
from ..rewrite.statements.passes import Shaped
from ..rewrite.terms.terms import rewrite_graph
from ..ruleset import Toolchain
from ..schedule.scheduling import ScheduleStore, schedule_tiles
from ..schedule.tail import kernel_ir
from .explore import Exploration, ExplorationOptions
from .export import RuleTexts, export
from .fallback import or_else
from .lowered import KernelPricer
from .recorded import NotProved, Replayed, StoredSolution


def exploration(
    values: Values,
    tools: Toolchain,
    target: Target,
    options: ExplorationOptions | None = None,
    schedules: ScheduleStore | None = None,
) -> Exploration:
    """The exploration of a program, not begun yet; of exact values if the tools are (`tools.exactly`).

    schedules: those of a store: a kernel is priced under the one that it would get.
    """
    return Exploration(*_given(values, tools, target, options, schedules))


def replayed(values: Values, tools: Toolchain, target: Target, remembered: Iterable[StoredSolution]) -> Candidate:
    """The candidate of recorded solutions, proved by the rules in force. Raises NotProved."""
    made = Replayed(*_given(values, tools, target, None, None))
    made.remembered = {one.region: one for one in remembered}
    found = made.candidate((0,) * len(made.problems), "remembered")
    if found.problem:
        raise NotProved(f"it cannot be lowered: {found.problem}")
    return found


def _given(
    values: Values,
    tools: Toolchain,
    target: Target,
    options: ExplorationOptions | None,
    schedules: ScheduleStore | None,
) -> Any:
    """What an exploration is made of."""
    start = rewrite_graph(values.lowered, tools.exactly.algebra, target, None, values.origins)
    ordered = commute(values.graph, tools.commuting, target, None, values.origins)
    return (
        start, tools.fusion, exported(tools), target, lowering(tools, target, schedules), values.known,
        values.origins, options, ordered,
    )  # fmt: skip


def explore(
    values: Values, tools: Toolchain, target: Target, options: ExplorationOptions | None = None
) -> list[Candidate]:
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
    options: ExplorationOptions | None = None,
    number: int = 1,
    schedules: ScheduleStore | None = None,
    tell: Callable[[str], None] = warn,
) -> Explore:
    """What compile asks: the candidate of a number, counted from 1, the best. Raises UsageError where there is none.

    The best one is asked for without knowing it: where the search fails, `tell` is told why and the rules decide.
    """

    def best(values: Values) -> Candidate | None:
        made = exploration(values, tools, target, options or ExplorationOptions(top=number), schedules)
        found = made.candidates()
        for note in made.notes:
            tell(note)
        if found[0].problem:  # even by the rules, whose own error tells more
            return None
        return _planned(found[0], values)

    def choose(values: Values) -> Candidate | None:
        if number == 1:
            return or_else(lambda: best(values), lambda: None, tell)
        found = exploration(values, tools, target, options or ExplorationOptions(top=number), schedules).candidates()
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


def exported(tools: Toolchain) -> RuleTexts:
    """The algebra of a toolchain as egglog text. The last few are kept."""
    key = tools.rules.digest, tuple(rule.name for rule in tools.equations)
    made = _EXPORTED.pop(key, None) or export(tools.equations)
    _EXPORTED[key] = made
    if len(_EXPORTED) > KEPT:
        del _EXPORTED[next(iter(_EXPORTED))]
    return made


KEPT = 8
_EXPORTED: dict[Any, RuleTexts] = {}


def lowering(tools: Toolchain, target: Target, schedules: ScheduleStore | None = None) -> KernelPricer:
    """What makes kernels of loop nests, to see what they take: under a remembered schedule where there is one."""

    def scheduled(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        tiled, _ = schedule_tiles(kernels, tools, target, None, Shaped(), schedules)
        return kernel_ir(tiled, tools, target)

    return KernelPricer(scheduled, target)
