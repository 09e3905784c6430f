"""Control flow of a program: torch's `scan`, `map` and `cond`, and the steps of recurrent layers, as Torch IR.

A loop is one statement, `Scan`, however many steps it has. What all of its steps would compute alike is computed once,
before it: products with weights and constants. Both branches of a condition are computed, and one of them is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import decompositions
from torch.fx import GraphModule, Node

from ...codegen.kernel import POINTER_ALIGNMENT
from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from ...ir.expr import Var, free_names
from ...ir.program import Param, TensorType
from ...ir.schemas import LOOP
from ...ir.substitute import substitute
from ...ir.torch import TorchGraph
from .fx_rewrites import Function, placeholders


def add_loop(made: Any, module: GraphModule, node: Node) -> tuple[Var, ...]:
    """Add a loop of an exported program. Return its results: the last carried values, and the stacked rows.

    Raises DplcError for a loop inside of another one.
    """
    if made.inside is not None:
        raise DplcError("a loop inside of a loop is not supported")
    step, *given = node.args
    init, xs, reads = given if len(given) == 3 else ((), *given)
    inner, first = getattr(module, step.target), len(init)
    carried, stacked = ([made.params[made.values[x].name] for x in nodes] for nodes in (init, xs))
    nodes, rows = placeholders(inner), [_packed(made, x, 1) for x in stacked]
    made.values.update(zip(nodes[first + len(xs) :], map(made.values.__getitem__, reads), strict=True))
    ins = [Param(made.fresh(x.name), x.dtype, x.shape) for x in carried]
    ins += (Param(made.fresh(x.name), x.dtype, x.shape[1:]) for x in rows)
    made.inside = dict.fromkeys(x.name for x in ins)
    made.params.update((x.name, x) for x in ins)
    shapes = [x.shape for x in carried] + [x.shape[1:] for x in stacked]
    made.values.update((x, _unpacked(made, own, n)) for x, own, n in zip(nodes, ins, shapes, strict=False))
    outputs = inner.graph.output_node().args[0]
    made.region(inner, outputs)
    results = [_computed(made, made.values[x].name) for x in outputs]
    outs = [*results[:first], *(_packed(made, x, 0) for x in results[first:])]
    inside, made.inside = made.inside, None
    body = [op for op in inside.values() if op is not None]
    read = set[str]().union(*(free_names(op.args) for op in body)) & made.params.keys() - inside.keys()
    own = {name: Param(made.fresh(name), made.params[name].dtype, made.params[name].shape) for name in sorted(read)}
    statements = tuple(substitute(op, {name: Var(x.name) for name, x in own.items()}) for op in body)
    graph = TorchGraph(made.fresh("step"), (*ins, *own.values()), tuple(outs), statements)
    lead = [*[()] * first, *[rows[0].shape[:1]] * (len(outs) - first)]
    types = tuple(TensorType(x.dtype, (*times, *x.shape)) for x, times in zip(outs, lead, strict=True))
    names = ("init", [x.name for x in carried]), ("xs", [x.name for x in rows]), ("reads", own)
    args = (*((field, tuple(map(Var, each))) for field, each in names), ("body", graph))
    loop = made.add(LOOP.lower(), LOOP, args, types)
    found = (_added(made, Param(loop, x.dtype, x.shape), "Getitem", x.shape, index=n) for n, x in enumerate(types))
    shapes = [(*times, *x.shape) for times, x in zip(lead, results, strict=True)]
    return tuple(_unpacked(made, x, shape) for x, shape in zip(found, shapes, strict=True))


def _computed(made: Any, name: str) -> Param:
    """Return a value that a step computes: what a copy is of; a copy of what is the same in all steps."""
    inside = made.inside or {}
    while (op := inside.get(name)) is not None and op.op == "Clone":
        name = dict(op.args)["self"].name
    x = made.params[name]
    return x if name in inside else _added(made, x, "Clone", x.shape)


def add_cond(made: Any, module: GraphModule, node: Node) -> tuple[Var, ...]:
    """Add both branches of a condition, and for each result the choice of one. Return the results."""
    condition, *branches, operands = node.args
    drawing, made.drawing = made.drawing, False
    sides: list[tuple[Var, ...]] = [made.inlined(getattr(module, branch.target), operands) for branch in branches]
    made.drawing = drawing
    if not isinstance(condition, Node):  # known when the program is compiled
        return sides[0 if condition else 1]
    chosen = []
    for a, b in zip(*sides, strict=True):
        args, kind = (("condition", made.values[condition]), ("self", a), ("other", b)), made.params[a.name]
        chosen.append(Var(made.add("cond", "Where", args, (TensorType(kind.dtype, kind.shape),))))
    return tuple(chosen)


# {name of torch's operator: what adds its statements}
CONTROL_FLOW: dict[str, Function] = {"scan": add_loop, "map_impl": add_loop, "cond": add_cond}

# ---- Rows that do not fill whole units of memory are padded, for each step reads and writes aligned memory.


def _packed(made: Any, x: Param, lead: int) -> Param:
    """Return rows with padding, if they are not aligned. lead: how many dimensions are before those of a row."""
    count, before = math.prod(x.shape[lead:]), x.shape[:lead]
    missing = -count % (POINTER_ALIGNMENT // DTYPES[x.dtype].item_bytes) if isinstance(count, int) else 0
    if not missing:
        return x
    flat = _added(made, x, "View", (*before, count), size=(*before, count))
    return _added(made, flat, "ConstantPadNd", (*before, count + missing), pad=(0, missing))


def _unpacked(made: Any, x: Param, shape: tuple[Any, ...]) -> Var:
    """Return rows of a shape without their padding."""
    if x.shape != shape:
        lead = len(x.shape) - 1
        end = math.prod(shape[lead:])
        x = _added(made, x, "Slice", (*x.shape[:lead], end), **{"dim": lead} if lead else {}, end=end)
        x = _added(made, x, "View", shape, size=shape)
    return Var(x.name)


def _added(made: Any, x: Param, op: str, shape: tuple[Any, ...], **fields: Any) -> Param:
    """Add an op on x with a result of its dtype."""
    args = ("self", Var(x.name)), *fields.items()
    param: Param = made.params[made.add(x.name, op, args, (TensorType(x.dtype, shape),))]
    return param


# ---- Recurrent layers: PyTorch's formulas, whose loops over the steps are scans.


def recurrent(formula: Function) -> Function:
    """Return a formula of a recurrent layer of `torch._decomp` with its loops over steps as scans."""

    def of_scans(*args: Any, **options: Any) -> Any:
        if args[5] and args[6]:  # torch's formula would lose it
            raise DplcError("dropout between recurrent layers draws random numbers", hint="call `.eval()` on it")
        with mock.patch.multiple(decompositions, one_layer_rnn=_rnn_layer, one_layer_lstm=_lstm_layer):
            return formula(*args, **options)

    return of_scans


def _rnn_layer(
    x: Tensor, hidden: Tensor, params: Sequence[Tensor], biased: bool, hidden_fn: Function, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what a layer gives, x [steps, batch, inputs] to [steps, batch, hidden], and its last hidden state."""

    def cell(row: Tensor, states: Sequence[Tensor], w: Tensor, b: Tensor | None, _: Tensor | None) -> list[Tensor]:
        return [hidden_fn(row, *states, None, None, w, b)]

    rows, (last,) = _scanned(cell, [hidden], x, params, biased, reverse)
    return rows, last


