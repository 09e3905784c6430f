"""Space of schedules of a kernel, derived from the rules.

At every pass, a schedule does nothing, does the same as the default order, or fires a rule at a site with values for
its parameters. The space is a graph of states, walked lazily: an option that is not taken is never built. States are
merged by identity (programs are interned). Recently walked states are kept, so that walks which begin alike share their
beginning.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...codegen.cuda import bound
from ...codegen.kernel import CudaKernel
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from ...ir.program import Kernel
from ...ir.sizes import Binding, hints, sizes_in
from ...ir.substitute import with_sizes
from ..kernels.sharing import key
from ..language.pipeline import PassStep
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import FiringChoice, RuleSite, run_pipeline, spot_at, spots
from ..ruleset import Toolchain
from ..store.store import Decision, Schedule
from .scheduling import Scheduler, cuda_of, decision, estimated_registers, numbers_of, untiled, written

REMEMBERED = 4096  # transitions and lists of spots that are kept
FIRINGS = 4  # of one pass in one kernel that are decided one by one; then the default goes on


class DecisionPoint(NamedTuple):
    """Name of a decision in a walk: another schedule may decide at the same point."""

    step: str
    kernel: str
    firing: int


class Fire(NamedTuple):
    """Decide for a rule at a site. values: of its parameters, as they are written down."""

    rule: str
    where: str
    values: tuple[tuple[str, Any], ...] = ()


SKIP, DEFAULT = "skip", "default"
Token = str | Fire  # SKIP, DEFAULT (whatever the default order does here), or a Fire
Genome = dict[DecisionPoint, Token]  # a slot that is not named is decided by default


class State(NamedTuple):
    """A program on its way through the passes. taken: kernels in which a pass of this `one of` has fired."""

    program: Program
    step: int
    number: int
    firing: int = 0
    taken: frozenset[str] = frozenset()


class Move(NamedTuple):
    """Result of a decision. token: the decision that was carried out, which differs if the wanted one was not legal."""

    state: State
    token: Token
    decisions: Schedule


Policy = Callable[["Space", State, DecisionPoint], Token]


class Launched(NamedTuple):
    """A candidate where its sizes are numbers, as it is launched: Loop IR, Kernel IR, CUDA."""

    loops: Program
    kernels: Program
    cuda: tuple[CudaKernel, ...]


@dataclass
class ScheduleCandidate:
    """A whole schedule of a kernel: kernels of Tile IR, and on demand what they are lowered to."""

    space: Space = field(repr=False)
    tile: Program
    schedule: Schedule
    genome: tuple[tuple[DecisionPoint, Token], ...] = field(repr=False, default=())

    @property
    def tools(self) -> Toolchain:
        return self.space.tools

    @property
    def target(self) -> Target:
        return self.space.target

    @property
    def loops(self) -> Program:
        return self.space.loops

    @functools.cached_property
    def key(self) -> str:
        """Equal for schedules that make the same program."""
        return hashlib.sha256(" ".join(map(key, self.tile)).encode()).hexdigest()[:16]

    @functools.cached_property
    def kernels(self) -> Program:
        """Kernel IR. Raises DplcError where the target cannot launch it."""
        return Scheduler(self.tools, self.target).kernel_ir(self.tile)

    @functools.cached_property
    def cuda(self) -> tuple[CudaKernel, ...]:
        return cuda_of(self.kernels)

    @functools.cached_property
    def sizes(self) -> dict[str, Size]:
        """Sizes that are known at a call, by name."""
        return sizes_in(self.loops)

    def at(self, sizes: Binding) -> Launched:
        """Return the candidate where its sizes are these numbers. Raises DplcError as `kernels` does."""
        cuda = tuple(bound(kernel, made, sizes) for kernel, made in zip(self.kernels, self.cuda, strict=True))
        return Launched(with_sizes(self.loops, sizes), with_sizes(self.kernels, sizes), cuda)

    @functools.cached_property
    def as_a_rule(self) -> Launched:
        """Launch form at the hints, where it is timed."""
        return self.at(hints(self.loops))


class Space:
    """All schedules of a kernel of Loop IR.

    free: labels of the passes that are decided; None for all. The others follow the default order.
    """

    def __init__(self, tools: Toolchain, loops: Program, target: Target, free: frozenset[str] | None = None):
        self.tools, self.target, self.loops = tools, target, loops
        self.steps: tuple[PassStep, ...] = tools.pipelines["tile"]
        named = (step.label for step in self.steps) if free is None else map(tools.rules.plain, free)
        self.free = frozenset(named)
        self.numbers = numbers_of(loops)
        self.name = key(loops[0])[:8]
        self.after = functools.lru_cache(REMEMBERED)(self._after)
        self.by_default = functools.lru_cache(REMEMBERED)(self._default)
        self.spots = functools.lru_cache(REMEMBERED)(self._spots)

    # ---- states
    @functools.cached_property
    def root(self) -> Move:
        """First state at which there is something to decide."""
        tools = self.tools
        program = run_pipeline(tools.engine, tools.pipelines["loop"], self.loops, self.target)
        return self._advance(State(program, 0, 0), DEFAULT, [])

    def done(self, state: State) -> bool:
        return state.step == len(self.steps)

    def slot(self, state: State) -> DecisionPoint:
        return DecisionPoint(
            self.steps[state.step].label, f"{self.name} {state.program[state.number].name}", state.firing
        )

    def _advance(self, state: State, token: Token, decisions: list[Decision]) -> Move:
        """Return the next state at which there is something to decide."""
        while not self.done(state):
            program, number, step = state.program, state.number, self.steps[state.step]
            if untiled(program):
                made = self.tools.engine.fire(step, program, self.target)
                state = State(made, state.step + 1, 0)
            elif number >= len(program):
                group, following = step.group, state.step + 1
                same = group is not None and following < len(self.steps) and self.steps[following].group == group
                state = State(program, following, 0, 0, state.taken if same else frozenset())
            elif program[number].name in state.taken or not any(
                self.tools.engine.rule(rule).possible(program[number]) for rule in step.rules
            ):
                state = state._replace(number=number + 1, firing=0)
            elif step.label in self.free:
                break
            else:
                state, fired = self.by_default(state)
                decisions += fired
        return Move(state, token, tuple(decisions))

    # ---- decisions
    def _after(self, state: State, token: Token) -> Move:
        """Return the move of a decision. A decision that is not legal here becomes the nearest one, or the default."""
        if token == SKIP:
            return self._advance(state._replace(number=state.number + 1, firing=0), SKIP, [])
        spot = self._nearest(state, token) if isinstance(token, Fire) else None
        if spot is not None:
            made = self._fired(state, spot)
            if made is not None:
                return self._advance(made, self.token(spot), [self._decision(state, spot.choice)])
        following, fired = self.by_default(state)
        return self._advance(following, DEFAULT, list(fired))

    def _default(self, state: State) -> tuple[State, Schedule]:
        """Run the pass in this kernel in the default order; return the state after it, and the firings."""
        engine, step = self.tools.engine, self.steps[state.step]
        program, made, log = engine.fire_at(step, state.program, state.number, self.target)
        decisions = (self._decision(state, FiringChoice(engine, rule, p, match, self.target)) for rule, match, p in log)
        following = state._replace(program=program, number=state.number + max(made, 1), firing=0)
        return self._taken(state, following, bool(log)), tuple(decisions)

    def _fired(self, state: State, spot: RuleSite) -> State | None:
        """Return the state after one firing; None if it changes nothing."""
        program = spot.choice.apply()
        if program == state.program:
            return None
        if self._repeats(state) and state.firing + 1 < FIRINGS:
            return self._taken(state, state._replace(program=program, firing=state.firing + 1), True)
        made = len(program) - len(state.program) + 1
        return self._taken(state, state._replace(program=program, number=state.number + made, firing=0), True)

    def _taken(self, before: State, after: State, fired: bool) -> State:
        if not fired or self.steps[before.step].group is None:
            return after
        return after._replace(taken=after.taken | {before.program[before.number].name})

    def _decision(self, state: State, choice: FiringChoice) -> Decision:
        return decision(self.steps[state.step], choice, self.numbers)

    def _nearest(self, state: State, fire: Fire) -> RuleSite | None:
        """Return the wanted spot and values, or the nearest values that are legal."""
        step = self.steps[state.step]
        found = spot_at(self.tools.engine, step, fire.rule, state.program, self.target, fire.where)
        wanted = dict(fire.values)

        def nearest(spot: RuleSite) -> list[Any]:
            assert spot.open is not None
            target = wanted.get(spot.open.name)
            return sorted(spot.open.values, key=lambda value: self.distance(self.plain(value), target))

        return None if found is None else found.filled(nearest)

    # ---- options
    def _spots(self, state: State) -> tuple[RuleSite, ...]:
        """Return the rules and sites of the pass at this kernel."""
        step = self.steps[state.step]
        return tuple(spots(self.tools.engine, step, state.program, self.target, (state.number,)))

    def plain(self, value: Any) -> Any:
        """Return a value in its written form, hashable."""
        return _frozen(written(value, self.numbers))

    def plain_values(self, spot: RuleSite) -> tuple[Any, ...]:
        """Return the values of the parameter that is open."""
        assert spot.open is not None
        return tuple(map(self.plain, spot.open.values))

    def token(self, spot: RuleSite) -> Fire:
        """Return a spot as a token, with the values that are chosen."""
        values = spot.choice.parameters.items()
        return Fire(spot.rule, spot.where, tuple((name, self.plain(value)) for name, value in values))

    def fire_of(self, made: Decision) -> Fire:
        """Return a decision as a token."""
        return Fire(made.rule, made.site, tuple((name, _frozen(value)) for name, value in made.parameters.items()))

    def reference(self, state: State) -> Token:
        """Return the decision of the default order here: one firing, SKIP, or DEFAULT if it may be more than one."""
        _, own = self.by_default(state)
        if not own:
            return SKIP
        return self.fire_of(own[0]) if len(own) == 1 and not self._repeats(state) else DEFAULT

    def _repeats(self, state: State) -> bool:
        return any("repeat" in rule.attributes for rule in self.steps[state.step].rules)

    def domains(self, state: State, fire: Fire) -> dict[str, tuple[Any, ...]]:
        """Return {parameter: its values}, each after the preceding ones are decided as in `fire`."""
        found = spot_at(self.tools.engine, self.steps[state.step], fire.rule, state.program, self.target, fire.where)
        wanted, domains = dict(fire.values), dict[str, tuple[Any, ...]]()
        while found is not None and found.open is not None:
            name, values = found.open.name, self.plain_values(found)
            domains[name] = values
            value = wanted.get(name)
            found = found.choose(found.open.values[values.index(value) if value in values else 0])
        return domains

    @staticmethod
    def distance(value: Any, other: Any) -> float:
        """Return the distance of two plain values: by logarithm for numbers, else 0 or 1."""
        if value == other:
            return 0.0
        if isinstance(value, int) and isinstance(other, int) and value > 0 and other > 0:
            return abs(math.log2(value / other))
        return 1.0

    # ---- walks
    def walk(self, policy: Policy) -> ScheduleCandidate:
        """Return a whole schedule; the policy decides at every state."""
        state, _, first = self.root
        schedule, genome = list(first), []
        while not self.done(state):
            slot = self.slot(state)
            move = self.after(state, policy(self, state, slot))
            genome.append((slot, move.token))
            schedule += move.decisions
            state = move.state
        return ScheduleCandidate(self, state.program, tuple(schedule), tuple(genome))

    def states(self, genome: tuple[tuple[DecisionPoint, Token], ...]) -> Iterator[tuple[State, Token]]:
        """Yield the states of a walk, each with its decision."""
        state = self.root.state
        for _, token in genome:
            yield state, token
            state = self.after(state, token).state

    def default(self) -> ScheduleCandidate:
        """Return the schedule of the default order."""
        return self.walk(lambda space, state, slot: DEFAULT)

    @functools.cached_property
    def granted(self) -> int:
        """Registers that the default order needs by the estimate: no schedule is refused for as many."""
        return estimated_registers(self.default().tile, self.target)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# ---- The decisions of a search: first the fusion plan, then a schedule for each of its kernels.


@dataclass(frozen=True)
class FusionVariant:
    """A way of fusing. kernels: builds it, as kernels of Loop IR in the order of their launches; raises DplcError."""

    label: str
    kernels: Callable[[], Sequence[Kernel]]


@dataclass(frozen=True)
class ProgramCandidate:
    """A fusion variant with a schedule for each of its kernels.

    way: the number of the variant; parts: a schedule for each kernel, and how often that kernel is launched; key: equal
    for candidates with the same kernels; problem: why it cannot be built, "" if it can.
    """

    way: int
    label: str
    parts: tuple[tuple[ScheduleCandidate, int], ...]
    problem: str = ""

    @functools.cached_property
    def key(self) -> str:
        spelled = " ".join(f"{count} {candidate.key}" for candidate, count in self.parts) or self.label
        return hashlib.sha256(spelled.encode()).hexdigest()[:16]

    @property
    def schedule(self) -> Schedule:
        return tuple(decision for candidate, _ in self.parts for decision in candidate.schedule)

    @property
    def genome(self) -> tuple[tuple[DecisionPoint, Token], ...]:
        return tuple(decided for candidate, _ in self.parts for decided in candidate.genome)


def distinct(kernels: Sequence[Kernel]) -> list[tuple[Kernel, int]]:
    """Return every kernel once, with the number of kernels that are the same but for their names."""
    found: dict[str, tuple[Kernel, int]] = {}
    for kernel in kernels:
        first, count = found.get(key(kernel), (kernel, 0))
        found[key(kernel)] = first, count + 1
    return list(found.values())


class ProgramSpace:
    """All ways to compute a program. free: labels of the passes that are decided; None for all.

    ways: labels of the fusion variants, the default one first. Only variants that are walked are built.
    """

    def __init__(
        self, tools: Toolchain, ways: Sequence[FusionVariant], target: Target, free: frozenset[str] | None = None
    ):
        self.tools, self.target, self.free = tools, target, free
        self.candidates = tuple(ways)
        self.ways = tuple(way.label for way in ways)
        self.problems: dict[int, str] = {}
        self._kernels: dict[str, Space] = {}
        self._spaces: dict[int, tuple[tuple[Space, int], ...]] = {}

    def spaces(self, way: int) -> tuple[tuple[Space, int], ...]:
        if way not in self._spaces:
            self._spaces[way] = self._built(way)
        return self._spaces[way]

    def _built(self, way: int) -> tuple[tuple[Space, int], ...]:
        try:
            kernels = self.candidates[way].kernels()
        except DplcError as error:
            if way == 0:
                raise
            self.problems[way] = error.what
            return ()
        return tuple((self.kernel(kernel), count) for kernel, count in distinct(kernels))

    def kernel(self, kernel: Kernel) -> Space:
        """Return the space of a kernel, shared by all that are the same but for their names."""
        name = key(kernel)
        if name not in self._kernels:
            self._kernels[name] = Space(self.tools, (kernel,), self.target, self.free)
        return self._kernels[name]

    @property
    def built(self) -> tuple[int, ...]:
        """The ways that were walked so far."""
        return tuple(self._spaces)

    def walk(self, policy: Policy, way: int = 0) -> ProgramCandidate:
        """Return the candidate of a walk; the policy is called wherever there is a decision."""
        parts = tuple((space.walk(policy), count) for space, count in self.spaces(way))
        return ProgramCandidate(way, self.ways[way], parts, self.problems.get(way, ""))

    def default(self, way: int = 0) -> ProgramCandidate:
        """Return a variant under the schedules of the default order."""
        return self.walk(lambda space, state, slot: DEFAULT, way)
