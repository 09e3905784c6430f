"""Where configurations and weights come from, and every way in which they are wrong: one clear error each."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from architectures import CONFIGS, source
from command_line import Command
from safetensors.torch import save_file

from dplc.engine.models.compiling import capture_results
from dplc.engine.models.generating import Tokenizer, stops_of
from dplc.engine.models.sources import (
    INDEX,
    SHIPPED,
    SHIPPED_IDS,
    ModelSource,
    WeightRequest,
    build,
    find,
    folder_of,
    is_model,
    load,
    make,
    weights_of,
)
from dplc.ir.diagnostic import DplcError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
LLAMA = CONFIGS["llama"]


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert find(str(tmp_path)).name == tmp_path.name
    assert find(str(tmp_path / "config.json")).config == LLAMA
    suite = EXAMPLES.parent / "suites" / "kernels_84.json"
    models = {tmp_path: True, tmp_path / "config.json": True, "Owner/Name-1.5": True, suite: False}
    models |= {"nowhere.json": False, "Owner/suite.json": False}  # a path, though it reads like an id
    assert {path: is_model(str(path)) for path in models} == models


@pytest.mark.parametrize(("name", "billions"), [("tinyllama-1.1b", 1.10), ("qwen2.5-7b", 7.62)])
def test_the_examples_are_what_their_names_say(name: str, billions: float) -> None:
    model = build(find(str(EXAMPLES / f"{name}.json")))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=0.005)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """The connection to a hub that cannot be reached. Its cache and the current folder are empty."""
    connection = Mock(side_effect=OSError("no network"))
    monkeypatch.setattr("socket.create_connection", connection)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return connection


def cached(cache: Path, name: str) -> Path:
    """Write the configuration of an id into a cache of the hub, in its own layout. Returns the folder of its snapshot."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / "0123"
    for path, text in ((folder / "refs" / "main", "0123"), (snapshot / "config.json", json.dumps(LLAMA))):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return snapshot


def test_what_is_no_model_is_told(tmp_path: Path, hub: Mock) -> None:
    for error, said in ((OSError("no network"), "no network"), (TimeoutError(), "TimeoutError")):
        hub.side_effect = error
        with pytest.raises(DplcError, match=f"(?s)cannot get `Nobody/Nothing-9` from the hub.*{said}"):
            find("Nobody/Nothing-9")
    for text, said in {"{": "is not JSON", "[]": "is not a configuration", '{"a": 1}': "no `model_type`"}.items():
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DplcError, match=said):
            find(str(tmp_path))


