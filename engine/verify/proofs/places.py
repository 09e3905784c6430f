"""Where the runs of a rule stand: under which loops, axes and conditions, and with what put in for their indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...language import core as s
from ...language.rule import Rule


@dataclass(frozen=True)
class Turn:
    """A loop or an axis: `name` takes start, start + step, .. below stop."""

    name: str
    start: s.Syntax
    stop: s.Syntax
    step: s.Syntax


@dataclass(frozen=True)
class RunOccurrence:
    """One occurrence of a run. moves: what is put in for a name, or for an affine form of two; changed: local rules
    rewrite it here; listed: it stands once for every item of a list.
    """

    run: str
    turns: tuple[Turn, ...] = ()
    conditions: tuple[s.Syntax, ...] = ()
    moves: tuple[tuple[s.Syntax, s.Syntax], ...] = ()
    changed: bool = False
    listed: bool = False

    def within(
        self, turns: Iterable[Turn] = (), conditions: Iterable[s.Syntax] = (), listed: bool = False
    ) -> RunOccurrence:
        """The place one block further in."""
        return dataclasses.replace(
            self, turns=(*self.turns, *turns), conditions=(*self.conditions, *conditions), listed=self.listed or listed
        )


def places(rule: Rule, block: Iterable[s.Syntax]) -> list[RunOccurrence]:
    """The runs of a pattern or a template, in order."""
    lets = {clause.name: clause.value for clause in rule.clauses if isinstance(clause, s.LetClause)}
    return list(_places(block, RunOccurrence(""), lets))


def _places(block: Iterable[s.Syntax], around: RunOccurrence, lets: dict[str, s.Syntax]) -> Iterator[RunOccurrence]:
    for node in block:
        if isinstance(node, s.Unit | s.InsideBlock):
            yield from _places(node.body, around, lets)
        elif isinstance(node, s.Statement) and node.body is not None:
            yield from _places(node.body, around.within(_axes(node.call)), lets)
        elif isinstance(node, s.ForLoop):
            turn = Turn(node.var, node.start, node.stop, node.step or s.Number(node.span, 1))
            yield from _places(node.body, around.within([turn]), lets)
        elif isinstance(node, s.IfBlock):
            yield from _places(node.body, around.within(conditions=[node.condition]), lets)
        elif isinstance(node, s.EachBlock):
            domain = node.domain
            if isinstance(domain, s.Between) and len(node.names) == 1:
                turn = Turn(node.names[0], domain.a, domain.b, s.Number(node.span, 1))
                yield from _places(node.body, around.within([turn]), lets)
            else:
                yield from _places(node.body, around.within(listed=True), lets)
        elif isinstance(node, s.CaptureStatement):
            yield dataclasses.replace(around, run=node.name)
        elif isinstance(node, s.RunStatement):
            yield _run(node, around, lets)


def _axes(call: s.Syntax) -> list[Turn]:
    """The axes that a Tile names; those that it takes as a run come back as they are."""
    items = call.items if isinstance(call, s.Apply) and call.fn == "Tile" else ()
    return [
        Turn(item.name, s.Number(item.span, 0), item.extent, s.Number(item.span, 1))
        for item in items
        if isinstance(item, s.AxisItem)
    ]


def _run(node: s.RunStatement, around: RunOccurrence, lets: dict[str, s.Syntax]) -> RunOccurrence:
    base, moves = node.run.base, []
    if isinstance(base, s.NameOf) and isinstance(lets.get(base.text), s.Subscript):
        base = lets[base.text]
    if isinstance(base, s.Subscript):
        moves = [(item.left, item.right) for item in base.items if isinstance(item, s.Substitution)]
        base = base.base
    when = [c.value for c in node.changes if isinstance(c, s.Keyword) and c.name == "when"]
    changed = any(isinstance(change, s.UseRule) for change in node.changes)
    name = base.text if isinstance(base, s.NameOf) else ""
    return dataclasses.replace(around.within(conditions=when), run=name, moves=tuple(moves), changed=changed)
