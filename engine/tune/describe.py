"""A space, described: what is decided along the default schedule, and about how many schedules there are."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from ..match.choices import Spot
from .decisions import Decisions
from .moves import options
from .space import DEFAULT, Fire, Space, State, Token

PROBES = 64


@dataclass(frozen=True)
class Site:
    """A rule at a site, with its parameters: (name, the values it may have, the value that the rule gives it)."""

    rule: str
    where: str
    parameters: tuple[tuple[str, tuple[Any, ...], Any], ...]

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        domains = {name: {"values": values, "default": default} for name, values, default in self.parameters}
        return {"rule": self.rule, "site": self.where, "parameters": domains}


@dataclass(frozen=True)
class Level:
    """A pass in a kernel. reference: what the default order does there."""

    step: str
    kernel: str
    reference: str
    sites: tuple[Site, ...]

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        sites = [site.record() for site in self.sites]
        return {"pass": self.step, "kernel": self.kernel, "default": self.reference, "sites": sites}


def levels(space: Space) -> tuple[Level, ...]:
    """The states of the default schedule at which there is something to decide."""
    found = []
    for state, token in space.states(space.default().genome):
        sites = tuple(_site(space, state, spot) for spot in space.spots(state))
        if sites:
            kernel = state.program[state.number].name
            found.append(Level(space.slot(state).step, kernel, _reference(space, state, token), sites))
    return tuple(found)


def _site(space: Space, state: State, spot: Spot) -> Site:
    """The domains as they are once the earlier parameters have the rule's own values."""
    found: Spot | None = spot
    parameters = []
    while found is not None and found.open is not None:
        values, default = space.plain_values(found), space.plain(found.default)
        parameters.append((found.open.name, values, default))
        place = values.index(default) if default in values else 0
        found = found.choose(found.open.values[place])
    return Site(spot.rule, spot.where, tuple(parameters))


def _reference(space: Space, state: State, token: Token) -> str:
    _, own = space.by_default(state)
    return "; ".join(show(space.fire_of(d)) for d in own) or "nothing"


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
        if isinstance(option, Spot):
            spot: Spot | None = option
            while spot is not None and spot.open is not None:
                legal = [made for made in map(spot.choose, spot.open.values) if made is not None]
                ways *= max(len(legal), 1)
                spot = dice.choice(legal) if legal else None
            token = DEFAULT if spot is None else space.token(spot)
        else:
            token = option
        state = space.after(state, token).state
    return ways
