"""Facts about folds of what stands up to a place."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ...ir.expr import Binary, Call, Var, add, free_names, is_int, multiply
from ...ir.facts.structure import defines, dependencies, summary, uses
from ...ir.facts.types import value_dtypes
from ...ir.functions import identity
from ...ir.interp.tuples import lifted
from ...ir.loop import Let, Load
from ...ir.monoids import monoid
from ...ir.node import nodes
from ...ir.program import Block
from ...ir.ranges import simplify
from ...ir.substitute import substitute
from ..language.facts import fact
from .structure import TILE


@fact("neutral_to(expr, name, name) -> bool", TILE)
def neutral_to(site: Any, value: Any, fn: Var, acc: Var) -> bool:
    """Whether a number is what an accumulator of the kernel starts from: folding it by the function changes nothing."""
    dtype, number = value_dtypes(site.kernel).get(acc.name), _number(value)
    return dtype is not None and number is not None and bool(number == identity(fn.name, dtype))


@fact("neutral_element(monoid, [expr]) -> bool", TILE)
def neutral_element(site: Any, fn: Var, values: Any) -> bool:
    """Whether an element made of these numbers is the tuple of no elements: taking it in changes nothing."""
    known, numbers = monoid(fn.name), tuple(map(_number, values))
    if len(values) != len(known.operands) or None in numbers:
        return False
    return tuple(map(float, lifted(known, numbers))) == known.identity


def _number(value: Any) -> bool | int | float | None:
    """A number that is written out, f64(0.0) too; None for anything else."""
    if value.__class__ is Call and value.fn == "f64":
        (value,) = value.args
    return value if isinstance(value, bool | int | float) else None


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
    name in another way, but for where it loads and stores, or by two numbers; or if it is hidden where a load reads."""
    digits = _digits(body, name)
    if {e.op for e in digits} != {"//", "%"} or len({e.b for e in digits}) > 1:
        return 0
    found = summary(body)
    others = {other for load in found.loads for other in free_names(load.idx)} - {name.name}
    hidden = name.name in dependencies(tuple(map(Var, sorted(others))), body)
    if hidden or any(name.name in free_names((loop.start, loop.stop)) for loop in found.loops):
        return 0
    accesses: tuple[Any, ...] = (*found.loads, *found.stores)
    places = tuple(access.idx for access in accesses)
    whole, placed = (_whole(what, name) for what in (body, places))
    return digits[0].b if whole == placed else 0


def _whole(value: Any, name: Var) -> int:
    """How often a name is mentioned other than by its digits."""
    return sum(leaf is name for leaf in nodes(value, Var)) - len(_digits(value, name))


def _digits(value: Any, name: Var) -> list[Binary]:
    """The quotients and remainders of a name by numbers."""
    return [e for e in nodes(value, Binary) if e.op in ("//", "%") and e.a is name and is_int(e.b)]


@fact("stands_up_to(run, name, name) -> bool", TILE)
def stands_up_to(site: Any, run: Block, k: Var, place: Var) -> bool:
    """Whether a run asks if one name is at most another: what it folds along k is what stands up to each place."""
    return any(e.op == "<=" and e.a is k and e.b is place for e in nodes(run, Binary))


@fact("varies_by_digit([expr], name, int, int, run*) -> bool", TILE)
def varies_by_digit(site: Any, values: Any, k: Var, base: int, count: int, *runs: Block) -> bool:
    """Whether some of the values that runs compute varies with a digit of k, `k // base % count`: what is the same for
    each of a thread's registers would be folded once.
    """
    if count == 1:
        return True
    above, digit, below = (Var(f"{k.name}_{part}") for part in ("above", "digit", "below"))
    ranges = {digit.name: (0, count - 1), below.name: (0, base - 1)}
    place = add(multiply(add(multiply(above, count), digit), base), below)
    run = substitute(tuple(chain.from_iterable(runs)), {k.name: place})
    read = ((defines(stmt), free_names(_read(stmt, ranges))) for stmt in nodes(run, Load, Let))
    varying = {name for name, names in read if digit.name in names}
    return not varying.isdisjoint(dependencies(values, run))


def _read(stmt: Any, ranges: Any) -> tuple[Any, ...]:
    """What a statement computes or loads, in as few operations as it takes."""
    parts = (*stmt.idx, stmt.when) if stmt.__class__ is Load else (stmt.val,)
    return tuple(simplify(part, ranges) for part in parts if part is not None)
