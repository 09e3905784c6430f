"""Where configurations come from, and every way in which they are wrong: one clear error each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from small_configs import SMALL
from tiny_models import CONFIGS, cached

from dplc.engine.models.compiling import capture_results
from dplc.engine.models.generating import Tokenizer, stops_of
from dplc.engine.models.sources import SHIPPED, SHIPPED_IDS, ModelSource, build, find, folder_of, is_model, weights_of
from dplc.ir.diagnostic import DplcError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    assert find(str(tmp_path)).name == tmp_path.name
    assert find(str(tmp_path / "config.json")).config == CONFIGS["llama"]
    assert is_model(str(tmp_path)) and is_model(str(tmp_path / "config.json")) and is_model("Owner/Name-1.5")
    assert not is_model(str(EXAMPLES.parent / "suites" / "kernels_84.json")) and not is_model("nowhere.json")
    assert not is_model("Owner/suite.json")  # a path, though it reads like an id


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_are_what_their_names_say(path: Path) -> None:
    model = build(find(str(path)))
    billions = {"tinyllama-1.1b": 1.10, "qwen2.5-7b": 7.62}[path.stem]
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=0.005)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())


def test_paths_that_are_no_models(tmp_path: Path) -> None:
    for given, said in {
        str(tmp_path / "gone.json"): "there is no model",
        "gone": "neither a file, nor a folder, nor an id of the hub",
        str(tmp_path): "has no config.json",
    }.items():
        with pytest.raises(DplcError, match=said):
            find(given)
    for text, said in {"{": "is not JSON", "[]": "is not a configuration", '{"a": 1}': "no `model_type`"}.items():
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DplcError, match=said):
            find(str(tmp_path))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A hub that cannot be reached, and an empty cache of it: the folder."""

    monkeypatch.setattr("socket.create_connection", Mock(side_effect=OSError("no network")))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("error", [OSError("no network"), TimeoutError()])
def test_an_id_without_a_network(monkeypatch: pytest.MonkeyPatch, no_network: Path, error: OSError) -> None:
    monkeypatch.setattr("socket.create_connection", Mock(side_effect=error))
    with pytest.raises(DplcError, match="cannot get `Nobody/Nothing-9` from the hub") as caught:
        find("Nobody/Nothing-9")
    assert (str(error) or "TimeoutError") in caught.value.render()


def test_without_a_network_the_configuration_that_is_shipped_is_named(
    monkeypatch: pytest.MonkeyPatch, no_network: Path
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    with pytest.raises(DplcError) as caught:
        find("Qwen/Qwen2.5-7B-Instruct")
    assert caught.value.hint == "the configuration of qwen2.5-7b comes with dplc: give models/qwen2.5-7b.json"
    monkeypatch.chdir(no_network)
    with pytest.raises(DplcError) as caught:
        find("qwen2.5-7b.json")
    assert caught.value.hint == f"the configuration of qwen2.5-7b comes with dplc: give {EXAMPLES / 'qwen2.5-7b.json'}"


@pytest.mark.parametrize("asked", SHIPPED_IDS)
def test_without_a_network_an_id_that_is_shipped_is_found(
    asked: str, monkeypatch: pytest.MonkeyPatch, no_network: Path
) -> None:
    told: list[str] = []
    monkeypatch.chdir(no_network)
    found = find(asked, told.append)
    assert found.name == asked.split("/")[1] and found.config == find(f"{EXAMPLES / SHIPPED_IDS[asked]}.json").config
    assert told == [f"the configuration of {asked} comes with dplc: {EXAMPLES / SHIPPED_IDS[asked]}.json"]
    assert folder_of(asked) is None


def test_every_configuration_that_is_shipped_has_an_id() -> None:
    assert set(SHIPPED_IDS.values()) == {path.stem for path in SHIPPED.glob("*.json")}


def test_without_a_network_an_id_in_the_cache_is_found_first(no_network: Path) -> None:
    snapshot = cached(no_network, "Qwen/Qwen2.5-7B", CONFIGS["llama"])
    told: list[str] = []
    assert find("Qwen/Qwen2.5-7B", told.append).config == CONFIGS["llama"]
    assert told == ["the configuration of Qwen/Qwen2.5-7B is from the hub's cache on this machine"]
    assert folder_of("Qwen/Qwen2.5-7B") == snapshot


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "lama"}, "`lama` is not an architecture that transformers knows"),
        ({"model_type": "llama", **SMALL, "hidden_size": "wide"}, "the configuration of x"),
    ],
)
def test_configurations_that_make_no_model(config: dict[str, Any], said: str) -> None:
    with pytest.raises(DplcError, match=said) as caught:
        build(ModelSource("x", config))
    assert caught.value.exit_code == 1


def test_layers() -> None:
    source = ModelSource("x", dict(CONFIGS["llama"]))
    assert len(build(source, layers=1).model.layers) == 1
    with pytest.raises(DplcError, match="--layers 3: x has 2 layers"):
        build(source, layers=3)


def test_names_and_lengths() -> None:
    model = build(ModelSource("x", dict(CONFIGS["tied"])))
    names = weights_of(model)[id(model.model.embed_tokens.weight)].names
    assert "lm_head.weight" in names and len(names) == len(set(names))
    with pytest.raises(DplcError, match="a sequence of 0 tokens"):
        capture_results(model, 0)


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
def test_all_commands_find_models_in_one_place(
    line: str, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    monkeypatch.setattr("dplc.engine.cli.models.find", Mock(side_effect=DplcError("it is found here")))
    said = told(line)
    assert said.startswith("1 ") and "error: it is found here" in said


def test_the_words_of_an_id_of_the_cache_are_read_there(no_network: Path) -> None:
    from tokenizers import Tokenizer as Words
    from tokenizers.models import WordLevel

    snapshot = cached(no_network, "Own/tiny", CONFIGS["llama"])
    with pytest.raises(DplcError, match="the tokenizer of Own/tiny cannot be used") as caught:
        Tokenizer("Own/tiny")
    assert caught.value.notes == ("no network",)
    Words(WordLevel({"once": 0, "upon": 1}, unk_token="once")).save(str(snapshot / "tokenizer.json"))
    (snapshot / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (snapshot / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert Tokenizer("Own/tiny").tokens("upon") == [1] and stops_of("Own/tiny") == {3}
