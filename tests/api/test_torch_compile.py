"""torch.compile(.., backend="dplc") on CPU tensors: right, once per shape, and eager where dplc cannot."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import ALL_COMPILED, assert_same, compare
from torch import nn

import dplc
from dplc.engine.torch_backend import EagerWarning, GraphPart, backend
from dplc.ir.diagnostic import DplcError

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 20), nn.Linear(20, 12)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h), h.mean(-1)


def test_the_entry_point_is_there() -> None:
    points = importlib.metadata.entry_points(group="torch_dynamo_backends")
    assert points["dplc"].load() is backend
    assert "dplc" in torch.compiler.list_backends(exclude_tags=())


@ALL_COMPILED
def test_a_module_with_two_results_is_compiled_once_and_reads_its_weights(compiles: list[Any]) -> None:
    model, x = Block().eval(), torch.randn(5, 12)
    compiled = torch.compile(model, backend="dplc")
    with torch.no_grad():
        for _ in range(2):
            assert_same(compiled(x), model(x))
            model.up.weight.mul_(2)
    assert len(compiles) == 1


def test_a_graph_break(compiles: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y.sum(-1)

    compare(function, [(torch.randn(4, 9),)])
    assert len(compiles) == 2


def test_what_draws_numbers_stays_in_training() -> None:
    """Who trains wants dropout: nobody is told to leave training."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    with pytest.warns(EagerWarning, match="(?s)draws.*from the same seed") as caught:
        torch.compile(model, backend="dplc")(torch.randn(2, 8)).sum().backward()
    assert not any("eval()" in str(each.message) for each in caught)


def test_an_op_without_a_rule_runs_in_eager_and_is_named_once_with_its_line() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.special.airy_ai(x)
        return y * 2

    with pytest.warns(EagerWarning) as caught:
        compare(function, [(torch.randn(1, 1, 8),)] * 3)
    (text,) = [str(each.message) for each in caught if each.category is EagerWarning]
    assert text.startswith(
        "dplc: 1 of 2 ops of a part of the program run in eager: torch op 'special_airy_ai' is not supported"
    )
    line = function.__code__.co_firstlineno + 1
    assert f"test_torch_compile.py:{line}: y = torch.special.airy_ai(x)" in text


def flipped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    flat = y.view(-1)
    y.add_(1)
    x[0] = y[1]
    return flat, y.t(), x.t(), x, (x.t() * 2).t()


VIEWS = {
    "in place": lambda x: x.add_(1) * 2,
    "a view": lambda x: x.view(2, -1),
    "a transpose": lambda x: (x.t(), x + 1),
    "views of an argument that changes": flipped,
    "an argument, twice": lambda x: (x, x, x + 1),
    "rows of a split": lambda x: (x + 1).split([1, 3]),
    "another order in memory": lambda x: (x.t() * 2, (x.t() + 1).t().view(-1)),
    "a view of a result that is there as well": lambda x: (lambda y: (y, y[:, 0], y[0]))(x.softmax(-1)),
}
DRAWN = {"dropout": lambda x: torch.dropout(x, 0.5, True) + x, "random": lambda x: x + torch.rand(4, 6)}


