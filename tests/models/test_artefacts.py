"""Artefacts of models and texts: what is written is read, and one folder serves every length and batch of its ranges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from architectures import CONFIGS, logits_of, tokens
from command_line import Command
from safetensors.torch import save_file

import dplc
from dplc.codegen.compiler import find_nvrtc
from dplc.codegen.judge import judge
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.models import artefact
from dplc.engine.models.compiling import CompiledModel
from dplc.engine.models.plan_file import extent_at
from dplc.engine.models.sources import make
from dplc.engine.run.calls import row_for
from dplc.ir.diagnostic import DplcError

pytestmark = pytest.mark.usefixtures("parsed_once")
LOOKED_UP = "F.embedding(torch.randint(0, 9, (dim(b, 1..4), dim(s, 1..32, hint=8))), torch.randn(9, 8)).log_softmax(-1)"


def test_what_is_written_is_read(models: dict[str, CompiledModel], artefacts: dict[str, Path]) -> None:
    model, found = models["model"], artefact.load(artefacts["model"])
    assert (found.program, found.figures, found.weights) == (model.program, model.figures, model.weights)
    assert found.at({}).outputs == model.at({}).outputs
    assert found.torch_graph({}) == model.compilation.captured.graph
    torch.testing.assert_close(dict(found.constants), model.constants(), rtol=0, atol=0)
    names = ["constants.safetensors", "cuda", "dplc-artefact.json", "figures.json", "ir", "plan.json"]
    assert sorted(path.name for path in found.folder.iterdir()) == names
    assert len(list((found.folder / "ir").iterdir())) == 5


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not here")
def test_cubins_are_for_the_target(models: dict[str, CompiledModel], tmp_path: Path) -> None:
    artefact.save(models["model"], tmp_path / "made")
    images = artefact.load(tmp_path / "made").images
    assert images.keys() == {(kernel.text, "sm_80") for kernel in models["model"].program.distinct_kernels()}
    assert all(image.startswith(b"\x7fELF") for image in images.values())
    cut = next((tmp_path / "made" / "cubin").iterdir())
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(DplcError, match=f"{cut.name} has .* bytes; dplc wrote"):
        artefact.load(tmp_path / "made")


def test_one_folder_serves_every_length_and_batch(models: dict[str, CompiledModel], artefacts: dict[str, Path]) -> None:
    """The table of rows says which part of what was compiled serves a call."""
    model, loaded = models["sized"], dplc.load_model(artefacts["sized"], device="emulator")
    found, weights = artefact.load(artefacts["sized"]), make(model.weights)
    for (length, batch), place in {(1, 1): 0, (9, 1): 1, (9, 2): None, (64, 3): 2, (63, 1): None, (16, 2): 2}.items():
        sizes, served = {"s": length, "b": batch}, found if place is None else found.rows[place]
        assert row_for(found.plan.rows, sizes) == model.rows.place(sizes) == place
        at, made = found.at(sizes), model.at(sizes)
        assert at.program == made.program == served.at(sizes).program and at.outputs == made.outputs
        assert at.constants is served.constants
        ids = torch.randint(0, 50, (batch, length))
        want, own = (logits_of("llama", weights, model.weights, ids, kind) for kind in (torch.double, torch.float))
        assert judge([loaded(ids)], [want], [own]).ok, sizes


def test_a_model_is_compiled_saved_loaded_and_called_from_python(tmp_path: Path) -> None:
    path, size = tmp_path / "tiny.json", Dim("s", 1, 32, hint=8)
    path.write_text(json.dumps(CONFIGS["llama"]))
    model = dplc.compile_model(path, seq_len=size, device="emulator", rows=[Dim("s", 1, 4)])
    launches, kernels = model.figures.launches, model.figures.kernels
    assert repr(model) == f"<dplc.Model for emulator: {launches} launches of {kernels} kernels>"
    assert model.cuda.count("__global__") == kernels < launches and model.ir("tile").startswith("## level: tile")
    model.save(tmp_path / "made", cubins=False)
    loaded = dplc.load_model(tmp_path / "made", device="emulator")
    assert (loaded.cuda, loaded.figures) == (model.cuda, model.figures)
    wanted = model.compiled.weights
    weights = make(wanted)
    for length in (3, 7, 32):
        ids = tokens(length)
        assert judge([model(ids)], [logits_of("llama", weights, wanted, ids)]).relative <= 1e-4  # weights made up
        assert torch.equal(loaded(ids), model(ids))
    (tmp_path / "weights").mkdir()
    doubled = {want.names[0]: weights[name] * 2 for name, want in wanted.items()}
    save_file(doubled, tmp_path / "weights" / "model.safetensors")
    assert not torch.equal(loaded.load_weights(tmp_path / "weights")(ids), model(ids))
    for said, call in {
        r"`s` is 33 \(dimension 1 of `input_ids`\); compiled for 1\.\.32": lambda: model(tokens(33)),
        r"input `input_ids` must be i64\[6\]; it is int64\[2, 6\]": lambda: model(tokens(6).repeat(2, 1)),
        "copy its folder": lambda: loaded.save(tmp_path / "other"),
        "no CUDA device|no GPU 9999|needs pycuda": lambda: dplc.load_model(tmp_path / "made", device="cuda:9999")(ids),
        "models run on cuda and on the emulator": lambda: dplc.load_model(tmp_path / "made", device="reference"),
        "no dtype `f99`": lambda: dplc.compile_model(path, dtype="f99"),
    }.items():
        with pytest.raises(DplcError, match=said):
            call()


@pytest.mark.parametrize(
    ("text", "options", "runs"),
    [
        (LOOKED_UP, "--size s=1,9 --size b=1,4", 4),
        ("torch.log(torch.rand(dim(s, 4..64, by=4), 1, 8)).sum(0)", "--size s=4,60", 2),
        ("torch.softmax(torch.randn(8, 32), -1)", "", 1),
        ("torch.where(torch.rand(dim(s, 1..9)) > 0.5, 1, 2)", "--size s=5", 1),
        ("torch.randn(dim(s, 1..32), 32, dtype=torch.bfloat16).mean(0)", "--size s=1,31", 2),
    ],
)
@pytest.mark.sampled(3)
def test_the_folder_of_a_text_runs_without_the_text(text: str, options: str, runs: int, dplc: Command) -> None:
    dplc("compile -o made --no-cubins --rows none -c", text)
    done = dplc(f"run made {options}")
    assert done.out.count(": ok") == runs and "made up" not in done.err


def test_rows_and_weights_are_those_of_the_text(artefacts: dict[str, Path]) -> None:
    loaded = dplc.load_model(artefacts["text"], device="emulator")
    assert [(row.low, row.high) for (row,) in artefact.load(artefacts["text"]).plan.rows] == [(1, 1), (2, 16)]
    torch.manual_seed(0)  # that of the text
    module = torch.nn.Linear(16, 24)
    for length in (1, 16, 17):
        x = torch.randn(length, 16)
        want = torch.nn.functional.linear(x.double().relu(), module.weight.double(), module.bias.double())
        assert judge([loaded(x)], [want], [module(x.relu())]).ok
    with pytest.raises(DplcError, match=r"`s` is 65 \(dimension 0 of `x`\); compiled for 1\.\.64"):
        loaded(torch.randn(65, 16))


def test_inputs_are_drawn_where_those_of_the_text_were(dplc: Command) -> None:
    dplc("compile -o made --no-cubins -c", LOOKED_UP)
    (words, table) = artefact.load(Path("made")).plan.examples
    assert (words.dtype, words.shape, words.low, words.high) == ("i64", ("b", "s"), 0, 8)
    drawn = artefact.drawn([words, table], {"b": 4, "s": 32}, 3)
    assert drawn[words.name].shape == (4, 32) and set(drawn[words.name].unique().tolist()) == set(range(9))
    assert table.low <= drawn[table.name].min() and drawn[table.name].max() <= table.high


@pytest.mark.parametrize(
    ("kind", "line", "code", "said"),
    [
        ("sized", "run {} --size s=1,17 --size b=2", 0, "b=2, s=1:\n: ok\nb=2, s=17:\n: ok"),
        ("sized", "run {} --ids 1,2,3", 0, "float32[1, 3, 50]"),
        ("sized", "run {} --size b=2 --size s=3 --ids 1,2,3,4,5,6", 0, "float32[2, 3, 50]"),
        ("sized", "run {} --size t=1", 2, "error: there is no size `t`"),
        ("text", "run {} --size s=1,7,16,17,64", 0, "\n".join(f"[{n}, 24]\n: ok" for n in (1, 7, 16, 17, 64))),
        ("text", "run {} --size s=65", 1, "error: `s` is 65, which is not in 1..64"),
        ("text", "run {} --ids 1,2", 2, "takes x"),
        ("text", "bench {}", 1, "is of a text"),
        ("text", "compile -c nn.Linear(4,4).weight*2 -o {}", 1, "error: the text has no inputs"),
        ("text", "compile -c torch.randn(4) -o {} --rows 2", 2, "error: --rows goes with one range"),
    ],
)
def test_commands_say_what_a_folder_is_for(
    kind: str, line: str, code: int, said: str, artefacts: dict[str, Path], dplc: Command
) -> None:
    dplc(line.format(artefacts[kind]), code=code).shows(*said.split("\n"))


def test_extents_of_sizes() -> None:
    extents = {"s": 7, "s*2048": 14336, "-(-s // 4)": 2, "s*b + 3": 17, "s % 4": 3, 5: 5}
    assert {text: extent_at(text, {"s": 7, "b": 2}) for text in extents} == extents
    wrong = "+s", "+-s", "~s", "not s", "t", "s.b", "s if b else 2", "1.5", "True", "s**9", "s(1)", "s // (s - s)"
    for text in wrong:
        with pytest.raises(DplcError, match="is not an extent"):
            extent_at(text, {"s": 7, "b": 2})
