"""Every complete choice of a pass, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dplc.codegen.target import Target
from dplc.engine.language.pipeline import PassStep
from dplc.engine.rewrite.statements.driver import Engine, RuleSite, spots
from dplc.engine.rewrite.trace import assigned
from dplc.ir.program import Kernel


def pinned(step: PassStep, parameters: Mapping[str, Any]) -> PassStep:
    """A pass with values for parameters of its rules."""
    return dataclasses.replace(step, parameters={**step.parameters, **parameters})


def choices(
    engine: Engine, step: PassStep | str, program: tuple[Kernel, ...], target: Target,
    parameters: Mapping[str, Any] = {}, without: Collection[str] = (),
) -> Iterator[RuleSite]:  # fmt: skip
    """Every choice of a pass, complete. parameters: values to pin; without: kernels to leave alone."""
    for spot in spots(engine, pinned(engine.step(step), parameters), program, target):
        if spot.kernel not in without:
            yield from complete(spot)


def complete(spot: RuleSite) -> Iterator[RuleSite]:
    """A site with every legal value of what is open."""
    if spot.open is None:
        yield spot
        return
    for value in spot.open.values:
        made = spot.choose(value)
        if made is not None:
            yield from complete(made)


def key(site: RuleSite) -> str:
    """Text `rule@site(parameters)`, which identifies a choice."""
    return f"{site.rule}@{site.where}({assigned(site.parameters)})"
