"""Facts about folds of what stands up to a place."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ...ir.expr import Binary, Var, free_names, is_int
from ...ir.facts.structure import defines, dependencies, summary, uses
from ...ir.facts.types import value_dtypes
from ...ir.functions import identity
from ...ir.interp.tuples import lifted
from ...ir.monoids import monoid
from ...ir.node import nodes
from ...ir.program import Block
from ..language.facts import fact
from .structure import TILE


@fact("neutral_to(expr, name, name) -> bool", TILE)
def neutral_to(site: Any, value: Any, fn: Var, acc: Var) -> bool:
    """Whether a number is what an accumulator of the kernel starts from: folding it by the function changes nothing."""
    dtype = value_dtypes(site.kernel).get(acc.name)
    return dtype is not None and isinstance(value, bool | int | float) and bool(value == identity(fn.name, dtype))


@fact("neutral_element(monoid, [expr]) -> bool", TILE)
def neutral_element(site: Any, fn: Var, values: Any) -> bool:
    """Whether an element made of these numbers is the tuple of no elements: taking it in changes nothing."""
    known = monoid(fn.name)
    if len(values) != len(known.operands) or not all(isinstance(value, bool | int | float) for value in values):
        return False
    return tuple(map(float, lifted(known, values))) == known.identity


@fact("needed(run, [expr], run*) -> run", TILE)
def needed(site: Any, run: Block, values: Any, *later: Block) -> Block:
    """The statements of a run that some values, or what stands in later runs, depend on."""
    wanted = dependencies((*values, *map(Var, sorted(uses(tuple(chain.from_iterable(later)))))), run)
    return tuple(stmt for stmt in run if defines(stmt) in wanted)


@fact("rest(run, run) -> run", TILE)
def rest(site: Any, run: Block, part: Block) -> Block:
    """The statements of a run that are not among some of them."""
    return tuple(stmt for stmt in run if stmt not in part)


@fact("base_of_digits(run, name) -> int", TILE)
def base_of_digits(site: Any, body: Block, name: Var) -> int:
    """The number by which a run takes the quotient and the remainder of a name: `q // C`, `q % C`. 0 if it reads the
    name in another way, but for where it stores, or by two numbers; or if it is hidden where a load reads."""
    digits = [e for e in nodes(body, Binary) if e.op in ("//", "%") and e.a is name and is_int(e.b)]
    if {e.op for e in digits} != {"//", "%"} or len({e.b for e in digits}) > 1:
        return 0
    found = summary(body)
    others = {other for load in found.loads for other in free_names(load.idx)} - {name.name}
    hidden = name.name in dependencies(tuple(map(Var, sorted(others))), body)
    if hidden or any(name.name in free_names((loop.start, loop.stop)) for loop in found.loops):
        return 0
    stored = sum(1 for store in found.stores for leaf in nodes(store.idx, Var) if leaf is name)
    mentions = sum(1 for leaf in nodes(body, Var) if leaf is name)
    return digits[0].b if mentions == len(digits) + stored else 0
