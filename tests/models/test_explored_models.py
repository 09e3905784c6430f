"""`--explore` of whole models: faster by the model, weights as their files have them, what transformers says."""

from __future__ import annotations

from functools import partial

import pytest
from tiny_models import LENGTH, compiled, of_transformers, source, tokens

from dplc.codegen.target import target
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.explore.candidates import best
from dplc.engine.explore.saturate import available
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import DynamicModelRunner, ModelShape, compile_model
from dplc.engine.models.sources import make
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import error
from dplc.engine.schedule.scheduling import predictions


def seconds(compilation: Compilation) -> float:
    """Predicted, of every launch of one run."""
    each = predictions(compilation.kernels, compilation.target)
    return sum(each[kernel].seconds for kernel in compilation.launched)


@pytest.mark.skipif(not available(), reason="egglog is not here")
@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.sampled(1)
def test_an_explored_model_is_predicted_to_be_faster_and_is_right(name: str) -> None:
    tools, machine = toolchain(), target("sm_80")
    notes: list[str] = []
    choose = partial(best, tell=notes.append)
    made = compile_model(source(name), ModelShape(length=LENGTH), Compiler(tools, machine, explore=choose))
    assert notes == [] and made.compilation.prepared == ()
    assert seconds(made.compilation) < seconds(compiled(name).compilation)
    weights, ids = make(made.weights), tokens()
    runner = DynamicModelRunner(made, emulator(), weights)
    (buffer,) = made.program.inputs
    (logits,) = runner.run({buffer.name: ids})
    assert error(logits, of_transformers(name, weights, made.weights, ids))[1] < 1e-5
