"""What the lowering of a torch graph gives: the program, what each rule did, and what it refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....ir.compose import Folded
from ....ir.tensor import TensorGraph, Term
from ....ir.torch import TorchOp
from ...language.rule import Rule
from .bounds import Bound
from .values import NotApplicable, View


@dataclass(frozen=True)
class Fired:
    """One firing, for the trace: the rule, the op it took and the value it gave; what its template says that
    canonical forms folded; origin: the user's op, where that is one which a template made."""

    rule: Rule
    statement: TorchOp
    value: View
    operands: tuple[Term, ...]
    bound: Mapping[str, Any] = field(default_factory=dict)
    folded: tuple[Folded, ...] = ()
    origin: str = ""

    def before(self) -> str:
        """The op as text."""
        from ....ir.text.torch import print_torch_op

        return print_torch_op(self.statement)

    def after(self, graph: TensorGraph) -> str:
        """What it became, named as in the finished graph."""
        from ....ir.text.tensor import print_lines

        assert self.value.term is not None
        return print_lines(graph, self.value.term, self.operands)


@dataclass(frozen=True)
class Refused:
    """A rule for an op that it did not take, for the trace, and why."""

    rule: Rule
    statement: TorchOp
    reason: NotApplicable


@dataclass(frozen=True)
class Lowered:
    """graph: the program. firings, refusals: in order, empty unless asked for. origins: the torch op that each term
    came from. bounds: the places that are looked at before it runs.
    """

    graph: TensorGraph
    firings: tuple[Fired, ...] = ()
    refusals: tuple[Refused, ...] = ()
    origins: dict[Term, TorchOp] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = ()
