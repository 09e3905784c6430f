"""torch.compile(.., backend="dplc") on CPU tensors: right, once per shape, counted, and eager where dplc cannot."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import ALL_COMPILED, assert_same, compare, with_gradient
from torch import nn

import dplc
from dplc.codegen.target import target
from dplc.engine.torch_backend import EagerOps, EagerWarning, GraphPart

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
LINEAR = nn.Linear(8, 8)


@ALL_COMPILED
def test_a_second_call_reads_the_weights_and_compiles_nothing(compiles: list[Any]) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()), torch.randn(5, 8)
    compiled = torch.compile(model, backend="dplc")
    with torch.no_grad():
        for _ in range(2):
            assert_same(compiled(x), model(x))
            model[0].weight.mul_(2)
    assert len(compiles) == 1


def flipped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    flat = y.view(-1)
    y.add_(1)
    x[0] = y[1]
    return flat, y.t(), x.t(), x, (x.t() * 2).t()


VIEWS = {
    "in place": lambda x: x.add_(1) * 2,
    "running statistics": lambda x: F.instance_norm(x[None] * 2, x[:, 0], x[:, 1]),  # no schema says that they change
    "a view": lambda x: x.view(2, -1),
    "a transpose": lambda x: (x.t(), x + 1),
    "views of an argument that changes": flipped,
    "an argument, twice": lambda x: (x, x, x + 1),
    "rows of a split": lambda x: (x + 1).split([1, 3]),
    "another order in memory": lambda x: (x.t() * 2, (x.t() + 1).t().view(-1)),
    "a view of a result that is there as well": lambda x: (lambda y: (y, y[:, 0], y[0]))(x.softmax(-1)),
    "drawn dropout": lambda x: torch.dropout(x, 0.5, True) + x,
    "drawn numbers": lambda x: x + torch.rand(4, 6),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.sampled(6)
def test_what_is_no_function_of_values(name: str) -> None:
    """Changes, shared memory, strides and random numbers are PyTorch's; nothing but what draws runs in eager."""
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerWarning)
        for function in (torch.compile(VIEWS[name], backend="dplc"), VIEWS[name]):
            torch.manual_seed(1)
            x = torch.arange(24.0).reshape(4, 6)
            found.append([x, *torch.utils._pytree.tree_leaves(function(x))])
    assert bool(caught) == name.startswith("drawn")
    assert_same(*found)
    assert sharing(found[0]) == sharing(found[1])


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """Of each tensor, the first that lies in the same memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [places.index(place) for place in places]


@pytest.mark.parametrize("base", [-2, -2.5, -0.0, -1j, True])
def test_the_power_of_a_negative_number(base: Any) -> None:
    """torch.fx writes `(-2) ** x` without brackets."""
    x = torch.arange(5)
    assert_same([torch.compile(lambda x: base**x, backend="dplc")(x)], [base**x])


ODD: dict[str, Any] = {
    "conjugates": torch.full((3,), 1 + 2j).conj(),
    "sparse rows": torch.eye(3).to_sparse_csr(),
    "a jagged tensor": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "an inference tensor": torch.inference_mode()(lambda: torch.ones(3))(),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_arguments_are_right_or_left_to_eager(name: str) -> None:
    x = ODD[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerWarning)
        got, want = torch.compile(lambda x: x * 2, backend="dplc")(x), x * 2
    assert got.layout is want.layout
    assert torch.equal(*(y.values() if y.is_nested else y.to_dense() for y in (got, want)))
    messages = "\n".join(str(each.message) for each in caught)
    assert ("is a jagged tensor, which is not supported" in messages) is (name == "a jagged tensor")


def test_options_reach_the_compiler(compiles: list[Any]) -> None:
    torch.compile(torch.tanh, backend="dplc", options={"target": "sm_90a"})(torch.randn(9))
    assert [each["made"].compilation.target.arch for each in compiles] == ["sm_90a"]


def test_old_signatures_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.torch_backend.MOST_SIGNATURES", 2)
    part = GraphPart(torch.fx.symbolic_trace(lambda x: torch.tanh(x)), {"trace": False}, set())
    for length in (3, 4, 5, 3):
        x = torch.randn(length)
        assert_same(part(x), torch.tanh(x))
    assert [signature[0][0] for signature in part.compiled] == [(5,), (3,)]  # type: ignore[index]


def softened(weight: torch.Tensor, module: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ weight * module.scale, -1) + module.scale**2


@ALL_COMPILED
@pytest.mark.parametrize("derived", [False, True])
def test_a_number_of_the_module_changes(derived: bool) -> None:
    """Dynamo hands a float that changed over as a tensor, and a whole number as an argument of its own."""
    compiled, weight, module = torch.compile(softened, backend="dplc"), torch.randn(8, 8), nn.Module()
    for module.scale in (0.5, 0.25, 3, 7, 0.125):
        given = weight.requires_grad_(derived), module, torch.randn(3, 8)
        assert_same(compiled(*given), softened(*given))
        if derived:
            gradients = (with_gradient(f, *given)[1] for f in (compiled, softened))
            torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


# ---- what is not compiled is cut out, told once and counted


def airy_twice(x: torch.Tensor) -> torch.Tensor:
    """Two ops of one kind that no rule supports, between those that are."""
    once = LINEAR(torch.special.airy_ai(LINEAR(x)).relu())
    return LINEAR(torch.special.airy_ai(once).relu())


def viewed_and_changed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    flat = y.view(-1)
    order = torch.special.airy_ai(flat)
    y.add_(1)
    return flat * order, y + 1


def picked(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr((x + 1)[:, 1:] * 2).R.cumsum(0)


@pytest.mark.parametrize(
    ("function", "pattern", "pieces"),
    [
        (
            airy_twice,
            "^dplc: 2 of 7 ops .* 'special_airy_ai' is not supported\n  at .*test_torch_compile.py:.*: once = ",
            3,
        ),
        (viewed_and_changed, r"'special_airy_ai' .*\n.*: order = torch\.special\.airy_ai\(flat\)", 2),
        (picked, "2 of 6 ops", 2),  # an op of many results
    ],
)
@pytest.mark.parametrize("calls", ["missing", "none"])
def test_the_rest_is_compiled(function: Any, pattern: str, pieces: int, calls: str, compiles: list[Any]) -> None:
    """With calls of torch in one piece, without them in those between the ops."""
    with torch.no_grad(), pytest.warns(EagerWarning, match=pattern) as caught:
        compare(function, [(torch.randn(3, 8),)] * 2, options={"calls": calls})
    assert [warning.category for warning in caught] == [EagerWarning]
    assert sum("made" in each for each in compiles) == (pieces if calls == "none" else 1)


def shares(function: Any, x: torch.Tensor, runs: bool = True) -> dplc.Shares:
    """The shares of a function whose results are right."""
    found = dplc.Shares(runs=runs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        assert_same(torch.compile(function, backend="dplc", options={"shares": found})(x), function(x))
    return found


X = torch.linspace(-1.0, 1.0, 16).reshape(4, 4)  # sin(x) + 1 stays away from 0


def values(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svdvals(x.sin() + 1).cos() * 2


def test_shares_of_what_is_compiled_and_left_to_eager() -> None:
    found = shares(lambda x: x.sin() + 1, X)
    assert (found.ops, found.all_ops, found.eager) == (2, 2, {}) and found.seconds == found.all_seconds > 1e-6
    assert str(found).startswith("dplc runs 2 of 2 ops (100%), 100% of the ")
    found = shares(values, X)
    (cause,) = found.eager.values()
    assert "svdvals" in str(cause.place) and "test_torch_compile.py" in str(cause.place)
    machine = target("sm_80")
    assert cause.seconds == pytest.approx(machine.launch_seconds + 4 * (16 + 4) / machine.dram_bytes_per_second)
    assert "dplc runs 4 of 5 ops (80.0%)" in str(found) and f"in eager 1, 2.0 us: {cause.why}" in str(found)
    few = dplc.Shares(ops=9999, seconds=1.0, eager={"x": EagerOps("x", None, None, 1, 1e-9)})
    assert "(99.9%), 99.9% of" in str(few)  # almost all is not all
    assert str(dplc.Shares()) == "nothing was compiled, and nothing left to eager"


def test_shares_of_what_is_compiled_and_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of open lengths they are predicted for their example."""
    monkeypatch.setattr("dplc.engine.api.Compiled.__call__", lambda *_: pytest.fail("it ran"))
    found = shares(values, X, runs=False)
    assert (found.ops, found.all_ops) == (4, 5)
    seconds = []
    for rows in (1000, 4000):
        torch._dynamo.reset()
        x = torch.randn(rows, 64)
        torch._dynamo.mark_dynamic(x, 0)
        seconds.append(shares(lambda x: x.sin() + 1, x, runs=False).seconds)
    assert 0 < seconds[0] < seconds[1]


