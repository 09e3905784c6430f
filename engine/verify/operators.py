"""Which torch ops the rules take, and what becomes of each in every dtype: found by running the rules' own examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.diagnostic import INTERNAL, DplcError
from ...ir.interp.torch import evaluated
from ...ir.node import replace
from ...ir.schemas import aten_name, names
from ...ir.torch import TorchGraph
from ..api import Compiled
from ..capture.decompositions import table
from ..capture.signature import Capture
from ..compiler import Compiler
from ..language.rule import Rule, RuleSet
from ..rewrite.torch_rules.lower import compile_rules
from ..run.calls import judge_program
from .checkers import UNWRITTEN, TorchChecker
from .outcome import Arrays
from .torch_subjects import NoSubject, accepted, fillings, retyped

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


def operators(rules: RuleSet) -> dict[str, tuple[Rule, ...]]:
    """Return {name in aten: the rules that start from it}, by name."""
    found = {aten_name(op): tuple(c.rule for c in group) for op, group in compile_rules(rules).items()}
    return dict(sorted(found.items()))


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


# ---- Which ATen ops nothing takes, by cause: what `dplc ops --missing` prints.


# Words of names and tags of torch, by the cause that they show: of several causes the first one counts.
CAUSES = {
    "draw random numbers": "nondeterministic_seeded",
    "spectra and complex numbers": "fft complex stft istft polar real imag",
    "sparse and quantized tensors": "sparse quantize quantized fake dequantize csr coo crow ccol q",
    "derivatives that PyTorch names": "backward grad",
    "names of one device's or library's own kernels": (
        "cudnn mkldnn miopen mps nnpack thnn cuda cufft cslt nested jagged"
    ),
    "give a shape that depends on values": "dynamic_output_shape",
    "give a number of Python": "data_dependent_output",
}


def missing(rules: RuleSet) -> dict[str, list[str]]:
    """Return {cause: the names of ATen ops that neither a rule nor a decomposition lowers}, by name."""
    taken = operators(rules).keys() | _decomposed()
    by_cause: dict[str, list[str]] = {}
    for name in sorted(aten_name(op) for op in names()):
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and name not in taken:
            tags = {tag.name for word in packet.overloads() for tag in getattr(packet, word).tags}
            parts = tags.union(name.strip("_").split("_"))
            cause = next(
                (cause for cause, words in CAUSES.items() if not parts.isdisjoint(words.split())), "no rule yet"
            )
            by_cause.setdefault(cause, []).append(name)
    return dict(sorted(by_cause.items(), key=lambda entry: len(entry[1])))


def supported(rules: RuleSet) -> tuple[int, int]:
    """Return the number of ops that rules lower, and the number that PyTorch's own decompositions add."""
    ruled = operators(rules).keys()
    return len(ruled), len(_decomposed() - ruled)


def _decomposed() -> set[str]:
    return {overload._schema.name.rpartition("::")[2] for overload in table()}
