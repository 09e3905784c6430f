"""Templates to closures that build statements.

A field that is not mentioned has its default, a sticky field what the matched statement has. A name that the template
defines and the match does not bind is fresh, with its spelling as a hint; copies made by `each` after the first, and
runs of another block of the pattern, define new names where they clash, for a block defines a value once.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.expr import Undecided
from ....ir.loop import If, Let, Load
from ....ir.node import Node, names_in, replace
from ....ir.program import Block
from ....ir.sizes import at_the_hints
from ....ir.substitute import substitute
from ....ir.text.read_statements import Shape, load_fields
from ...language import core as s
from ...language.core import walk
from ...language.evaluate import MISTAKES, RESERVED, Closure, Environment, Value, holds
from ...language.rule import Rule
from ...language.typed_slots import every, shape_of
from ..trace import WeighedChoice, show, written
from .pattern import RuleExpressions, coerce, compile_pattern, free_names, sticky
from .site import NAMES, Names, Site

Change = Callable[[Block, Environment], Block]
# Finds a local rule by its name and location: a function from (block, arguments, environment) to a block.
Locals = Callable[[str, Span], Callable[[Block, tuple[Value, ...], Environment], Block]]
Families = Mapping[str, frozenset[str]]
FIELDS_OF_LOAD = "@load"  # in the environment of an arm: the load that it rewrites


class Template(RuleExpressions):
    """Compiler of templates. known: the names bound at build time; `locals_` finds the rules of `with rule r(..)`."""

    def __init__(self, level: str, known: frozenset[str], locals_: Locals, runs: Families):
        super().__init__(level, symbolic=True)
        self.known, self.locals, self.families = known, locals_, runs
        self._sticky_seen = Counter[str]()

    def block(self, statements: s.Nodes) -> Closure:
        """Return the closure of a block: a tuple of statements.

        Of runs of several blocks of the pattern, each defines names of its own.
        """
        parts = [(self.statement(node), self.family(node)) for node in statements]
        several = len({family for _, family in parts} - {None}) > 1

        def build(env: Environment) -> Value:
            out: list[Node] = []
            for part, family in parts:
                made = part(env)
                again = sorted(defined_in(made) & defined_in(out)) if several and family else ()
                if again:
                    new = {name: env[NAMES].fresh(name) for name in again}
                    env = {**env, **{name: substitute(env[name], new) for name in family or () if name in env}}
                    made = part(env)
                out += made
            return tuple(out)

        return build

    def family(self, node: s.Syntax) -> frozenset[str] | None:
        """Return the variables that are renamed with a run; None if it is not a run of the pattern."""
        base = node.run.base if isinstance(node, s.RunStatement) else None
        while isinstance(base, s.Subscript):  # a run with substitutions
            base = base.base
        return self.families.get(base.text) if isinstance(base, s.NameOf) else None

    def statement(self, node: s.Syntax) -> Closure:
        """Return a closure that returns a tuple of statements: none for `pass` and `drop`."""
        if isinstance(node, s.PassStatement | s.DropStatement):
            return lambda env: ()
        if isinstance(node, s.RunStatement):
            return self.spliced(node)
        if isinstance(node, s.EachBlock):
            return self.each(node)
        if isinstance(node, s.InsideBlock):
            name, body = node.name, self.block(node.body)
            return lambda env: env[name].plug(body(env))
        if isinstance(node, s.IfBlock):
            return self.guard(node)
        shape = shape_of(node)
        if shape is None or isinstance(node, s.CaptureStatement):
            raise DplcError("this stands in patterns only, or is not a statement", node)
        known = self.kept(shape)
        if shape.body is not None:
            known["body"] = self.block(shape.body)
        build = self.node(shape, known)
        return lambda env: (build(env),)

    def kept(self, shape: Shape) -> dict[str, Closure]:
        """Return the sticky fields that a statement does not mention: those of the statement that was matched."""
        fields = [name for name in getattr(shape.cls, "sticky", ()) if name not in shape.fields]
        key = sticky(shape.cls)
        position = self._sticky_seen[key]
        self._sticky_seen[key] += bool(fields)
        return {name: _kept(key, position, name, shape.cls.by_name[name].default) for name in fields}

    def guard(self, node: s.IfBlock) -> Closure:
        """Compile `if c:`; a guard that is constant, or that guards nothing, leaves no trace."""
        condition, body = self.compile(node.condition), self.block(node.body)

        def build(env: Environment) -> Value:
            holds = condition(env)
            inner = body(env) if holds is not False else ()
            return inner if holds is True or not inner else (If(holds, inner),)

        return build

    def each(self, node: s.EachBlock) -> Closure:
        name, domain, known = node.variable, self.compile(node.domain), self.known
        self.known = known | {name}
        body = self.block(node.body)
        self.known = known

        def build(env: Environment) -> Value:
            out: list[Node] = []
            seen: set[str] = set()
            for value in domain(env):
                part = body({**env, name: value})
                again = sorted(seen.intersection(defined_in(part)))
                seen |= defined_in(part)
                out += substitute(part, {name: env[NAMES].fresh(name) for name in again})
            return tuple(out)

        return build

    # ---- `xs.. with change, ...`: the only ways for a template to change a captured run
    def spliced(self, node: s.RunStatement) -> Closure:
        base, changes = self.compile(node.run), [self.change(change) for change in node.changes]

        def build(env: Environment) -> Value:
            run = base(env)
            if run.__class__ is not tuple:
                if not isinstance(run, Node):
                    raise DplcError("only statements can be spliced here", node)
                run = (run,)
            for change in changes:
                run = change(run, env)
            return run

        return build

    def change(self, node: s.Syntax) -> Change:
        if isinstance(node, s.Keyword):
            return self.assigned(node)
        if isinstance(node, s.Arm):
            return self.arm(node)
        if isinstance(node, s.UseRule):
            arguments, rule = self.compile_all(node.call.items), self.locals(node.call.fn, node.call.span)
            return lambda run, env: rule(run, arguments(env), env)
        raise DplcError("a change reads `field=value`, `load .. => load ..` or `rule r(..)`", node)

    def assigned(self, change: s.Keyword) -> Change:
        """Compile `field=value`, on the statements of the run themselves."""
        name, value = change.name, self.compile(change.value)

        def apply(run: Block, env: Environment) -> Block:
            new, out = value(env), []
            for statement in run:
                field = type(statement).by_name.get(name)
                if field is None:
                    raise DplcError(
                        f"`{type(statement).__name__}` has no field `{name}`",
                        change,
                        did_you_mean(name, type(statement).by_name),
                    )
                out.append(replace(statement, **{name: coerce(field.sort, field.many, new)}))
            return tuple(out)

        return apply

    def arm(self, arm: s.Arm) -> Change:
        """Compile `load B[i..] => load C[e..] for x in d where g`, on every load below.

        The first element that fits rewrites a load, once. An arm that does not mention a guard keeps it.
        """
        left, right, variable = arm.pattern, arm.template, arm.variable
        if not isinstance(left, s.LoadOf) or not isinstance(right, s.LoadOf):
            raise DplcError("an arm rewrites loads: `load B[i..] => load C[e..]`", arm)
        guard, given = left.condition, sorted(free_names(left) & (self.known | {variable}))
        anything = s.NameOf(arm.span, "_")
        if guard is None:
            left = dataclasses.replace(left, condition=anything, other=anything)
        line = (s.Assign(arm.span, anything, left),)
        pattern = compile_pattern(line, self.level, f"load of {arm.span.location}", given, False)
        fields, same = load_fields(right), ("dst",) if guard is not None else ("dst", "when", "other")
        kept = {name: _kept(FIELDS_OF_LOAD, 0, name, None) for name in same if name not in fields}
        build = self.node(Shape(Load, fields, right), kept)
        domain, condition = (None if node is None else self.compile(node) for node in (arm.domain, arm.condition))

        def apply(run: Block, env: Environment) -> Block:
            choices = [env] if domain is None else [{**env, variable: value} for value in domain(env)]

            def fire(block: Block, start: int) -> tuple[int, Block] | None:
                for choice in choices:
                    for end, found in pattern.match(block, start, choice, None):
                        if condition is None or holds(condition, found):
                            return end, (build({**found, FIELDS_OF_LOAD: block[start:end]}),)
                return None

            return pattern.everywhere(run, fire)

        return apply


def _kept(key: str, position: int, field: str, default: Value) -> Closure:
    """Return the closure of a field of a statement that the environment holds: of the last one if there are fewer."""

    def keep(env: Environment) -> Value:
        matched = env.get(key)
        return getattr(matched[min(position, len(matched) - 1)], field) if matched else default

    return keep


# Runs of sibling blocks that a template puts into one block: later names are renamed, so each value has one definition.


def families(pattern: s.Nodes) -> Families:
    """Return, for each run of a pattern, the variables of its block: they see the same values.

    A variable that occurs outside of the block, too, is not among them: its value is the one outside.
    """
    variables: dict[str, frozenset[str]] = {}
    everywhere = _mentioned(pattern)
    for block in (pattern, *(node.body for node in walk(pattern) if isinstance(getattr(node, "body", None), tuple))):
        own = frozenset(name for name, count in _mentioned(block).items() if count == everywhere[name])
        runs = (item.run.base for item in block if isinstance(item, s.RunStatement))
        variables |= {base.text: own for base in runs if isinstance(base, s.NameOf)}
    return variables


def _mentioned(block: s.Nodes) -> Counter[str]:
    """Return the variables that some statements of a pattern mention, and how often."""
    keys = {s.NameOf: "text", s.CaptureStatement: "name", s.InsideBlock: "name", s.ForLoop: "var"}
    return Counter(getattr(node, keys[type(node)]) for node in walk(block) if type(node) in keys)


def apart(made: Any, beside: Iterable[object], site: Site) -> Any:
    """Rename the values that a rule defines under the name of an adjacent value.

    A value that was inside of a block, and hid the other, may be in the same block now.
    """
    again = sorted(defined_in(made) & defined_in(beside))
    if not again:
        return made
    names = Names(site, {})
    names.used.update(*map(names_in, made))
    return substitute(made, {name: names.fresh(name) for name in again})


def defined_in(block: Iterable[object]) -> set[str]:
    """Return the values that a block defines."""
    return {x.dst for x in block if isinstance(x, Let | Load)}


def defined(statements: Iterable[s.Syntax], given: frozenset[str]) -> tuple[str, ...]:
    """Return the names that a template defines itself, in text order: they are fresh in every rewrite."""
    return tuple(name for name in dict.fromkeys(_definitions(statements)) if name not in given and name not in RESERVED)


def _definitions(statements: Iterable[s.Syntax]) -> Iterator[str]:
    for node in statements:
        shape = shape_of(node)
        fields = shape.fields if shape is not None else {}
        for name in ("name", "var", "dst", "acc"):
            if isinstance(value := fields.get(name), s.NameOf):
                yield value.text
        hidden = node.variable if isinstance(node, s.EachBlock) else None
        # the axes of a Tile; those of a shared tile are labels
        for below in (*map(fields.get, ("ins", "outs", "axes")), getattr(node, "body", None)):
            if isinstance(below, tuple):
                yield from (name for name in _definitions(below) if name != hidden)


# The values that each `choose` of a rule compared where it fired, for traces.


def weighed(rule: Rule, expressions: RuleExpressions, env: Environment) -> Iterator[WeighedChoice]:
    """Yield the alternatives of each `choose` at a match, except for those that cannot be evaluated there."""
    binders: tuple[Any, ...] = (*rule.parameters, *rule.clauses)
    for binder in binders:
        value = getattr(binder, "default", getattr(binder, "value", None))
        for node in _outermost(value):
            try:
                with at_the_hints():
                    pairs = expressions.weighing(node)(env)
                    found = sorted(pairs, key=lambda pair: pair[1], reverse=node.most)  # stable, in both directions
            except (Undecided, *MISTAKES):
                continue
            alternatives = tuple({"value": show(value), "cost": show(cost)} for value, cost in found)
            winner, now = found[0][0] if found else 0, env.get(binder.name)
            other = show(now) if isinstance(binder, s.Parameter) and node is value and now != winner else None
            yield WeighedChoice(binder.name, written(node.costs.element), node.most, other, alternatives)


def _outermost(node: object) -> Iterator[s.Chosen]:
    """Yield each `choose` outside of comprehensions; inside of one it may read the variable of the comprehension."""
    inner = {id(below) for found in every(node, s.Comprehension) for below in walk(found)}
    return (found for found in every(node, s.Chosen) if id(found) not in inner)