@pytest.mark.parametrize("name", [*VIEWS, *DRAWN])
@pytest.mark.sampled(5)
def test_what_is_no_function_of_values(name: str) -> None:
    """Changes, shared memory, strides and random numbers are PyTorch's; nothing but what draws runs in eager."""
    function = {**VIEWS, **DRAWN}[name]
    compiled = torch.compile(function, backend="dplc")
    given, wanted = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerWarning)
        torch.manual_seed(1)
        want = torch.utils._pytree.tree_leaves(function(wanted))
        torch.manual_seed(1)
        got = torch.utils._pytree.tree_leaves(compiled(given))
    assert bool(caught) == (name in DRAWN)
    assert torch.equal(given, wanted)
    assert_same(got, want)
    for one, other in zip(got, want, strict=True):
        assert (one.data_ptr() == given.data_ptr()) == (other.data_ptr() == wanted.data_ptr())
    assert sharing(got) == sharing(want)


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """Of each tensor, the first that lies in the same memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [places.index(place) for place in places]


ODD: dict[str, Any] = {
    "a negated view": torch.full((3,), 1 + 2j).conj().imag,
    "conjugates": torch.full((3,), 1 + 2j).conj(),
    "zeros without memory": torch._efficientzerotensor((3,)),
    "sparse rows": torch.eye(3).to_sparse_csr(),
    "a sparse tensor": torch.eye(3).to_sparse(),
    "a jagged tensor": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "a nested tensor": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "an inference tensor": torch.inference_mode()(lambda: torch.ones(3))(),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_arguments_are_right_or_left_to_eager(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = ODD[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerWarning)
        got, want = torch.compile(function, backend="dplc")(x), function(x)
    assert got.layout is want.layout and got.is_nested is want.is_nested
    dense = [y.values() if want.is_nested else y.to_dense() for y in (got, want)] if name != "a nested tensor" else []
    assert not dense or torch.equal(*dense)
    told = "\n".join(str(each.message) for each in caught)
    assert ("is a jagged tensor, which is not supported" in told) is (name == "a jagged tensor")


def test_attention_of_two_open_lengths_says_that_they_are_equal() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v)

    compiled = torch.compile(attention, backend="dplc")
    with pytest.warns(UserWarning, match="must be equal in this program"):
        for length in (3, 5):
            q, k, v = torch.randn(1, 2, 4, 8), torch.randn(1, 2, length, 8), torch.randn(1, 2, length, 8)
            for tensor in (k, v):
                torch._dynamo.mark_dynamic(tensor, 2)
            assert_same(compiled(q, k, v), attention(q, k, v))


def test_options_reach_the_compiler(compiles: list[Any]) -> None:
    torch.compile(torch.tanh, backend="dplc", options={"target": "sm_90a", "trace": True})(torch.randn(9))
    (one,) = compiles
    assert one["made"].compilation.target.arch == "sm_90a" and one["made"].trace is not None


def test_old_signatures_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.torch_backend.MOST_SIGNATURES", 2)
    part = GraphPart(torch.fx.symbolic_trace(lambda x: torch.tanh(x)), {"trace": False}, set())
    for length in (3, 4, 5, 3):
        x = torch.randn(length)
        assert_same(part(x), torch.tanh(x))
    assert [signature[0][0] for signature in part.compiled] == [(5,), (3,)]  # type: ignore[index]


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.linear = scale, nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x) * self.scale, -1) + self.scale**2


@ALL_COMPILED
@pytest.mark.parametrize("derived", [False, True])
def test_a_number_of_the_module_changes(derived: bool) -> None:
    """Dynamo hands a float that changed over as a tensor, and a whole number as an argument of its own."""
    compiled = torch.compile(Scaled.forward, backend="dplc")
    with torch.set_grad_enabled(derived):
        for scale in (0.5, 0.25, 3, 7, 0.125):
            module, x = Scaled(scale), torch.randn(3, 8)
            got, want = compiled(module, x), module(x)
            assert_same(got, want)
            if derived:
                ours, eager = (torch.autograd.grad(y.square().sum(), module.linear.weight)[0] for y in (got, want))
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


# ---- what is not compiled is cut out


class Airy(nn.Module):
    """Two ops of one kind that no rule supports, between those that are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = self.linear(torch.special.airy_ai(self.linear(x)).relu())
        return self.linear(torch.special.airy_ai(once).relu())


def viewed_and_changed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    flat = y.view(-1)
    order = torch.special.airy_ai(flat)
    y.add_(1)
    return flat * order, y + 1


def picked(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr((x + 1)[:, 1:] * 2).R.cumsum(0)


CUT = {
    "the same op twice": (Airy().eval(), torch.randn(2, 4, 8), "2 of 7 ops", 3),
    "views that see a change": (viewed_and_changed, torch.randn(3, 5), "ops", 2),
    "an op of many results": (picked, torch.randn(3, 5), "2 of 6 ops", 2),
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.sampled(2)
def test_the_rest_is_compiled(name: str, compiles: list[Any]) -> None:
    function, x, share, pieces = CUT[name]
    with torch.no_grad(), pytest.warns(EagerWarning, match=share):
        compare(function, [(x,), (x,)])
    assert sum("made" in each for each in compiles) == pieces


def test_running_statistics_change_in_training() -> None:
    """Instance norm keeps them where no schema says so; `dplc.compile`, which changes nothing, refuses."""
    x = torch.randn(2, 3, 4, 5) + 1
    ours, eager = (torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True) for _ in range(2))
    with torch.no_grad():
        assert_same(torch.compile(ours, backend="dplc")(x), eager(x))
        assert_same(ours.running_mean, eager.running_mean)
        assert ours.running_mean.abs().max() > 0
        assert_same(dplc.compile(ours.eval(), (x,))(x), eager.eval()(x))
        with pytest.raises(DplcError, match="instance_norm") as caught:
            dplc.compile(ours.train(), (x,))
        assert any("call `.eval()` on the module" in note for note in caught.value.notes)
