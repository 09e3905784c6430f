"""What every capture, and every graph that it is lowered to, must satisfy, checked in one place."""

from __future__ import annotations

import ast
import itertools
import textwrap
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dplc.engine.capture.capture import SCOPE, fold
from dplc.engine.capture.signature import Capture
from dplc.engine.language.rule import load
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.ir import schemas
from dplc.ir.expr import free_names
from dplc.ir.interp.tensor import run as run_tensor_graph
from dplc.ir.interp.torch import run
from dplc.ir.tensor import TensorGraph
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.tensor import verify

RULES = load()


def data(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def evaluated(text: str, seed: int = 0) -> Any:
    """What Python says that a text is."""
    tree = ast.parse(textwrap.dedent(text).strip())
    tree.body[-1] = ast.Assign([ast.Name("result", ast.Store())], tree.body[-1].value)  # type: ignore[attr-defined]
    scope, _ = dict(SCOPE), torch.manual_seed(seed)
    with torch.no_grad():
        exec(compile(ast.fix_missing_locations(tree), "text", "exec"), scope)
    return scope["result"]


def assert_same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Equal structure; floats, in float64, within the tolerance of the largest value, everything else exactly."""
    (left, left_spec), (right, right_spec) = map(pytree.tree_flatten, (got, want))
    assert left_spec == right_spec
    for a, b in zip(left, right, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
        elif b.is_floating_point() and b.numel():
            near = tolerance * max([1.0, *b[b.isfinite()].abs().tolist()])
            torch.testing.assert_close(a, b.double(), rtol=0, atol=near, equal_nan=True)
        else:
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_reads_back(graph: Any, level: str) -> None:
    """The text of a graph is that very graph."""
    assert read_program(print_program(graph, level)) == (level, (graph,))


def assert_well_formed(captured: Capture) -> None:
    """Names are defined once and before use, statements resolve, tensors are of the declared type, the text reads back."""
    graph = captured.graph
    defined = {param.name for param in graph.ins}
    assert len(defined) == len(graph.ins)
    assert set(captured.tensors) == set(captured.kinds) == defined
    for param in graph.ins:
        assert tuple(captured.tensors[param.name].shape) == param.shape
        assert schemas.DTYPES[param.dtype] == str(captured.tensors[param.name].dtype).removeprefix("torch.")
    for statement in graph.body:
        assert free_names(statement.args) - schemas.DTYPES.keys() <= defined
        assert statement.dst not in defined
        defined.add(statement.dst)
        assert schemas.resolve(statement.op, statement.args) is not None, statement
        assert statement.dst in captured.spans
    assert {out.name for out in graph.outs} <= defined
    assert_reads_back(graph, "torch")


def assert_means(captured: Capture, want: Any) -> None:
    """The program, as captured and with its constants folded, gives what torch gives."""
    for program in (captured, fold(captured)):
        assert_well_formed(program)
        outputs = run(program.graph, program.tensors)
        assert [out.shape for out in program.graph.outs] == [tuple(value.shape) for value in outputs]
        assert_same(program.signature.pack(outputs), want)


def check_lowering(captured: Capture, tolerance: float = 1e-12) -> TensorGraph:
    """Lower a program; its graph is valid, reads back, and gives what torch gives in float64."""
    folded = fold(captured)
    graph = lower(folded, RULES).graph
    verify(graph)
    held = {name: tensor.detach().cpu() for name, tensor in folded.tensors.items()}
    arrays = {name: (x.double() if x.is_floating_point() else x).numpy() for name, x in held.items()}
    found = [torch.tensor(array) for array in run_tensor_graph(graph, arrays)]
    assert_same(found, [x.squeeze() for x in run(folded.graph, folded.tensors)], tolerance)
    assert_reads_back(graph, "tensor")
    return graph


def ops(captured: Capture) -> list[str]:
    """The ops of a program in order."""
    return [statement.op for statement in captured.graph.body]


def pointed_at(span: Any) -> str:
    """The text under a span, of its first line."""
    line: str = span.source.line(span.line)
    return line[span.column : span.end_column if span.end_line == span.line else None]


def inputs_of(captured: Capture) -> str:
    """The inputs of a program in order: `input x y; parameter weight`."""
    of_kinds = itertools.groupby(captured.kinds, captured.kinds.__getitem__)
    return "; ".join(f"{kind} {' '.join(names)}" for kind, names in of_kinds)
