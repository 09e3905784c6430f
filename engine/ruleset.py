"""Rules, compiled: what every compile with the same rules and settings shares."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..codegen.cache import forget_oldest
from ..codegen.target import Target
from ..ir.diagnostic import DplcError, Source, Span, UsageError, did_you_mean
from ..ir.text.parse import parse
from .capture.precision import OPERATORS, tf32_numbers
from .kernels.fusion_pass import FusionRules
from .language import core as s
from .language.check import load_facts, require
from .language.evaluate import Expressions
from .language.pipeline import Pipelines, pipelines
from .language.rule import APPROX, PREFER, Rule, RuleSet, load, read_rules, under, wrong_kind
from .language.rule_files import rule_paths, rule_source
from .rewrite.statements.driver import LEVELS, Engine, Settings, check_settings
from .rewrite.terms.rewriter import TermRules, mentions_mat


@dataclass
class Toolchain:
    """Rules of a compile.

    settings pin parameters, as `--set RULE.PARAM=VALUE` says. exact: without the algebra and fusion that change a bit
    of the result (`@approx`); schedules still add up in an order of their own.
    """

    rules: RuleSet
    settings: Settings = field(default_factory=dict)
    exact: bool = False

    def on(self, target: Target) -> Target:
        """Return the target of a compile with these rules, with the numbers of the policy that they override."""
        return under(target, self.rules.on(target).numbers)

    def at(self, target: Target) -> Toolchain:
        """Return the toolchain with the declarations of the rules for this target alone; itself without any.

        Raises UsageError for a setting outside of a domain that is the same for all programs.
        """
        rules = self.rules.on(target)
        check_settings(self.settings, rules)
        if rules is self.rules:
            return self
        return self._of_devices.setdefault(rules.digest, Toolchain(rules, self.settings, self.exact))

    @cached_property
    def _of_devices(self) -> dict[str, Toolchain]:
        return {}

    @cached_property
    def exactly(self) -> Toolchain:
        """Toolchain of the same rules, without algebra and fusion that change a bit."""
        return self if self.exact else Toolchain(self.rules, self.settings, exact=True)

    @cached_property
    def pipelines(self) -> Pipelines:
        return pipelines(self.rules)

    @cached_property
    def torch(self) -> RuleSet:
        """The rules that decompose torch ops: those that no file took out."""
        kept = {rule.name for step in self.pipelines["torch"] for rule in step.rules}
        return self.rules.without({rule.name for rule in self.rules.at("torch")} - kept)

    @cached_property
    def algebra(self) -> TermRules:
        return TermRules(self._equations("tensor"), parameters=self._flat)

    @cached_property
    def commuting(self) -> TermRules:
        """Algebra in the fusion pipeline: it pays because of the kernels that result."""
        return TermRules(self._equations("fusion"), parameters=self._flat)

    @cached_property
    def equations(self) -> tuple[Rule, ...]:
        """The algebra that exploration may use: what is `@off` too, for there it is not applied everywhere."""
        return tuple(self._equations("tensor", "fusion"))

    @cached_property
    def fusion(self) -> FusionRules:
        return FusionRules(self._equations("tensor", "fusion", mat=True), self._flat)

    def _equations(self, *chosen: str, mat: bool = False) -> Iterator[Rule]:
        """Yield the rules on values that some pipelines name, in their order, each once. mat: those about `mat`."""
        named = {rule.name: rule for name in chosen for step in self.pipelines[name] for rule in step.rules}
        for rule in named.values():
            if rule.level == "tensor" and mentions_mat(rule) == mat and not (self.exact and APPROX in rule.attributes):
                yield rule

    @cached_property
    def engine(self) -> Engine:
        """The engine of the levels with statements."""
        pins = {
            name: {parameter: value for parameter, value in values.items() if parameter != PREFER}
            for name, values in self.settings.items()
            if self.rules.rule(name).level in LEVELS
        }
        return Engine(self.rules, pins)

    @cached_property
    def _flat(self) -> dict[str, object]:
        return {f"{rule}.{name}": value for rule, values in self.settings.items() for name, value in values.items()}


def toolchain(
    rules: Iterable[Path | str] | RuleSet | None = None,
    settings: Settings | Iterable[str] | None = None,
    exact: bool = False,
    tf32: str = "auto",
) -> Toolchain:
    """Return the built-in rules with the user's as overrides, checked. The last few toolchains are kept.

    Args:
        settings: values of parameters, or texts `RULE.PARAM=VALUE`. `{rule: {"prefer": False}}` lets a rule fire
            wherever it is legal (`--prefer RULE`).
        exact: leave out the rules that reorder floating point, on every level; products of f32 are not in TF32.
        tf32: whether products of f32 are in TF32: `on`, `off`, or `auto`, as the user's files or torch's settings say.

    Raises:
        DplcError: for a rule file that does not check.
        UsageError: for an unknown rule, parameter or choice, and for a value of another kind.
    """
    numbers = tf32_numbers(tf32)
    load_facts()
    if isinstance(rules, RuleSet):
        tools = _kept(rules, {}, ())
    else:
        paths = tuple(str(path) for path in rules or ())
        tools = _kept(load(paths) if paths else _built_in(), {}, paths)
    own = () if tf32 in ("on", "off") else [name for name in numbers if tools.rules.numbers[name].overrides is not None]
    found = with_numbers(tools.rules, f"--tf32 {tf32}", tuple((n, v) for n, v in numbers.items() if n not in own))
    if not settings and not exact and found is tools.rules:
        return tools
    found = exactly(found) if exact else found
    return _kept(found, read_settings(settings or (), found), ())


def all_rule_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the rule files of some files and folders, those of examples among them."""
    for path in paths:
        yield from sorted(path.rglob("*.rw")) if path.is_dir() else (path,)


