"""What of programs dplc compiled and what it left to eager: how many ops, and how long they take as predicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.substitute import with_hints
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import predict
from .partition import user_place
from .views import value


@dataclass
class EagerOps:
    """Ops that run in eager for one cause. seconds: predicted; place: where the user wrote the first, if known."""

    why: str
    place: str | None
    hint: str | None
    ops: int = 0
    seconds: float = 0.0


@dataclass
class Shares:
    """What `torch.compile(model, backend="dplc", options={"shares": shares})` made of what was called: print it at the
    end of a session.

    runs: whether compiled parts run; without, they are compiled and PyTorch computes their results. ops, seconds: of
    everything that was compiled, of one run of each part, in seconds as predicted for the example of each open length;
    eager: {cause: its ops}.
    """

    runs: bool = True
    ops: int = 0
    seconds: float = 0.0
    eager: dict[str, EagerOps] = field(default_factory=dict)

    def add_compiled(self, compilation: Any, ops: int) -> None:
        """A part that was compiled. compilation: a `Compilation`; ops: of the part."""
        machine, kernels = compilation.target, with_hints(compilation.kernels)
        each = [predict(instruction_counts(kernel), machine).seconds for kernel in kernels]
        self.ops += ops
        self.seconds += sum(each[kernel] for kernel in compilation.launched)

    def add_eager(self, nodes: Any, problem: DplcError, bad: Any | None, machine: Target) -> None:
        """Nodes of a graph that eager runs. bad: the one that the problem was found at."""
        found = self.eager.setdefault(problem.what, EagerOps(problem.what, user_place(bad, problem.span), problem.hint))
        found.ops += len(nodes)
        found.seconds += sum(eager_seconds(node, machine) for node in nodes)

    @property
    def all_ops(self) -> int:
        return self.ops + sum(cause.ops for cause in self.eager.values())

    @property
    def all_seconds(self) -> float:
        return self.seconds + sum(cause.seconds for cause in self.eager.values())

    def __str__(self) -> str:
        if not self.all_ops:
            return "nothing was compiled, and nothing left to eager"
        time = self.seconds / self.all_seconds if self.all_seconds else 1.0
        lines = [
            f"dplc runs {self.ops} of {self.all_ops} ops ({_percent(self.ops / self.all_ops)}), "
            f"{_percent(time)} of the {self.all_seconds * 1e6:.1f} us predicted"
        ]
        for cause in sorted(self.eager.values(), key=lambda cause: -cause.seconds):
            lines.append(f"in eager {cause.ops}, {cause.seconds * 1e6:.1f} us: {cause.why}")
            lines += [f"  at {cause.place}"] if cause.place else []
            lines += [f"  help: {cause.hint}"] if cause.hint else []
        return "\n".join(lines)


def eager_seconds(node: Any, machine: Target) -> float:
    """An op in eager, predicted: a launch, and its tensors moved once. What it computes is not counted."""
    tensors = [value(argument) for argument in node.all_input_nodes] + [value(node)]
    leaves = [leaf for tensor in tensors for leaf in torch.utils._pytree.tree_leaves(tensor)]
    moved = sum(int(leaf.numel()) * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))
    return float(machine.launch_seconds + moved / machine.dram_bytes_per_second)


def _percent(share: float) -> str:
    """`100%` for all of it alone."""
    return "100%" if share == 1 else f"{min(share, 0.999):.1%}"
