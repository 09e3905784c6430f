"""Programs near a given one: with other extents, functions, roles or guards, a statement more or less, or smaller."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Container, Iterator
from typing import Any, TypeVar

from ...ir import compose
from ...ir.expr import Axis, Binary, Call, Not, Sum, Var, add, both, free_names, multiply, rebuild, total
from ...ir.functions import FUNCTIONS
from ...ir.kernel import THREAD, Branch, Launch, Replicate
from ...ir.loop import LOOP_ROLES, Accumulate, For, If, Let, Load, Store
from ...ir.node import Expr, Node, Value, nodes, replace
from ...ir.program import Block, Kernel, Module, Stmt
from ...ir.tensor import Const, Elementwise, Input, Output, TensorGraph, Term, axes, dtype, terms
from ...ir.tile import VIAS, Combine, CombineTuple, Mma, Stage, Sync, Tile, Wait, WaitMma
from ...ir.verify.kernel import problems
from ..rewrite.statements.site import Context, holes, places, splice, unused
from .drawing import BINARY, EXTENTS, FOLDS, LONGEST, NUMBERS, SHORT, TERM_EXTENTS, UNARY
from .outcome import ERRORS, Dice, constant, numeral
from .whole_programs import TooLarge, bound_names, closed, completed, sized

T = TypeVar("T")


def perturbed(program: Module, dice: Dice) -> Module:
    """Return the program after one to three changes, completed again. Raises what `completed` raises."""
    resized = 100 if dice.often(30) else 20  # of a hundred changes
    for _ in range(dice.number(1, 3)):
        at = dice.number(0, len(program) - 1)
        kernel = (other_extent if dice.often(resized) else other_statement)(program[at], dice)
        program = _with(program, at, kernel)
    return completed(program)


def _with(items: tuple[T, ...], at: int, *new: T) -> tuple[T, ...]:
    """Return the items with others, or none, instead of the one at a position."""
    return (*items[:at], *new, *items[at + 1 :])


# ---- numbers


def other_extent(kernel: Kernel, dice: Dice) -> Kernel:
    """Replace one extent by another, and sometimes its multiples too."""
    extents = _extents(kernel.body)
    if not extents:
        return kernel
    change = resized(dice.pick(extents), numeral(dice, EXTENTS, 1, LONGEST), dice.often(60))
    return sized(replace(kernel, body=renumbered(kernel.body, change)), kernel.body)


def resized(old: int, new: int, multiples: bool = True) -> Callable[[int], int]:
    """Return the change of numbers for a changed extent. multiples: multiples of the extent change too."""

    def change(number: int) -> int:
        multiple = multiples and old > 2 and number % old == 0 and number // old <= 512
        return number // old * new if multiple or number == old else number

    return change


def _extents(body: Block) -> list[int]:
    """Return the extents of axes and loops above 1, and the steps of loops."""
    found = {axis.extent for axis in nodes(body, Axis)}
    found.update(n for loop in nodes(body, For) for n in (loop.stop, loop.step))
    return sorted(n for n in found if type(n) is int and n > 1)


def renumbered(value: T, change: Callable[[int], Expr]) -> T:
    """Return a program, or a part of one, with its whole numbers changed; what is not a number of an index stays."""

    def visit(value: Any) -> Any:
        if type(value) is int:
            return change(value)
        if isinstance(value, tuple):
            return tuple(map(visit, value))
        return of_node(value) if isinstance(value, Node) else value

    @functools.cache
    def of_node(node: Any) -> Any:
        if isinstance(node, Sum):
            factors = [change(factor) if factor > 1 else factor for _, factor in node.terms]
            constant = change(node.constant) if node.constant > 0 else node.constant
            return total((*(visit(atom) for atom, _ in node.terms), constant), (*factors, 1))
        if isinstance(node, Binary | Call | Not):
            return rebuild(node, visit)
        fields = [name for name in type(node).inner if name != "slot"]  # the slot of a ring is not an extent
        return replace(node, **{name: visit(getattr(node, name)) for name in fields})

    changed: T = visit(value)
    return changed


# ---- one statement


Edited = Stmt | Block  # another statement, several or none
Edit = Callable[[Any, Context, Dice], Edited]  # of a statement; the context is its place


def other_statement(kernel: Kernel, dice: Dice) -> Kernel:
    """Return the kernel with one statement of some kinds edited."""
    kinds, edit = dice.pick(EDITS)
    places_of_kind = [(path, block[at], at) for path, block, at in places(kernel)[None] if isinstance(block[at], kinds)]
    if not places_of_kind:
        return kernel
    path, statement, at = dice.pick(places_of_kind)
    context = Context(kernel.body, path, at, at + 1)
    made = edit(statement, context, dice)
    return replace(kernel, body=context.plug(made if isinstance(made, tuple) else (made,)))


# Values of fields, by the class of the node.
ALTERNATIVES: dict[type, dict[str, tuple[Value, ...]]] = {
    For: {"role": LOOP_ROLES}, Axis: {"role": ("THREAD", "BLOCK", "REG")}, Accumulate: {"fn": FOLDS},
    Stage: {"via": VIAS, "pad": (0, 1, 4), "lanes": (0, 2, 4)},
}  # fmt: skip


def other_field(node: Any, context: Context, dice: Dice) -> Any:
    """Change the role of a loop or an axis, a reduction, the scalar function of a value, or how a copy is done."""
    match node:
        case Tile(axes=axes) if axes:
            at = dice.number(0, len(axes) - 1)
            return replace(node, axes=_with(axes, at, other_field(axes[at], context, dice)))
        case Let(val=Call(args=args)) if len(args) <= 2:
            fn = dice.pick((*BINARY, *UNARY))
            return replace(node, val=Call(fn, (args * 2)[: FUNCTIONS[fn].arity]))
    if type(node) not in ALTERNATIVES:
        return node
    field, options = dice.pick([*ALTERNATIVES[type(node)].items()])
    return replace(node, **{field: dice.pick(options)})


def guarded(statement: Stmt, context: Context, dice: Dice) -> Stmt:
    """Put a statement under a guard on an axis or a loop around it."""
    names = [name for outer in context.around for name in bound_names(outer)]
    return If(Binary("<", Var(dice.pick(names)), dice.number(1, 9)), (statement,)) if names else statement


def other_guard(statement: If | Load, context: Context, dice: Dice) -> Stmt:
    """Narrow a guard, or put a load under one."""
    names = sorted(free_names(statement.cond if isinstance(statement, If) else statement.idx))
    if not names:
        return statement
    name = Var(dice.pick(names))
    if isinstance(statement, If):
        return replace(statement, cond=both(statement.cond, Binary(">=", name, dice.number(0, 3))))
    return replace(statement, when=Binary("<", name, dice.number(1, 9)), other=float(dice.number(0, 1)))


def repeated(statement: Stmt, context: Context, dice: Dice) -> Stmt:
    """Put a loop around a statement: serial or a reduction."""
    name = unused("again", {loop.var for loop in nodes(context.statements, For)})
    return For(name, 0, dice.number(2, 3), (statement,), dice.pick(("serial", "reduce")))


def extended(statement: Stmt, context: Context, dice: Dice) -> Block:
    """Add a statement before or after another one: a sum of a value that is read or computed again, or a barrier."""
    values: list[Any] = [*nodes(context.statements, Load, Let)]
    more: Block = (Sync(),)
    if values and dice.often(75):
        value = dice.pick(values)
        again = dice.pick((value, replace(value, dst="extra"), Let("extra", Call("multiply", (Var(value.dst), 2.0)))))
        total = Accumulate("total", dice.pick(FOLDS), Var(again.dst))
        more = (total,) if again is value else (again, total)
    return (statement, *more) if dice.often(70) else (*more, statement)


def other_index(load: Load, context: Context, dice: Dice) -> Stmt:
    """Scale or shift an index of a load, or reverse the order of its indices."""
    if len(load.idx) > 1 and dice.often(50):
        return replace(load, idx=load.idx[::-1])
    at = dice.number(0, len(load.idx) - 1)
    moved = add(multiply(load.idx[at], dice.pick((1, 2))), dice.number(0, 1))
    return replace(load, idx=_with(load.idx, at, moved))


def copied_again(load: Load, context: Context, dice: Dice) -> Edited:
    """Fill a shared-memory tile with other elements, and read it once more."""
    stage = {stage.dst: stage for stage in nodes(context.statements, Stage)}.get(load.buf)
    if stage is None:
        return load
    at = dice.number(0, len(stage.origin) - 1)
    further = replace(stage, origin=_with(stage.origin, at, add(stage.origin[at], 1)), via="SYNC")
    return load, Sync(), further, Sync(), replace(load, dst="copied"), Accumulate("sum_copied", "add", Var("copied"))


EDITS: tuple[tuple[tuple[type, ...], Edit], ...] = (
    ((For, Tile), other_field), ((Let, Accumulate), other_field), ((Stage,), other_field),
    ((For, Load, Store, Let, If), guarded), ((If, Load), other_guard), ((For, Accumulate, Stage, If), repeated),
    ((Load, Let, Accumulate, Store, Sync, Wait, Combine, CombineTuple, Mma, WaitMma), lambda statement, *_: ()),
    ((Accumulate, Sync, Stage, For, If), lambda statement, *_: (statement, statement)),
    ((Load, Let, Accumulate, For, Sync), extended), ((Load, Let, Accumulate, For, Sync), extended),
    ((Load,), other_index), ((Load,), copied_again),
)  # fmt: skip


# ---- neighbours of a Kernel IR program


GUARD_TRIES = 6  # to put a guard where nothing that it hides is needed


def guarded_kernel(kernel: Kernel, dice: Dice) -> Kernel:
    """Put some statements under a guard: one that the kernel has already, or one on a thread or a replica."""
    sizes = {THREAD: next(nodes(kernel.body, Launch)).block}
    sizes |= {replicate.var: replicate.extent for replicate in nodes(kernel.body, Replicate)}
    conditions = [Binary("<", Var(name), size) for name, extent in sizes.items() for size in (extent, extent, 2)]
    conditions += [branch.cond for branch in nodes(kernel.body, Branch)]
    blocks = [(path, block) for path, block in holes(kernel.body) if path and block]
    for _ in range(GUARD_TRIES):
        path, block = dice.pick(blocks)
        first, last = 0, len(block) - 1
        if dice.often(50):
            first = dice.number(0, last)
            last = dice.number(first, last)
        branch = Branch(dice.pick(conditions), block[first : last + 1])
        made = replace(kernel, body=splice(kernel.body, path, first, last + 1, (branch,)))
        if not problems(made):
            return made
    return kernel


# ---- Neighbours of a Tensor IR program: other extents, functions and inputs, values that are read once more.


def perturbed_term(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Return the program after one to three changes; the result need not be well formed."""
    for _ in range(dice.number(1, 3)):
        graph = dice.pick(TERM_CHANGES)(graph, dice)
    return _lean(graph)


