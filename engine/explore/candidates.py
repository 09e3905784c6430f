"""Exploration with a toolchain: a program as values, and the candidates that rules, lowering and model find for it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.sizes import has_sizes
from ..compiler import Compiler, Explore, Values
from ..kernels.kernels import Candidate, commute
from ..kernels.sharing import key
from ..language.rule_files import collections_paused
from ..rewrite.statements.driver import Shaped
from ..rewrite.terms.rewriter import rewrite_graph
from ..rewrite.trace import program_key
from ..schedule.scheduling import StoredSchedules, figures
from ..schedule.space import FusionVariant
from ..store.store import FUSING, PROGRAM, Decision, Schedule, TuningKey, tools_of
from .explore import Exploration, ExplorationOptions, KernelPricer, or_else
from .saturate import available
from .stored_solutions import NotProved, StoredSolution, proved, written


def exploration(values: Values, options: ExplorationOptions | None = None) -> Exploration:
    """Return the exploration of a program, not begun yet; of exact values if the tools are (`tools.exactly`).

    A kernel is priced under the schedule that the compiler would give it, which may come from a store.
    """
    compiler = values.compiler.untraced
    tools, target = compiler.tools, compiler.target
    start = rewrite_graph(values.lowered, tools.exactly.algebra, target, None, values.origins)
    ordered = commute(values.graph, tools.commuting, target, None, values.origins)
    return Exploration(start, tools, target, lowering(compiler), values.known, values.origins, options, ordered)


def replayed(values: Values, remembered: Iterable[StoredSolution]) -> Candidate:
    """Return the candidate of recorded solutions, proved by the rules in force. Raises NotProved."""
    made = exploration(values)
    made.remembered = {one.region: one for one in remembered}
    found = made.candidate((0,) * len(made.problems), "remembered")
    if found.problem:
        raise NotProved(f"it cannot be lowered: {found.problem}")
    return found


class ExplorationWarning(UserWarning):
    """Exploration was not possible as requested: the note says what the rules decide instead."""


def warn(note: str) -> None:
    """Warn a Python program with a note of exploration."""
    warnings.warn(f"dplc: {note}", ExplorationWarning, stacklevel=2)


def best(
    values: Values, options: ExplorationOptions | None = None, tell: Callable[[str], None] = warn
) -> Candidate | None:
    """Return the best candidate of a program for its compile, with its plan.

    If the search fails, `tell` receives the reason, and the result is None: the rules decide.
    """

    def search() -> Candidate | None:
        made = exploration(values, options or ExplorationOptions(top=1))
        found = made.candidates()[0]
        for note in made.notes:
            tell(note)
        if found.problem:  # even by the rules, whose own error says more
            return None
        plan = found.plan(values.results)  # a plan that fails does so here, where the rules can still decide
        return replace(found, plan=lambda *_: plan)

    return or_else(search, lambda: None, tell)


def lowering(compiler: Compiler) -> KernelPricer:
    """Return the pricer of loop nests, which the compiler schedules."""
    return KernelPricer(lambda kernels: compiler.kernel_ir(compiler.tiles(kernels, Shaped())[0]), compiler.target)


# Ways of fusing as decisions: the candidates of exploration for a search, and the one it chose as data in the store.
#
# What is remembered of a program is the solution of each of its regions (`stored_solutions.py`) with the rules that
# prove it; a compile proves it again by the rules in force, so that no store can make a program wrong. The entry also
# names the rules that the schedules of its kernels use: an edit of one of them makes it void, an edit of any other does
# not.


STEP = "candidate"  # the label of the decision
SOLUTION, BY_RULES = "(solution)", "(rules)"  # instead of a rule name, for decisions that no rule made
TOP = 4


def key_of_program(values: Values) -> TuningKey:
    """Return the key under which a store holds the candidate of a program."""
    target, rules = values.compiler.target, values.compiler.tools.rules
    name = program_key(values.lowered, values.known)
    return TuningKey(name, target.name, target.arch, rules.digest, tools_of(target), PROGRAM)


class Fusing:
    """Candidates of a program, built one by one.

    top: the maximum number, including the choice of the rules; tensors: returns those that the capture does not hold.
    Without egglog there is nothing to choose: no stored candidate could be proved. The same holds for a length that
    is known only at a call, because exploration counts elements.
    """

    def __init__(self, values: Values, top: int = TOP, tensors: Callable[[], Mapping[str, Any]] = dict):
        self.values, self.compiler, self.tensors = values, values.compiler, tensors
        self.top = top if available() and not has_sizes(values.captured.graph) else 1
        self._built: dict[tuple[str, ...], int] = {}

    @functools.cached_property
    def exploration(self) -> Exploration:
        with collections_paused():
            made = exploration(self.values, ExplorationOptions(top=self.top))
            _ = made.problems
        return made

    @functools.cached_property
    def choices(self) -> list[tuple[int, ...]]:
        """Solutions of the regions put together: the best, then those that differ from all before in their kernels.

        Where exploration fails there are none: what the rules decide is all there is.
        """
        return or_else(self._choices, list, warn)

    def _choices(self) -> list[tuple[int, ...]]:
        found: dict[Hashable, tuple[int, ...]] = {}
        problems = self.exploration.problems
        for choice in self.exploration.choices():
            alike = tuple(solved.found[rank].signature for (_, solved), rank in zip(problems, choice, strict=True))
            found.setdefault(alike, choice)
            if len(found) >= self.top - 1:
                break
        return list(found.values())

    def ways(self) -> list[FusionVariant]:
        """Return the fusion that the rules decide in their order, then the candidates.

        This searches the regions, but builds no candidate.
        """
        explored = range(1, len(self.choices) + 1) if self.top > 1 else ()
        names = ("rules", *(f"candidate {number}" for number in explored))
        return [FusionVariant(name, functools.partial(self.kernels, number)) for number, name in enumerate(names)]

    def kernels(self, way: int) -> Sequence[Kernel]:
        """Return the kernels of a choice.

        Raises DplcError for one that cannot be lowered, or that is an earlier one again.
        """
        if way == 0:
            kernels = self.compiler.untraced.fused(self.values)[1].kernels
        else:
            made = or_else(lambda: self.candidate(way), lambda: None, warn)
            if made is None or made.problem:
                raise DplcError(f"it cannot be lowered: {made.problem if made else 'its exploration failed'}")
            kernels = made.plan(self.values.results).kernels
        first = self._built.setdefault(tuple(sorted(map(key, kernels))), way)
        if first != way:
            raise DplcError("its kernels are those of " + ("the rules" if first == 0 else f"candidate {first}"))
        return kernels

    @functools.cache  # noqa: B019 - as long-lived as the exploration
    def candidate(self, way: int) -> Candidate:
        """Return a candidate, built. It is not 0: that is what the rules decide."""
        return self.exploration.candidate(self.choices[way - 1], "explored")

    def rules(self, way: int) -> tuple[str, ...]:
        """Return the rules that matched where a candidate spells the program in another way."""
        return self.candidate(way).rules if way else ()

    def written(self, way: int, scheduling: Iterable[str]) -> Schedule:
        """Return a way as it is remembered. scheduling: the rules that the schedules of its kernels use.

        Raises NotProved for a solution that cannot be proved again (a saturation that ran out of time).
        """
        uses = tuple(Decision("schedule", rule, "") for rule in sorted(set(scheduling)))
        if way == 0:
            return (Decision(STEP, BY_RULES, ""), Decision(STEP, FUSING, ""), *uses)
        found: dict[str, StoredSolution] = {}
        made, choice = self.exploration, self.choices[way - 1]
        for (problem, solved), rank in zip(made.problems, choice, strict=True):
            solution = solved.found[rank].solution
            recorded = written(problem, solved.search.extraction, solution)
            if recorded.region not in found:
                proved(problem, recorded, made.exported, made.options.budget)
                found[recorded.region] = recorded
        fusing = (Decision(STEP, rule, "") for rule in (FUSING, *self.rules(way)))
        solutions = (Decision(STEP, SOLUTION, r.region, msgspec.to_builtins(r)) for r in found.values())
        return (*solutions, *fusing, *uses)


def replayed_schedule(schedule: Schedule, values: Values) -> Candidate | None:
    """Return a stored choice, proved by the rules in force; None for the choice of the rules.

    Raises NotProved or DplcError.
    """
    solutions = [decision for decision in schedule if decision.rule == SOLUTION]
    if not solutions:
        return None
    try:
        found = [msgspec.convert(decision.parameters, StoredSolution) for decision in solutions]
    except msgspec.ValidationError as error:
        raise NotProved(f"it is not a solution: {error}") from None
    return replayed(values, found)


def remembered(otherwise: Explore | None = None, tell: Callable[[str], None] = lambda line: None) -> Explore:
    """Return a function that chooses the tuned fusion of a program from the compiler's store.

    Without a store, or if the store has no valid entry for the program, the function returns the choice of `otherwise`.
    """

    def choose(values: Values) -> Candidate | None:
        schedules, target = values.compiler.schedules, values.compiler.target
        if isinstance(schedules, StoredSchedules) and schedules.store.has_family(PROGRAM, target.name, target.arch):
            wanted = key_of_program(values)
            for entry in schedules.store.valid(schedules.store.exact(wanted), wanted):
                try:
                    found = replayed_schedule(entry.tuned.schedule, values)
                except (NotProved, DplcError) as error:
                    tell(f"the remembered candidate of fusion is not taken: {error}")
                    continue
                tell(f"candidate of fusion from the store: {figures(entry)}")
                return found
        return otherwise(values) if otherwise is not None else None

    return choose
