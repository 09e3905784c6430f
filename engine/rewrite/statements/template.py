"""Templates to closures that build statements.

A field that is not mentioned has its default, a sticky field what the matched statement has. A name that the template
defines and the match does not bind is fresh, with its spelling as a hint; copies made by `each` after the first, and
runs of another block of the pattern, define new names where they clash, for a block defines a value once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.loop import If
from ....ir.node import Node
from ....ir.program import Kernel
from ....ir.substitute import substitute
from ...language import core as s
from ...language.evaluate import RESERVED
from ...language.questions import Closure, Environment
from ...language.statements import Shape, shape_of
from .changes import Locals, compile_change
from .expressions import RuleExpressions
from .hygiene import Families, defined_in, distinct
from .names import NAMES
from .pattern import sticky


class Template(RuleExpressions):
    """Compiles templates. known: what is bound when they are built; `locals_` finds the rules of `with rule r(..)`."""

    def __init__(self, level: str, known: frozenset[str], locals_: Locals, runs: Families | None = None):
        super().__init__(level, symbolic=True)
        self.known, self.locals, self.families = known, locals_, runs or {}
        self._sticky_seen: dict[str, int] = {}

    def block(self, statements: tuple[s.Syntax, ...]) -> Closure:
        """The closure of a block: a tuple of statements."""
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
        """The variables that are renamed with a run; None for what is not a run of the pattern."""
        base = node.run.base if isinstance(node, s.RunStatement) else None
        while isinstance(base, s.Subscript):  # a run with substitutions
            base = base.base
        return self.families.get(base.text) if isinstance(base, s.NameOf) else None

    def statement(self, node: s.Syntax) -> Closure | None:
        """A closure that gives a tuple of statements; None for `pass` and `drop`."""
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
        """The sticky fields that a statement does not mention: those of the statement that was matched."""
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
        """`if c:` a guard that folds, or guards nothing, leaves no trace."""
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
    """The names that a template defines itself, in text order: they are fresh in every rewrite."""
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
    if isinstance(axes, tuple):  # the axes of a Tile; those of a slab are labels
        yield from (item.name for item in axes if isinstance(item, s.AxisItem))


def declare(names: tuple[str, ...], env: Environment) -> None:
    """Choose the names that a template defines."""
    for name in names:
        if name not in env:
            env[name] = env[NAMES].fresh(name)
