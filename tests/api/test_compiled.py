"""`dplc.compile`: what it returns, what it checks, and that weights stay alive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dplc

EMULATOR = {"device": "emulator"}


def close(got: Any, expected: Any) -> None:
    pytree = torch.utils._pytree
    assert pytree.tree_structure(got) == pytree.tree_structure(expected)
    for one, other in zip(*map(pytree.tree_leaves, (got, expected)), strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-5)
        else:
            assert one == other


@pytest.fixture
def linear() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4)


@pytest.fixture
def compiled(linear: torch.nn.Linear) -> dplc.Compiled:
    return dplc.compile(linear, (torch.randn(3, 8),), **EMULATOR)


# ---- the face


def test_the_face(compiled: dplc.Compiled) -> None:
    for stage in ("torch", "tensor", "loop", "tile", "kernel"):
        assert compiled.ir(stage).startswith(f"## level: {stage}\n")
    assert compiled.ir("cuda") == compiled.cuda
    assert "__global__" in compiled.cuda
    assert list(compiled.timings) == ["capture", "torch", "tensor", "fusion", "tile", "kernel", "cuda"]
    assert compiled.trace is not None
    assert {"d", "f", "t"} <= {firing.prefix for firing in compiled.trace.firings}
    assert repr(compiled) == "<dplc.Compiled for emulator: linear>"
    with pytest.raises(dplc.DplcError, match="did you mean `tile`"):
        compiled.ir("tyle")


def test_a_compilation_writes_itself_in_a_line(compiled: dplc.Compiled) -> None:
    """Every stage of a model takes minutes to write, and a notebook or a failed test asks for it."""
    name = compiled.compilation.target.name
    assert repr(compiled.compilation) == f"<Compilation for {name}: 1 launches of 1 kernels>"


def test_a_trace_that_was_not_kept_is_made_when_it_is_read(linear: torch.nn.Linear) -> None:
    kept, later = (dplc.compile(linear, (torch.randn(3, 8),), trace=trace) for trace in (True, False))
    assert kept.compilation.trace is not None and later.compilation.trace is None
    assert later.trace is not None and later.trace.render(2) == kept.compilation.trace.render(2)
    assert later.cuda == kept.cuda and later.trace is later.trace


# ---- calling


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (torch.randn(3, 9), "argument `input` must be f32[3, 8]; it is f32[3, 9]"),
        (torch.randn(1, 3, 8), "argument `input` must be f32[3, 8]; it is f32[1, 3, 8]"),
        (torch.randn(24), "argument `input` must be f32[3, 8]; it is f32[24]"),
        (torch.randn(3, 8).double(), "argument `input` must be f32[3, 8]; it is f64[3, 8]"),
        (torch.zeros(3, 8, dtype=torch.int32), "argument `input` must be f32[3, 8]; it is i32[3, 8]"),
        (
            np.zeros((3, 8), np.float32),
            "argument `input` must be a tensor, f32[3, 8]; it is a numpy array\n  help: pass torch.from_numpy(..)",
        ),
        (3.0, "argument `input` must be a tensor, f32[3, 8]; it is of the type float"),
        (torch.empty(3, 8, device="meta"), "argument `input` is on the meta device"),
        (torch.ones(3, 8, requires_grad=True), "gradients are wanted of argument `input`"),
        (torch.eye(8)[:3].to_sparse_csr(), "is of the layout torch.sparse_csr"),
    ],
)
def test_an_argument_that_does_not_fit(compiled: dplc.Compiled, argument: Any, message: str) -> None:
    """Also after a call that fits."""
    for _ in range(2):
        with pytest.raises(dplc.DplcError) as caught:
            compiled(argument)
        assert message in str(caught.value)
        assert caught.value.exit_code == 1
        compiled(torch.ones(3, 8))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'input'"),
        ((torch.zeros(3, 8), torch.zeros(3, 8)), {}, "too many positional arguments"),
        ((torch.zeros(3, 8),), {"y": 1}, "unexpected keyword argument 'y'"),
    ],
)
def test_a_call_that_does_not_fit(compiled: dplc.Compiled, args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError, match="the call does not fit") as caught:
        compiled(*args, **kwargs)
    assert message in str(caught.value)


def test_nested_arguments_and_results() -> None:
    def f(a: Any, b: Any, flag: bool = True) -> Any:
        return {"sum": a + b["y"], "rest": (a * 2, [b["y"] - 1, 3, None]), "flag": flag}

    a, y = torch.randn(3), torch.randn(3)
    compiled = dplc.compile(f, (torch.randn(3), {"y": torch.randn(3)}), **EMULATOR)
    close(compiled(a, {"y": y}), f(a, {"y": y}))
    with pytest.raises(dplc.DplcError, match="argument `b_y` must be"):
        compiled(a, {"y": torch.randn(4)})
    with pytest.raises(dplc.DplcError, match="not structured"):
        compiled(a, {"z": y})


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (torch.sin, torch.randn(3, 5)),
        (lambda x: x.sum(), torch.randn(3, 5)),
        (lambda x: x > 0, torch.randn(3, 5)),
        (lambda x: x + 1, torch.arange(7)),
        (lambda x: x + 1, torch.arange(7, dtype=torch.int32)),
        (lambda x: x * 2, torch.randn(1, 3, 1)),
        (lambda x: x, torch.randn(1, 3, 1)),
        (lambda x: x.argmax(-1), torch.randn(3, 5)),
        (lambda x: x.sum((0, 1), keepdim=True), torch.randn(3, 5)),
    ],
)
@pytest.mark.parametrize("device", ["emulator", "reference"])
def test_results_are_tensors_like_torchs(function: Any, given: torch.Tensor, device: str) -> None:
    close(dplc.compile(function, given, device=device)(given), function(given))


def test_a_result_is_new_memory() -> None:
    compiled = dplc.compile(lambda x: x, (torch.zeros(4),), **EMULATOR)
    x = torch.ones(4)
    first = compiled(x)
    compiled(x * 2)
    x.zero_()
    assert first.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda: torch.randn(65)[1:].view(8, 8), "`x` is 4 bytes off 16-byte alignment: copied"),
        (lambda: torch.randn(8, 8).t(), "`x` is not contiguous: copied"),
        (lambda: torch.randn(1, 8).expand(8, 8), "`x` is not contiguous: copied"),
        (lambda: torch.randn(16, 16)[::2, ::2], "`x` is not contiguous: copied"),
    ],
)
def test_any_memory_layout(make: Any, note: str) -> None:
    compiled = dplc.compile(lambda x: (x * 2).sum(0), (torch.randn(8, 8),), **EMULATOR)
    x = make()
    close(compiled(x), (x * 2).sum(0))
    assert compiled.notes == (note,)
    close(compiled(torch.ones(8, 8)), torch.full((8,), 16.0))
    assert compiled.notes == ()


def test_elements_that_memory_does_not_say_are_read() -> None:
    """Of a negated view and of zeros without memory, as example, argument and weight."""
    values = torch.full((3,), 1 + 2j)
    for x in (values.conj().imag, torch._neg_view(torch.randn(3).bfloat16()), torch._efficientzerotensor((3,))):
        compiled = dplc.compile(lambda x: x * 2, (x,), **EMULATOR)
        close(compiled(x), x.clone() * 2)
        close(compiled(torch.ones_like(x)), torch.full_like(x.clone(), 2))
    module = torch.nn.Module()
    module.register_buffer("held", values.conj().imag)
    module.forward = lambda x: x + module.held
    close(dplc.compile(module, (torch.ones(3),), **EMULATOR)(torch.ones(3)), torch.full((3,), -1.0))


# ---- weights


def test_weights_are_read_at_every_call(compiled: dplc.Compiled, linear: torch.nn.Linear) -> None:
    """Changed in place, and others put where they were."""
    x = torch.randn(3, 8)
    with torch.no_grad():
        linear.weight.mul_(3)
    close(compiled(x), linear(x))
    linear.weight = torch.nn.Parameter(torch.randn(4, 8))
    close(compiled(x), linear(x))
    for assign in (False, True):
        linear.load_state_dict(torch.nn.Linear(8, 4).state_dict(), assign=assign)
        close(compiled(x), linear(x))


def test_weights_and_buffers_of_a_module_in_a_closure_are_read_at_every_call() -> None:
    norm, x = torch.nn.BatchNorm1d(5).eval(), torch.randn(3, 5)
    compiled = dplc.compile(lambda x: norm(x).relu(), (x,), **EMULATOR)
    norm.running_mean, norm.bias = torch.randn(5), torch.nn.Parameter(torch.ones(5))
    close(compiled(x), norm(x).relu())


def test_weights_that_do_not_fit_any_more(compiled: dplc.Compiled, linear: torch.nn.Linear) -> None:
    linear.weight = torch.nn.Parameter(torch.randn(4, 9))
    with pytest.raises(dplc.DplcError, match=r"parameter `weight` must be f32\[4, 8\]; it is f32\[4, 9\]"):
        compiled(torch.randn(3, 8))


# ---- options


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        (3, (torch.randn(3),), "a function or module is needed, not int"),
        (torch.sin, (np.zeros(3),), "is a numpy array"),
        (lambda x: 3, (torch.randn(3),), "returns an int, not a tensor"),
        (torch.matrix_exp, (torch.randn(3, 3),), "torch op 'matrix_exp' is not supported"),
        (torch.sin, (torch.eye(3).to_sparse_csr(),), "is of the layout torch.sparse_csr"),
        (torch.sin, (torch.eye(3).to_sparse(),), "is of the layout torch.sparse_coo"),
        (torch.sin, (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),), "is a jagged"),
        (torch.sin, (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),), "is a nested tensor"),
        (torch.sin, (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),), "is of the dtype torch.qint8"),
        (lambda x: torch.func.vjp(torch.sin, x)[1](x), (torch.ones(3),), "torch.func.grad, vjp, jvp and what"),
        (lambda x: torch.func.linearize(torch.sin, x)[1](x), (torch.ones(3),), "does not trace this transform"),
    ],
)
def test_what_cannot_be_compiled(function: Any, inputs: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError) as caught:
        dplc.compile(function, inputs)
    assert message in str(caught.value)


RULE = "rule {} on tensor\nmatch\n    y = {}(x)\nrewrite\n    y = add(x, 3.0)\n"


def test_own_rules(tmp_path: Path) -> None:
    (tmp_path / "one.rw").write_text(RULE.format("one", "sin"))
    (tmp_path / "two.rw").write_text(RULE.format("two", "cos"))
    x = torch.randn(5)
    one, both = tmp_path / "one.rw", [str(tmp_path / "one.rw"), tmp_path / "two.rw"]
    for rules, expected in (
        (one, x + 3 + x.cos()),
        (str(one), x + 3 + x.cos()),
        (both, x + 3 + (x + 3)),
        (tmp_path, x + 3 + (x + 3)),
        (dplc.Rules(*both), x + 3 + (x + 3)),
        (None, x.sin() + x.cos()),
    ):
        close(dplc.compile(lambda x: x.sin() + x.cos(), (x,), rules=rules, **EMULATOR)(x), expected)


def test_rules_are_read_once_and_can_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "one.rw"
    path.write_text(RULE.format("one", "sin"))
    rules = dplc.Rules(path)
    path.unlink()
    assert "one" in rules
    assert "two" not in rules
    assert f"{path}:1" in str(rules)
    x = torch.randn(5)
    close(dplc.compile(torch.sin, (x,), rules=rules, **EMULATOR)(x), x + 3)
    path.write_text(RULE.format("one", "sinn"))
    with pytest.raises(dplc.DplcError, match="unknown function `sinn`"):
        dplc.Rules(path)


def test_a_rule_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path, x = tmp_path / "one.rw", torch.randn(5)
    path.write_text(RULE.format("one", "sin"))
    close(dplc.compile(torch.sin, (x,), rules=path, **EMULATOR)(x), x + 3)
    path.write_text(RULE.format("one", "sin").replace("3.0", "4.0"))
    close(dplc.compile(torch.sin, (x,), rules=path, **EMULATOR)(x), x + 4)


def test_settings() -> None:
    x = torch.randn(64, 64)
    for size in (16, 32):
        compiled = dplc.compile(torch.matmul, (x, x), settings={"chunk_matmul_k": {"BK": size}}, **EMULATOR)
        assert f"k:{size}@" in compiled.ir("tile")
        close(compiled(x, x), x @ x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_program_without_inputs_gives_tensors(dtype: torch.dtype) -> None:
    got = dplc.compile(lambda: torch.eye(3, 4, dtype=dtype), (), device="emulator")()
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, torch.eye(3, 4, dtype=dtype))
