"""Programs near a given one: with other extents, functions, roles or guards, a statement more or less, or smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Binary, Call, Sum, Var, add, binary, both, multiply
from ...ir.functions import FUNCTIONS
from ...ir.kernel import THREAD, Branch, Launch, Replicate
from ...ir.loop import Accumulate, For, If, Let, Load, Store
from ...ir.node import Node, nodes, replace
from ...ir.program import Block, Kernel
from ...ir.tensor import Const, Elementwise, Input, Output, TensorGraph, Term, axes, dtype, postorder
from ...ir.tile import (
    Combine,
    CombineTuple,
    Mma,
    Stage,
    Sync,
    Tile,
    Wait,
    WaitMma,
)
from ...ir.verify.kernel import problems
from ..rewrite.statements.driver import wellformed
from ..rewrite.statements.site import places, splice
from .outcome import Dice, constant, numeral
from .whole_programs import TooLarge, completed, needs, observed, scoped, sized

Program = tuple[Kernel, ...]
SIZES = (4, 8, 2, 3, 5, 1, 16, 7, 6, 32, 12, 13)
LONGEST = 64  # of the extents that a rule names
FAMILIES = ("multiply", "add", "exp", "maximum", "subtract", "copy", "relu", "minimum", "abs")
FOLDS = ("add", "maximum", "minimum", "multiply")


def perturbed(program: Program, dice: Dice) -> Program:
    """Return the program after one to three changes, completed again. Raises what `completed` raises."""
    resized = dice.often(30)
    for _ in range(dice.number(1, 3)):
        change = other_extent if resized else dice.pick(CHANGES)
        at = dice.number(0, len(program) - 1)
        kernel = change(program[at], dice)
        program = (*program[:at], kernel, *program[at + 1 :])
    return completed(program)


# ---- extents


def other_extent(kernel: Kernel, dice: Dice) -> Kernel:
    """Replace one extent by another, and sometimes its multiples too."""
    found = sorted(_extents(kernel.body))
    if not found:
        return kernel
    old, new, multiples = dice.pick(found), numeral(dice, SIZES, 1, LONGEST), dice.often(60)

    body = tuple(renumbered(statement, resized(old, new, multiples)) for statement in kernel.body)
    return sized(replace(kernel, body=body), needs(body), needs(kernel.body))


def resized(old: int, new: int, multiples: bool) -> Callable[[int], int]:
    """Return the change of numbers for a changed extent. multiples: multiples of the extent change too."""

    def change(number: int) -> int:
        if multiples and old > 2 and number and number % old == 0 and number // old <= 512:
            return number // old * new
        return new if number == old else number

    return change


def _extents(body: Block) -> set[int]:
    found: set[int] = set()
    for node in nodes(body, Tile, For, Stage):
        values = [axis.extent for axis in getattr(node, "axes", getattr(node, "box", ()))]
        values += [node.stop, node.step] if isinstance(node, For) else []
        found |= {n for n in values if type(n) is int and n > 1}
    return found


def renumbered(value: Any, change: Callable[[int], Any]) -> Any:
    """Return a statement or expression with its whole numbers changed; what is not a number of an index stays."""
    if type(value) is int:
        return change(value)
    if isinstance(value, tuple):
        return tuple(renumbered(item, change) for item in value)
    if isinstance(value, Sum):
        total: Any = change(value.constant) if value.constant > 0 else value.constant
        for atom, factor in value.terms:
            total = add(total, multiply(renumbered(atom, change), change(factor) if factor > 1 else factor))
        return total
    if isinstance(value, Binary):
        return binary(value.op, renumbered(value.a, change), renumbered(value.b, change))
    if isinstance(value, Axis):
        return replace(value, extent=renumbered(value.extent, change))
    if not isinstance(value, Node) or isinstance(value, Var | Sync | Wait | WaitMma):
        return value
    kept = ("depth", "pad", "swizzle", "xor", "lanes", "slot", "unroll", "snake", "other")
    fields = {
        field.name: renumbered(getattr(value, field.name), change)
        for field in type(value).fields
        if field.sort in ("Expr", "Block", "Axis", "Int") and field.name not in kept
    }
    return replace(value, **fields)


# ---- other changes, one statement each


def _statement(kernel: Kernel, dice: Dice, edit: Callable[[Any], Any], kinds: tuple[type, ...]) -> Kernel:
    """Return the kernel with one statement of some kinds edited: to another statement, several or none."""
    found = sorted((*path, at) for path, block, at in places(kernel, None) if isinstance(block[at], kinds))
    if not found:
        return kernel
    *path, at = dice.pick(found)
    block: Any = kernel.body
    for step in path:
        block = block[step].body
    made = edit(block[at])
    made = made if isinstance(made, tuple) else (made,)
    return replace(kernel, body=splice(kernel.body, tuple(path), at, at + 1, made))


def other_role(kernel: Kernel, dice: Dice) -> Kernel:
    """Change the role of a loop or an axis."""

    def edit(statement: Any) -> Any:
        if isinstance(statement, For):
            return replace(statement, role=dice.pick(("serial", "reduce", "free")))
        at = dice.number(0, len(statement.axes) - 1) if statement.axes else 0
        role, axes = dice.pick(("THREAD", "BLOCK", "REG")), statement.axes
        return replace(statement, axes=(*axes[:at], *(replace(a, role=role) for a in axes[at:][:1]), *axes[at + 1 :]))

    return _statement(kernel, dice, edit, (For, Tile))


def other_function(kernel: Kernel, dice: Dice) -> Kernel:
    """Change a scalar function, or a reduction."""

    def edit(statement: Any) -> Any:
        if isinstance(statement, Accumulate):
            return replace(statement, fn=dice.pick(FOLDS))
        if not isinstance(statement.val, Call) or len(statement.val.args) > 2:
            return statement
        name, args = dice.pick(FAMILIES), statement.val.args
        wide = name in ("multiply", "add", "maximum", "subtract", "minimum")
        return replace(statement, val=Call(name, (args * 2)[: 1 + wide]))

    return _statement(kernel, dice, edit, (Let, Accumulate))


def guarded(kernel: Kernel, dice: Dice) -> Kernel:
    """Put a statement under a guard on an axis."""
    names = [axis.name for tile in nodes(kernel.body, Tile) for axis in tile.axes] or [
        loop.var for loop in nodes(kernel.body, For)
    ]
    if not names:
        return kernel
    condition = Binary("<", Var(dice.pick(names)), dice.number(1, 9))
    return _statement(kernel, dice, lambda statement: If(condition, (statement,)), (For, Load, Store, Let, If))


def other_guard(kernel: Kernel, dice: Dice) -> Kernel:
    """Change the bound of a guard, or put a load under one."""

    def edit(statement: Any) -> Any:
        if isinstance(statement, If):
            return replace(
                statement, cond=both(statement.cond, Binary(">=", _first(statement.cond), dice.number(0, 3)))
            )
        names = sorted(_first(e).name for e in statement.idx if isinstance(_first(e), Var))
        if not names or statement.when is not True:
            return statement
        return replace(
            statement, when=Binary("<", Var(dice.pick(names)), dice.number(1, 9)), other=float(dice.number(0, 1))
        )

    return _statement(kernel, dice, edit, (If, Load))


def _first(e: Any) -> Any:
    if isinstance(e, Var) or not isinstance(e, Node):
        return e
    inner = e.terms[0][0] if isinstance(e, Sum) else getattr(e, "a", None)
    return _first(inner)


def repeated(kernel: Kernel, dice: Dice) -> Kernel:
    """Put a loop around a statement: serial, a reduction or free."""
    taken = {loop.var for loop in nodes(kernel.body, For)}
    name = next(n for n in ("again", "again1", "again2", "again3") if n not in taken or n == "again3")
    role, iterations = dice.pick(("serial", "reduce")), dice.number(2, 3)
    return _statement(kernel, dice, lambda s: For(name, 0, iterations, (s,), role), (For, Accumulate, Stage, If))


def dropped(kernel: Kernel, dice: Dice) -> Kernel:
    """Remove a statement."""
    return _statement(
        kernel,
        dice,
        lambda statement: (),
        (Load, Let, Accumulate, Store, Sync, Wait, Combine, CombineTuple, Mma, WaitMma),
    )


def doubled(kernel: Kernel, dice: Dice) -> Kernel:
    """Duplicate a statement."""
    return _statement(kernel, dice, lambda statement: (statement, statement), (Accumulate, Sync, Stage, For, If))


def extended(kernel: Kernel, dice: Dice) -> Kernel:
    """Add a statement before or after another one."""
    number = dice.number(0, 3)
    buffers: list[Any] = list(nodes(kernel.body, Load)) or [None]
    load = dice.pick(buffers)
    known: list[Any] = list(nodes(kernel.body, Load, Let))
    values = [x.dst for x in known] or ["more"]
    more: Block
    if number == 0:
        more = (Accumulate("extra", "add", Var(dice.pick(values))),)
    elif number == 1 and load is not None:
        more = (replace(load, dst="extra1"), Accumulate("extra2", "add", Var("extra1")))
    elif number == 2:
        more = (
            Let("extra3", Call("multiply", (Var(dice.pick(values)), 2.0))),
            Accumulate("extra4", "maximum", Var("extra3")),
        )
    else:
        more = (Sync(),)
    behind = dice.often(70)
    return _statement(kernel, dice, lambda s: (s, *more) if behind else (*more, s), (Load, Let, Accumulate, For, Sync))


def other_index(kernel: Kernel, dice: Dice) -> Kernel:
    """Scale or shift an index of a load, or reverse the order of its indices."""

    def edit(load: Any) -> Any:
        if len(load.idx) > 1 and dice.often(50):
            return replace(load, idx=load.idx[::-1])
        at = dice.number(0, len(load.idx) - 1)
        factor, offset = dice.pick((1, 2)), dice.number(0, 1)
        moved = add(multiply(load.idx[at], factor), offset)
        return replace(load, idx=tuple(moved if n == at else e for n, e in enumerate(load.idx)))

    return _statement(kernel, dice, edit, (Load,))


def copied_again(kernel: Kernel, dice: Dice) -> Kernel:
    """Fill a shared-memory tile with other elements, and read it once more."""
    stages = {stage.dst: stage for stage in nodes(kernel.body, Stage)}

    def edit(load: Any) -> Any:
        stage = stages.get(load.buf)
        if stage is None:
            return load
        at = dice.number(0, len(stage.origin) - 1)
        further = tuple(add(e, 1) if n == at else e for n, e in enumerate(stage.origin))
        again = (replace(load, dst="extra5"), Accumulate("extra6", "add", Var("extra5")))
        return (load, Sync(), replace(stage, origin=further, via="SYNC"), Sync(), *again)

    return _statement(kernel, dice, edit, (Load,))


def other_copy(kernel: Kernel, dice: Dice) -> Kernel:
    """Change the transport of a copy, or its layout."""
    field, options = dice.pick((("via", ("SYNC", "ASYNC", "TMA")), ("pad", (0, 1, 4)), ("lanes", (0, 2, 4))))
    return _statement(kernel, dice, lambda s: replace(s, **{field: dice.pick(options)}), (Stage,))


CHANGES = (
    other_extent, other_extent, other_extent, other_role, other_function, guarded, other_guard, repeated, dropped,
    doubled, extended, extended, other_index, other_copy, copied_again,
)  # fmt: skip


# ---- neighbours of a Kernel IR program


GUARD_TRIES = 6  # to put a guard where nothing that it hides is needed


def guarded_kernel(kernel: Kernel, dice: Dice) -> Kernel:
    """Put some statements under a guard: one that the kernel has already, or one on a thread or a replica."""
    sizes = {THREAD: next(iter(nodes(kernel.body, Launch))).block}
    sizes |= {replicate.var: replicate.extent for replicate in nodes(kernel.body, Replicate)}
    conditions = [Binary("<", Var(name), size) for name, extent in sizes.items() for size in (extent, extent, 2)]
    conditions += [branch.cond for branch in nodes(kernel.body, Branch)]
    for _ in range(GUARD_TRIES):
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


# ---- Neighbours of a Tensor IR program: other extents, functions and inputs, values that are read once more.


AXIS_SIZES = (3, 4, 2, 5, 8, 7, 6)
LONGEST_AXIS = 16  # of the extents that a rule names


def perturbed_term(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Return the program after one to three changes; the result need not be well formed."""
    for _ in range(dice.number(1, 3)):
        graph = dice.pick(TERM_CHANGES)(graph, dice)
    return _lean(graph)


