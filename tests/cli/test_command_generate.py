"""`dplc generate`: the text as it comes, records, and one clear line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from safetensors.torch import save_file
from small_configs import TINY
from tokenizers import Tokenizer as Words
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from dplc.engine.cli import models
from dplc.engine.models.generating import Generator
from dplc.engine.models.sources import WeightRequest, build, find, make


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder, with weights that do not say one word for ever; without a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **TINY}))
    shapes = {name: tuple(value.shape) for name, value in build(find(str(folder))).state_dict().items()}
    wanted = {name: WeightRequest((name,), "f32", shape) for name, shape in shapes.items()}
    save_file(make(wanted, seed=1, scale=0.5), folder / "model.safetensors")
    return folder


MADE: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with the same model and options share what was compiled."""
    real = models.compile_generation

    def compile_once(*given: Any, tell: Any, **options: Any) -> Any:
        key = repr((given[:-1], given[-1].target.name, options))
        if key not in MADE:
            MADE[key] = real(*given, tell=tell, **options)
        return MADE[key]

    monkeypatch.setattr(models, "compile_generation", compile_once)


def test_tokens_and_figures(ok: Command, model: Path) -> None:
    given = f"generate {model} --ids 1,2,3 --max-new-tokens 4 --device emulator"
    done = ok(f"{given} --seed 3")
    assert 1 <= len(done.out.split()) <= 4 and done.out.endswith("\n")
    for said in ("made up, seed 3", "tokens after 3, emulator", "tokens/s, measured (the emulator", "peak memory",
                 "written in place"):  # fmt: skip
        assert said in done.err, done.err
    record = json.loads(ok(f"{given} --weights {model} --json").out)
    assert record["text"] is None and record["tokens_per_second"] > 0 and record["max_length"] == 16
    assert record["bytes"]["copied"] == 0 and record["bytes"]["cache"] == 2 * 16 * 8 * 4
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [record["tokens"][1], 19]}))
    ended = json.loads(ok(f"{given} --weights {model} --json").out)["tokens"]
    (model / "generation_config.json").unlink()
    assert ended == record["tokens"][: len(ended)] and ended[-1] == record["tokens"][1]


def test_there_is_room_for_so_many(ok: Command, model: Path) -> None:
    # the model's own length is the room
    done = ok(f"generate {model} --ids 1,2,3 --max-new-tokens 99 --weights {model} --device emulator")
    assert 4 < len(done.out.split()) <= 13 and "there is room for 13 new tokens (--max-length 16)" in done.err
    assert "made up" not in done.err


def test_text_comes_as_it_is_made(ok: Command, model: Path) -> None:
    words = Words(WordLevel({f"w{number}": number for number in range(20)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    words.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"}))
    given = f"generate {model} --weights {model} --max-new-tokens 4 --device emulator"
    try:
        out = ok(f"{given} --prompt", "w1 w2 w3").out
        record = json.loads(ok(f"{given} --json --prompt", "w1 w2 w3").out)
    finally:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (model / name).unlink()
    assert record["prompt"] == [1, 2, 3] and record["text"] + "\n" == out
    assert record["text"].split() == [f"w{number}" for number in record["tokens"]]


def test_an_interrupt_keeps_what_there_is(dplc: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(*arguments: Any) -> Iterator[int]:
        yield 7
        yield 9
        raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "tokens", tokens)
    done = dplc(f"generate {model} --ids 1,2,3 --max-new-tokens 4 --device emulator")
    assert done.code == 130 and done.out == "7 9\n"
    assert "2 tokens after 3" in done.err and done.err.endswith("interrupted\n")
    done = dplc(f"generate {model} --ids 1,2,3 --max-new-tokens 4 --json --device emulator")
    assert json.loads(done.out)["interrupted"] and json.loads(done.out)["tokens"] == [7, 9]


def test_mistakes_are_one_line(dplc: Command, model: Path, tmp_path: Path) -> None:
    for given, code, said in (
        ("", 2, "a prompt is needed"),
        ("--prompt a --ids 1", 2, "a prompt is needed"),
        ("--ids 1,99", 2, "numbers from 0 to 19"),
        ("--ids ²", 2, "numbers from 0 to 19"),
        ("--ids 1 --device reference", 2, "on cuda and on the emulator"),
        ("--ids 1 --dtype f8", 2, "there is no float dtype `f8`"),
        ("--prompt hello", 1, "has no tokenizer beside it"),
        ("--ids 1,2,3 --max-length 3", 1, "the prompt has 3 tokens; with a maximum length of 3"),
        ("--ids 1,2,3 --max-length 99", 1, "this model has 16 positions"),
        (f"--ids 1 --weights {tmp_path}/no", 1, "there is no such folder"),
    ):
        done = dplc(f"generate {model} --device emulator {given}")
        assert done.code == code and said in done.err, done.err
        assert len([line for line in done.err.splitlines() if not line.startswith("  ")]) == 1, done.err
