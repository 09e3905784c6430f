"""What a compile of a model says of itself: kernels, memory, calls, progress, shares, a bench; and what its store decides."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from architectures import CONFIGS, LENGTH, compiled, source
from command_line import Command
from counting import at_most_calls, most_alive
from drawing import draws

from dplc.codegen.target import target
from dplc.engine.bench import bench as running
from dplc.engine.capture.capture import capture
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli import programs
from dplc.engine.cli.models import extent, shares_of
from dplc.engine.compiler import TIMED, compiler_with
from dplc.engine.models import benching
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import CompiledModel, ModelShape, compile_model, peak_rss
from dplc.engine.models.sources import build, find, make, silent
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import at_binding
from dplc.engine.schedule.scheduling import Origin
from dplc.ir.diagnostic import DplcError, UsageError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "benches"))
from eager_memory import eager_peak  # noqa: E402

LAYERS = min(draws(4), 28)
EXAMPLES = ROOT / "examples" / "models"


@pytest.fixture(scope="module")
def qwen() -> CompiledModel:
    shape = ModelShape(32, layers=LAYERS)
    return compile_model(find(str(EXAMPLES / "qwen2.5-7b.json")), shape, compiler_with(target("sm_90a")))


def test_few_kernels_and_little_memory(qwen: CompiledModel) -> None:
    figures = qwen.figures
    assert figures.kernels <= 18 and len(qwen.compilation.plan.kernels) <= 2 + 11 * LAYERS
    assert figures.per_block <= 15  # of ten kernels, two of them rotations, five are split in two
    assert figures.launches == len(qwen.program.kernels)
    assert figures.planned_bytes <= 1.1 * most_alive(qwen.program)
    partial = 2 * 4 * 32 * 18944 * 4  # gate and up are split over four blocks a tile: 30% faster, by the model
    assert figures.planned_bytes < eager_peak(qwen.compilation.captured.graph) + partial
    layer, ends = 233_057_792, 1_089_998_336  # numbers of a layer; of the embedding, the last norm and the head
    assert figures.weight_bytes == 4 * (layer * LAYERS + ends)
    names = {want.names[0] for want in qwen.weights.values()}
    assert len(names) == LAYERS * 12 + 3
    assert {"model.embed_tokens.weight", "lm_head.weight", f"model.layers.{LAYERS - 1}.self_attn.k_proj.bias"} <= names


def test_the_front_end_is_quick(qwen: CompiledModel) -> None:
    """All layers without capture: 28 take under a second on a quiet machine."""
    with at_most_calls(400_000 * LAYERS + 500_000):
        made = compiler_with(target("sm_90a")).compile(qwen.compilation.captured)
    assert made.cuda == qwen.compilation.cuda


def test_a_block_compiles_in_few_calls() -> None:
    """One decoder layer with its rotary table as inputs. Warm, without capture: 0.3 s (`examples/benches/models.py`)."""
    layer = build(find(str(EXAMPLES / "tinyllama-1.1b.json")), layers=1).model.layers[0]
    tensors = [torch.empty(1, 128, width, device="meta") for width in (2048, 64, 64)]
    captured = capture(lambda x, *table: layer(x, attention_mask=None, position_embeddings=table), tensors)
    compiler_with(target("sm_90a")).compile(captured)
    with at_most_calls(845_000):
        made = compiler_with(target("sm_90a")).compile(captured)
    assert len(made.plan.kernels) <= 11  # rotated queries and keys are stored


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who counts in KiB, and where to look it up, is Linux")
def test_the_peak_is_in_bytes() -> None:
    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert least << 10 <= peak_rss() <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_every_stage_is_told_to_its_end() -> None:
    tell = Mock()
    compile_model(source("llama"), ModelShape(8), compiler_with(target("sm_80")), tell=tell)
    stages = [(f"compiling: {stage}", done, len(TIMED)) for done, stage in enumerate(TIMED)]
    assert [call.args for call in tell.mock_calls] == [("capturing", 0, 1), ("capturing", 1, 1), *stages]


def test_ranges_of_lengths(models: dict[str, CompiledModel]) -> None:
    sized = models["sized"]
    assert sized.figures.planned_bytes == at_binding(sized.compilation, {"s": 64, "b": 3}).program.arena.bytes
    shape = ModelShape(Dim("s", 1, 64), Dim("b", 1, 8))
    assert shape.described == "1..64 tokens, 1..8 sequences" and shape.at({"s": 9, "b": 3}).numbers == (9, 3)
    with pytest.raises(DplcError, match=r"this needs numbers, not 1\.\.64 tokens"):
        benching.of_compiled(sized)
    written = {"32": 32, "1..64": Dim("s", 1, 64, hint=64), "1..64:8": Dim("s", 1, 64, hint=8), " 4 ": 4}
    assert {text: extent("--seq-len", text, "s") for text in written} == written
    for text in ("", "0", "4..", "1..64:", "x", "0..5", "5..4", "1..64:65"):
        with pytest.raises(UsageError):
            extent("--seq-len", text, "s")


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("name", ["deepseek_v2", "tied"])
def test_all_of_a_model_is_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Complex numbers, too. Weights are zeros, tied ones tied."""
    found = shares_of(source(name), ModelShape(length=LENGTH), target("h200"))
    assert found.ops == found.all_ops > 50 and 0 < found.seconds == found.all_seconds and not found.eager
    monkeypatch.setattr("dplc.codegen.arrays.memory_bytes", lambda: 1000)
    with pytest.raises(DplcError, match=r"the weights \(--layers 1 takes fewer\) take"):
        shares_of(source(name), ModelShape(length=LENGTH), target("h200"))


