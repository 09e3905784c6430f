"""Names that people read: kernels after the torch ops they compute, temporaries after the values they hold."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ...ir.facts.dataflow import Dataflow, contracts, topological
from ...ir.monoids import of_part
from ...ir.names import unused
from ...ir.schemas import aten_name
from ...ir.tensor import Elementwise, Fold, Reduce, Remap, TensorGraph, factors, operands
from ...ir.torch import TorchOp
from ..language.evaluate import RESERVED

# Words that no value, loop or buffer may be called, so that every dump reads back and the CUDA compiles.
_SYNTAX = """
for in if and or not load by each inside rule with on let where match pass kernel graph example gives because pick
prefer rewrite drop none true false inf mat
"""
_CUDA = """
auto bool break case char const continue default do double else enum extern float goto int long register return short
signed sizeof static struct switch typedef union unsigned void volatile while class new delete this template typename
namespace using public private virtual operator half blockIdx threadIdx blockDim gridDim
"""
KEYWORDS = RESERVED.union(_SYNTAX.split(), _CUDA.split())

MOST = 4  # operations that a kernel's name lists
QUIET = frozenset(("where", "copy", "f32", "f16", "bf16", "i32", "i64", "b8"))
FOLDS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "product",
    "logical_or": "any",
    "logical_and": "all",
}

# Functions of the C library that are also torch ops: a kernel is an `extern "C"` function, and must not be one of them.
_LIBRARY = """
clone copysign div double erfc frexp gamma hypot index ldexp lgamma log1p logb max min nextafter random read remainder
remove rename scalbn select signal signbit time write
"""
LIBRARY = frozenset(_LIBRARY.split())


class Names:
    """Names of one program. values: what the lines between are called; origins: the torch op behind each term."""

    def __init__(self, graph: TensorGraph, flow: Dataflow, stored: Container[Any], origins: Mapping[Any, TorchOp]):
        self.flow, self.stored, self.origins = flow, stored, origins
        self.values: dict[Any, str] = {named.value: identifier(named.name) for named in graph.names}
        self.used = {x.name for x in graph.ins} | {out.name for out in graph.outs}
        self.kernels: set[str] = set()

    def temporary(self, term: Any) -> str:
        """The name of a buffer between kernels."""
        return self._unique(self.values.get(term) or self._label(term) or "value", self.used)

    def kernel(self, values: Sequence[Any]) -> str:
        """The name of the kernel that stores these values: its operations in order, each once."""

        def below(term: Any) -> Sequence[Any]:
            return () if term in self.stored and term not in values else operands(term)

        found: dict[str, None] = {}
        for term in topological(values, below):
            if term in values or term not in self.stored:
                label = self._label(term)
                if label:
                    found.setdefault(label)
        labels = list(found) or ["copy"]
        if len(labels) > MOST:
            labels = [*labels[: MOST - 1], labels[-1]]
        name = "_".join(labels)
        if name in KEYWORDS or name in LIBRARY:
            name = f"{name}_kernel"
        return self._unique(name, self.kernels)

    def _label(self, term: Any) -> str | None:
        origin = self.origins.get(term)
        if origin is not None:
            return identifier(aten_name(origin.op))
        if term.__class__ is Reduce:
            return "matmul" if self._contracts(term) else FOLDS.get(term.fn, term.fn)
        if term.__class__ is Fold:
            return str(of_part(term.part)[0].name)
        if term.__class__ is Elementwise:
            inside = term.fn == "multiply" and any(
                r.__class__ is Reduce and self._contracts(r) for r in self.flow.readers.get(term, ())
            )
            return None if term.fn in QUIET or inside else str(term.fn)
        return "gather" if term.__class__ is Remap and len(operands(term)) > 1 else None

    def _contracts(self, term: Any) -> bool:
        return contracts(self.flow.mask[term], *(self.flow.mask[factor] for factor in factors(term)))

    def _unique(self, wanted: str, used: set[str]) -> str:
        name = unused(wanted, used, KEYWORDS, between="_", first=2)
        used.add(name)
        return name


def identifier(text: str) -> str:
    """A text as a C identifier."""
    cleaned = re.sub(r"\W+", "_", text).strip("_") or "value"
    return cleaned if cleaned[0].isalpha() else f"n{cleaned}"
