"""Rules, compiled: what every compile with the same rules and settings shares."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ir.diagnostic import Diagnostics, DplcError, Source, UsageError, did_you_mean
from ..ir.text import syntax as s
from ..ir.text.parse import parse
from .fuse.rules import FusionRules
from .match.driver import Engine
from .match.passes import names_of, only as only_steps
from .match.terms import TermRules, mentions_mat
from .rw.check import check, errors, load_facts
from .rw.evaluate import Expressions
from .rw.pipeline import Pipelines, pipelines
from .rw.rule import RuleSet, load, rule_paths

Settings = Mapping[str, Mapping[str, Any]]  # rule -> parameter -> value


@dataclass
class Toolchain:
    """The rules of a compile. settings pin parameters, as `--set RULE.PARAM=VALUE` says."""

    rules: RuleSet
    settings: Settings = field(default_factory=dict)

    @functools.cached_property
    def pipelines(self) -> Pipelines:
        return pipelines(self.rules)

    @functools.cached_property
    def torch(self) -> RuleSet:
        """The rules that decompose torch ops: those that no file took out."""
        kept = {rule.name for step in self.pipelines["torch"] for rule in step.rules}
        return self.rules.without({rule.name for rule in self.rules.at("torch")} - kept)

    @functools.cached_property
    def algebra(self) -> TermRules:
        named = (rule for step in self.pipelines["tensor"] for rule in step.rules)
        return TermRules((rule for rule in named if not mentions_mat(rule)), parameters=self._flat())

    @functools.cached_property
    def fusion(self) -> FusionRules:
        steps = (*self.pipelines["tensor"], *self.pipelines["fusion"])
        named = dict.fromkeys(rule for step in steps for rule in step.rules)
        return FusionRules((rule for rule in named if mentions_mat(rule)), self._flat())

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine of the levels with statements."""
        levels = ("module", "loop", "tile", "kernel")
        return Engine(self.rules, {name: v for name, v in self.settings.items() if self.rules.rule(name).level in levels})

    def only(self, names: Iterable[str]) -> Toolchain:
        """The same rules, where of the schedule's passes only the named ones run (what decomposes and cuts always runs)."""
        wanted = tuple(names)
        out = Toolchain(self.rules, self.settings)
        chosen = dict(self.pipelines)
        scheduled = ("loop", "tile", "kernel")
        every = tuple(step for level in scheduled for step in self.pipelines[level])
        kept = {step.label for step in only_steps(every, wanted)}
        for level in scheduled:
            mine = tuple(step for step in self.pipelines[level] if step.label in kept)
            named = [name for name in wanted if any(name in names_of(step) for step in mine)]
            chosen[level] = only_steps(mine, named) if mine else ()
        out.__dict__["pipelines"] = chosen
        return out

    def _flat(self) -> dict[str, Any]:
        return {f"{rule}.{name}": value for rule, values in self.settings.items() for name, value in values.items()}


def toolchain(rules: Iterable[Path | str] | RuleSet | None = None, settings: Settings | None = None) -> Toolchain:
    """The built-in rules with the user's laid over them, checked. Raises DplcError for a rule file that does not check."""
    load_facts()
    if isinstance(rules, RuleSet):
        return Toolchain(rules, settings or {})
    paths = tuple(str(path) for path in rules or ())
    if not paths and not settings:
        return _built_in()
    loaded = _built_in().rules if not paths else load(paths)
    if paths:
        broken = errors(check(loaded, _sources(paths)))
        if broken:
            raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    return Toolchain(loaded, settings or {})


def _sources(paths: Iterable[str]) -> set[str]:
    return {str(file) for path in paths for file in rule_paths(Path(path))}


@functools.cache
def _built_in() -> Toolchain:
    return Toolchain(load())


def read_settings(given: Iterable[str], rules: RuleSet) -> dict[str, dict[str, Any]]:
    """`RULE.PARAM=VALUE` texts. Raises UsageError for an unknown rule or parameter, or a value that is no constant."""
    out: dict[str, dict[str, Any]] = {}
    for text in given:
        left, equals, value = text.partition("=")
        name, dot, parameter = left.strip().partition(".")
        if not equals or not dot:
            raise UsageError(f"--set {text}: write RULE.PARAM=VALUE")
        if name not in rules.rules:
            raise UsageError(f"--set {text}: there is no rule `{name}`", hint=did_you_mean(name, rules.rules))
        known = [p.name for p in rules.rules[name].parameters]
        if parameter not in known:
            notes = (f"its parameters are {', '.join(known)}" if known else "it has no parameters",)
            raise UsageError(f"--set {text}: rule `{name}` has no parameter `{parameter}`", None, notes, did_you_mean(parameter, known))
        out.setdefault(name, {})[parameter] = _constant(text, value.strip())
    return out


def _constant(setting: str, value: str) -> Any:
    """A value in the rule language: a number, a role, a tuple. Read by the rules' own parser; nothing is evaluated."""
    try:
        (rule,) = parse(Source("--set", f"rule x(x = {value}) on tile\nmatch\n    Sync()\nrewrite\n    Sync()\n"))
        assert isinstance(rule, s.Rule) and rule.parameters[0].default is not None
        return Expressions("tile").compile(rule.parameters[0].default)({})
    except (DplcError, ValueError, AssertionError):
        raise UsageError(f"--set {setting}: `{value}` is not a constant of the rule language") from None
