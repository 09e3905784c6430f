"""One rule, compiled at its first use: its matches, its conditions, and the statements that it builds for a match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.node import contents, replace
from ....ir.program import Block, Kernel
from ....ir.tile import Tile
from ...language import core as s
from ...language.evaluate import Closure, Environment
from ...language.rule import Rule, is_built_in
from ..trace import WeighedChoice, held
from ..why_not import Evidence
from .clauses import EVERY, AskedCover, PlanRunner, asked_covers, plans
from .expressions import RuleExpressions
from .pattern import Pattern, compile_pattern
from .site import NAMES, Names, Path, Site, places, splice
from .template import (
    Template,
    Weigher,
    apart,
    declare,
    defined,
    families,
    weighed,
    weighers,
)

Program = tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """One legal way to fire: `block at path, [start:end]`, and what everything is bound to.

    ordinal: which of the ways to match at this start (split of runs, hole of a context), from 0.
    """

    path: tuple[int, ...]
    start: int
    end: int
    ordinal: int
    env: Environment

    @property
    def where(self) -> str:
        """`0/2/1#1`: the path and the start from the module down; `#n` for the n-th way to match there."""
        return "/".join(map(str, (*self.path, self.start))) + (f"#{self.ordinal}" if self.ordinal else "")


class CompiledRule:
    """A rule of the levels module, loop, tile or kernel."""

    def __init__(self, rule: Rule, locals_: tuple[Rule, ...]):
        self.rule, self.locals = rule, locals_
        self.changed = 0  # runs that a local rule changed so far
        self.local = "local" in rule.attributes
        self.given = tuple(parameter.name for parameter in rule.parameters) if self.local else ()
        self.expressions = RuleExpressions(rule.level)
        self.parameters = {parameter.name: EVERY for parameter in rule.parameters}
        picks = (clause.name for clause in rule.clauses if isinstance(clause, s.PickClause))
        self.chosen = (*self.parameters, *picks)

    # ---- the parts, compiled when first needed
    def _pattern(self, evidence: bool) -> Pattern:
        return compile_pattern(self.rule.match, self.expressions, self.rule.name, self.given, evidence)

    @cached_property
    def pattern(self) -> Pattern:
        return self._pattern(False)

    @cached_property
    def needs(self) -> int:
        """Marks of classes that a kernel needs for the pattern to match."""
        return 0 if self.rule.level == "module" and len(self.rule.match) > 1 else self.pattern.needs

    @cached_property
    def bars(self) -> int:
        """The marks of classes with which it has none."""
        return Tile.mark if self.rule.level == "loop" else 0

    @cached_property
    def reporting(self) -> Pattern:
        """The variant that collects near misses."""
        return self._pattern(True)

    @cached_property
    def decisions(self) -> tuple[PlanRunner, PlanRunner]:
        """Runner of the default pipeline and runner of a search."""
        default, search = plans(self.rule, self.expressions)
        return PlanRunner(self.rule, default), PlanRunner(self.rule, search)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names that are bound when the template is built, less those that it defines."""
        clauses = {clause.name for clause in self.rule.clauses if not isinstance(clause, s.Guard)}
        parameters = {parameter.name for parameter in self.rule.parameters}
        return frozenset(self.pattern.names) | clauses | parameters | {"target"}

    @cached_property
    def defines(self) -> tuple[str, ...]:
        return defined(self.rule.rewrite, self.known)

    @cached_property
    def template(self) -> Closure:
        known = self.known | set(self.defines)
        runs = families(self.rule.match)
        return Template(self.rule.level, known, self._local, runs).block(self.rule.rewrite)

    @cached_property
    def checked(self) -> bool:
        """Return whether every result is checked: true for rules that are not built in."""
        return not is_built_in(self.rule)

    @cached_property
    def covers(self) -> tuple[AskedCover, ...]:
        """Conditions of its splits on their parts."""
        return asked_covers(self.rule, self.expressions)

    @cached_property
    def weighers(self) -> tuple[Weigher, ...]:
        return weighers(self.rule, self.expressions)

    def weighed(self, match_env: Environment) -> tuple[WeighedChoice, ...]:
        """Return the alternatives of each `choose` at a match, with their costs."""
        if not self.weighers:
            return ()
        return weighed(self.weighers, self._whole(match_env))

    def held(self, match_env: Environment) -> tuple[str, ...]:
        """Return the guards that held at a match, each with the values that it saw."""
        return held(self.rule, self._whole(match_env), self.expressions)

    def _whole(self, match_env: Environment) -> Environment:
        """Return all names of a match, also the lets that only a search leaves out."""
        env = dict(match_env)
        self.decisions[True].finish(env, all_=True)
        return env

    def _local(self, name: str, span: Any) -> Any:
        found = next((rule for rule in self.locals if rule.name == name), None)
        if found is None:
            names = [rule.name for rule in self.locals]
            raise DplcError(f"there is no local rule `{name}`", span, (), did_you_mean(name, names))
        rule = compiled_rule(found, self.locals)
        return lambda block, arguments, env: rule.everywhere(block, arguments, env)

    # ---- sites
    def matches(
        self, program: Program, kernels: Iterable[int], target: Target, pinned: Mapping[str, Any],
        evidence: Evidence | None = None, search: bool = False,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every legal way to fire in the given kernels, lazily: pre-order, left to right, pattern order."""
        pattern = self.pattern if evidence is None else self.reporting
        decision = self.decisions[search]
        pinned = {**self.parameters, **pinned} if search else pinned
        given = self.taken([pinned[name] for name in self.given if name in pinned]) if self.local else None
        for path, block, start in self.starts(pattern, program, kernels, evidence is not None):
            for match in self.matches_at(pattern, (program, path, target), block, start, evidence, given):
                if self.agrees(match.env, pinned, evidence):
                    for found in decision.solutions(match.env, pinned, evidence):
                        yield Match(path, start, match.end, match.ordinal, found)

    def matches_at(
        self, pattern: Pattern, where: tuple[Program, Path, Target], block: Block, start: int,
        evidence: Evidence | None = None, given: Mapping[str, Any] | None = None,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every match of the pattern alone at one start. where: the arguments of the Site."""
        near = None if evidence is None else evidence.near
        site = None
        for ordinal, (end, env) in enumerate(pattern.match(block, start, {"target": where[2], **(given or {})}, near)):
            site = env["@site"] = site or Site(*where)
            yield Match(site.path, start, end, ordinal, env)

    def starts(self, pattern: Pattern, program: Program, kernels: Iterable[int], all_: bool) -> Iterator[Any]:
        """Yield (path, block, start) where the first statement could match. all_: also where it surely does not."""
        root = None if all_ else pattern.root
        if self.rule.level == "module":
            yield from (((), program, number) for number in kernels if all_ or self.possible(program[number]))
            return
        for number in kernels:
            kernel = program[number]
            if not (self.visible(kernel) if all_ else self.possible(kernel)):
                continue
            for path, block, position in places(kernel, root):
                yield (number, *path), block, position

    def possible(self, kernel: Kernel) -> bool:
        """Return whether the kernel has the statements of the pattern (a run of kernels may find them elsewhere)."""
        found = kernel._contents or contents(kernel)
        return not self.needs & ~found and not self.bars & found

    def visible(self, kernel: Kernel) -> bool:
        return not self.bars & contents(kernel)

    def agrees(self, env: Environment, pinned: Mapping[str, Any], evidence: Evidence | None) -> bool:
        """Return whether variables of the match that are pinned have the pinned value."""
        for name, value in pinned.items():
            if name in env and value is not EVERY and env[name] != value:
                if evidence is not None:
                    evidence.refuse(self.rule, 0, self.rule.span, f"{name} is pinned to another value")
                return False
        return True

    # ---- rewriting
    def build(self, match_env: Environment) -> Block:
        """Return the statements that the template builds for a match."""
        env = dict(match_env)
        self.decisions[True].finish(env)  # the lets that a search leaves out are a superset
        for cover in self.covers:
            cover.check(env)
        env.setdefault(NAMES, Names(env["@site"], env))
        declare(self.defines, env)
        return self.template(env)  # type: ignore[no-any-return]

    def rewrite(self, program: Program, match: Match) -> Program:
        """Return the program after one firing."""
        block: Any = program
        for position in match.path:
            block = block[position].body
        made = apart(self.build(match.env), (*block[: match.start], *block[match.end :]), match.env["@site"])
        return splice(program, match.path, match.start, match.end, made)  # type: ignore[no-any-return]

    def taken(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of a local rule by name. Raises DplcError if their number is wrong."""
        if len(arguments) != len(self.given):
            what = f"local rule `{self.rule.name}` takes {len(self.given)} arguments, not {len(arguments)}"
            raise DplcError(what, self.rule.span)
        return dict(zip(self.given, arguments, strict=True))

    def everywhere(self, block: Block, arguments: tuple[Any, ...], outer: Environment) -> Block:
        """Apply a local rule to a captured run: bottom-up, one pass; results are not matched again."""
        base = {"target": outer["target"], **self.taken(arguments)}
        names = outer.get(NAMES) or Names(outer["@site"], outer)
        made = self._pass(block, {**base, NAMES: names, "@site": outer["@site"]})
        self.changed += made != block
        return made

    def _pass(self, block: Block, base: Environment) -> Block:
        inner: list[Any] = []
        for statement in block:
            if "body" in type(statement).by_name:
                statement = replace(statement, body=self._pass(statement.body, base))  # type: ignore[attr-defined,call-arg]
            inner.append(statement)
        whole = tuple(inner)
        out: list[Any] = []
        position = 0
        while position < len(whole):
            end, new = self._first(whole, position, base)
            out += new
            position = end
        return tuple(out)

    def _first(self, block: Block, start: int, base: Environment) -> tuple[int, Block]:
        root = self.pattern.root
        if root is None or block[start].__class__ is root:
            for end, env in self.pattern.match(block, start, base, None):
                for found in self.decisions[0].solutions(env, {}, None):
                    return end, self.build(found)
        return start + 1, (block[start],)


def compiled_rule(rule: Rule, locals_: tuple[Rule, ...]) -> CompiledRule:
    """Return a rule, compiled once for all engines with the same local rules."""
    found: CompiledRule = rule.compiled.setdefault(locals_, CompiledRule(rule, locals_))
    return found
