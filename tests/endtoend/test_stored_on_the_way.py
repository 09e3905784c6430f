"""What a kernel reads where it stands is stored by it too: a residual beside its norm, a product beside its activation.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

import dplc
from dplc.ir.loop import For, Load

BF16 = ",dtype=torch.bfloat16"
ROWS = "x = torch.randn({m},{n}{t}); r = torch.randn({m},{n}{t}); "
PRODUCT = "F.linear(torch.randn({m},{k}{t}), torch.randn({n},{k}{t}))"
PAIRS = {
    "a sum and its relu": ROWS + "y = x + r; (y, F.relu(y))",
    "a residual and its RMS norm": ROWS + "y = x + r; (y, F.rms_norm(y, ({n},)))",
    "a residual and its layer norm": ROWS + "y = x + r; (y, F.layer_norm(y, ({n},)))",
    "a scaled row and its softmax": ROWS + "y = x * r; (y, F.softmax(y, -1))",
    "a softmax and a mask on it": ROWS + "y = F.softmax(x, -1); (y, y * r)",
    "a norm and its gate": ROWS + "y = F.rms_norm(x, ({n},)); (y, F.silu(y) * r)",
    "a transposed sum and its relu": "y = torch.randn({n},{m}{t}).t() + torch.randn({m},{n}{t}); (y, F.relu(y))",
    "running sums and twice as much": ROWS + "y = torch.cumsum(x, -1); (y, y * 2)",
    "a product and its gelu": f"y = {PRODUCT}; (y, F.gelu(y))",
    "a gate and a product through it": f"g = torch.randn({{m}},{{n}}{{t}}) * 2; (g, g * {PRODUCT})",
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", ["", BF16], ids=["f32", "bf16"])
@pytest.mark.sampled(2)
def test_both_are_right_in_one_launch(name: str, dtype: str) -> None:
    text = PAIRS[name].format(m=37, n=131, k=67, t=dtype)
    assert len(compiled(text).launched) == 1
    is_right(text)


@settings(max_examples=draws(2), deadline=None)
@given(st.sampled_from(sorted(PAIRS)), st.integers(1, 70), st.integers(1, 140), st.integers(1, 70))
def test_both_are_right_at_any_size(name: str, m: int, n: int, k: int) -> None:
    is_right(PAIRS[name].format(m=m, n=n, k=k, t=""))


def test_a_product_in_slices_stores_both_behind_them() -> None:
    """32 rows: the sum is split over blocks, and what adds the parts stores the product and its activation."""
    compilation = compiled("y = F.linear(torch.randn(32, 8192), torch.randn(512, 8192)); (y, F.gelu(y))")
    assert [len(kernel.outs) for kernel in compilation.kernels] == [1, 2]


def test_what_only_follows_a_product_is_not_held_in_registers_while_it_runs() -> None:
    text = "g = torch.randn(512, 2048) * 2; (g, g * F.linear(torch.randn(512, 768), torch.randn(2048, 768)))"
    (kernel,) = compiled(text).plan.kernels
    kinds = [type(stmt) for stmt in kernel.body[0].body[0].body]
    assert kinds.index(For) < kinds.index(Load)


def summed_up(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A kernel that needs another one which is launched between the two that are joined."""
    top = x.amax(1)
    other = z.sum(0)
    return top, other, (x - top[:, None] + other[:, None]).sum(1)


def crossed(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Two pairs, each of which needs the other's first: together they would wait for each other."""
    a, c = x.exp(), z.sin()
    return a, c, (a * c).relu(), (c + a).sigmoid()


@pytest.mark.parametrize(("function", "shapes"), [(summed_up, ((13, 67), (5, 13))), (crossed, ((13, 67), (13, 67)))])
def test_each_kernel_finds_what_it_reads(function: object, shapes: tuple[tuple[int, int], ...]) -> None:
    torch.manual_seed(0)
    args = tuple(torch.randn(shape) for shape in shapes)
    got = dplc.compile(function, args)(*args)
    for mine, wanted in zip(got, function(*(x.double() for x in args)), strict=True):
        assert float((mine - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())


PLACE_FIRST = """rule place_before_loops on tensor
match
    a = mat(v)
    b = mat(w)
require same_place(a, b)                         else "read elsewhere"
require same_loops(a, b)                         else "the loops differ"
rewrite
    (a, b) = mat(v, w)
"""


def test_a_rule_may_ask_for_the_place_before_the_loops(tmp_path: Path) -> None:
    """A value of fewer axes is read at another place than its own: an answer, not an error."""
    rules = tmp_path / "place.rw"
    rules.write_text(PLACE_FIRST)
    x = torch.randn(5, 7)
    total, scaled = dplc.compile(lambda x: (x.sum(1), x * x.sum(1, keepdim=True)), (x,), rules=[rules])(x)
    assert torch.allclose(scaled.double(), x.double() * x.double().sum(1, keepdim=True), rtol=1e-5, atol=1e-5)
    assert torch.allclose(total.double(), x.double().sum(1), rtol=1e-5, atol=1e-5)
