"""What exploring a program gives: ways to compute it, each complete enough for compile to go on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.program import TensorType
from ...ir.tensor import Input, TensorGraph, Term
from ...ir.text import html
from ...ir.text.tensor import print_graph
from ...ir.torch import TorchOp
from .decisions import FusionDecisions
from .kernels import Plan

MakePlan = Callable[[TensorGraph, FusionDecisions, Mapping[Any, TorchOp], Sequence[TensorType] | None], Plan]


@dataclass(frozen=True)
class Prepared:
    """A weight that loading computes: the input that holds it, and what it is over other weights."""

    input: Input
    value: Term


@dataclass(frozen=True)
class Candidate:
    """A way to compute a program. graph: its spelling; decisions: its cuts; prepared: weights computed at load time.

    kernels, bytes: its launches and what they move. predicted_us: by the model, of the kernels that the lowering makes
    of it. label: `rules` for what the rules decide in their order, else `explored`. rules: those without which it would
    not be there. problem: why it cannot be lowered ("" where it can).
    """

    label: str
    graph: TensorGraph
    decisions: FusionDecisions
    prepared: tuple[Prepared, ...]
    kernels: int
    bytes: float
    predicted_us: float
    problem: str
    signature: Any = field(repr=False, compare=False)
    origins: Mapping[Any, TorchOp] = field(repr=False, compare=False)
    make_plan: MakePlan = field(repr=False, compare=False)
    rules: tuple[str, ...] = ()
    ranks: tuple[int, ...] = field(default=(), repr=False, compare=False)  # which solution of each region

    def plan(self, results: Sequence[TensorType] | None = None) -> Plan:
        """The candidate as kernels of Loop IR. results: torch's types of the outputs."""
        return self.make_plan(self.graph, self.decisions, self.origins, results)

    def _repr_html_(self) -> str:
        """For notebooks: its figures and its program."""
        made = "the rules in their order" if self.label == "rules" else ", ".join(self.rules) or "other cuts"
        row = (str(self.kernels), f"{self.bytes / 1e6:.2f} MB", f"{self.predicted_us:.1f} us", made, self.problem)
        titles = ("kernels", "moved", "predicted", "made by", "problem")
        program = html.folded("program", html.code(print_graph(self.graph)))
        return html.together(html.table(titles, [row]), program).text

    def record(self) -> dict[str, Any]:
        """What `--json` says of it."""
        return {
            "kernels": self.kernels, "bytes": self.bytes, "predicted_us": self.predicted_us, "rules": list(self.rules),
            "label": self.label, "prepared": len(self.prepared), "problem": self.problem or None,
        }  # fmt: skip
