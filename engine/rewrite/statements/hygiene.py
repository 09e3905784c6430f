"""Runs of sibling blocks that a template puts into one: a value is defined once in a block, so later names make way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....ir.expr import Var
from ....ir.loop import Let, Load
from ....ir.node import Node, names_in
from ....ir.substitute import substitute
from ...language import core as s
from ...language.positions import walk
from ...language.questions import Closure, Environment
from .names import NAMES, names_at, unused
from .site import Site

Families = Mapping[str, frozenset[str]]
Part = tuple[Closure, frozenset[str]]  # a piece of a block, and the variables that are renamed with it


def families(pattern: Iterable[s.Syntax]) -> Families:
    """For each run of a pattern, the variables of the block that it stands in: they see the same values.

    A variable that stands outside of the block, too, is not among them: what it is, it is there.
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


def _mentioned(block: tuple[s.Syntax, ...]) -> Iterator[str]:
    """The variables that some statements of a pattern mention, each time that they do."""
    for node in walk(block):
        if isinstance(node, s.NameOf):
            yield node.text
        elif isinstance(node, s.CaptureStatement | s.InsideBlock | s.ForLoop):
            yield node.var if isinstance(node, s.ForLoop) else node.name


def distinct(parts: list[Part]) -> Closure:
    """The closure of a block with runs of several blocks: each defines names of its own."""

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
    """What a rule made, its values renamed that have the name of one beside it: what was inside of a block, and hid the
    other, may stand in its block now."""
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
    """The values that a block defines."""
    return {x.dst for x in block if isinstance(x, Let | Load)}
