"""Weights from safetensors: one file, shards with an index, other dtypes; and everything that can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dplc.engine.models.sources import WeightRequest, check, load, make
from dplc.ir.diagnostic import DplcError

WANTED = {
    "a": WeightRequest(("layer.0.a.weight",), "f32", (4, 3)),
    "b": WeightRequest(("layer.0.b.bias",), "f32", (3,)),
    "tied": WeightRequest(("embed.weight", "head.weight"), "f32", (5, 3)),
}


def tensors() -> dict[str, torch.Tensor]:
    return {
        "layer.0.a.weight": torch.arange(12.0).reshape(4, 3),
        "layer.0.b.bias": torch.ones(3),
        "head.weight": torch.randn(5, 3),
        "unused": torch.zeros(2),
    }


def test_one_file(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    told: list[tuple[str, int, int]] = []
    found = load(tmp_path, WANTED, lambda *what: told.append(what))
    assert {name: tuple(value.shape) for name, value in found.items()} == {"a": (4, 3), "b": (3,), "tied": (5, 3)}
    assert torch.equal(found["a"], tensors()["layer.0.a.weight"])
    assert told[-1] == ("loading weights", 3, 3)


def test_shards_with_an_index(tmp_path: Path) -> None:
    given = tensors()
    shards = {"one.safetensors": ["layer.0.a.weight"], "two.safetensors": ["layer.0.b.bias", "head.weight", "unused"]}
    for shard, names in shards.items():
        save_file({name: given[name] for name in names}, tmp_path / shard)
    index = {name: shard for shard, names in shards.items() for name in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(load(tmp_path, WANTED)["tied"], given["head.weight"])
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(DplcError, match=r"names files that are not there beside it: two\.safetensors"):
        check(tmp_path, WANTED)


def test_an_index_that_lies(tmp_path: Path) -> None:
    save_file({"other": torch.zeros(1)}, tmp_path / "one.safetensors")
    index = {name: "one.safetensors" for want in WANTED.values() for name in want.names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(DplcError, match="has no such tensor"):
        check(tmp_path, WANTED)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(DplcError, match="is not an index of weights"):
        check(tmp_path, WANTED)


def test_other_dtypes_are_converted(tmp_path: Path) -> None:
    save_file({name: value.bfloat16() for name, value in tensors().items()}, tmp_path / "model.safetensors")
    found = load(tmp_path, WANTED)
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert torch.equal(found["a"], tensors()["layer.0.a.weight"])


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    given = tensors() | {"layer.0.a.weight": torch.zeros(3, 4)}
    del given["layer.0.b.bias"]
    save_file(given, tmp_path / "model.safetensors")
    with pytest.raises(DplcError) as caught:
        load(tmp_path, WANTED)
    text = caught.value.render()
    assert "weight `layer.0.a.weight` is [3, 4] in model.safetensors; the model needs [4, 3]" in text
    assert "the weights have no tensor `layer.0.b.bias`" in text
    many = {str(n): WeightRequest((f"gone.{n}",), "f32", (1,)) for n in range(20)}
    with pytest.raises(DplcError) as caught:
        load(tmp_path, many)
    assert len(caught.value.render().splitlines()) <= 12
    assert "15 more weights are missing or wrong" in caught.value.render()


def test_places_without_weights(tmp_path: Path) -> None:
    with pytest.raises(DplcError, match="there is no such folder"):
        load(tmp_path / "nowhere", WANTED)
    with pytest.raises(DplcError, match=r"no \*\.safetensors are there"):
        load(tmp_path, WANTED)
    (tmp_path / "model.safetensors").write_bytes(b"not at all")
    with pytest.raises(DplcError, match="cannot read the weights in"):
        load(tmp_path, WANTED)


def test_made_up_weights_are_the_same_every_time() -> None:
    one, two, other = make(WANTED), make(WANTED), make(WANTED, seed=1)
    assert all(torch.equal(one[name], two[name]) for name in WANTED)
    assert not torch.equal(one["a"], other["a"])
    assert one["b"].mean() > 0.5 > one["a"].abs().mean()
