"""What a search may do at one state: its options in order, one at random, a neighbour of what was decided."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from ..rewrite.statements.choices import RuleSite
from ..schedule.decisions import Whole
from ..schedule.space import DEFAULT, SKIP, Fire, Genome, Space, State, Token

ONE_PARAMETER = 0.8  # how often a neighbour differs in the value of one parameter
TWO_PARAMETERS = 0.4  # of these, how often of two
SECOND = 0.25  # how often a mutation changes a second decision


def options(space: Space, state: State) -> tuple[Token | RuleSite, ...]:
    """SKIP, DEFAULT (where the default order may fire more than once here) and spots; the first is what it does."""
    reference = space.reference(state)
    found: list[Token | RuleSite] = [SKIP, *space.spots(state)]
    if isinstance(reference, Fire):
        return tuple(sorted(found, key=lambda o: not _is(o, reference)))
    return (DEFAULT, *found) if reference == DEFAULT else tuple(found)


def _is(option: Token | RuleSite, fire: Fire) -> bool:
    return isinstance(option, RuleSite) and (option.rule, option.where) == (fire.rule, fire.where)


def ordered(space: Space, spot: RuleSite, reference: Any = None) -> tuple[Any, ...]:
    """The values of the open parameter: the reference (or the rule's own default) first, then outward from it."""
    assert spot.open is not None
    values = space.plain_values(spot)
    near = reference if reference is not None else space.plain(spot.default)
    order = sorted(range(len(values)), key=lambda n: space.distance(values[n], near))
    return tuple(spot.open.values[n] for n in order)


def random_fill(space: Space, spot: RuleSite, dice: random.Random) -> Fire | None:
    """Random values for the open parameters."""

    def shuffled(found: RuleSite) -> list[Any]:
        assert found.open is not None
        values = list(found.open.values)
        dice.shuffle(values)
        return values

    filled = spot.filled(shuffled)
    return None if filled is None else space.token(filled)


def default_fill(space: Space, spot: RuleSite) -> Fire | None:
    """The rule's own values for the open parameters, or those next to them."""
    found = spot.filled(lambda open_: ordered(space, open_))
    return None if found is None else space.token(found)


def random_token(space: Space, state: State, dice: random.Random) -> Token:
    """One of the options, with random values."""
    option = dice.choice(options(space, state))
    token = random_fill(space, option, dice) if isinstance(option, RuleSite) else option
    return DEFAULT if token is None else token


def neighbour(space: Space, state: State, token: Token, dice: random.Random) -> Token:
    """Another decision at this state: mostly one value of a parameter, else another option."""
    fire = token if isinstance(token, Fire) else _first_fire(space, state, token)
    if fire is not None and dice.random() < ONE_PARAMETER:
        changed = _changed(space, state, fire, dice)
        if changed is not None:
            return changed
    others = [option for option in options(space, state) if option != token and not _same(option, fire)]
    if not others:
        return token
    option = dice.choice(others)
    if isinstance(option, RuleSite):
        fill = default_fill(space, option) if dice.random() < 0.5 else random_fill(space, option, dice)
        return DEFAULT if fill is None else fill
    return option


def _same(option: Token | RuleSite, fire: Fire | None) -> bool:
    return fire is not None and _is(option, fire)


def _first_fire(space: Space, state: State, token: Token) -> Fire | None:
    """The first thing that the default does in a pass."""
    if token == SKIP:
        return None
    _, own = space.by_default(state)
    return space.fire_of(own[0]) if own else None


def _changed(space: Space, state: State, fire: Fire, dice: random.Random) -> Fire | None:
    """The same rule and site with another value of one parameter, or of two: tiles keep their area then."""
    domains = space.domains(state, fire)
    open_ = [name for name, values in domains.items() if len(values) > 1]
    if not open_:
        return None
    count = 2 if len(open_) > 1 and dice.random() < TWO_PARAMETERS else 1
    values = dict(fire.values)
    for name in dice.sample(open_, count):
        values[name] = _near(space, domains[name], values.get(name), dice)
    return Fire(fire.rule, fire.where, tuple(values.items()))


def _near(space: Space, domain: tuple[Any, ...], value: Any, dice: random.Random) -> Any:
    """Another value of a domain, near ones more often."""
    others = sorted((other for other in domain if other != value), key=lambda other: space.distance(other, value))
    return others[min(int(dice.expovariate(0.7)), len(others) - 1)]


def mutated(whole: Whole, dice: random.Random) -> Genome:
    """A schedule with one decision changed, or two. Passes with more to decide are changed more often."""
    made: Genome = dict(whole.genome)
    for _ in range(2 if dice.random() < SECOND else 1):
        places = list(_places(whole))
        if not places:
            break
        space, state, token = dice.choices([p[:3] for p in places], [p[3] for p in places])[0]
        made[space.slot(state)] = neighbour(space, state, token, dice)
    return made


def _places(whole: Whole) -> Iterator[tuple[Space, State, Token, float]]:
    """States of a walk at which there is something to decide, and how much."""
    for candidate, _ in whole.parts:
        space = candidate.space
        for state, token in space.states(candidate.genome):
            count = sum(len(spot.open.values) if spot.open else 1 for spot in space.spots(state))
            if count:
                yield space, state, token, math.log2(1 + count)
