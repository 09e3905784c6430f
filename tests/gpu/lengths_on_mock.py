"""A model with sizes on the mock driver; run_on_mock.py runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from on_mock_driver import MockedExecutor

from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import compiler_with
from dplc.engine.models import artefact
from dplc.engine.models.benching import compare
from dplc.engine.models.compiling import MOST_KEPT, DynamicModelRunner, ModelShape, compile_model
from dplc.engine.models.sources import ModelSource, make
from dplc.engine.run.calls import row_for

TINY = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip


def an_artefact_serves_every_length() -> None:
    """Rows by the table, weights placed once, memory for few lengths at a time."""
    options = compiler_with(target("sm_90a"))
    shape = ModelShape(Dim("s", 1, 64, hint=32))
    made = compile_model(ModelSource("tiny", TINY), shape, options, [Dim("s", 1, 16)])
    with tempfile.TemporaryDirectory() as folder:
        artefact.save(made, Path(folder) / "made", cubins=False)
        found = artefact.load(Path(folder) / "made")
        weights = make(found.weights)
        served = DynamicModelRunner(found, MockedExecutor(), weights)
        places = []
        for length in (1, 5, 64, 33, 16, 5):
            ids = torch.randint(0, 50, (1, length))
            results = served.run({"input_ids": ids})
            places.append(row_for(found.plan.rows, {"s": length}))
            compared = compare(found, {**found.constants, **weights, "input_ids": ids}, results, {"s": length})
            assert not isinstance(compared, str) and compared.ok, (length, compared)
            assert len(served._runners) <= MOST_KEPT
        assert places == [0, 0, None, None, 0, 0]
