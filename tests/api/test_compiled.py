"""`dplc.compile`: what it returns, what it checks, and that weights stay alive."""

from __future__ import annotations

import cProfile
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dynamic_checks import sized
from dynamo_checks import assert_same
from forked import done
from torch import nn

import dplc
from dplc.engine import ruleset
from dplc.engine.run import calls

X, Y = torch.randn(3, 4), torch.randn(3, 4)


@pytest.fixture
def compiled() -> dplc.Compiled:
    return dplc.compile(nn.Linear(8, 4), (torch.randn(3, 8),))


# ---- the face


def test_the_face(compiled: dplc.Compiled) -> None:
    for stage in ("torch", "tensor", "loop", "tile", "kernel"):
        assert compiled.ir(stage).startswith(f"## level: {stage}\n")
    assert compiled.ir("cuda") == compiled.cuda and "__global__" in compiled.cuda
    assert list(compiled.timings) == ["capture", "torch", "tensor", "fusion", "tile", "kernel", "cuda"]
    assert repr(compiled) == "<dplc.Compiled for emulator: linear>"
    assert repr(compiled.compilation) == "<Compilation for NVIDIA A100: 1 launches of 1 kernels>"
    with pytest.raises(dplc.DplcError, match="did you mean `tile`"):
        compiled.ir("tyle")
    with pytest.raises(dplc.DplcError, match="cannot be pickled"):
        pickle.dumps(compiled)


def test_a_trace_that_was_not_kept_is_made_when_it_is_read() -> None:
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), torch.randn(8, 4)
    kept, later = (dplc.compile(model, (x,), trace=trace) for trace in (True, False))
    trace = later.trace
    assert later.compilation.trace is None and trace is not None and trace is later.trace
    assert trace.render(2) == kept.compilation.trace.render(2) and later.cuda == kept.cuda  # type: ignore[union-attr]
    assert {"d", "f", "t"} <= {firing.prefix for firing in trace.firings}
    text = str(trace)
    assert "tileify" in text and ".render(2)" in text and len(repr(trace)) < 100
    assert text.count("\n") <= 102 and max(map(len, text.splitlines())) < 400


# ---- calling


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (torch.randn(3, 9), "argument `input` must be f32[3, 8]; it is f32[3, 9]"),
        (torch.randn(24), "argument `input` must be f32[3, 8]; it is f32[24]"),
        (torch.zeros(3, 8, dtype=torch.int32), "argument `input` must be f32[3, 8]; it is i32[3, 8]"),
        (np.zeros((3, 8)), "argument `input` must be a tensor, f32[3, 8]; it is a numpy array\n  help: pass torch.from_numpy(..)"),
        (3.0, "argument `input` must be a tensor, f32[3, 8]; it is of the type float"),
        (torch.empty(3, 8, device="meta"), "argument `input` is on the meta device"),
        (torch.ones(3, 8, requires_grad=True), "gradients are wanted of argument `input`"),
        (torch.eye(8)[:3].to_sparse_csr(), "is of the layout torch.sparse_csr"),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit(compiled: dplc.Compiled, argument: Any, message: str) -> None:
    """Also after a call that fits."""
    for _ in range(2):
        with pytest.raises(dplc.DplcError) as caught:
            compiled(argument)
        assert message in str(caught.value) and caught.value.exit_code == 1
        compiled(torch.ones(3, 8))


def scaled(x: torch.Tensor, shift: Any = None, *, scale: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x * scale * times + (0 if shift is None else shift)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((X,), {}, "missing a required.* argument: 'scale'"),
        ((X, X, X), {"scale": X}, "too many positional arguments"),
        ((X,), {"scale": Y, "scala": Y}, "unexpected keyword argument 'scala'"),
    ],
)
def test_a_call_that_does_not_fit(args: Any, kwargs: Any, message: str) -> None:
    for call in (dplc.compile(scaled, (X,), kwargs={"scale": Y}), lambda *a, **k: dplc.compile(scaled, a, kwargs=k)):
        with pytest.raises(dplc.DplcError, match=f"the call does not fit: .*{message}"):
            call(*args, **kwargs)