def other_axis_extent(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Replace one extent by another, in axes, indices and equal numbers; its multiples change with it."""
    extents = sorted({axis.extent for x in graph.ins for axis in x.axes})
    if not extents:
        return graph
    old, new = dice.pick(extents), numeral(dice, TERM_EXTENTS, 1, SHORT)
    equal = [x for x in terms(graph) if isinstance(x, Const) and x.value == old]
    changed = _replaced(graph, {x: compose.const(new, x.dtype) for x in equal})
    return renumbered(changed, resized(old, new))


def with_numbers(graph: TensorGraph, change: Callable[[int], Expr]) -> TensorGraph:
    """Return the program with the whole numbers of axes and indices changed; constants stay."""
    return _lean(renumbered(graph, change))


def other_term(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Change a function to a similar one, a constant, or an input to a function of it."""
    kind, field, among, edit = dice.pick(TERM_EDITS)
    found = [x for x in terms(graph) if isinstance(x, kind) and getattr(x, field) in among]
    if not found:
        return graph
    chosen = dice.pick(found)
    return _replaced(graph, {chosen: edit(chosen, dice)})


def read_again(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Add a function of a value to the results."""
    found = [x for x in terms(graph) if dtype(x) == "f32" and axes(x)]
    if not found:
        return graph
    shown = Elementwise(dice.pick(("copy", "negative", "relu", "exp")), (dice.pick(found),))
    more = Output(f"more{len(graph.outs)}", axes(shown), shown)
    return TensorGraph(graph.name, graph.ins, (*graph.outs, more))


TERM_CHANGES = (other_axis_extent, other_axis_extent, other_term, other_term, other_term, read_again)
ALIKE = {fn: tuple(other for other in group if other != fn) for group in (UNARY, BINARY) for fn in group}
# Which terms may change, by their class and one of their fields, and to what.
TERM_EDITS: tuple[tuple[type[Term], str, Container[str], Callable[[Any, Dice], Term]], ...] = (
    (Elementwise, "fn", ALIKE, lambda x, dice: Elementwise(dice.pick(ALIKE[x.fn]), x.args)),
    (Const, "dtype", ("f32", "i64"), lambda x, dice: compose.const(constant(dice, NUMBERS), x.dtype)),
    (Input, "dtype", ("f32",), lambda x, dice: Elementwise(dice.pick(UNARY), (x,))),
)


def _replaced(graph: TensorGraph, others: dict[Term, Term]) -> TensorGraph:
    """Return the program with some terms replaced."""
    made = dict(others)
    for term in terms(graph):
        made.setdefault(term, compose.rebuilt(term, made.__getitem__))
    outs = tuple(replace(out, value=made[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


def _lean(graph: TensorGraph) -> TensorGraph:
    """Keep the inputs that are still read, and give results all their axes."""
    ins = sorted((x for x in terms(graph) if isinstance(x, Input)), key=lambda x: x.name)
    outs = (replace(out, axes=tuple(dict.fromkeys((*out.axes, *axes(out.value))))) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins), tuple(outs))


# ---- Smaller subjects: kernels, statements, axes and extents less, buffers in the sizes that are left.


def smaller_programs(program: Module) -> Iterator[Module]:
    """Yield programs that are a little smaller, the smallest first."""
    if len(program) > 1:
        yield from (_with(program, n) for n in range(len(program)))
    for n, kernel in enumerate(program):
        for body in _smaller(kernel):
            with contextlib.suppress(*ERRORS, TooLarge):
                yield _with(program, n, closed(replace(kernel, body=body), kernel.body))


def _smaller(kernel: Kernel) -> Iterator[Block]:
    """Yield the body with one statement gone, or replaced by what is inside of it, with an axis or an extent less."""
    for path, block, at in places(kernel)[None]:
        statement: Any = block[at]
        fewer: list[Block] = [(), statement.body] if isinstance(statement, For | If) else [()]
        if isinstance(statement, Tile):
            fewer += [(replace(statement, axes=_with(statement.axes, n)),) for n in range(len(statement.axes))]
        yield from map(Context(kernel.body, path, at, at + 1).plug, fewer)
    for old in reversed(_extents(kernel.body)):
        for new in dict.fromkeys((1, 2, 3, old // 2)):
            if new < old:
                for multiples in (True, False):
                    yield renumbered(kernel.body, resized(old, new, multiples))
