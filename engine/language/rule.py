"""Rules and rule sets: what a `.rw` file declares, families written out, users' files laid over ours.

A file is a pass. Rules stay syntax until a matcher of their level compiles them; nothing in a rule file is ever
executed.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from ...codegen.target import Target, devices, load_device
from ...ir.diagnostic import DplcError, Source, Span, UsageError, did_you_mean
from ...ir.text.print_statements import print_value
from ...ir.text.syntax import (
    Cover,
    Example,
    ExamplesOf,
    FactOf,
    Guard,
    LetClause,
    Match,
    NameOf,
    Nodes,
    NumberOf,
    OneOf,
    Parameter,
    PassEntry,
    PickClause,
    Pipeline,
    Rewrite,
    Rule as RuleSyntax,
    Syntax,
    Without,
    walk,
    words_in,
)
from .core import AxisTerm, ValueTerm, definitions, lefts
from .definitions import (
    Numbers,
    asked_of,
    expanded,
    facts_of_files,
    line_of,
    numbers_of,
    refuse_override,
    remembered,
)
from .elaborate import in_rule
from .evaluate import Expressions, Value
from .rule_files import (
    FURTHER,
    collections_paused,
    further_of,
    members,
    parse_rules,
    parse_stored,
    rule_paths,
    rule_source,
    with_further,
)
from .sorts import ANY, PARAMETER_SORTS, fits, sort_of_value
from .typed_slots import binders, mentioned

LEVELS = {
    "torch": "what a PyTorch op means: a comprehension over named axes",
    "tensor": "algebra of values, and which of them are stored",
    "module": "whole kernels, one or several",
    "loop": "loop nests",
    "tile": "schedules: axes with roles, shared memory, order",
    "kernel": "what one thread does",
}
ATTRIBUTES = {
    "repeat": "fires until no site is left; `decreases N` says why it ends",
    "canonical": "to a fixpoint after every firing of any rule",
    "approx": "reorders floating point: `--exact` leaves it out",
    "local": "fires only through `with rule NAME(args)`",
    "off": "off unless it is named",
}
APPROX = "approx"
PREFER = "prefer"  # the clause, and what is set to false of a rule that is to fire wherever it is legal
PARTS: dict[type[Syntax], str] = {Match: "what the program has", Rewrite: "what it becomes"}
Clause = LetClause | PickClause | Guard
T = TypeVar("T")
D = TypeVar("D", "Rule", NumberOf, FactOf)


@dataclass(frozen=True, eq=False)
class Rule:
    """One equation. `match` and `rewrite` are statements; `clauses` are let, pick, where and prefer in their order."""

    name: str
    level: str
    file: str  # the stem, `stage_inputs`: the name of the pass
    span: Span
    docs: tuple[str, ...]
    attributes: frozenset[str]
    parameters: tuple[Parameter, ...]
    match: Nodes
    clauses: tuple[Clause, ...]
    rewrite: Nodes
    examples: Sequence[Example]
    override: bool = False
    family: str | None = None
    words: tuple[str, ...] = ()  # what may be names of numbers
    written: Sequence[Syntax] = ()  # the clauses as in the file, where they were elaborated
    covers: tuple[Cover, ...] = ()  # what its splits say of their parts
    wherever_legal: bool = False  # requested by `--prefer`: it fires although it would not pay
    device: NameOf | None = None  # the only one that it is for
    overrides: tuple[NumberOf, ...] = ()  # of numbers that it reads, also through facts
    _compiled: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def compiled(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the compiled form of the rule for `key`. All sets of rules share it, and `make` runs once."""
        if key not in self._compiled:
            self._compiled[key] = make()
        made: T = self._compiled[key]
        return made

    @property
    def guards(self) -> tuple[Guard, ...]:
        return tuple(c for c in self.clauses if isinstance(c, Guard))

    @property
    def required(self) -> tuple[Guard, ...]:
        """The guards without which the rule is wrong; a `prefer` says only where it pays."""
        return tuple(guard for guard in self.guards if guard.kind != PREFER)

    @property
    def location(self) -> str:
        return line_of(self.span)

    def without_value(self, why: str, span: Span) -> DplcError:
        """Return the error of an expression without a value. An overridden number that the rule reads is at fault."""
        what = f"rule `{self.name}`: {why}"
        for number in self.overrides:
            return DplcError(
                f"{what}, with this `{number.name}`",
                number,
                "choose another value",
                (f"the expression is at {line_of(span)}",),
            )
        return DplcError(what, span, "require first that it has a value, as `N > 0 and M % N == 0`")

    @cached_property
    def left(self) -> dict[str, ValueTerm]:
        """The values of the pattern of a rule on tensor by name, in order; the last one is the root."""
        return self._resolved(definitions, self.match)

    @cached_property
    def right(self) -> dict[str, ValueTerm]:
        """Definitions of the template, by name."""
        return self._resolved(definitions, self.rewrite)

    @cached_property
    def left_axes(self) -> dict[str, tuple[AxisTerm, ...]]:
        """The axes between the brackets of the left sides of its pattern."""
        return self._resolved(lefts, self.match)

    def _resolved(self, read: Callable[[Nodes], T], block: Nodes) -> T:
        with in_rule(self.name):
            return read(block)