def test_tensors_by_name() -> None:
    compiled = dplc.compile(scaled, (X,), kwargs={"scale": Y})
    assert compiled.compilation.captured.inputs == ("x", "scale")
    for got in (compiled(Y, scale=X), compiled(scale=X, x=Y)):
        assert_same(got, scaled(Y, scale=X))
    fixed = dplc.compile(scaled, (), kwargs={"x": X, "shift": Y, "scale": Y, "times": 3})
    assert_same(fixed(Y, X, scale=X, times=3), scaled(Y, X, scale=X, times=3))
    with pytest.raises(dplc.DplcError, match="an argument was 3 when the function was captured and is 4 now"):
        fixed(Y, X, scale=X, times=4)
    assert_same(dplc.compile(lambda **given: given["a"] - given["b"], (), kwargs={"a": X, "b": Y})(b=X, a=Y), Y - X)
    with pytest.raises(dplc.DplcError, match="kwargs=inputs"):
        dplc.compile(scaled, {"x": X, "scale": Y})  # type: ignore[arg-type]


def test_nested_arguments_and_results() -> None:
    def f(a: Any, b: Any, flag: bool = True) -> Any:
        return {"sum": a + b["y"], "rest": (a * 2, [b["y"] - 1, 3, None]), "flag": flag}

    compiled = dplc.compile(f, (X, {"y": Y}))
    got, want = compiled(Y, {"y": X}), f(Y, {"y": X})
    assert_same(got, want)
    assert torch.utils._pytree.tree_structure(got) == torch.utils._pytree.tree_structure(want)
    for wrong, said in (({"y": X[0]}, "argument `b_y` must be"), ({"z": X}, "not structured")):
        with pytest.raises(dplc.DplcError, match=said):
            compiled(X, wrong)


@pytest.mark.parametrize("device", ["emulator", "reference"])
def test_results_are_tensors_like_torchs(device: str) -> None:
    def f(x: Any, n: Any, a: Any) -> Any:
        floats = x.sin(), x.sum(), x.sum((0, 1), keepdim=True), a * 2, a, torch.eye(3, 4)
        return *floats, x > 0, x.argmax(-1), n + 1, n.int() + 1, torch.eye(3, dtype=torch.bool)

    given = torch.randn(3, 5), torch.arange(7), torch.randn(1, 3, 1)
    compiled = dplc.compile(f, given, device=device)
    compiled.warm_up()
    assert_same(compiled(*given), f(*given))


def test_a_program_without_inputs_gives_tensors() -> None:
    def f() -> Any:
        return torch.eye(3, 4, dtype=torch.bfloat16), torch.eye(3, dtype=torch.bool)

    assert_same(dplc.compile(f, ())(), f())


def test_a_result_is_new_memory() -> None:
    compiled, x = dplc.compile(lambda x: x * 1, (torch.zeros(4),)), torch.ones(4)
    first = compiled(x)
    compiled(x * 2)
    x.zero_()
    assert first.tolist() == [1, 1, 1, 1]


def test_any_memory_layout() -> None:
    compiled = dplc.compile(lambda x: (x * 2).sum(0), (torch.randn(8, 8),))
    for x, note in (
        (torch.randn(65)[1:].view(8, 8), ("`x` is 4 bytes off 16-byte alignment: copied",)),
        (torch.randn(8, 8).t(), ("`x` is not contiguous: copied",)),
        (torch.randn(1, 8).expand(8, 8), ("`x` is not contiguous: copied",)),
        (torch.randn(16, 16)[::2, ::2], ("`x` is not contiguous: copied",)),
        (torch.ones(8, 8), ()),
    ):
        assert_same(compiled(x), (x * 2).sum(0))
        assert compiled.notes == note


def test_elements_that_memory_does_not_say_are_read() -> None:
    """Of a negated view and of zeros without memory, as example, argument and weight."""
    values = torch.full((3,), 1 + 2j)
    for x in (values.conj().imag, torch._neg_view(torch.randn(3).bfloat16()), torch._efficientzerotensor((3,))):
        compiled = dplc.compile(lambda x: x * 2, (x,))
        assert_same(compiled(x), x.clone() * 2)
        assert_same(compiled(torch.ones_like(x)), torch.full_like(x.clone(), 2))
    module = nn.Module()
    module.register_buffer("held", values.conj().imag)
    module.forward = lambda x: x + module.held
    assert_same(dplc.compile(module, (torch.ones(3),))(torch.ones(3)), torch.full((3,), -1.0))


# ---- what a kind of arguments runs is found once; what does not fit is refused at every call


