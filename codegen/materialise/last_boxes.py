"""Whether anybody waits for the last copies of a ring, which its loop leaves out: else no phase need end for them."""

from __future__ import annotations

from ...ir.expr import Binary, Var, is_int, subtract
from ...ir.loop import For
from ...ir.node import Expr, nodes
from ...ir.program import Block
from ...ir.tile import Stage, Wait
from .lowering import Boxes
from .trips import trip_count

TOP = (0,)  # the path of the body of the Tile


def only_full_ones(block: Block, boxes: Boxes) -> bool:
    """Whether it is plain that every Wait is for a group that copies, by the body of a Tile.

    Plain is: copies, then one loop that copies under `turn + n < N`, no copies behind it, and no more groups waited for
    in all than there are. Groups are waited for in their order, and those that copy nothing are the last.
    """
    copied = waited = 0
    looped = False
    for position, stmt in enumerate(block):
        if not any(nodes((stmt,), Stage, Wait)):
            continue
        place = TOP, position
        if isinstance(stmt, For) and not looped:
            counted = _of_loop(stmt, boxes, position)
            if counted is None:
                return False
            copied, waited, looped = copied + counted[0], waited + counted[1], True
        elif isinstance(stmt, Stage) and stmt.when is True and not looped:
            copied += place in boxes.runs
        elif isinstance(stmt, Wait) and boxes.waits[place] is not None:
            waited += boxes.waits[place] or 0
        else:
            return False
    return waited <= copied


def _of_loop(loop: For, boxes: Boxes, position: int) -> tuple[int, int] | None:
    """(groups that copy, groups waited for) in all turns of a loop; None where that is not plain."""
    turns, inner = trip_count(loop), (*TOP, position)
    plain = [stmt for stmt in loop.body if isinstance(stmt, Stage | Wait)]
    whens = {stmt.when for stmt in plain if isinstance(stmt, Stage)}
    if turns is None or len(whens) != 1 or len(plain) != sum(1 for _ in nodes(loop.body, Stage, Wait)):
        return None
    places = [(inner, number) for number in range(len(loop.body))]
    waits = [boxes.waits[place] for place in places if place in boxes.waits]
    groups, copying = sum(place in boxes.runs for place in places), _copying(loop, turns, *whens)
    if copying is None or None in waits:
        return None
    return groups * copying, turns * sum(count or 0 for count in waits)


def _copying(loop: For, turns: int, when: Expr) -> int | None:
    """The turns, from the first on, at which `turn + n < N` holds; None for any other predicate."""
    if when is True:
        return turns
    if not isinstance(when, Binary) or when.op != "<" or loop.step != 1 or not is_int(loop.start):
        return None
    ahead = subtract(when.a, Var(loop.var))
    if not is_int(ahead) or not is_int(when.b):
        return None
    return min(max(int(when.b) - int(ahead) - int(loop.start), 0), turns)
