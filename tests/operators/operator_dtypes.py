"""What becomes of each torch op in every dtype: found by running the rules' own examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from dplc.engine.api import Compiled
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compiler
from dplc.engine.language.rule import Rule
from dplc.engine.run.calls import judge_program
from dplc.engine.verify.checkers import UNWRITTEN, TorchChecker
from dplc.engine.verify.outcome import Arrays
from dplc.engine.verify.torch_subjects import NoSubject, accepted, fillings, retyped
from dplc.ir.diagnostic import INTERNAL, DplcError
from dplc.ir.interp.torch import evaluated
from dplc.ir.node import replace
from dplc.ir.torch import TorchGraph

COLUMNS = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b8")
# The first one that a program of an op gave represents all.
WORST = CRASHED, WRONG, RIGHT, REFUSED, ABSENT, UNTRIED = ("error", "wrong", "right", "refused", "-", "untried")


@dataclass(frozen=True)
class OperatorVerdict:
    """Verdict on an op in a dtype.

    word: one of WORST (`-`: PyTorch itself has no such op of that dtype; `untried`: no example of it can be run). why:
    the reason, for every word but `right`.
    """

    word: str
    why: str = ""


def judged(rules: Iterable[Rule], dtypes: Iterable[str], compiler: Compiler) -> dict[str, OperatorVerdict]:
    """Return the worst verdict on an op in each dtype, over the examples of its rules with floats of that dtype."""
    examples = TorchChecker(compiler.tools.torch).examples(rules)
    graphs = dict.fromkeys(subject.value for subject in examples if subject.value.body)  # rules share some of them
    untried = OperatorVerdict(UNTRIED, "no example")
    return {
        dtype: min(
            (_judged(_in_dtype(graph, dtype), compiler) for graph in graphs),
            key=lambda verdict: WORST.index(verdict.word),
            default=untried,
        )
        for dtype in dtypes
    }


def _in_dtype(graph: TorchGraph, dtype: str) -> TorchGraph:
    """Return the program with its floats in another dtype; without floats, with all inputs in it."""
    floats = any(param.dtype == "f32" for param in graph.ins)
    ins = (replace(param, dtype=dtype) if param.dtype == "f32" or not floats else param for param in graph.ins)
    return replace(graph, ins=tuple(ins))


def _judged(graph: TorchGraph, compiler: Compiler) -> OperatorVerdict:
    try:
        graph, tensors, eager = _eager(graph)
    except NoSubject as refused:
        return OperatorVerdict(ABSENT, str(refused))
    captured = Capture(graph, tensors, dict.fromkeys(tensors, "input"), {})
    try:
        results = Compiled(compiler.compile(captured), "emulator").run({})
    except DplcError as error:
        word = CRASHED if error.exit_code == INTERNAL else REFUSED
        return OperatorVerdict(word, "; ".join((error.what, *error.notes)))
    except Exception as error:  # any exception here is a finding
        return OperatorVerdict(CRASHED, f"{type(error).__name__}: {error}")
    for got, want in zip(results, eager, strict=True):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return OperatorVerdict(WRONG, f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}")
    if not any(UNWRITTEN in statement.op for statement in graph.body):
        found = judge_program(captured, tensors, results, eager, compiler.target)
        if not found.ok:
            return OperatorVerdict(WRONG, f"off by {found.absolute:.2e}")
    return OperatorVerdict(RIGHT)


def _eager(graph: TorchGraph) -> tuple[TorchGraph, Arrays, list[Any]]:
    """Return the program with torch's types, tensors that torch accepts, and its results. Raises NoSubject."""
    graph = retyped(graph)

    def run(tensors: Arrays) -> tuple[TorchGraph, Arrays, list[Any]]:
        with torch.no_grad():
            return graph, tensors, evaluated(graph, dict(tensors), wide=False)

    return accepted(fillings(graph), run)
