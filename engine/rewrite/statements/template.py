"""Templates to closures that build statements.

A field that is not mentioned has its default, a sticky field what the matched statement has. A name that the template
defines and the match does not bind is fresh, with its spelling as a hint; copies made by `each` after the first, and
runs of another block of the pattern, define new names where they clash, for a block defines a value once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.expr import Undecided, Var
from ....ir.loop import If, Let, Load
from ....ir.node import Node, contents, names_in, replace
from ....ir.program import Block, Kernel
from ....ir.sizes import at_the_hints
from ....ir.substitute import substitute
from ....ir.text.read_statements import Shape, load_fields
from ...language import core as s
from ...language.evaluate import MISTAKES, RESERVED, Closure, Environment, holds
from ...language.rule import Rule
from ...language.typed_slots import shape_of, walk
from ..trace import WeighedChoice, show, written
from .pattern import RuleExpressions, coerce, free_names, sticky
from .site import NAMES, Site, names_at, unused

# `xs.. with change, ...`: the only ways for a template to change a captured run.
#
# field=value                                    on the statements of the run themselves
# load B[i..] => load C[e..] for x in d where g  on every load below; the first element that fits rewrites it, once
# rule local(args)                               bottom-up, one pass; results are not matched again


Change = Callable[[Block, Environment], Block]


# Finds a local rule by its name and location: a function from (block, arguments, environment) to a block.
Locals = Callable[[str, Span], Callable[[Block, tuple[Any, ...], Environment], Block]]


def compile_change(template: Template, change: s.Syntax) -> Change:
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


def _arm(template: Template, arm: s.Arm) -> Change:
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


def load_matcher(template: Template, arm: s.Arm) -> Any:
    """Return a matcher of the left side of an arm. It accepts any guard if the arm mentions none: the load keeps it."""
    from .pattern import compile_statement

    assert isinstance(arm.pattern, s.LoadOf)
    fields = load_fields(arm.pattern)
    for name in ("when", "other"):
        fields.setdefault(name, s.NameOf(arm.span, "_"))
    given = sorted(free_names(arm.pattern) & (template.known | {arm.variable}))
    shape = Shape(Load, fields, arm.pattern)
    return compile_statement(shape, RuleExpressions(template.level), f"load of {arm.span.location}", given)


def _load_builder(template: Template, arm: s.Arm) -> Callable[[Any, Environment], Node]:
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
    """Return a block with every load in it rewritten; statements without a load are not searched."""
    out: Any = []
    for statement in block:
        new: Any = statement
        if statement.__class__ is Load:
            new = rewrite(statement)
        elif "body" in type(statement).by_name and contents(statement) & Load.mark:
            new = replace(statement, body=map_loads(statement.body, rewrite))  # type: ignore[attr-defined,call-arg]
        out.append(new)
    return tuple(out)


def _rule(template: Template, change: s.UseRule) -> Change:
    arguments = template.compile_all(change.call.items)
    rule = template.locals(change.call.fn, change.call.span)

    def apply(run: Block, env: Environment) -> Block:
        return rule(run, arguments(env), env)

    return apply


# Runs of sibling blocks that a template puts into one block: later names are renamed, so each value has one definition.


Families = Mapping[str, frozenset[str]]
Part = tuple[Closure, frozenset[str]]  # a piece of a block, and the variables that are renamed with it


def families(pattern: Iterable[s.Syntax]) -> Families:
    """Return, for each run of a pattern, the variables of its block: they see the same values.

    A variable that occurs outside of the block, too, is not among them: its value is the one outside.
    """
    found: dict[str, frozenset[str]] = {}
    top = tuple(pattern)
    everywhere = Counter(_mentioned(top))
    for block in (top, *(node.body for node in walk(top) if isinstance(getattr(node, "body", None), tuple))):
        inside = Counter(_mentioned(block))
        own = frozenset(name for name, count in inside.items() if count == everywhere[name])
        for item in block:
            if isinstance(item, s.RunStatement) and isinstance(item.run.base, s.NameOf):
                found[item.run.base.text] = own
    return found


def _mentioned(block: s.Nodes) -> Iterator[str]:
    """Yield the variables that some statements of a pattern mention, each time that they do."""
    for node in walk(block):
        if isinstance(node, s.NameOf):
            yield node.text
        elif isinstance(node, s.CaptureStatement | s.InsideBlock | s.ForLoop):
            yield node.var if isinstance(node, s.ForLoop) else node.name


def distinct(parts: list[Part]) -> Closure:
    """Return the closure of a block with runs of several blocks: each run defines names of its own."""

    def build(env: Environment) -> Any:
        out: list[Node] = []
        seen: set[str] = set()
        for part, family in parts:
            made = part(env)
            again = sorted(seen.intersection(defined_in(made)))
            if again and family:
                new = {name: env[NAMES].fresh(name) for name in again}
                env = {**env, **{name: substitute(env[name], new) for name in family if name in env}}
                made = part(env)
            seen |= defined_in(made)
            out += made
        return tuple(out)

    return build


def apart(made: Any, beside: Iterable[Any], site: Site) -> Any:
    """Rename the values that a rule defines under the name of an adjacent value.

    A value that was inside of a block, and hid the other, may be in the same block now.
    """
    again = sorted(defined_in(made) & defined_in(beside))
    if not again:
        return made
    used = {*names_at(site), *(name for statement in made for name in names_in(statement))}
    new = {}
    for name in again:
        new[name] = Var(unused(name, used))
        used.add(new[name].name)
    return substitute(made, new)


def defined_in(block: Iterable[Any]) -> set[str]:
    """Return the values that a block defines."""
    return {x.dst for x in block if isinstance(x, Let | Load)}


class Template(RuleExpressions):
    """Compiler of templates. known: the names bound at build time; `locals_` finds the rules of `with rule r(..)`."""

    def __init__(self, level: str, known: frozenset[str], locals_: Locals, runs: Families | None = None):
        super().__init__(level, symbolic=True)
        self.known, self.locals, self.families = known, locals_, runs or {}
        self._sticky_seen: dict[str, int] = {}

    def block(self, statements: s.Nodes) -> Closure:
        """Return the closure of a block: a tuple of statements."""
        built = [(self.statement(statement), self.family(statement)) for statement in statements]
        pieces = [(part, family) for part, family in built if part is not None]
        parts = [part for part, _ in pieces]
        if len(parts) == 1:
            return parts[0]
        if len({family for _, family in pieces if family is not None}) > 1:
            return distinct([(part, family or frozenset()) for part, family in pieces])

        def build(env: Environment) -> Any:
            out: list[Node] = []
            for part in parts:
                out += part(env)
            return tuple(out)

        return build if parts else lambda env: ()

    def family(self, node: s.Syntax) -> frozenset[str] | None:
        """Return the variables that are renamed with a run; None if it is not a run of the pattern."""
        base = node.run.base if isinstance(node, s.RunStatement) else None
        while isinstance(base, s.Subscript):  # a run with substitutions
            base = base.base
        return self.families.get(base.text) if isinstance(base, s.NameOf) else None

    def statement(self, node: s.Syntax) -> Closure | None:
        """Return a closure that returns a tuple of statements; None for `pass` and `drop`."""
        if isinstance(node, s.PassStatement | s.DropStatement):
            return None
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
            raise DplcError("this stands in patterns only, or is not a statement", node.span)
        build = self.node(shape, self.kept(shape))
        return lambda env: (build(env),)

    def kept(self, shape: Shape) -> dict[str, Closure]:
        """Return the sticky fields that a statement does not mention: those of the statement that was matched."""
        cls: Any = shape.cls
        fields = [name for name in getattr(cls, "sticky", ()) if name not in shape.fields]
        if not fields:
            return {}
        key, position = sticky(cls), self._sticky_seen.get(cls.__name__, 0)
        self._sticky_seen[cls.__name__] = position + 1
        return {name: _kept(key, position, name, cls.by_name[name].default) for name in fields}

    def spliced(self, node: s.RunStatement) -> Closure:
        base, span = self.compile(node.run), node.span
        changes = [compile_change(self, change) for change in node.changes]

        def build(env: Environment) -> Any:
            run = base(env)
            if run.__class__ is not tuple:
                if not isinstance(run, Node):
                    raise DplcError("only statements can be spliced here", span)
                run = (run,)
            for change in changes:
                run = change(run, env)
            return run

        return build

    def guard(self, node: s.IfBlock) -> Closure:
        """Compile `if c:`; a guard that is constant, or that guards nothing, leaves no trace."""
        condition, body = self.compile(node.condition), self.block(node.body)

        def build(env: Environment) -> Any:
            holds = condition(env)
            if holds is False:
                return ()
            inner = body(env)
            return inner if holds is True or not inner else (If(holds, inner),)

        return build

    def each(self, node: s.EachBlock) -> Closure:
        names, domain, known = node.names, self.compile(node.domain), self.known
        self.known = known | set(names)
        body = self.block(node.body)
        self.known = known

        def build(env: Environment) -> Any:
            out: list[Node] = []
            seen: set[str] = set()
            for value in domain(env):
                values = (value,) if len(names) == 1 else value
                part = body({**env, **dict(zip(names, values, strict=True))})
                again = sorted(seen.intersection(defined_in(part)))
                seen |= defined_in(part)
                out += substitute(part, {name: env[NAMES].fresh(name) for name in again})
            return tuple(out)

        return build


def _kept(key: str, position: int, field: str, default: Any) -> Closure:
    def keep(env: Environment) -> Any:
        matched = env.get(key)
        return getattr(matched[min(position, len(matched) - 1)], field) if matched else default

    return keep


def defined(statements: Iterable[s.Syntax], given: frozenset[str]) -> tuple[str, ...]:
    """Return the names that a template defines itself, in text order: they are fresh in every rewrite."""
    return tuple(name for name in dict.fromkeys(_definitions(statements)) if name not in given and name not in RESERVED)


def _definitions(statements: Iterable[s.Syntax]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, s.EachBlock):
            yield from (name for name in _definitions(node.body) if name not in node.names)
            continue
        shape = None if isinstance(node, s.InsideBlock | s.RunStatement) else shape_of(node)
        if shape is not None:
            yield from _definition(shape)
        body = shape.body if shape is not None else getattr(node, "body", None)
        yield from _definitions(body or ())


def _definition(shape: Shape) -> Iterator[str]:
    for field in ("name", "var", "dst", "acc"):
        value = shape.fields.get(field)
        if isinstance(value, s.NameOf):
            yield value.text
    if shape.cls is Kernel:
        yield from (
            item.name for item in (*shape.fields["ins"], *shape.fields["outs"]) if isinstance(item, s.ParamItem)
        )
    axes = shape.fields.get("axes")
    if isinstance(axes, tuple):  # the axes of a Tile; those of a shared tile are labels
        yield from (item.name for item in axes if isinstance(item, s.AxisItem))


def declare(names: tuple[str, ...], env: Environment) -> None:
    """Choose the names that a template defines."""
    for name in names:
        if name not in env:
            env[name] = env[NAMES].fresh(name)


# The values that each `choose` of a rule compared where it fired, for traces.


def weighed(rule: Rule, expressions: RuleExpressions, env: Environment) -> Iterator[WeighedChoice]:
    """Yield the alternatives of each `choose` at a match, except for those that cannot be evaluated there."""
    defaults = [(p.name, p.default, p.default) for p in rule.parameters]
    lets = [(clause.name, clause.value, None) for clause in rule.clauses if isinstance(clause, s.LetClause)]
    for name, value, default in (*defaults, *lets):
        for node in _outermost(value):
            try:
                with at_the_hints():
                    pairs = expressions.weighing(node)(env)
                    found = sorted(pairs, key=lambda pair: pair[1], reverse=node.most)  # stable, in both directions
            except (Undecided, *MISTAKES):
                continue
            told = tuple((show(value), show(cost)) for value, cost in found)
            winner = found[0][0] if found else 0
            other = show(env[name]) if node is default and env.get(name) != winner else None
            yield WeighedChoice(name, written(node.costs.element), node.most, told, other)


def _outermost(node: Any) -> Iterator[s.Chosen]:
    """Yield each `choose` outside of comprehensions; inside of one it may read the variable of the comprehension."""
    inner = {id(below) for found in walk(node) if isinstance(found, s.Comprehension) for below in walk(found)}
    return (found for found in walk(node) if isinstance(found, s.Chosen) and id(found) not in inner)