def _lstm_layer(
    x: Tensor, hidden: tuple[Tensor, Tensor], params: Sequence[Tensor], biased: bool, reverse: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Return what a layer gives, x [steps, batch, inputs] to [steps, batch, hidden], and its last states."""

    def cell(row: Tensor, states: Sequence[Tensor], w: Tensor, b: Tensor | None, mix: Tensor | None) -> list[Tensor]:
        return list(decompositions.lstm_cell(row, *states, w, b, mix, chunk_dim=2))

    return _scanned(cell, hidden, x, params, biased, reverse)


def _scanned(
    cell: Function, states: Sequence[Tensor], x: Tensor, params: Sequence[Tensor], biased: bool, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return the rows of a layer and its last states. All steps' products with the inputs are one, before the loop.

    cell: makes the states of a step from the row, the states before, the weight and bias of these, and a projection.
    """
    count, (bias, mix) = len(states), (params[3 : 4 if biased else 3], params[4 if biased else 2 :])

    def step(*given: Tensor) -> list[Tensor]:
        weight, *more = given[count + 1 :]
        made = cell(given[count], given[:count], weight, more[0] if biased else None, more[-1] if mix else None)
        return [*made, made[0].clone()]

    rows = F.linear(x, params[0], params[2] if biased else None)
    rows = rows.flip(0) if reverse else rows
    weights = (params[1], *bias, *mix)
    *last, out = torch.ops.higher_order.scan(step, [state.unsqueeze(0) for state in states], [rows], weights)
    out = out.squeeze(1)
    return out.flip(0) if reverse else out, [state.squeeze(0) for state in last]