# ---- torch.nn's transformer layers in evaluation mode, which PyTorch runs as one op: no part is left to eager

LAYER = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
NORMED = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=True, activation="gelu")
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
LATER = nn.Transformer.generate_square_subsequent_mask(5)
ATTENTION = nn.MultiheadAttention(16, 4, batch_first=True)
LAYERS: dict[str, tuple[nn.Module, dict[str, Any]]] = {
    "padding": (LAYER, {"src_key_padding_mask": PADDING}),
    "a mask": (LAYER, {"src_mask": LATER}),
    "both": (LAYER, {"src_mask": LATER, "src_key_padding_mask": torch.where(PADDING, -torch.inf, 0.0)}),
    "gelu, normed first": (NORMED, {}),
    "attention": (ATTENTION, {"key_padding_mask": PADDING}),
    "attention without weights": (ATTENTION, {"need_weights": False}),
    "attention with all weights": (ATTENTION, {"average_attn_weights": False}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.sampled(6)
def test_encoder_layers_are_compiled_whole(name: str) -> None:
    module, options = LAYERS[name]
    given = [torch.randn(3, 5, 16)] * (3 if module is ATTENTION else 1)
    module.eval()
    with torch.no_grad():
        got, want = (f(*given, **options) for f in (torch.compile(module, backend="dplc"), module))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6)