def test_what_a_kind_of_arguments_runs_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the oldest kind is forgotten."""
    monkeypatch.setattr(calls, "MOST_KEPT", 2)
    program = sized(lambda x: x * 2, torch.randn(8, 8), rows=None)
    for n in (3, 8, 12, 8):
        assert torch.equal(program(torch.ones(n, 8)), torch.full((n, 8), 2.0))
    assert [shape[0] for ((_, shape),) in program._calls] == [8, 12]
    with torch.no_grad():
        assert not program(torch.ones(8, 8, requires_grad=True)).requires_grad
    with pytest.raises(dplc.DplcError, match="gradients are wanted of argument `x`"):
        program(torch.ones(8, 8, requires_grad=True))


def entered(program: dplc.Compiled, x: torch.Tensor) -> int:
    """How many functions one call of a program enters, Python's and C's."""
    program(x)
    with cProfile.Profile() as profile:
        program(x)
    return sum(each.callcount for each in profile.getstats())


def test_a_call_of_a_length_costs_the_host_what_a_static_one_does() -> None:
    """But for the few calls that look its row up."""
    x, norm = torch.randn(64, 16), nn.RMSNorm(16)
    static = entered(dplc.compile(norm, (x,), db=False), x)
    bound = [entered(sized(norm, x, rows=rows, db=False), x) for rows in ((), None)]
    assert max(bound) <= static + 5


# ---- weights


def test_weights_and_buffers_are_read_at_every_call() -> None:
    """Of modules in a closure, too: changed in place, and others put where they were."""
    linear, norm, x = nn.Linear(8, 4), nn.BatchNorm1d(4).eval(), torch.randn(3, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        return norm(linear(x)).relu()

    compiled = dplc.compile(function, (x,))
    with torch.no_grad():
        linear.weight.mul_(3)
    assert_same(compiled(x), function(x))
    norm.running_mean, norm.bias = torch.randn(4), nn.Parameter(torch.ones(4))
    for assign in (False, True):
        linear.load_state_dict(nn.Linear(8, 4).state_dict(), assign=assign)
        assert_same(compiled(x), function(x))
    linear.weight = nn.Parameter(torch.randn(4, 9))
    with pytest.raises(dplc.DplcError, match=r"parameter `linear_weight` must be f32\[4, 8\]; it is f32\[4, 9\]"):
        compiled(x)


def test_a_tensor_that_was_frozen_and_changed() -> None:
    shift = torch.ones(4)
    compiled = dplc.compile(lambda x: x + shift, (X,))
    assert_same(compiled(X), X + 1)
    shift += 1
    with pytest.raises(dplc.DplcError, match="has changed since it was compiled"):
        compiled(X)


# ---- modules keep the mode that they are in

DRAWN = "in training mode draws random numbers"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5)), rf"`dropout` {DRAWN}[^`]*note: in 1 \(Dropout\)"),
        (nn.AlphaDropout(), f"`alpha_dropout` {DRAWN}"),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), DRAWN),
        (nn.InstanceNorm1d(4, track_running_stats=True), "instance_norm"),
    ],
)
@pytest.mark.sampled(3)
def test_what_training_does_is_refused_by_name(module: nn.Module, message: str) -> None:
    x = torch.randn(2, 4, 4)
    with pytest.raises(dplc.DplcError, match=message) as caught:
        dplc.compile(module, (x,), calls="none")
    assert ".eval()" in str(caught.value) and module.training
    with torch.no_grad():
        assert_same(dplc.compile(module.eval(), (x,))(x), module(x))


# ---- threads may compile at once, and torch is itself afterwards


def compiling_in_threads() -> None:
    """In a process of its own: what breaks, breaks for good."""
    ruleset._built_in.cache_clear()  # threads load the rules, too
    torch._dynamo.reset()

    def compiles(width: int) -> None:
        model, x = nn.Sequential(nn.Linear(8, width), nn.ReLU()), torch.randn(3, 8)
        made = dplc.compile(model, (x,), device="emulator", db=False)
        torch.testing.assert_close(made(x), model(x).detach())

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(compiles, range(4, 7)))
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    for name in (backend, "dplc"):
        assert torch.equal(torch.compile(lambda x: x * 2, backend=name)(torch.ones(3)), torch.full((3,), 2.0))
    assert len(seen) == 1


def test_compiling_in_threads(tmp_path: Path) -> None:
    assert done(tmp_path / "log", compiling_in_threads) == (0, "")