class Counter:
    """Every run takes a microsecond."""

    graph = Mock(return_value=None)

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        return 1e-6


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_model_is_measured_if_it_is_right(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All on the same weights; driven by the emulator and a clock that counts."""
    subject, eager_model = benching.of_compiled(compiled("llama")), benching.eager_model

    def changed(*arguments: Any) -> Any:
        model = eager_model(*arguments)
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * factor, requires_grad=False)
        return model

    monkeypatch.setattr(benching, "eager_model", changed)
    monkeypatch.setattr(running, "compiled_by_torch", lambda function, inputs, clock: running.timing(list, clock))
    *cases, whole = records = benching.predicted(subject, target("sm_80"), False, silent)
    benching.measure(subject, records, make(subject.weights), emulator(), Counter(), "cpu")
    found = whole.measured
    if factor != 1:
        assert "from eager: not timed" in found.wrong and found.dplc is None
        assert all(case.measured is None for case in cases)
        return
    assert not found.wrong and found.relative_error < 1e-5 and found.dplc and found.eager and found.torch_compile
    launches = [case.sizes["launches"] for case in cases]
    assert [case.measured.dplc.median_us for case in cases] == pytest.approx(launches)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("wished", [True, False])
def test_nothing_is_assembled_without_an_assembler(monkeypatch: pytest.MonkeyPatch, there: bool, wished: bool) -> None:
    predicted = Mock(return_value=[])
    monkeypatch.setattr(benching, "assembler", lambda: "some assembler" if there else "")
    monkeypatch.setattr(benching, "predicted", predicted)
    benching.bench(benching.of_compiled(compiled("llama")), toolchain(), "dplc bench", wished, None, silent)
    assert predicted.call_args.args[2] == (there and wished)


def test_a_store_that_decides_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dplc: Command) -> None:
    """By a store that knows every kernel (`scheduling.Schedules`)."""

    def everything(kernel: Any, scheduler: Any, shaped: Any) -> Any:
        return scheduler.by_default((kernel,), shaped), Origin(kernel.name, "store", "from the store, 1 us")

    nothing = Mock(return_value=())
    everything.store = SimpleNamespace(has_family=lambda *_: False, select=nothing, valid=nothing)  # type: ignore[attr-defined]
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    monkeypatch.setattr(programs, "stored_schedules", lambda *_: everything)
    line = "generate . --layers 1 --ids 1,2 --max-new-tokens 1 --device emulator"
    dplc(line).shows("note: schedule of `", "from the store, 1 us")
