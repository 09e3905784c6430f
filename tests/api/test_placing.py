"""Tensors on devices: a call runs where they are; what is on the CPU moves, weights once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import dplc
from dplc.engine import api
from dplc.engine.run.calls import Placing, devices_of, gpu_of

CPU, FAR = torch.device("cpu"), torch.device("meta")  # this stands for a GPU: another device, which needs none
FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def test_the_gpu_of_a_call() -> None:
    assert [gpu_of(where) for where in ({}, {"x": CPU}, {"x": CPU, "w": SECOND})] == [None, None, 1]
    with pytest.raises(dplc.DplcError, match="`x` is on cuda:0 and `w` is on cuda:1: a program runs on one GPU"):
        gpu_of({"x": FIRST, "b": FIRST, "w": SECOND})
    model = torch.nn.Linear(4, 4).to(FAR)
    assert devices_of(model, (torch.zeros(4), 3)) == {"input 0": CPU, "weight": FAR, "bias": FAR}


def test_inputs_move_at_every_call_and_weights_once() -> None:
    placing = Placing({"w": "parameter", "c": "constant"})
    tensors = {name: torch.zeros(2) for name in "xyzabdewc"}
    first, notes = placing.place(tensors, FAR)
    assert all(tensor.device == FAR for tensor in first.values())
    assert notes == ("moved from the CPU to meta: `x`, `y`, `z`, `a`, `b` and 2 more",)
    again, _ = placing.place(tensors, FAR)
    tensors["w"].add_(1)  # a step of an optimiser
    changed, _ = placing.place(tensors, FAR)
    for after, kept in ((again, "wc"), (changed, "c")):
        assert [name for name in tensors if after[name] is first[name]] == list(kept)
    assert placing.place(first, FAR)[1] == ()


def test_a_call_runs_on_the_gpu_that_its_tensors_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(api, "executor", made.append)
    compiled, named = (dplc.compile(torch.sin, (torch.randn(4),), device=name) for name in ("cuda", "cuda:1"))
    for device in (SECOND, SECOND, FIRST, CPU):
        compiled._runner({"x": SimpleNamespace(device=device)})
    assert made == ["cuda:1", "cuda:0", "cuda"]
    named._runner({"x": SimpleNamespace(device=FIRST)})
    assert made[3:] == ["cuda:1"]


def test_without_a_device_a_function_runs_where_its_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with a GPU: inputs on the CPU are for the emulator."""
    monkeypatch.setattr(api, "has_gpu", lambda: True)
    assert dplc.compile(torch.nn.RMSNorm(16), (torch.randn(2, 16),)).device == "emulator"
    assert api.choose_device(None) == "cuda"  # the command line has no tensors to go by
    monkeypatch.setattr(api, "devices_of", lambda function, values: {"x": FIRST})
    monkeypatch.setattr(api, "target_for", lambda *given: api.find_target("sm_90a"))
    assert dplc.compile(torch.sin, (torch.randn(4),)).device == "cuda"


def test_a_device_by_number() -> None:
    assert api.choose_device("cuda:1") == "cuda:1"
    for wrong in ("cuda:", "cuda:x", "gpu", "cuda:99999"):
        with pytest.raises(dplc.DplcError, match=f"there is no device `{wrong}`"):
            api.choose_device(wrong)
