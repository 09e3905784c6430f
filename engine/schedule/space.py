"""Space of schedules of a kernel, derived from the rules.

At every pass, a schedule does nothing, does the same as the default order, or fires a rule at a site with values for
its parameters. The space is a graph of states, walked lazily: an option that is not taken is never built. States are
merged by identity (programs are interned). Recently walked states are kept, so that walks which begin alike share their
beginning.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ...codegen.cuda import bound
from ...codegen.kernel import CudaKernel
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.sizes import Binding, hints
from ...ir.substitute import with_sizes
from ..kernels.sharing import key
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import PassRun, RuleSite, repeats, spots
from ..ruleset import Toolchain
from ..store.store import Decision, Schedule, digest
from .scheduling import Scheduler, cuda_of, decision, estimated_registers, numbers_of, untiled, written

REMEMBERED = 4096  # transitions and lists of spots that are kept
FIRINGS = 4  # of one pass in one kernel that are decided one by one; then the default goes on
DEFAULT, SKIP = "default", "skip"


class DecisionPoint(NamedTuple):
    """Name of a decision in a walk: another schedule may decide at the same point."""

    step: str
    kernel: str
    firing: int


class Fire(NamedTuple):
    """Decide for a rule at a site. values: of its parameters, as they are written down."""

    rule: str
    where: str
    values: tuple[tuple[str, Hashable], ...] = ()


Token = Fire | str  # a firing, DEFAULT or SKIP
Genome = dict[DecisionPoint, Token]
Domains = dict[str, tuple[Hashable, ...]]  # {parameter: its plain values}
Decisions = tuple[tuple[DecisionPoint, Token], ...]  # of a walk, in their order


class State(NamedTuple):
    """A program on its way through the passes. taken: the groups `one of` and kernels in which one has fired."""

    program: Program
    step: int
    number: int
    firing: int = 0
    taken: frozenset[tuple[str, str]] = frozenset()


class Move(NamedTuple):
    """Result of a decision. token: the decision that was carried out, which differs if the wanted one was not legal."""

    state: State
    token: Token
    decisions: Schedule


class Launched(NamedTuple):
    """A candidate where its sizes are numbers, as it is launched: Loop IR, Kernel IR, CUDA."""

    loops: Program
    kernels: Program
    cuda: tuple[CudaKernel, ...]


@dataclass(eq=False)
class ScheduleCandidate:
    """A whole schedule of a kernel: kernels of Tile IR, and on demand what they are lowered to."""

    space: Space
    tile: Program
    schedule: Schedule
    genome: Decisions

    @property
    def target(self) -> Target:
        return self.space.target

    @property
    def loops(self) -> Program:
        return self.space.loops

    @property
    def key(self) -> str:
        """Equal for schedules that make the same program."""
        return digest(*map(key, self.tile))

    @cached_property
    def kernels(self) -> Program:
        """Kernel IR. Raises DplcError where the target cannot launch it."""
        return self.space.scheduler.kernel_ir(self.tile)

    @cached_property
    def cuda(self) -> tuple[CudaKernel, ...]:
        return cuda_of(self.kernels)

    def at(self, sizes: Binding) -> Launched:
        """Return the candidate where its sizes are these numbers. Raises DplcError as `kernels` does."""
        return Launched(
            with_sizes(self.loops, sizes),
            with_sizes(self.kernels, sizes),
            tuple(bound(kernel, made, sizes) for kernel, made in zip(self.kernels, self.cuda)),
        )

    @property
    def as_a_rule(self) -> Launched:
        """Launch form at the hints, where it is timed."""
        return self.at(hints(self.loops))


class Space:
    """All schedules of a kernel of Loop IR.

    free: labels of the passes that are decided; None for all. The others follow the default order.
    """

    def __init__(self, tools: Toolchain, loops: Program, target: Target, free: frozenset[str] | None = None):
        self.scheduler = Scheduler(tools, target)
        self.tools, self.target, self.loops, self.engine = tools, target, loops, tools.engine
        self.steps = tools.pipelines["tile"]
        named = (step.label for step in self.steps) if free is None else map(tools.rules.plain, free)
        self.free = frozenset(named)
        self.numbers = numbers_of(loops)
        self.name = key(loops[0])[:8]
        self.after = lru_cache(REMEMBERED)(self._after)
        self.by_default = lru_cache(REMEMBERED)(self._default)
        self.spots = lru_cache(REMEMBERED)(self._spots)

    # ---- states
    @cached_property
    def root(self) -> Move:
        """First state at which there is something to decide."""
        return self._advance(State(self.scheduler.passes("loop", self.loops), 0, 0))

    def done(self, state: State) -> bool:
        return state.step == len(self.steps)

    def slot(self, state: State) -> DecisionPoint:
        kernel = f"{self.name} {state.program[state.number].name}"
        return DecisionPoint(self.steps[state.step].label, kernel, state.firing)

    def _advance(self, state: State, decisions: Schedule = (), token: Token = DEFAULT) -> Move:
        """Return the move to the next state at which there is something to decide."""
        while not self.done(state):
            program, number, step = state.program, state.number, self.steps[state.step]
            if untiled(program):
                state = State(self.engine.fire(step, program, self.target), state.step + 1, 0)
            elif number >= len(program):
                state = State(program, state.step + 1, 0, 0, state.taken)
            elif (step.group, program[number].name) in state.taken or not any(
                self.engine.rule(rule).possible(program[number]) for rule in step.rules
            ):
                state = state._replace(number=number + 1, firing=0)
            elif step.label in self.free:
                break
            else:
                state, fired = self.by_default(state)
                decisions += fired
        return Move(state, token, decisions)

    def _moved(self, state: State, program: Program, kernels: int) -> State:
        """Return the state behind so many kernels, or after one more firing if none."""
        firing, group = (0 if kernels else state.firing + 1), self.steps[state.step].group
        fired = program != state.program
        took = {(group, state.program[state.number].name)} if fired and group is not None else ()
        return State(program, state.step, state.number + kernels, firing, state.taken.union(took))

    # ---- decisions
    def _after(self, state: State, token: Token) -> Move:
        """Return the move of a decision. A decision that is not legal here becomes the nearest one, or the default."""
        if token == SKIP:
            return self._advance(self._moved(state, state.program, 1), (), SKIP)
        spot = self._nearest(state, token)[0] if isinstance(token, Fire) else None
        if spot is not None and (program := spot.apply()) != state.program:
            step = self.steps[state.step]
            again = repeats(step) and state.firing + 1 < FIRINGS
            moved = self._moved(state, program, 0 if again else len(program) - len(state.program) + 1)
            decided = decision(step, spot, self.numbers)
            return self._advance(moved, (decided,), self.fire_of(decided))
        return self._advance(*self.by_default(state))

    def _default(self, state: State) -> tuple[State, Schedule]:
        """Run the pass in this kernel in the default order; return the state after it, and the firings."""
        run = PassRun(self.engine, self.steps[state.step], self.target)
        program, kernels = run.kernel(state.program, state.number)
        decisions = tuple(decision(run.step, site, self.numbers) for site in run.log)
        return self._moved(state, program, kernels), decisions

    # ---- options
    def _spots(self, state: State) -> tuple[RuleSite, ...]:
        """Return the rules and sites of the pass at this kernel."""
        return tuple(spots(self.engine, self.steps[state.step], state.program, self.target, (state.number,)))

    # ---- values
    def _nearest(self, state: State, fire: Fire) -> tuple[RuleSite | None, Domains]:
        """Return the wanted spot with the nearest values that are legal, and the values of each parameter."""
        wanted, domains = dict(fire.values), Domains()

        def order(spot: RuleSite) -> Iterable[object]:
            assert spot.open is not None
            domains[spot.open.name] = tuple(map(self.plain, spot.open.values))
            return self.ordered(spot, wanted)

        at = spots(self.engine, self.steps[state.step], state.program, self.target, None, fire.rule, fire.where)
        found = next(at, None)
        return found and found.filled(order), domains

    def plain(self, value: object) -> Any:
        """Return a value in its written form, hashable."""
        found = written(value, self.numbers)
        return tuple(map(self.plain, found)) if isinstance(found, list) else found

    def ordered(self, spot: RuleSite, wanted: Mapping[str, object] = {}) -> list[object]:
        """Return the values of the open parameter by distance from the wanted one or the rule's default."""
        assert spot.open is not None
        near = wanted.get(spot.open.name, self.plain(spot.default))
        return sorted(spot.open.values, key=lambda value: self.distance(self.plain(value), near))

    def filled(self, spot: RuleSite, order: Callable[[RuleSite], Iterable[object]]) -> Token:
        """Return a spot as a token, with the first legal values in an order; DEFAULT if a guard refuses all of them."""
        found = spot.filled(order)
        return DEFAULT if found is None else self.fire_of(Decision("", found.rule, found.where, found.parameters))

    def fire_of(self, made: Decision) -> Fire:
        """Return a decision as a token."""
        return Fire(made.rule, made.site, self.plain(tuple(made.parameters.items())))

    def reference(self, state: State) -> Token:
        """Return the decision of the default order here: one firing, SKIP, or DEFAULT where it may be several."""
        _, fired = self.by_default(state)
        if not fired:
            return SKIP
        return DEFAULT if repeats(self.steps[state.step]) else self.fire_of(fired[0])

    def domains(self, state: State, fire: Fire) -> Domains:
        """Return {parameter: its values}, each after the preceding ones are decided as in `fire`."""
        return self._nearest(state, fire)[1]

    @staticmethod
    def distance(value: object, other: object) -> float:
        """Return the distance of two plain values: by logarithm for numbers, else 0 or 1."""
        if isinstance(value, int) and isinstance(other, int) and min(value, other) > 0:
            return abs(math.log2(value / other))
        return float(value != other)

    # ---- walks
    def walk(self, policy: Policy) -> ScheduleCandidate:
        """Return a whole schedule; the policy decides at every state."""
        state, _, schedule = self.root
        genome: Decisions = ()
        while not self.done(state):
            slot = self.slot(state)
            state, token, decisions = self.after(state, policy(self, state, slot))
            schedule += decisions
            genome += ((slot, token),)
        return ScheduleCandidate(self, state.program, schedule, genome)

    def states(self, genome: Decisions) -> Iterator[tuple[State, Token]]:
        """Yield the states of a walk, each with its decision."""
        state = self.root.state
        for _, token in genome:
            yield state, token
            state = self.after(state, token).state

    def default(self) -> ScheduleCandidate:
        """Return the schedule of the default order."""
        return self.walk(lambda *_: DEFAULT)

    @cached_property
    def granted(self) -> int:
        """Registers that the default order needs by the estimate: no schedule is refused for as many."""
        return estimated_registers(self.default().tile, self.target)


