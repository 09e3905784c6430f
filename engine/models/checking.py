"""Whether a model's outputs are right: against its Torch IR in float64, where that fits in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...codegen.emulator.executor import EmulatorExecutor
from ...ir.diagnostic import DplcError
from ...ir.interp import torch as meaning
from ..run.judge import Judgement, judge
from .artefact import Artefact

# Of max|y - reference| / max|reference|: in f32 what whole models are held to, else eight roundings of the dtype.
GATES = {
    "f64": 1e-10,
    "f32": 1e-4,
    "f16": 8 * torch.finfo(torch.float16).eps,
    "bf16": 8 * torch.finfo(torch.bfloat16).eps,
}
LARGEST = 1 << 28  # elements of weights that are worth a run in float64


@dataclass(frozen=True)
class Comparison:
    """judged: what the judge says, None where nothing was compared, which `why` explains."""

    judged: Judgement | None
    gate: float
    why: str = ""

    @property
    def relative(self) -> float | None:
        """The largest error over the largest value."""
        return None if self.judged is None else self.judged.relative

    @property
    def ok(self) -> bool:
        return self.judged is None or self.judged.ok

    def line(self) -> str:
        if self.judged is None:
            return f"not compared with float64: {self.why}"
        error, verdict = self.judged.relative, self.judged.verdict
        return f"against float64: max|error| over max|reference| {error:.2e}, gate {self.gate:.0e}: {verdict}"

    def record(self) -> dict[str, Any]:
        return {"ok": self.ok, "max_rel_err": self.relative, "compared": self.relative is not None}


def emulator() -> EmulatorExecutor:
    """The emulator as models run on it: temporaries in the arena, as on a GPU."""
    return EmulatorExecutor(arena=True)


def compare(
    found: Artefact, tensors: Mapping[str, Any], results: Sequence[Any], sizes: Mapping[str, int] | None = None
) -> Comparison:
    """Outputs against the reference. tensors: weights, constants and inputs by name; sizes: the lengths of these.

    Raises DplcError for a Torch IR that cannot be run.
    """
    gate = GATES[found.plan.dtype]
    elements = sum(math.prod(want.shape) for want in found.weights.values())
    if elements > LARGEST:
        return Comparison(None, gate, f"{elements / 1e9:.1f} billion weights would take {8 * elements / 1e9:.0f} GB")
    graph = found.torch_graph(sizes)
    try:
        wanted = meaning.run(graph, tensors)
        return Comparison(judge(results, wanted, gates=dict.fromkeys(GATES, gate)), gate)
    except DplcError:
        raise
    except Exception as error:  # torch has many classes for a damaged graph
        why = str(error).splitlines()[:1] or [type(error).__name__]
        raise DplcError(
            f"the artefact is damaged: {found.folder / 'ir' / 'torch.ir'} cannot be run: {why[0]}"
        ) from None
