"""`dplc doctor --model`: how much of a model dplc runs, and what eager does."""

from __future__ import annotations

import architectures
import pytest
from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.cli.models import shares_of
from dplc.engine.models.compiling import ModelShape
from dplc.engine.models.sources import ModelSource
from dplc.ir.diagnostic import DplcError

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_a_model_with_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are zeros, tied ones tied; what eager runs is named with its line."""
    entry = architectures.ARCHITECTURES["deepseek_v2"]
    model = ModelSource("tiny", {"model_type": entry["type"], **entry["config"]})
    found = shares_of(model, ModelShape(length=7), target("h200"))
    assert found.ops == found.all_ops and 0 < found.seconds == found.all_seconds and not found.eager
    monkeypatch.setattr("dplc.codegen.arrays.memory_bytes", lambda: 1000)
    with pytest.raises(DplcError, match=r"the weights \(--layers 1 takes fewer\) take"):
        shares_of(model, ModelShape(length=7), target("h200"))


def test_a_whole_model() -> None:
    found = shares_of(source("tied"), ModelShape(length=7), target("h200"))
    assert found.ops == found.all_ops > 50 and not found.eager
