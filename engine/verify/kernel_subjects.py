"""Neighbours of a Kernel IR program: guards and registers that materialisation does not write, and a rule may meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...ir.expr import Binary, Var, add, is_int, multiply, subtract
from ...ir.kernel import THREAD, Assign, Base, Branch, Define, Element, Launch, Registers, Replicate
from ...ir.node import nodes, replace
from ...ir.program import Block, Kernel
from ...ir.verify.kernel import problems
from ..language.positions import calls
from ..language.rule import Rule
from .outcome import Dice

TRIES = 6  # to put a guard where nothing that it hides is needed
COUNTER, TWIN, AGAIN = "left", "twin", "again"


def guarded(kernel: Kernel, dice: Dice) -> Kernel:
    """The kernel with some statements behind a guard: one that it has already, or one on a thread or a replica."""
    sizes = {THREAD: next(iter(nodes(kernel.body, Launch))).block}
    sizes |= {replicate.var: replicate.extent for replicate in nodes(kernel.body, Replicate)}
    conditions = [Binary("<", Var(name), size) for name, extent in sizes.items() for size in (extent, extent, 2)]
    conditions += [branch.cond for branch in nodes(kernel.body, Branch)]
    for _ in range(TRIES):
        made = replace(kernel, body=_guarded(kernel.body, dice.pick(conditions), dice))
        if not problems(made):
            return made
    return kernel


def _guarded(block: Block, condition: Any, dice: Dice) -> Block:
    deeper = [n for n, stmt in enumerate(block) if getattr(stmt, "body", ())]
    if deeper and (len(block) == 1 or dice.often(70)):
        n = dice.pick(deeper)
        inner: Any = _guarded(getattr(block[n], "body", ()), condition, dice)
        return (*block[:n], replace(block[n], body=inner), *block[n + 1 :])
    whole = dice.often(50)
    first = 0 if whole else dice.number(0, len(block) - 1)
    last = len(block) - 1 if whole else dice.number(first, len(block) - 1)
    return (*block[:first], Branch(condition, block[first : last + 1]), *block[last + 1 :])


# ---- registers that change


def changes_for(rule: Rule) -> tuple[Callable[[Kernel, Dice], Kernel], ...]:
    """What shows that a rule moves something past a change: of the kind that its pattern is about."""
    kinds = {getattr(x, "fn", "") for x in calls(rule.match)}
    if "Base" in kinds:
        return counted, guarded, counted
    return (again, guarded) if "Replicate" in kinds else (limited, doubled, guarded)


def counted(kernel: Kernel, dice: Dice) -> Kernel:
    """Two addresses, a number apart, mention a register that counts on between them; each is the number that it was."""
    pairs = [
        (one, other)
        for block in _blocks(kernel.body)
        for n, one in enumerate(block)
        for other in block[n + 1 :]
        if isinstance(one, Base) and isinstance(other, Base) and one.root == other.root
        if is_int(subtract(other.offset, one.offset))
    ]
    if not pairs:
        return kernel
    one, other = dice.pick(pairs)
    step, register = dice.pick((4, 1, 8)), Var(COUNTER)
    new = replace(one, offset=add(one.offset, multiply(register, step)))
    later = replace(other, offset=subtract(add(other.offset, multiply(register, step)), step))
    body = _edited(kernel.body, one, (Define(COUNTER, "i32", 0, 1), new, Assign(register, 1)))
    return replace(kernel, body=_edited(body, other, (later,)))


def limited(kernel: Kernel, dice: Dice) -> Kernel:
    """A register is added to only so often; the condition is tested again where what it guards has changed it."""
    return _often(kernel, dice, lambda once, plain: (once, plain))


def again(kernel: Kernel, dice: Dice) -> Kernel:
    """The same, tested by every one of some replicas."""
    return _often(kernel, dice, lambda once, plain: (Replicate(AGAIN, 4, (once,)),))


def _often(kernel: Kernel, dice: Dice, shape: Callable[[Branch, Branch], Block]) -> Kernel:
    found = _sums(kernel)
    if not found:
        return kernel
    chosen, left = dice.pick(found), Var(COUNTER)
    condition, less = Binary(">", left, 0), Assign(left, subtract(left, 1))
    body = shape(Branch(condition, (chosen, less)), Branch(condition, (chosen,)))
    return _with_counter(replace(kernel, body=_edited(kernel.body, chosen, body)), dice.number(1, 3))


def doubled(kernel: Kernel, dice: Dice) -> Kernel:
    """A register is added to twice under one condition, by way of a value that both blocks call the same."""
    found = _sums(kernel)
    if not found:
        return kernel
    chosen = dice.pick(found)
    value = Define(TWIN, _dtypes(kernel)[_name(chosen.place)], chosen.val)
    block: Block = (value, replace(chosen, val=Var(TWIN)))
    threads = next(iter(nodes(kernel.body, Launch))).block
    condition = Binary("<", Var(THREAD), dice.pick((threads, 1, 2)))
    twins = (Branch(condition, block), Branch(condition, block))
    return replace(kernel, body=_edited(kernel.body, chosen, twins))


def _with_counter(kernel: Kernel, count: int) -> Kernel:
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    return replace(kernel, body=(replace(launch, body=(Define(COUNTER, "i32", count, 1), *launch.body)),))


def _sums(kernel: Kernel) -> list[Assign]:
    """The assignments of values that are kept in a register which has a dtype."""
    known = _dtypes(kernel)
    return [stmt for stmt in nodes(kernel.body, Assign) if _name(stmt.place) in known]


def _dtypes(kernel: Kernel) -> dict[str, str]:
    return {stmt.dst: stmt.dtype for stmt in nodes(kernel.body, Define, Registers)}  # type: ignore[type-var,attr-defined]


def _name(place: Any) -> str:
    return place.name if isinstance(place, Var | Element) else ""


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for stmt in block:
        yield from _blocks(getattr(stmt, "body", ()))


def _edited(block: Block, old: Any, new: Block) -> Block:
    """A block with one statement replaced, wherever it stands."""
    out: list[Any] = []

    def inner(stmt: Any) -> Any:
        return replace(stmt, body=_edited(stmt.body, old, new))

    for stmt in block:
        out += new if stmt is old else (inner(stmt) if getattr(stmt, "body", ()) else stmt,)
    return tuple(out)
