"""A space, described: what is decided along the default schedule, and about how many schedules there are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..rewrite.statements.choices import RuleSite
from ..schedule.decisions import Decisions
from ..schedule.space import DEFAULT, Fire, Policy, Space, State, Token
from .search import default_fill, options

PROBES = 64
NOTHING = "nothing"


@dataclass(frozen=True)
class SiteDescription:
    """A rule at a site, with its parameters: (name, the values it may have, the value that the rule gives it)."""

    rule: str
    where: str
    parameters: tuple[tuple[str, tuple[Any, ...], Any], ...]

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        domains = {name: {"values": values, "default": default} for name, values, default in self.parameters}
        return {"rule": self.rule, "site": self.where, "parameters": domains}


@dataclass(frozen=True)
class PassDescription:
    """A pass in a kernel. reference: what the default order does there. opens: where that is nothing, the passes that
    something is left to decide for only if it does fire."""

    step: str
    kernel: str
    reference: str
    sites: tuple[SiteDescription, ...]
    opens: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        sites = [site.record() for site in self.sites]
        own = {"pass": self.step, "kernel": self.kernel, "default": self.reference, "sites": sites}
        return own | {"opens": list(self.opens)}


def levels(space: Space) -> tuple[PassDescription, ...]:
    """The states of the default schedule at which there is something to decide."""
    found, usual = [], frozenset(_decided(space, lambda _, state, slot: DEFAULT))
    for state, token in space.states(space.default().genome):
        sites = tuple(_site(space, state, spot) for spot in space.spots(state))
        if sites:
            slot, reference = space.slot(state), _reference(space, state, token)
            opens = _opened(space, state, usual) if reference == NOTHING else ()
            found.append(PassDescription(slot.step, slot.kernel, reference, sites, opens))
    return tuple(found)


def _opened(space: Space, skipped: State, usual: frozenset[str]) -> tuple[str, ...]:
    """The passes that have a site somewhere only where a pass fires that by default does not."""
    spot = space.spots(skipped)[0]
    fire = default_fill(space, spot) or DEFAULT
    decided = _decided(space, lambda _, state, slot: fire if state == skipped else DEFAULT)
    return tuple(dict.fromkeys(step for step in decided if step not in usual))


def _decided(space: Space, policy: Policy) -> Iterator[str]:
    """The passes that have something to decide along a walk."""
    for state, _ in space.states(space.walk(policy).genome):
        if space.spots(state):
            yield space.slot(state).step


def _site(space: Space, state: State, spot: RuleSite) -> SiteDescription:
    """The domains as they are once the earlier parameters have the rule's own values."""
    return SiteDescription(spot.rule, spot.where, tuple(space.parameters(spot)))


def _reference(space: Space, state: State, token: Token) -> str:
    _, own = space.by_default(state)
    return "; ".join(show(space.fire_of(d)) for d in own) or NOTHING


def show(token: Token) -> str:
    """A decision for people."""
    if not isinstance(token, Fire):
        return token
    values = ", ".join(f"{name}={plain_text(value)}" for name, value in token.values)
    return f"{token.rule}({values})" if values else token.rule


def plain_text(value: Any) -> str:
    return "(" + ", ".join(map(plain_text, value)) + ")" if isinstance(value, tuple) else str(value)


def size(space: Decisions, seed: int = 0, probes: int = PROBES) -> float:
    """About how many ways there are to decide everything: the mean product of what random walks may choose from at each
    of their steps (Knuth 1975, Estimating the efficiency of backtrack programs). Several ways may give one program.
    """
    dice = random.Random(seed)
    return sum(_probe(space, dice) for _ in range(probes)) / probes


def _probe(space: Decisions, dice: random.Random) -> float:
    way, count = dice.randrange(len(space.ways)), float(len(space.ways))
    return math.prod((_walk(inner, dice) for inner, _ in space.spaces(way)), start=count)


def _walk(space: Space, dice: random.Random) -> float:
    """What a random walk could choose from, multiplied."""
    state, ways = space.root.state, 1.0
    while not space.done(state):
        found = options(space, state)
        ways *= len(found)
        option = dice.choice(found)
        token: Token = DEFAULT
        if isinstance(option, RuleSite):
            spot: RuleSite | None = option
            while spot is not None and spot.open is not None:
                legal = [made for made in map(spot.choose, spot.open.values) if made is not None]
                ways *= max(len(legal), 1)
                spot = dice.choice(legal) if legal else None
            token = DEFAULT if spot is None else space.token(spot)
        else:
            token = option
        state = space.after(state, token).state
    return ways
