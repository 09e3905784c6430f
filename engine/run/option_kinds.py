"""What kinds of things the options of `dplc.compile` are: what is none of them is told by name, before all else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import UsageError
from ..language.rule import RuleSet


def _is(*kinds: type) -> Any:
    return lambda value: isinstance(value, kinds)


def _are_rules(value: Any) -> bool:
    if isinstance(value, (str, Path, RuleSet)):
        return True
    several = isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping))
    return several and all(isinstance(each, (str, Path)) for each in value)


def _are_settings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(rule, str) and isinstance(values, Mapping) for rule, values in value.items()
    )


KINDS: dict[str, tuple[Any, str]] = {
    "device": (_is(str), "a name: cuda, cuda:N, emulator, reference"),
    "rules": (_are_rules, "a rule file or folder, several, or a `dplc.Rules`"),
    "target": (_is(str, Target), "the name of an architecture or a device"),
    "settings": (_are_settings, "a dict: {rule: {parameter: value}}"),
    "trace": (_is(bool), "True or False"),
    "db": (_is(bool, str, Path), "the file of a store, or False"),
    "explore": (_is(bool), "True or False"),
    "exact": (_is(bool), "True or False"),
}


def check_kinds(**options: Any) -> None:
    """Raises UsageError for an option that is none of what it may be. None is an option that is not given."""
    for name, value in options.items():
        fits, words = KINDS[name]
        if (value is not None or name in ("trace", "explore", "exact")) and not fits(value):
            raise UsageError(f"{name}={value!r:.60} is a {type(value).__name__}", hint=f"it takes {words}")
