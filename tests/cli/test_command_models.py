"""`dplc compile MODEL`, `run DIR`, `bench MODEL_OR_ARTEFACT`, `generate`: output and records. Mistakes are in test_command_errors.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Command
from safetensors.torch import save_file
from small_configs import SMALL, TINY
from tokenizers import Tokenizer as Words
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from dplc.engine.cli import models
from dplc.engine.models import artefact
from dplc.engine.models.generating import Generator
from dplc.engine.models.sources import build, find, make


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps({"model_type": "qwen2", **SMALL}))
    return path


def test_compile_run_and_bench(dplc: Command, config: Path) -> None:
    dplc(f"compile {config} --seq-len 7 --no-cubins -o made").shows(
        "tiny: all layers, 7 tokens, f32, for NVIDIA A100 (sm_80)", "in a block", "planned, beside weights",
        "artefact: made",
    )  # fmt: skip
    done = dplc("run made --device emulator --out out.npz")
    done.shows("made-up weights, seed 0", "against float64", "ok", "they are made up")
    assert np.load("out.npz")["out0"].shape == (1, 7, 50)
    record = dplc("run made --device reference --json").json
    assert record["ok"] and record["max_rel_err"] == 0

    shown = dplc("bench made --no-assemble").shows("predicted us", "end to end", "launches of")
    assert "occupancy" not in shown.out  # --profile has it
    *kernels, whole = dplc(f"bench {config} --seq-len 7 --no-assemble --json --markdown page.md").json["cases"]
    assert (whole["name"], whole["measured"]) == ("end to end", None)
    assert sum(case["sizes"]["launches"] for case in kernels) == whole["sizes"]["launches"] > len(kernels)
    assert whole["predicted_us"] == pytest.approx(sum(case["predicted_us"] for case in kernels))
    assert "never measured" in Path("page.md").read_text()


def test_weights_of_ones_own(dplc: Command, config: Path, tmp_path: Path) -> None:
    compiled = f"compile {config} --seq-len 7 --no-cubins -o made"
    dplc(compiled)
    wanted = artefact.load(Path("made")).weights
    made = make(wanted, seed=3)
    weights = {want.names[0]: made[name] for name, want in wanted.items()}
    save_file(weights, tmp_path / "model.safetensors")
    done = dplc("run made --weights . --device emulator --ids", "1 2 3 4 5 6 7").shows("weights of .", "ok")
    assert "made up" not in done.err
    dplc(f"{compiled} --weights {tmp_path}")
    dplc("run made --device reference").shows(f"weights of {tmp_path}")  # it remembers where

    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights | {"model.norm.weight": torch.ones(31)}, tmp_path / "model.safetensors")
    for line in ("run made", f"compile {config}"):
        done = dplc(f"{line} --weights .", code=1)
        assert "the weights have no tensor `model.layers.1.mlp.up_proj.weight`" in done.err
        assert "weight `model.norm.weight` is [31] in model.safetensors; the model needs [32]" in done.err


def test_stages_and_records(dplc: Command, config: Path) -> None:
    line = f"compile {config} --layers 1 --seq-len 4"
    out = dplc(f"{line} --ir loop --dtype float16").out
    assert out.startswith("## level: loop\n") and "j <= " in out and "f16" in out
    figures = dplc(f"{line} --json").json["figures"]
    assert 5 <= figures["per_block"] <= 10 and figures["seconds"].keys() == {"build", "capture", "compile"}


# ---- dplc generate

MADE: dict[str, Any] = {}


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command in the folder of a model, with weights that do not say one word for ever; without a tokenizer.

    Commands with the same options share what was compiled.
    """
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **TINY}))
    torch.manual_seed(1)
    weights = build(find(str(tmp_path))).state_dict()
    save_file({name: torch.randn(value.shape) * 0.5 for name, value in weights.items()}, tmp_path / "model.safetensors")
    real = models.compile_generation

    def compile_once(source: Any, *given: Any, tell: Any, **options: Any) -> Any:
        key = repr((source.config.get("quantization_config"), given[:-1], given[-1].target.name, options))
        if key not in MADE:
            MADE[key] = real(source, *given, tell=tell, **options)
        return MADE[key]

    monkeypatch.setattr(models, "compile_generation", compile_once)
    return f"generate {tmp_path} --device emulator --max-new-tokens 4 "


def test_generate_prints_tokens_and_figures(dplc: Command, generate: str) -> None:
    done = dplc(generate, "--ids", "1,2,3", "--seed", 3)
    assert 1 <= len(done.out.split()) <= 4 and done.out.endswith("\n")
    done.shows("made up, seed 3", "tokens after 3, emulator", "tokens/s, measured (the emulator")
    done.shows("peak memory", "written in place")
    given = f"{generate} --ids 1,2,3 --weights . --json"
    record = dplc(given).json
    assert record["text"] is None and record["tokens_per_second"] > 0 and record["max_length"] == 16
    assert record["bytes"]["copied"] == 0 and record["bytes"]["cache"] == 2 * 16 * 8 * 4
    tokens = record["tokens"]
    stops = [tokens[1], 19]
    Path("generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    last = next(at for at, token in enumerate(tokens) if token in stops)
    assert dplc(given).json["tokens"] == tokens[: last + 1]


def test_generate_draws_by_a_seed(dplc: Command, generate: str) -> None:
    given = f"{generate} --ids 1,2,3 --weights . --json --temperature 3 --top-k 15"
    first, again, other = (dplc(given, "--draw-seed", seed).json["tokens"] for seed in (1, 1, 2))
    assert first == again != other
    for wrong, said in {
        "--draw-seed 1": "`--draw-seed` goes with `--temperature` or `--top-k`",
        "--top-p 1.5": "--top-p 1.5 is out of range",
    }.items():
        dplc(f"{generate} --ids 1,2,3 {wrong}", code=2).shows(said)


def test_generate_says_for_how_many_there_is_room(dplc: Command, generate: str) -> None:
    done = dplc(f"{generate} --ids 1,2,3 --max-new-tokens 99 --weights .")  # the model's own length is the room
    assert 4 < len(done.out.split()) <= 13 and "there is room for 13 new tokens (--max-length 16)" in done.err
    assert "made up" not in done.err


def test_generate_prints_text(dplc: Command, generate: str, tmp_path: Path) -> None:
    words = Words(WordLevel({f"w{number}": number for number in range(20)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"}))
    out, shown = (dplc(f"{generate} --weights . {form}", "--prompt", "w1 w2 w3") for form in ("", "--json"))
    record = shown.json
    assert record["prompt"] == [1, 2, 3] and record["text"] + "\n" == out.out
    assert record["text"].split() == [f"w{number}" for number in record["tokens"]]


def test_interrupted_generate_keeps_what_there_is(
    dplc: Command, generate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens(*arguments: Any) -> Iterator[int]:
        yield from (7, 9)
        raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "tokens", tokens)
    done = dplc(f"{generate} --ids 1,2,3", code=130)
    assert done.out == "7 9\n" and "2 tokens after 3" in done.err and done.err.endswith("interrupted\n")
    record = dplc(f"{generate} --ids 1,2,3 --json", code=130).json
    assert record["interrupted"] and record["tokens"] == [7, 9]