def in_order(rule: Rule) -> Iterator[Parameter | Clause]:
    """Yield the clauses of a rule, and each parameter before the first of them that reads it; a local one's at first.

    What the domain and the default of a parameter read is before the parameter.
    """
    waiting = {parameter.name for parameter in rule.parameters}

    def before(read: Collection[str]) -> Iterator[Parameter]:
        for parameter in rule.parameters:
            if parameter.name in read and parameter.name in waiting:
                waiting.remove(parameter.name)
                yield from before(mentioned((parameter.domain, parameter.default)))
                yield parameter

    if "local" in rule.attributes:
        yield from before(waiting.copy())
    for clause in rule.clauses:
        yield from before(mentioned(clause))
        yield clause
    yield from before(waiting.copy())


@dataclass(frozen=True)
class RuleFile:
    """A parsed file: its rules (a pass), its pipelines, and the names it takes out of the pipelines."""

    source: Source
    stem: str
    further: tuple[Source, ...]  # files with more examples of its rules
    rules: tuple[Rule, ...]
    pipelines: tuple[Pipeline, ...]
    without: tuple[Without, ...]
    numbers: tuple[NumberOf, ...]
    facts: tuple[FactOf, ...]


def legal(rule: Rule) -> Rule:
    """Return a rule without its `prefer` clauses."""
    kept = tuple(c for c in rule.clauses if not (isinstance(c, Guard) and c.kind == PREFER))
    return replace(rule, clauses=kept, wherever_legal=True)


def pass_name(stem: str) -> str:
    """Return `stage_inputs` for `007_stage_inputs`: the number is for people, the pipeline orders the passes."""
    return re.sub(r"^\d+_", "", stem)


