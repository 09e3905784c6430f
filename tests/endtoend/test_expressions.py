"""Every op, from PyTorch to a kernel that ran: compiled, executed on the emulator, compared with float64."""

from __future__ import annotations

import pytest
from expressions import EXPRESSIONS

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_reference

CASES = [
    pytest.param(text, id=f"{group}-{place}")
    for group, texts in EXPRESSIONS.items()
    for place, text in enumerate(texts)
]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.sampled(18)
def test_expression(text: str) -> None:
    captured = capture_text(text)
    compilation = compiler_with(target()).compile(captured)
    results = Compiled(compilation, "emulator").run({})
    assert captured.reference is not None
    for result, eager in zip(results, captured.reference, strict=True):
        assert (result.dtype, result.shape) == (eager.dtype, eager.shape)
    references = run_reference(compilation.captured, compilation.captured.tensors)
    found = judge(results, references, captured.reference)
    assert found.ok, f"{text}\n{found}"