def other_axis_extent(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Replace one extent by another, in axes, indices and equal numbers; its multiples change with it."""
    found = sorted({axis.extent for x in graph.ins for axis in x.axes})
    if not found:
        return graph
    old, new = dice.pick(found), numeral(dice, AXIS_SIZES, 1, LONGEST_AXIS)

    def change(number: int) -> int:
        if old > 2 and number and number % old == 0:
            return int(number // old * new)
        return new if number == old else number

    def edit(term: Term) -> Term:
        return Const(type(term.value)(new), term.dtype) if isinstance(term, Const) and term.value == old else term

    return _edited(graph, edit, change)


def with_numbers(graph: TensorGraph, change: Callable[[int], Any]) -> TensorGraph:
    """Return the program with the whole numbers of axes and indices changed; constants stay."""
    return _lean(_edited(graph, lambda term: term, change))


def other_term_function(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Change a function to another one with as many arguments, and of the same kind."""
    found = [x for x in _terms(graph) if isinstance(x, Elementwise) and x.fn in OTHERS]
    return _one_edited(graph, dice, found, lambda term: Elementwise(dice.pick(OTHERS[term.fn]), term.args))


def other_number(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Change a constant."""
    found = [x for x in _terms(graph) if isinstance(x, Const) and dtype(x) in ("f32", "i64")]
    numbers = (2.0, 0.5, 3.0, 1.0, 0.0, -1.0, 8.0)
    return _one_edited(graph, dice, found, lambda term: Const(type(term.value)(constant(dice, numbers)), term.dtype))


def computed_input(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Replace an input by a function of it."""
    found = [x for x in graph.ins if x.dtype == "f32"]
    functions = ("exp", "negative", "copy", "abs")
    return _one_edited(graph, dice, found, lambda term: Elementwise(dice.pick(functions), (term,)))


def _one_edited(graph: TensorGraph, dice: Dice, found: Sequence[Term], edit: Callable[[Any], Term]) -> TensorGraph:
    """Return the program with one of some terms edited."""
    if not found:
        return graph
    chosen = dice.pick(found)
    made = edit(chosen)
    return _edited(graph, lambda term: made if term is chosen else term)


def read_again(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Add a value, or a function of it, to the results."""
    found = [x for x in _terms(graph) if dtype(x) == "f32" and axes(x)]
    if not found:
        return graph
    chosen = dice.pick(found)
    shown = Elementwise(dice.pick(("copy", "negative", "relu", "exp")), (chosen,))
    taken = {out.name for out in graph.outs}
    name = next(f"more{n}" for n in range(len(taken) + 1) if f"more{n}" not in taken)
    return TensorGraph(graph.name, graph.ins, (*graph.outs, Output(name, axes(shown), shown)))


TERM_CHANGES = (other_axis_extent, other_axis_extent, other_term_function, computed_input, read_again, other_number)
_ALIKE = (
    ("exp", "tanh", "abs", "negative", "sigmoid", "relu", "sin"),
    ("add", "multiply", "subtract", "maximum", "minimum", "divide"),
)
OTHERS = {fn: tuple(other for other in group if other != fn) for group in _ALIKE for fn in group if fn in FUNCTIONS}


def _terms(graph: TensorGraph) -> list[Term]:
    return postorder(out.value for out in graph.outs)


def _edited(graph: TensorGraph, edit: Callable[[Any], Term], change: Callable[[int], Any] | None = None) -> TensorGraph:
    """Pass every term through `edit`, and the whole numbers of axes and indices through `change`."""
    known: dict[Any, Any] = {}

    def place(e: Any) -> Any:
        return e if change is None else renumbered(e, change)

    def visit(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(visit(item) for item in value)
        if not isinstance(value, Term):
            return place(value) if isinstance(value, Node | int) else value
        if value not in known:
            made = edit(value)
            if made is value and not isinstance(value, Const):
                made = type(value)(*(visit(getattr(value, field.name)) for field in type(value).fields))
            elif made is not value and isinstance(value, Elementwise):
                made = Elementwise(made.fn, visit(value.args))  # type: ignore[attr-defined]
            known[value] = made
        return known[value]

    outs = tuple(Output(out.name, place(out.axes), visit(out.value)) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


def _lean(graph: TensorGraph) -> TensorGraph:
    """Keep the inputs that are still read, and give results all their axes."""
    ins = sorted((x for x in _terms(graph) if isinstance(x, Input)), key=lambda x: x.name)
    outs = (Output(out.name, tuple(dict.fromkeys((*out.axes, *axes(out.value)))), out.value) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins), tuple(outs))


# ---- Smaller subjects: kernels, statements, axes and extents less, buffers in the sizes that are left.


Kernels = tuple[Kernel, ...]


def smaller_programs(program: Kernels) -> Iterator[Kernels]:
    """Yield programs that are a little smaller, the smallest first."""
    if len(program) > 1:
        for n in range(len(program)):
            yield (*program[:n], *program[n + 1 :])
    for n, kernel in enumerate(program):
        for body in (*_bodies(kernel.body), *_smaller_extents(kernel)):
            try:
                made = _fitted(replace(kernel, body=body), kernel)
            except (DplcError, TooLarge, ValueError, TypeError, LookupError):
                continue
            if made.outs:
                yield (*program[:n], made, *program[n + 1 :])


def _fitted(kernel: Kernel, before: Kernel) -> Kernel:
    """Return the kernel with buffers that fit its body, without those that the body does not mention.

    Raises ValueError if the kernel is not well formed.
    """
    whole = sized(replace(kernel, body=observed(kernel)), needs(kernel.body), needs(before.body))
    scoped(whole)
    if wellformed(whole) is not None:
        raise ValueError("not well formed")
    used = {
        getattr(x, field)
        for x in nodes(whole.body, Load, Store, Stage)
        for field in ("buf", "src")
        if hasattr(x, field)
    }
    ins = tuple(p for p in whole.ins if p.name in used)
    return replace(whole, ins=ins, outs=tuple(p for p in whole.outs if p.name in used))


def _bodies(body: Block) -> Iterator[Block]:
    """Yield the block with one statement gone, or replaced by what is inside of it."""
    for n, statement in enumerate(body):
        before, after = body[:n], body[n + 1 :]
        yield (*before, *after)
        if isinstance(statement, For | If):
            yield (*before, *statement.body, *after)
        if isinstance(statement, Tile):
            for m in range(len(statement.axes)):
                yield (*before, replace(statement, axes=(*statement.axes[:m], *statement.axes[m + 1 :])), *after)
        if hasattr(statement, "body"):
            for inner in _bodies(statement.body):
                yield (*before, replace(statement, body=inner), *after)  # type: ignore[call-arg]


def _smaller_extents(kernel: Kernel) -> Iterator[Block]:
    for old in sorted(_extents(kernel.body), reverse=True):
        for new in dict.fromkeys((1, 2, 3, old // 2)):
            if new < old:
                for multiples in (True, False):
                    yield tuple(renumbered(s, resized(old, new, multiples)) for s in kernel.body)