class RuleSet:
    """All rules that are loaded, by name and by pass. Built by `load`; immutable afterwards.

    device: the name of the target (`Target.name`) whose declarations (`override number few_warps = 4 for h200`) are in
    force. Without a device, only the declarations for every device are in force.

    Two sets share their equal rules, so that an engine compiles such a rule once for both.
    """

    def __init__(self, files: Iterable[RuleFile], device: str | None = None):
        self.device, given = device, tuple(files)
        self.numbered = {pass_name(name): name for file in reversed(given) for name in _numbered(file.pipelines)}
        self.files = tuple(
            replace(file, without=tuple(replace(line, name=self.plain(line.name)) for line in file.without))
            for file in given
        )
        self.numbers = numbers_of(self.in_force(number for file in given for number in file.numbers))
        self._literals = {name: number.literal for name, number in self.numbers.items()}
        self.facts = facts_of_files(self.in_force(fact for file in given for fact in file.facts), self._literals)
        self.rules: dict[str, Rule] = {}
        self.written: dict[str, Rule] = {}  # those that read numbers or query such facts, as written
        self._add(given)
        self.digest = _digest("\0".join(file.source.text for file in given))

    def examples_at(self, span: Span) -> list[Example]:
        """Return the examples of rules that stand, or have a guard, at a place. Members of families share both."""
        return [
            example
            for rule in self.rules.values()
            if rule.span.source.name == span.source.name and span in (rule.span, *(guard.span for guard in rule.guards))
            for example in rule.examples
        ]

    def shows_refusal(self, guard: Guard) -> bool:
        """Return whether the guard rejects an example, also of another rule if the guard is of a group."""
        texts = [example.gives for example in self.examples_at(guard.span)]
        return any(isinstance(text, str) and text in guard.reason for text in texts)

    def in_force(self, declared: Iterable[D]) -> tuple[D, ...]:
        """Return the declarations that are for every device, or for that of the set."""
        return tuple(d for d in declared if d.device is None or device_named(d.device) == self.device)

    def plain(self, name: str) -> str:
        """Return the name of a rule or pass without its number in the pipelines; itself with another number."""
        return pass_name(name) if self.numbered.get(pass_name(name)) == name else name

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of the targets that some declaration is for, sorted."""
        files = self.files
        declared = [d.device for file in files for each in (file.numbers, file.facts, file.rules) for d in each]
        return tuple(sorted({device_named(device) for device in declared if device is not None}))

    def on(self, target: Target) -> RuleSet:
        """Return the set with the declarations for a target in force; itself if there are none."""
        return self.on_device(target.name)

    def on_device(self, name: str) -> RuleSet:
        """Return the set in force for a target of this name."""
        device = name if name in self.devices else None
        return self if device == self.device else self._changed(self.files, f"for {device}", device)

    def _changed(self, files: Iterable[RuleFile], how: str, device: str | None) -> RuleSet:
        """Return a set derived from this one, with a digest of its own."""
        out = RuleSet(files, device)
        out.digest = _digest(f"{self.digest} {how}")
        return out

    def extended(self, file: RuleFile) -> RuleSet:
        """Return the set with one more file, for tools that read rules at every key of an editor."""
        files = (*self.files, file)
        if file.numbers or file.facts or file.without or file.pipelines or any(rule.device for rule in file.rules):
            return RuleSet(files, self.device)
        out = copy.copy(self)
        out.files, out.rules, out.written = files, dict(self.rules), dict(self.written)
        out.digest = _digest(f"{self.digest}\0{file.source.text}")
        out._add([file])
        return out

    def _add(self, files: Iterable[RuleFile]) -> None:
        """Declare the rules of files, and determine the rules of each pass and the canonical rules."""
        for rule in self.in_force(rule for file in files for rule in file.rules):
            self._declare(rule)
        self.passes: dict[str, tuple[Rule, ...]] = {}
        for rule in self.rules.values():
            if not rule.attributes & {"local", "canonical"}:
                name = pass_name(rule.file)
                self.passes[name] = (*self.passes.get(name, ()), rule)
        out = {written.name for file in self.files for written in file.without}
        self.canonical = tuple(r for r in self.rules.values() if "canonical" in r.attributes and r.name not in out)
        self.locals = tuple(r for r in self.rules.values() if "local" in r.attributes)

    def _declare(self, rule: Rule) -> None:
        refuse_override("rule", rule, self.rules, f"write `override rule {rule.name}` to replace it")
        if rule.override:  # the replacement is in the pass of what it replaces
            rule = replace(rule, file=self.rules[rule.name].file)
        self.written.pop(rule.name, None)
        asked = asked_of(rule.words, self.facts, self._literals)
        if asked:
            self.written[rule.name] = rule
            bound = {binder.name for binder in binders(rule.parameters, rule.clauses)}
            for name in sorted(bound.union(words_in(rule.match)) & self.numbers.keys()):
                raise DplcError(
                    f"rule `{rule.name}`: `{name}` is a number of the policy, and no variable",
                    rule,
                    "choose another name for the variable",
                    (f"it is declared at {self.numbers[name].location}",),
                )
            rule = remembered("rule", rule.name, (rule, *asked), partial(self._with_policy, rule))
        self.rules[rule.name] = rule

    def _with_policy(self, rule: Rule) -> Rule:
        """Return a rule with the names of numbers replaced by values, and facts that are expressions written out."""
        names, read = ("parameters", "clauses", "rewrite", "covers"), {*rule.words}
        overriding = tuple(number.declared for number in self.numbers.values() if number.declared.override)
        while more := {word for name in read if overriding for word in self._words.get(name, ())} - read:
            read |= more
        parts = {name: expanded(getattr(rule, name), self.facts, self._literals) for name in names}
        return replace(rule, overrides=tuple(number for number in overriding if number.name in read), **parts)

    @cached_property
    def _words(self) -> dict[str, tuple[str, ...]]:
        """The words in the expressions of numbers and facts, by name."""
        declared: list[NumberOf | FactOf] = [number.declared for number in self.numbers.values()]
        declared += [fact for file in self.files for fact in file.facts]
        return {one.name: words_in(one.value) for one in declared}

    def without(self, names: set[str]) -> RuleSet:
        """Return the set less some rules; itself if there are none."""
        if names.isdisjoint(self.rules):
            return self

        def kept(declared: Iterable[Any]) -> tuple[Any, ...]:  # a `without` of a name that is gone is done
            return tuple(one for one in declared if one.name not in names)

        files = (replace(file, rules=kept(file.rules), without=kept(file.without)) for file in self.files)
        return self._changed(files, f"without {sorted(names)}", self.device)

    def unpreferred(self, names: set[str]) -> RuleSet:
        """Return the set with some rules that fire wherever they are legal, preferred or not; itself without any."""
        if not names:
            return self
        files = (replace(f, rules=tuple(legal(r) if r.name in names else r for r in f.rules)) for f in self.files)
        return self._changed(files, f"unpreferred {sorted(names)}", self.device)

    def at(self, *levels: str) -> tuple[Rule, ...]:
        """Return the rules of the given levels, in declaration order."""
        return tuple(rule for rule in self.rules.values() if rule.level in levels)

    def rule(self, name: str) -> Rule:
        """Return the rule of this name; UsageError with the closest name otherwise."""
        if name not in self.rules:
            raise self.missing(name)
        return self.rules[name]

    def missing(self, name: str) -> UsageError:
        """Return the error for an unknown rule name."""
        return UsageError(f"there is no rule `{name}`", hint=did_you_mean(name, self.rules))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _numbered(pipelines: Iterable[Pipeline]) -> Iterator[str]:
    """Yield the passes that some pipelines write with a number."""
    for entry in walk(pipelines):
        names = entry.names if isinstance(entry, OneOf) else (entry.rule,) if isinstance(entry, PassEntry) else ()
        yield from (name for name in names if pass_name(name) != name)


def _rule(declared: RuleSyntax, stem: str, family: str | None) -> Rule:
    name, head, level = declared.name, declared.span, declared.level
    _check_order(declared)
    if level not in LEVELS:
        at = head.source.line(head.line).rfind(level)
        span = Span(head.source, head.line, at, head.line, at + len(level)) if at >= 0 else head
        raise DplcError(f"rule `{name}`: unknown level `{level}`", span, did_you_mean(level, LEVELS))
    attributes = {attribute.text: attribute.span for attribute in declared.attributes}
    for attribute, span in attributes.items():
        if attribute not in ATTRIBUTES:
            raise DplcError(
                f"rule `{name}`: unknown attribute `@{attribute}`",
                span,
                did_you_mean(f"@{attribute}", [f"@{known}" for known in ATTRIBUTES]),
            )
    clauses: Any = declared.clauses
    match, *between, rewrite = clauses
    return Rule(
        name, level, stem, head, declared.docs, frozenset(attributes), declared.parameters, match.body,
        tuple(between), rewrite.body, declared.examples, declared.override, family, declared.words, declared.written,
        declared.covers, device=declared.device,
    )  # fmt: skip


def _check_order(declared: RuleSyntax) -> None:
    """Raise DplcError unless a rule has one pattern and one template, around all else."""
    rule, clauses = f"rule `{declared.name}`", declared.written or declared.clauses
    kinds = [type(clause) for clause in clauses]
    for kind, part in PARTS.items():
        word = kind.__name__.lower()
        if kinds.count(kind) > 1:
            raise DplcError(f"{rule} has {kinds.count(kind)} `{word}` clauses", declared)
        if kind not in kinds:
            raise DplcError(f"{rule} has no `{word}`", declared, f"write `{word}` and, indented below it, {part}")
    first, last = map(kinds.index, PARTS)
    for place, clause in enumerate(clauses):
        if not first <= place <= last:
            where = "below `rewrite`" if place > last else "above `match`"
            raise DplcError(
                f"{rule}: {CLAUSES.get(kinds[place], 'a clause')} {where}",
                clause,
                "clauses stand between `match` and `rewrite`, in the order they are asked",
            )


def _refuse_device(declared: Any) -> None:
    """Raise DplcError for an unknown device, and for a declaration that other devices would lack."""
    device = declared.device
    if device.text not in devices():
        raise DplcError(f"there is no device `{device.text}`", device, did_you_mean(device.text, devices()))
    if not declared.override:
        kind = {RuleSyntax: "rule", NumberOf: "number", FactOf: "fact"}[type(declared)]
        raise DplcError(
            f"{kind} `{declared.name}` is for {device.text} only: other devices would have none",
            device,
            "declare it without a device; `override` it for one",
        )


def device_named(device: NameOf) -> str:
    """Return the name of the target that a declaration is for: `h200` is the device file of the NVIDIA H200."""
    return load_device(device.text).name


CLAUSES = {Guard: "a guard", LetClause: "a `let`", PickClause: "a `pick`"}  # in messages
Parse = Callable[[Source], Nodes]


def read_rules(source: Source, parse: Parse = parse_rules, further: Sequence[Source] = ()) -> RuleFile:
    """Parse one rule file.

    further: files with more examples of it, parsed when the examples are first read. Raises DplcError with a caret.
    """
    stem = Path(source.name).stem
    by_kind: dict[type, list[Any]] = {kind: [] for kind in (RuleSyntax, Pipeline, Without, NumberOf, FactOf)}
    declarations = parse(source)
    if further:
        declarations = with_further(declarations, further, parse)
    for declared in declarations:
        if getattr(declared, "device", None) is not None:
            _refuse_device(declared)
        if isinstance(declared, RuleSyntax):
            by_kind[RuleSyntax] += [_rule(member, stem, family) for member, family in members(declared)]
        elif type(declared) in by_kind:
            by_kind[type(declared)].append(declared)
        elif isinstance(declared, ExamplesOf):
            raise DplcError(
                "examples of a rule stand in the rule, or in the file beside it",
                declared,
                f"write them into `{stem}{FURTHER}`, or into the rule",
            )
        else:
            raise DplcError(
                "a program in a rule file: rule files hold rules, numbers, facts, pipelines and `without`", declared
            )
        if isinstance(declared, Pipeline):
            by_kind[Without] += [entry for entry in declared.entries if isinstance(entry, Without)]
    return RuleFile(source, stem, tuple(further), *map(tuple, by_kind.values()))


BUILT_IN = Path(__file__).resolve().parents[2] / "rules"


def load(
    paths: Iterable[Path | str] = (),
    built_in: bool = True,
    copies: bool = False,
    edit: Callable[[Source], Source] = lambda source: source,
) -> RuleSet:
    """Load the built-in rules with the user's files laid over them. Static checks are in engine/language/check.py.

    A given file that is built in replaces the built-in file. copies: so does an edited copy, which declares a rule of a
    built-in file of its name, or all rules of a built-in file, without `override`. edit: a change of given files.
    """
    files = list(built_in_files()) if built_in else []
    for given in paths:
        for path in rule_paths(Path(given)):
            file = read_rules(edit(rule_source(path)), further=[*map(edit, further_of(path))])
            place = place_of(file, files, copies)
            if not file.further and place < len(files):  # an edited copy: the examples of what it is a copy of
                file = read_rules(file.source, further=files[place].further)
            files[place : place + 1] = [file]
    return RuleSet(files)


def place_of(file: RuleFile, files: Sequence[RuleFile], copies: bool) -> int:
    """Return the index of the built-in file that a given file replaces, or the number of files if it replaces none."""
    path = Path(file.source.name).resolve()
    declared = {rule.name for rule in file.rules if not rule.override} if copies else set()
    for place, known in enumerate(files):
        names = {rule.name for rule in known.rules}
        same = declared >= names if pass_name(known.stem) != pass_name(file.stem) else declared & names
        if (names and same) or BUILT_IN.parent / known.source.name == path:
            return place
    return len(files)


@cache
@collections_paused()
def built_in_files() -> tuple[RuleFile, ...]:
    """Return the files of `rules/`, read once per process."""
    named = ((path, str(path.relative_to(BUILT_IN.parent))) for path in rule_paths(BUILT_IN))
    return tuple(read_rules(rule_source(path, name), parse_stored, further_of(path, name)) for path, name in named)


# Domains of parameters that depend on no program: `{1, 2, 4}`, `pow2(2, 64)`.


def constant(level: str, node: Syntax) -> Value:
    """Return the value of an expression that needs no site and no variable, else None."""
    try:
        return Expressions(level).compile(node)({})
    except Exception:  # unbound, or a fact that looks at the site: not constant
        return None


def admits(rule: Rule, name: str, value: Value) -> bool:
    """Return whether a parameter may have a value, as far as its domain is known without a program."""
    domain = _domain(rule, name)
    return domain is None or value in domain


def wrong_kind(rule: Rule, name: str, value: Value) -> tuple[str, str | None] | None:
    """Describe a value of another kind than its parameter (a float, true or a list for an integer).

    Returns the message and a hint, which is None if there is nothing to suggest; or None if the value fits.
    """
    wanted, given = PARAMETER_SORTS.get(_parameter(rule, name).sort or "any", ANY), sort_of_value(value)
    if fits(given, wanted):
        return None
    hint = f"a list of one is written `[{value}]`" if wanted.many and not given.many else None
    listed = tuple(value) if isinstance(value, list) else value
    written = f'"{value}"' if isinstance(value, str) else print_value(listed)
    return f"`{name}` is {wanted}, and {written} is {given}", hint


def shown(rule: Rule, name: str) -> str:
    """Return the domain of a parameter as text: the first dozen of its values."""
    every = _domain(rule, name) or ()
    return f"{{{', '.join(map(str, every[:12]))}{', ...' * (len(every) > 12)}}}"


def _parameter(rule: Rule, name: str) -> Parameter:
    return next(parameter for parameter in rule.parameters if parameter.name == name)


def _domain(rule: Rule, name: str) -> tuple[Value, ...] | None:
    known = constant(rule.level, domain) if (domain := _parameter(rule, name).domain) is not None else None
    return known if isinstance(known, tuple) else None


# Python reads the numbers of `rules/policy.rw` as `policy(target).tile_side`.
#
# The overrides of a user's file travel with the target of a compile (`Target.policy`). No global holds them, so two
# compiles in one process cannot see each other's overrides.


Overridden = tuple[tuple[str, Value], ...]


class Policy(SimpleNamespace):
    """Numbers by name."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"rules/policy.rw has no number `{name}`")


def policy(target: Target) -> Policy:
    """Return the numbers in force for a compile: those of `rules/policy.rw` with what its rules override."""
    return policy_with(target.policy)


@lru_cache(maxsize=32)
def policy_with(changed: Overridden = ()) -> Policy:
    """Return the numbers of `rules/policy.rw` with what is overridden, for stages that have no target."""
    numbers = numbers_of(number for file in built_in_files() for number in file.numbers)
    return Policy(**{name: number.value for name, number in numbers.items()} | dict(changed))


def overridden(numbers: Numbers) -> Overridden:
    """Return the numbers that users' files override, sorted by name."""
    return tuple(sorted((name, number.value) for name, number in numbers.items() if number.overrides is not None))


def under(target: Target, numbers: Numbers) -> Target:
    """Return the target of a compile with these numbers in force: itself unless some are overridden."""
    changed = overridden(numbers)
    return target if changed == target.policy else replace(target, policy=changed)
