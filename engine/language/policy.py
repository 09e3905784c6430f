"""How Python reads the numbers of `rules/policy.rw`: `policy(target).most_threads`.

What a user's file overrides travels with the target of a compile (`Target.policy`), and nowhere else: no global holds
it, so two compiles in one process cannot see each other's, and what is remembered by target is remembered apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from ...codegen.target import Target
from .numbers import Numbers, Value, numbers_of
from .rule import RuleSet, built_in_files

Overridden = tuple[tuple[str, Value], ...]


class Policy:
    """Numbers by name."""

    def __init__(self, values: Mapping[str, Value]):
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"rules/policy.rw has no number `{name}`")


def policy(target: Target) -> Policy:
    """The numbers in force for a compile: those of `rules/policy.rw` with what its rules override."""
    return _policy(target.policy)


def built_in_policy() -> Policy:
    """The numbers of `rules/policy.rw` as they stand there."""
    return _policy(())


def policy_of(rules: RuleSet) -> Policy:
    """The same where there is no target: what becomes of a program before anybody asks for the machine."""
    return _policy(overridden(rules.numbers))


@functools.lru_cache(maxsize=32)
def _policy(changed: Overridden) -> Policy:
    values = {name: number.value for name, number in numbers_of(file.numbers for file in built_in_files()).items()}
    return Policy({**values, **dict(changed)})


def overridden(numbers: Numbers) -> Overridden:
    """What users' files override, by name."""
    return tuple(sorted((name, number.value) for name, number in numbers.items() if number.overrides is not None))


def under(target: Target, numbers: Numbers) -> Target:
    """The target of a compile with these numbers in force: itself unless some are overridden."""
    changed = overridden(numbers)
    return target if changed == target.policy else dataclasses.replace(target, policy=changed)