Policy = Callable[[Space, State, DecisionPoint], Token]


class FusionVariant(NamedTuple):
    """A way of fusing. kernels: builds it, as kernels of Loop IR in the order of their launches; raises DplcError."""

    label: str
    kernels: Callable[[], Sequence[Kernel]]


@dataclass
class ProgramCandidate:
    """A fusion variant with a schedule for each of its kernels.

    way: the number of the variant; parts: a schedule for each kernel, and how often that kernel is launched; problem:
    why it cannot be built, "" if it can.
    """

    way: int
    parts: tuple[tuple[ScheduleCandidate, int], ...]
    problem: str

    @property
    def key(self) -> str:
        """Equal for candidates with the same kernels."""
        return digest(self.problem, *sorted(f"{part.key} {count}" for part, count in self.parts))

    @property
    def genome(self) -> Decisions:
        return tuple(decided for part, _ in self.parts for decided in part.genome)


class ProgramSpace:
    """All ways to compute a program. free: labels of the passes that are decided; None for all.

    ways: labels of the fusion variants, the default one first. Only variants that are walked are built: `built`, with
    the spaces of their kernels; problems: why a variant cannot be built.
    """

    def __init__(
        self, tools: Toolchain, ways: Sequence[FusionVariant], target: Target, free: frozenset[str] | None = None
    ):
        self.tools, self.target, self.free = tools, target, free
        self.candidates = ways
        self.ways = tuple(way.label for way in ways)
        self.built: dict[int, Counter[Space]] = {}
        self.problems: dict[int, str] = {}
        self._spaces: dict[str, Space] = {}

    def spaces(self, way: int) -> ItemsView[Space, int]:
        """Return the spaces of the kernels of a variant, and how often each is launched; none if it cannot be built."""
        if way not in self.built:
            try:
                self.built[way] = Counter(map(self.kernel, self.candidates[way].kernels()))
            except DplcError as error:
                if way == 0:
                    raise
                self.built[way] = Counter()
                self.problems[way] = error.what
        return self.built[way].items()

    def kernel(self, kernel: Kernel) -> Space:
        """Return the space of a kernel, shared by all that are the same but for their names."""
        return self._spaces.setdefault(key(kernel), Space(self.tools, (kernel,), self.target, self.free))

    def walk(self, policy: Policy, way: int = 0) -> ProgramCandidate:
        """Return the candidate of a walk; the policy is called wherever there is a decision."""
        parts = tuple((space.walk(policy), count) for space, count in self.spaces(way))
        return ProgramCandidate(way, parts, self.problems.get(way, ""))

    def default(self, way: int = 0) -> ProgramCandidate:
        """Return a variant under the schedules of the default order."""
        return self.walk(lambda *_: DEFAULT, way)
