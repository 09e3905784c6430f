"""The space of a pass: every legal (rule, site, parameters), lazily. What is not preferred is in it too.

A `FiringChoice` is complete. A `RuleSite` is a rule at a site whose parameters are still open: to look at its first
parameter costs the clauses before it, to take one value the clauses behind it, and its siblings nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ....codegen.target import Target
from ...language.pipeline import PassStep
from ..seen import show
from .clauses import OpenChoice
from .compiled import CompiledRule, Match, Program
from .context import Path
from .driver import Engine


@dataclass(frozen=True, slots=True)
class FiringChoice:
    """One way to fire. It holds the program that it was found in: apply it or drop it."""

    engine: Engine
    rule: CompiledRule
    program: Program
    match: Match
    target: Target

    @property
    def where(self) -> str:
        return self.match.where

    @property
    def kernel(self) -> str:
        """The kernel that it changes (the first of them, on a module)."""
        position = self.match.path[0] if self.match.path else self.match.start
        return self.program[position].name

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of what there was to choose: parameters and picks."""
        return {name: self.match.env[name] for name in self.rule.chosen if name in self.match.env}

    @property
    def key(self) -> str:
        """`rule@site(parameters)`: what a recorded choice is found again by."""
        values = ", ".join(f"{name}={show(value)}" for name, value in self.parameters.items())
        return f"{self.rule.rule.name}@{self.where}({values})"

    def apply(self) -> Program:
        """The program after this firing, canonical again."""
        return self.engine.rewrite(self.rule.rule, self.program, self.match, self.target)[0]

    def __repr__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class RuleSite:
    """A rule at a site. open: the parameter to choose next, None once all are chosen. It holds its program."""

    choice: FiringChoice
    open: OpenChoice | None
    pinned: Mapping[str, Any]

    @property
    def rule(self) -> str:
        return self.choice.rule.rule.name

    @property
    def where(self) -> str:
        return self.choice.where

    @property
    def default(self) -> Any:
        """The value that the open parameter would have by itself; None if it has none."""
        assert self.open is not None
        return self.choice.rule.decisions[True].default(self.open.step, self.open.env)

    def choose(self, value: Any) -> RuleSite | None:
        """With a value for the open parameter; None where a guard refuses it."""
        assert self.open is not None
        env = {**self.open.env, self.open.name: value}
        return _spot(self.choice, env, self.pinned, self.open.position)

    def first(self, values: Iterable[Any]) -> RuleSite | None:
        """With the first of some values that no guard refuses."""
        return next((made for made in map(self.choose, values) if made is not None), None)

    def filled(self, order: Callable[[RuleSite], Iterable[Any]]) -> RuleSite | None:
        """With values for all open parameters, in the order of preference that a function gives."""
        found: RuleSite | None = self
        while found is not None and found.open is not None:
            found = found.first(order(found))
        return found


def _spot(choice: FiringChoice, env: dict[str, Any], pinned: Mapping[str, Any], at: int) -> RuleSite | None:
    found = choice.rule.decisions[True].advance(env, pinned, None, at)
    if found is None:
        return None
    known, opened = (found.env, found) if isinstance(found, OpenChoice) else (found, None)
    match = dataclasses.replace(choice.match, env=known)
    return RuleSite(dataclasses.replace(choice, match=match), opened, pinned)


def spots(
    engine: Engine, step: PassStep, program: Program, target: Target, kernels: Iterable[int] | None = None
) -> Iterator[RuleSite]:
    """Every place where some rule of a pass may fire, as far as guards say that ask no parameter."""
    numbers = tuple(range(len(program)) if kernels is None else kernels)
    for rule in map(engine.rule, step.rules):
        for path, block, start in rule.starts(rule.pattern, program, numbers, False):
            yield from _spots_at(engine, rule, step, program, target, (path, block, start))


def spot_at(engine: Engine, step: PassStep, rule: str, program: Program, target: Target, where: str) -> RuleSite | None:
    """One spot, found again by its rule and site: nothing else is looked at."""
    compiled = next((engine.rule(one) for one in step.rules if one.name == rule), None)
    place = _place(program, where)
    if compiled is None or place is None:
        return None
    root = compiled.pattern.root
    path, block, start = place
    if not compiled.visible(program[path[0] if path else start]) or root not in (None, block[start].__class__):
        return None
    return next((s for s in _spots_at(engine, compiled, step, program, target, place) if s.where == where), None)


def _spots_at(
    engine: Engine, rule: CompiledRule, step: PassStep, program: Program, target: Target, place: tuple[Path, Any, int]
) -> Iterator[RuleSite]:
    path, block, start = place
    pinned = {**rule.parameters, **engine.pinned(rule, step)}
    for match in rule.matches_at(rule.pattern, (program, path, target), block, start):
        if rule.agrees(match.env, pinned, None):
            found = _spot(FiringChoice(engine, rule, program, match, target), match.env, pinned, 0)
            if found is not None:
                yield found


def _place(program: Program, where: str) -> tuple[Path, Any, int] | None:
    """(path, block, start) of `0/2/1#1`, if there is such a place."""
    numbers = where.split("#")[0].split("/")
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        return None
    *path, start = map(int, numbers)
    block: Any = program
    for position in path:
        if not 0 <= position < len(block) or not hasattr(block[position], "body"):
            return None
        block = block[position].body
    return (tuple(path), block, start) if 0 <= start < len(block) else None


def choices(
    engine: Engine, step: PassStep | str, program: Program, target: Target,
    parameters: Mapping[str, Any] | None = None, without: frozenset[str] = frozenset(),
) -> Iterator[FiringChoice]:  # fmt: skip
    """Every choice of a pass. parameters: values to pin; without: kernels to leave alone."""
    found = engine.step(step) if isinstance(step, str) else step
    kernels = [number for number, kernel in enumerate(program) if kernel.name not in without]
    for rule in map(engine.rule, found.rules):
        known = {**engine.pinned(rule, found), **(parameters or {})}
        pinned = {name: value for name, value in known.items() if name in rule.parameters or name in rule.pattern.names}
        for match in rule.matches(program, kernels, target, pinned, None, True):
            yield FiringChoice(engine, rule, program, match, target)


def find(engine: Engine, step: PassStep | str, program: Program, target: Target, key: str) -> FiringChoice | None:
    """The recorded choice, if it is still there."""
    return next((choice for choice in choices(engine, step, program, target) if choice.key == key), None)
