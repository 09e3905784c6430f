"""How many kernels torch.compile makes of a program: what inductor generates, and its calls of libraries.

Nothing is built or run: inductor's wrapper text is written and counted, for the GPU that is here, else for the CPU,
where it fuses by other rules.
"""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from typing import Any
from unittest import mock

import torch

CALLS = re.compile(
    r"^ +(?:\w+ = )?(cpp_fused\w*|triton_\w+\.run|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", re.MULTILINE
)


class NotBuilt:
    """Stands for the module that the text would be."""

    def call(self, *_: Any) -> None:
        return None


def backend() -> str:
    """Which of inductor's backends counts."""
    return "CUDA" if torch.cuda.is_available() else "CPU"


def kernels(program: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[int, int]:
    """(generated kernels, library calls) of a program, given on the meta device."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    texts: list[str] = []

    def written(lowering: Any) -> NotBuilt:
        texts.append(lowering.codegen()[0].value)
        return NotBuilt()

    device = backend().lower()
    program = copy.deepcopy(program).to_empty(device=device)
    there = tuple(torch.empty(x.shape, device=device) for x in inputs)
    torch._dynamo.reset()
    untouched = config.patch(force_disable_caches=True)  # a text without a module is nothing to remember
    with mock.patch.object(GraphLowering, "compile_to_module", written), untouched, torch.no_grad():
        warnings.filterwarnings("ignore", message="dynamo_pgo")
        with contextlib.suppress(AssertionError, TypeError, IndexError):  # nothing was run: no results
            torch.compile(program)(*there)
    calls = [name for text in texts for name in CALLS.findall(text[text.index("def call(") :])]
    generated = sum(name.startswith(("cpp_fused", "triton")) for name in calls)
    return generated, len(calls) - generated
