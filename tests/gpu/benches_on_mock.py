"""Benches through the real PyCUDA on the mock driver; run_on_mock.py runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from on_mock_driver import MockedExecutor

from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.bench.bench import CompiledCase, describe, measure, rows
from dplc.engine.bench.records import CaseRecord
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with


class Counting:
    """Every run takes two microseconds, and is run."""

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        return 2e-6

    def graph(self, run: Callable[[], Any]) -> None:
        return None


def an_expression_and_each_of_its_kernels_are_timed() -> None:
    text = "m = nn.Linear(256, 64)\nm(torch.randn(16, 256)), torch.softmax(torch.randn(8, 64), -1)"
    compilation = compiler_with(target("sm_90a")).compile(capture_text(text))
    compiled = CompiledCase(compilation, CaseRecord(name="", operation="", sizes={}, dtype=""))
    describe(compiled)
    kernels = rows(compiled.record.kernels)
    callee = Compiled(compilation, "emulator")
    callee.executor = MockedExecutor()
    made_by = functools.partial(torch.compile, backend="eager")  # the times are made up: nothing need be built for it
    with mock.patch("torch.compile", made_by):
        measure(compiled, kernels, callee, Counting())
    found = compiled.record.measured
    assert found is not None and not found.wrong and found.relative_error is not None, found
    assert found.dplc is not None and found.eager is not None and abs(found.dplc.median_us - 2) < 1e-9
    assert len(kernels) >= 2
    for case in kernels:
        timed = case.measured.dplc if case.measured is not None else None
        assert timed is not None and abs(timed.median_us - 2 * case.sizes["launches"]) < 1e-9, case
    assert torch.isfinite(callee.run({})[0]).all()
