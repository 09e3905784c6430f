"""Tensors on devices: a call runs where they are; what is on the CPU moves, weights once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dplc
from dplc.engine import api
from dplc.engine.run.calls import Placing, devices_of, gpu_of, listed

FAR = torch.device("meta")  # stands for a GPU: another device, which needs none


def cuda(index: int) -> torch.device:
    return torch.device("cuda", index)


def test_the_gpu_of_a_call() -> None:
    assert gpu_of({}) is None
    assert gpu_of({"x": torch.device("cpu")}) is None
    assert gpu_of({"x": torch.device("cpu"), "w": cuda(1)}) == 1
    with pytest.raises(dplc.DplcError, match="`x` is on cuda:0 and `w` is on cuda:1: a program runs on one GPU"):
        gpu_of({"x": cuda(0), "b": cuda(0), "w": cuda(1)})


def test_devices_of_inputs_and_modules() -> None:
    model = torch.nn.Linear(4, 4).to(FAR)
    assert devices_of(model, (torch.zeros(4), 3)) == {
        "input 0": torch.device("cpu"), "weight": FAR, "bias": FAR,
    }  # fmt: skip


def test_inputs_move_at_every_call_and_weights_once() -> None:
    placing = Placing({"x": "input", "w": "parameter", "c": "constant"})
    tensors = {"x": torch.zeros(2), "w": torch.zeros(3), "c": torch.zeros(4)}
    first, notes = placing.place(tensors, FAR)
    assert all(tensor.device == FAR for tensor in first.values())
    assert notes == ("moved from the CPU to meta: `x`",)
    again, _ = placing.place(tensors, FAR)
    assert again["x"] is not first["x"] and again["w"] is first["w"] and again["c"] is first["c"]
    tensors["w"].add_(1)  # a step of an optimiser
    changed, _ = placing.place(tensors, FAR)
    assert changed["w"] is not first["w"] and changed["c"] is first["c"]
    assert placing.place({"x": first["x"]}, FAR)[1] == ()


class Executor:
    """An executor that says what it was given, for the device by which it was asked."""

    made: list[str] = []

    def __init__(self, device: str):
        self.device, self.notes = device, ()
        self.made.append(device)

    def run(self, program: Any, arrays: Any) -> Any:
        return {buffer.name: torch.zeros(buffer.shape) for buffer in program.outputs}


def test_a_call_runs_on_the_gpu_that_its_tensors_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "executor", Executor)
    monkeypatch.setattr(Executor, "made", [])
    compiled = dplc.compile(torch.sin, (torch.randn(4),), device="cuda")
    arrays = {"x": SimpleNamespace(device=cuda(1))}
    assert compiled._runner(arrays) is compiled._runner(arrays)
    compiled._runner({"x": SimpleNamespace(device=cuda(0))})
    compiled._runner({"x": SimpleNamespace(device=torch.device("cpu"))})
    assert Executor.made == ["cuda:1", "cuda:0", "cuda"]
    named = dplc.compile(torch.sin, (torch.randn(4),), device="cuda:1")
    named._runner(arrays)
    assert Executor.made[3:] == ["cuda:1"]


def test_without_a_device_a_function_runs_where_its_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with a GPU: inputs on the CPU are for the emulator."""
    monkeypatch.setattr(api, "_gpu", lambda: True)
    assert dplc.compile(torch.nn.RMSNorm(16), (torch.randn(2, 16),)).device == "emulator"
    assert api.choose_device(None) == "cuda"  # the command line has no tensors to go by
    monkeypatch.setattr(api, "devices_of", lambda function, values: {"x": cuda(0)})
    monkeypatch.setattr(api, "target_for", lambda *given: api.find_target("sm_90a"))
    assert dplc.compile(torch.sin, (torch.randn(4),)).device == "cuda"


def test_a_device_by_number() -> None:
    assert api.choose_device("cuda:1") == "cuda:1"
    for wrong in ("cuda:", "cuda:x", "gpu", "cuda:99999"):
        with pytest.raises(dplc.DplcError, match=f"there is no device `{wrong}`"):
            api.choose_device(wrong)


def test_warming_up_builds_what_the_first_call_would() -> None:
    compiled = dplc.compile(torch.sin, (torch.randn(4),), device="emulator")
    compiled.warm_up()
    x = torch.randn(4)
    assert torch.allclose(compiled(x), x.sin())


def test_names_for_a_message() -> None:
    assert listed(["a"], 2) == "`a`" and listed(["a", "b"], 2) == "`a`, `b`"
    assert listed(["a", "b", "c", "d"], 2) == "`a`, `b` and 2 more"
