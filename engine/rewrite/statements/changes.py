"""`xs.. with change, ...`: the only ways for a template to reach into a captured run.

field=value                                    on the statements of the run themselves
load B[i..] => load C[e..] for x in d where g  on every load below; the first element that fits rewrites it, once
rule local(args)                               bottom-up, one pass, results are not looked at again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.loop import Load
from ....ir.node import Node, contents, replace
from ....ir.program import Block
from ...language import core as s
from ...language.asking import holds
from ...language.questions import Closure, Environment
from ...language.statements import Shape, load_fields
from .affine import names_in
from .expressions import RuleExpressions, coerce

Change = Callable[[Block, Environment], Block]


class Locals(Protocol):
    """Finds local rules: gives a function from (block, arguments, environment) to a block."""

    def __call__(self, name: str, span: Any) -> Callable[[Block, tuple[Any, ...], Environment], Block]: ...


class Compiles(Protocol):
    """What a change needs of the template that it is part of. known: names that are bound when it is built."""

    level: str
    known: frozenset[str]
    locals: Locals

    def compile(self, node: s.Syntax) -> Closure: ...
    def compile_all(self, nodes: tuple[s.Syntax, ...]) -> Closure: ...
    def field(self, field: Any, value: Any) -> Closure: ...


def compile_change(template: Compiles, change: s.Syntax) -> Change:
    if isinstance(change, s.Keyword):
        return _field(change, template.compile(change.value))
    if isinstance(change, s.Arm):
        return _arm(template, change)
    if isinstance(change, s.UseRule):
        return _rule(template, change)
    raise DplcError("a change reads `field=value`, `load .. => load ..` or `rule r(..)`", change.span)


def _field(change: s.Keyword, value: Closure) -> Change:
    name = change.name

    def apply(run: Block, env: Environment) -> Block:
        new = value(env)
        out = []
        for statement in run:
            field = type(statement).by_name.get(name)
            if field is None:
                hint = did_you_mean(name, type(statement).by_name)
                raise DplcError(f"`{type(statement).__name__}` has no field `{name}`", change.span, (), hint)
            out.append(replace(statement, **{name: coerce(field.sort, field.many, new)}))
        return tuple(out)

    return apply


def _arm(template: Compiles, arm: s.Arm) -> Change:
    if not isinstance(arm.pattern, s.LoadOf) or not isinstance(arm.template, s.LoadOf):
        raise DplcError("an arm rewrites loads: `load B[i..] => load C[e..]`", arm.span)
    match = load_matcher(template, arm)
    build = _load_builder(template, arm)
    domain = None if arm.domain is None else template.compile(arm.domain)
    condition = None if arm.condition is None else template.compile(arm.condition)
    variable = arm.variable

    def apply(run: Block, env: Environment) -> Block:
        choices = [env] if domain is None else [{**env, variable: value} for value in domain(env)]

        def rewrite(load: Node) -> Node:
            for choice in choices:
                for _, found in match((load,), 0, choice, None):
                    if condition is None or holds(condition, found):
                        return build(load, found)
            return load

        return map_loads(run, rewrite)

    return apply


def load_matcher(template: Compiles, arm: s.Arm) -> Any:
    """Matches the left side of an arm. A guard that it does not mention may be anything: the load keeps it."""
    from .pattern import compile_statement

    assert isinstance(arm.pattern, s.LoadOf)
    fields = load_fields(arm.pattern)
    for name in ("when", "other"):
        fields.setdefault(name, s.NameOf(arm.span, "_"))
    given = sorted(names_in(arm.pattern) & (template.known | {arm.variable}))
    shape = Shape(Load, fields, arm.pattern)
    return compile_statement(shape, RuleExpressions(template.level), f"load of {arm.span.location}", given)


def _load_builder(template: Compiles, arm: s.Arm) -> Callable[[Any, Environment], Node]:
    assert isinstance(arm.template, s.LoadOf) and isinstance(arm.pattern, s.LoadOf)
    fields = load_fields(arm.template)
    closures = {name: template.field(Load.by_name[name], value) for name, value in fields.items()}
    drops = arm.pattern.condition is not None  # the arm looked at the guard: what it writes is the whole guard

    def build(load: Any, env: Environment) -> Node:
        kept = {} if drops else {"when": load.when, "other": load.other}
        made = {name: closure(env) for name, closure in closures.items()}
        return Load(load.dst, **{**kept, **made})

    return build


def map_loads(block: Block, rewrite: Callable[[Node], Node]) -> Block:
    """Every load of a block and below, rewritten; statements without one are not looked into."""
    out: Any = []
    for statement in block:
        new: Any = statement
        if statement.__class__ is Load:
            new = rewrite(statement)
        elif "body" in type(statement).by_name and contents(statement) & Load.mark:
            new = replace(statement, body=map_loads(statement.body, rewrite))  # type: ignore[attr-defined,call-arg]
        out.append(new)
    return tuple(out)


def _rule(template: Compiles, change: s.UseRule) -> Change:
    arguments = template.compile_all(change.call.items)
    rule = template.locals(change.call.fn, change.call.span)

    def apply(run: Block, env: Environment) -> Block:
        return rule(run, arguments(env), env)

    return apply
