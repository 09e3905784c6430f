"""What measures a model on a GPU, driven by the emulator and a clock that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import compiled

from dplc.codegen.target import target
from dplc.engine.bench import bench as running
from dplc.engine.models import benching
from dplc.engine.models.artefact import Artefact, emulator
from dplc.engine.models.sources import make, silent
from dplc.engine.ruleset import toolchain


class Counter:
    """Every run takes a microsecond."""

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        return 1e-6

    def graph(self, run: Callable[[], Any]) -> None:
        return None


@pytest.fixture
def subject() -> Artefact:
    return benching.of_compiled(compiled("llama"))


def test_all_are_measured_on_the_same_weights(subject: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        running, "compiled_by_torch", lambda function, inputs, clock: running.timing(lambda: None, clock)
    )
    cases = benching.predicted(subject, target("sm_80"), False, silent)
    benching.measure(subject, cases, make(subject.weights), emulator(), Counter(), "cpu")
    whole = cases[-1].measured
    assert whole is not None and not whole.wrong
    assert whole.relative_error is not None and whole.relative_error < 1e-5
    assert whole.dplc and whole.eager and whole.torch_compile
    for case in cases[:-1]:
        assert case.measured is not None and case.measured.dplc is not None
        assert case.measured.dplc.median_us == pytest.approx(case.sizes["launches"])


def test_a_wrong_result_is_not_timed(subject: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = benching.eager_model

    def changed(*arguments: Any) -> Any:
        model = eager(*arguments)
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 1.01, requires_grad=False)
        return model

    monkeypatch.setattr(benching, "eager_model", changed)
    cases = benching.predicted(subject, target("sm_80"), False, silent)
    benching.measure(subject, cases, make(subject.weights), emulator(), Counter(), "cpu")
    whole = cases[-1].measured
    assert whole is not None and "from eager: not timed" in whole.wrong and whole.dplc is None
    assert all(case.measured is None for case in cases[:-1])


@pytest.mark.parametrize(
    ("there", "wished", "assembled"), [(True, True, True), (False, True, False), (True, False, False)]
)
@pytest.mark.sampled(2)
def test_nothing_is_assembled_without_an_assembler(
    subject: Artefact, monkeypatch: pytest.MonkeyPatch, there: bool, wished: bool, assembled: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(benching, "assembler", lambda: "some assembler" if there else "")
    monkeypatch.setattr(benching, "predicted", lambda subject, target, assemble, tell: asked.append(assemble) or [])
    benching.bench(subject, toolchain(), "dplc bench", wished, None, silent)
    assert asked == [assembled]
