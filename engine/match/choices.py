"""The space of a pass: every legal (rule, site, parameters), lazily. What is not preferred is in it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ..rw.pipeline import PassStep
from .compiled import CompiledRule, Match, Program
from .driver import Engine
from .whynot import show


@dataclass(frozen=True, slots=True)
class Choice:
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
        return {name: self.match.env[name] for name in self.rule.parameters if name in self.match.env}

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


def choices(
    engine: Engine, step: PassStep | str, program: Program, target: Target,
    parameters: Mapping[str, Any] | None = None, without: frozenset[str] = frozenset(),
) -> Iterator[Choice]:  # fmt: skip
    """Every choice of a pass. parameters: values to pin; without: kernels to leave alone."""
    found = engine.step(step) if isinstance(step, str) else step
    kernels = [number for number, kernel in enumerate(program) if kernel.name not in without]
    for rule in map(engine.rule, found.rules):
        known = {**engine.pinned(rule, found), **(parameters or {})}
        pinned = {name: value for name, value in known.items() if name in rule.parameters or name in rule.pattern.names}
        for match in rule.matches(program, kernels, target, pinned, None, True):
            yield Choice(engine, rule, program, match, target)


def find(engine: Engine, step: PassStep | str, program: Program, target: Target, key: str) -> Choice | None:
    """The recorded choice, if it is still there."""
    return next((choice for choice in choices(engine, step, program, target) if choice.key == key), None)