def test_a_configuration_that_is_shipped_needs_no_network(
    tmp_path: Path, hub: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    for asked, name in SHIPPED_IDS.items():
        path = EXAMPLES / f"{name}.json"
        assert find(asked, messages.append) == ModelSource(asked.split("/")[1], find(str(path)).config)
        assert messages.pop() == f"the configuration of {asked} comes with dplc: {path}" and folder_of(asked) is None
    assert set(SHIPPED_IDS.values()) == {path.stem for path in SHIPPED.glob("*.json")}
    said = "the configuration of qwen2.5-7b comes with dplc: give "
    for asked, folder in (("qwen2.5-7b.json", EXAMPLES), ("Qwen/Qwen2.5-7B-Instruct", Path("models"))):
        with pytest.raises(DplcError) as caught:
            find(asked)
        assert caught.value.hint == f"{said}{folder / 'qwen2.5-7b.json'}"
        monkeypatch.chdir(EXAMPLES.parent)
    snapshot = cached(tmp_path, "Qwen/Qwen2.5-7B")
    assert find("Qwen/Qwen2.5-7B", messages.append).config == LLAMA and folder_of("Qwen/Qwen2.5-7B") == snapshot
    assert messages == ["the configuration of Qwen/Qwen2.5-7B is from the hub's cache on this machine"]


def test_the_words_of_an_id_of_the_cache_are_read_there(tmp_path: Path, hub: Mock) -> None:
    from tokenizers import Tokenizer as Words
    from tokenizers.models import WordLevel

    snapshot = cached(tmp_path, "Own/tiny")
    with pytest.raises(DplcError, match="the tokenizer of Own/tiny cannot be used") as caught:
        Tokenizer("Own/tiny")
    assert caught.value.notes == ("no network",)
    Words(WordLevel({"once": 0, "upon": 1}, unk_token="once")).save(str(snapshot / "tokenizer.json"))
    (snapshot / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (snapshot / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert Tokenizer("Own/tiny").tokens("upon") == [1] and stops_of("Own/tiny") == {3}


@pytest.mark.parametrize(
    "line",
    [
        "compile Own/tiny",
        "bench Own/tiny --no-run",
        "doctor --model Own/tiny",
        "tune Own/tiny --no-db",
        "view Own/tiny -o page.html",
        "generate Own/tiny --ids 1,2 --device emulator",
    ],
)
def test_all_commands_find_models_in_one_place(line: str, monkeypatch: pytest.MonkeyPatch, dplc: Command) -> None:
    monkeypatch.setattr("dplc.engine.cli.models.find", Mock(side_effect=DplcError("it is found here")))
    dplc(line, code=1).shows("error: it is found here")


def test_layers_and_names_of_weights() -> None:
    assert len(build(source("llama"), layers=1).model.layers) == 1
    tied = build(source("tied"))
    names = weights_of(tied)[id(tied.model.embed_tokens.weight)].names
    assert sorted(names) == ["lm_head.weight", "model.embed_tokens.weight"]
    wide = ModelSource("x", {**LLAMA, "hidden_size": "wide"})
    for said, call in {
        "a sequence of 0 tokens": lambda: capture_results(tied, 0),
        "the configuration of x": lambda: build(wide),
    }.items():
        with pytest.raises(DplcError, match=said):
            call()


WANTED = {
    "a": WeightRequest(("layer.0.a.weight",), "f32", (4, 3)),
    "b": WeightRequest(("layer.0.b.bias",), "f32", (3,)),
    "tied": WeightRequest(("embed.weight", "head.weight"), "f32", (5, 3)),
}
LAYER = {"layer.0.a.weight": torch.arange(12.0).reshape(4, 3), "layer.0.b.bias": torch.ones(3)}
HEAD = {"head.weight": torch.arange(15.0).reshape(5, 3), "unused": torch.zeros(2)}
FOUND = {"a": LAYER["layer.0.a.weight"], "b": LAYER["layer.0.b.bias"], "tied": HEAD["head.weight"]}


def assert_wrong(folder: Path, said: str) -> None:
    with pytest.raises(DplcError, match=said):
        load(folder, WANTED)


def test_weights_of_one_file_are_converted(tmp_path: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    save_file({name: value.bfloat16() for name, value in (LAYER | HEAD).items()}, tmp_path / "model.safetensors")
    found = load(tmp_path, WANTED, lambda *what: progress.append(what))
    torch.testing.assert_close(found, FOUND, rtol=0, atol=0)
    assert progress == [("loading weights", done, 3) for done in range(4)]
    (tmp_path / "model.safetensors").write_bytes(b"not at all")
    assert_wrong(tmp_path, "cannot read the weights in")
    (tmp_path / "model.safetensors").unlink()
    assert_wrong(tmp_path, r"no \*\.safetensors are there")


def test_weights_of_shards_are_where_the_index_says(tmp_path: Path) -> None:
    files = {"one.safetensors": LAYER, "two.safetensors": HEAD}
    for file, tensors in files.items():
        save_file(tensors, tmp_path / file)
    index = {name: file for file, tensors in files.items() for name in tensors}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": index}))
    torch.testing.assert_close(load(tmp_path, WANTED), FOUND, rtol=0, atol=0)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {**index, "head.weight": "one.safetensors"}}))
    assert_wrong(tmp_path, "`head.weight` is in one.safetensors, which has no such tensor")
    (tmp_path / "two.safetensors").unlink()
    assert_wrong(tmp_path, r"names files that are not there beside it: two\.safetensors")
    (tmp_path / INDEX).write_text("[]")
    assert_wrong(tmp_path, "is not an index of weights")


def test_few_of_many_mistakes_of_weights_are_told(tmp_path: Path) -> None:
    save_file(HEAD, tmp_path / "model.safetensors")
    with pytest.raises(DplcError, match="15 more weights are missing or wrong") as caught:
        load(tmp_path, {str(n): WeightRequest((f"gone.{n}",), "f32", (1,)) for n in range(20)})
    assert len(caught.value.render().splitlines()) <= 12


def test_made_up_weights_are_the_same_every_time() -> None:
    one, two, other = make(WANTED), make(WANTED), make(WANTED, seed=1)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert not torch.equal(one["a"], other["a"])
    assert one["b"].mean() > 0.5 > one["a"].abs().mean()
