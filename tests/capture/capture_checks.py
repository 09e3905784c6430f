"""What every capture must satisfy, checked in one place."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from dplc.engine.capture.capture import fold
from dplc.engine.capture.signature import Capture
from dplc.ir import schemas
from dplc.ir.expr import free_names
from dplc.ir.interp.torch import run


def assert_same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Equal structure; floats within the tolerance of the largest value, everything else exactly."""
    left, left_spec = pytree.tree_flatten(got)
    right, right_spec = pytree.tree_flatten(want)
    assert left_spec == right_spec
    for a, b in zip(left, right, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
        elif not b.numel():
            torch.testing.assert_close(a, b)
        elif b.is_floating_point():
            finite = b[b.isfinite()]
            scale = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
            torch.testing.assert_close(a, b.double(), rtol=0, atol=tolerance * scale, equal_nan=True)
        else:
            assert a.dtype == b.dtype
            assert torch.equal(a, b)


def assert_well_formed(captured: Capture) -> None:
    """Names are defined once and before use, statements resolve, tensors are of the declared type."""
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


def assert_means(captured: Capture, want: Any) -> None:
    """The program, as captured and with its constants folded, gives what torch gives."""
    assert_well_formed(captured)
    folded = fold(captured)
    assert_well_formed(folded)
    for program in (captured, folded):
        outputs = run(program.graph, program.tensors)
        assert [out.shape for out in program.graph.outs] == [tuple(value.shape) for value in outputs]
        assert_same(program.signature.pack(outputs), want)


def ops(captured: Capture) -> list[str]:
    """The ops of a program in order."""
    return [statement.op for statement in captured.graph.body]


def caret(error: Any) -> str:
    """The text that an error points at, of its first line."""
    span = error.span
    line = span.source.line(span.line)
    return str(line[span.column : span.end_column if span.end_line == span.line else None])