PRELOADED = [f"{__package__}.{name}" for name in ("tune.tuning", "view.records", "verify.run")]


P = ParamSpec("P")
R = TypeVar("R")


def processes() -> ForkServerContext:
    """Return the context of processes: a server imports PyTorch and dplc once, and forks each of them."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    return multiprocessing.get_context("forkserver")


def here(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that a process runs in the folder and with the environment of now, not of its server."""
    return partial(_here, function, str(Path.cwd()), dict(os.environ))


def _here(function: Callable[P, R], folder: str, environment: dict[str, str], *args: P.args, **kwargs: P.kwargs) -> R:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return function(*args, **kwargs)


KEEP = 8


@lru_cache(KEEP)
def exactly(rules: RuleSet) -> RuleSet:
    """Return the rules without those that reorder floating point, on every level."""
    names = sorted(rule.name for rule in rules.rules.values() if APPROX in rule.attributes)
    text = "".join(f"without {name}\n" for name in names)
    text += "".join(f"override number {name} = 0\n" for name in OPERATORS)
    return RuleSet((*rules.files, read_rules(Source("--exact", text))))


@lru_cache(KEEP)
def with_numbers(rules: RuleSet, origin: str, numbers: tuple[tuple[str, int], ...]) -> RuleSet:
    """Return the rules with numbers of the policy in force: themselves if they have these numbers."""
    changed = [(name, value) for name, value in numbers if rules.numbers[name].value != value]
    source = Source(origin, "".join(f"override number {name} = {value}\n" for name, value in changed))
    # declarations that are not parsed: the tables of the parser take over a second
    places = [Span(source, line, 0, line, 0) for line in range(1, len(changed) + 1)]
    pairs = zip(places, changed, strict=True)
    nodes = tuple(s.NumberOf(at, (), True, name, s.Number(at, value), None) for at, (name, value) in pairs)
    return RuleSet((*rules.files, read_rules(source, lambda _: nodes))) if changed else rules


def extended(tools: Toolchain, paths: Sequence[Path | str]) -> Toolchain:
    """Return the rules with more rule files as overrides, checked. Raises DplcError for a file that does not check."""
    if not paths:
        return tools
    files = [read_rules(rule_source(path)) for given in paths for path in rule_paths(Path(given))]
    return _kept(RuleSet((*tools.rules.files, *files)), tools.settings, tuple(map(str, paths)))


_built_in = cache(load)
_RECENT: dict[tuple[str, ...], Toolchain] = {}


def _kept(rules: RuleSet, settings: Settings, paths: tuple[str, ...]) -> Toolchain:
    """Return the toolchain of these rules and settings, created and checked at its first use."""
    key = (rules.digest, *paths, repr(sorted((name, sorted(values.items())) for name, values in settings.items())))
    tools = _RECENT.pop(key, None)
    if tools is None:
        if paths:  # our own files are checked by our tests
            require(rules, {str(file) for path in paths for file in rule_paths(Path(path))})
        tools = Toolchain(rules.unpreferred({n for n, v in settings.items() if v.get(PREFER) is False}), settings)
    _RECENT[key] = tools
    forget_oldest(_RECENT, KEEP)
    return tools


def read_settings(given: Settings | Iterable[str], rules: RuleSet) -> dict[str, dict[str, object]]:
    """Return the settings of parameters. Raises UsageError as `toolchain` does."""
    out: dict[str, dict[str, object]] = {}
    if isinstance(given, Mapping):
        for name, values in given.items():
            name = rules.plain(name)
            read = values.__getitem__
            out[name] = {key: _checked("settings", name, key, rules, partial(read, key)) for key in values}
        return out
    for text in given:
        left, equals, value = text.partition("=")
        name, dot, parameter = left.strip().partition(".")
        name = rules.plain(name)
        if not equals or not dot:
            raise UsageError(f"--set {text}: write RULE.PARAM=VALUE")
        what = f"--prefer {name}" if parameter == PREFER else f"--set {text}"
        read = partial(_constant, text, value.strip())
        out.setdefault(name, {})[parameter] = _checked(what, name, parameter, rules, read)
    return out


def _checked(what: str, name: str, parameter: str, rules: RuleSet, read: Callable[[], object]) -> object:
    """Return the value of a parameter, which is read when its name is known. what: how messages begin.

    Raises UsageError unless there is such a rule with such a parameter, of that kind.
    """
    if name not in rules.rules:
        raise UsageError(f"{what}: there is no rule `{name}`", hint=did_you_mean(name, rules.rules))
    rule = rules.rules[name]
    known = [p.name for p in rule.parameters]
    if parameter not in (*known, PREFER):
        notes = (f"its parameters are {', '.join(known)}" if known else "it has no parameters",)
        message = f"{what}: rule `{name}` has no parameter `{parameter}`"
        raise UsageError(message, hint=did_you_mean(str(parameter), known), notes=notes)
    value = read()
    wrong = wrong_kind(rule, parameter, value) if parameter != PREFER else None
    if wrong is not None:
        raise UsageError(f"{what}: {wrong[0]}", hint=wrong[1])
    return value


def _constant(setting: str, value: str) -> object:
    """Return a value in the rule language: a number, a role, a tuple. The rules' own parser reads it."""
    try:
        (rule,) = parse(Source("--set", f"rule x(x = {value}) on tile\nmatch\n    Sync()\nrewrite\n    Sync()\n"))
        assert isinstance(rule, s.Rule) and rule.parameters[0].default is not None
        return Expressions("tile").compile(rule.parameters[0].default)({})
    except (DplcError, ValueError, AssertionError):
        raise UsageError(f"--set {setting}: `{value}` is not a constant of the rule language") from None
