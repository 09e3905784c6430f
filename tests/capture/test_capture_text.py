"""`-c` texts: what is an input, what is a weight, what runs once, and that the program means what the text says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from capture_checks import assert_means, assert_same, evaluated, inputs_of, pointed_at

from dplc.codegen.target import target
from dplc.engine.capture.capture import MOST_COMPUTED, SkipLargeProducts, capture_text
from dplc.engine.compiler import compiler_with
from dplc.ir.text.torch import print_torch_op

# Texts and the inputs of their programs. Each text is evaluated by Python too; that is the reference.
TEXTS = {
    "nn.RMSNorm(64)(torch.randn(1, 8, 64))": "input x; parameter rmsnorm_weight",
    "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))": "input x y z",
    """
class LN(nn.Module):
    def forward(self, x):
        m = x.mean(-1, keepdim=True)
        v = ((x - m) ** 2).mean(-1, keepdim=True)
        return (x - m) * torch.rsqrt(v + 1e-6)
LN()(torch.randn(6, 20))""": "input x",
    "(lambda a: nn.Linear(8, 4)(torch.tanh(nn.Linear(6, 8)(a))))(torch.randn(3, 6))": "input x; parameter linear_weight linear_bias linear_1_weight linear_1_bias",
    "nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)], nn.Tanh())(torch.randn(2, 4))": "input x; parameter sequential_0_weight sequential_0_bias sequential_1_weight sequential_1_bias sequential_2_weight sequential_2_bias",
    "nn.Sequential(*map(lambda n: nn.Linear(n, n), [4, 4]))(torch.randn(2, 4))": "input x; parameter sequential_0_weight sequential_0_bias sequential_1_weight sequential_1_bias",
    "nn.Sequential(*map(nn.Linear, [4, 5], [5, 6]))(torch.randn(2, 4))": "input x; parameter sequential_0_weight sequential_0_bias sequential_1_weight sequential_1_bias",
    """
x = torch.randn(2, 4)
def part(whole):
    m = nn.Linear(4, 4)
    return m if whole else m(x)
a = part(True)
part(False) + a(x)""": "input x; parameter a_weight a_bias linear_weight linear_bias",
    """
x = torch.randn(2, 4)
def part(prepared):
    m = nn.Linear(4, 4)
    if prepared:
        nn.init.ones_(m.weight)
    return m(x)
y = part(True)
part(False) + y""": "input x; parameter linear_1_weight linear_1_bias; constant constant",
    """
class B(nn.Module):
    def forward(self, x):
        return x.exp() if isinstance(self, B) else x
m = B()
m(torch.randn(3))""": "input x",
    """
from functools import partial, reduce
f = partial(nn.Linear, 4)
reduce(lambda h, m: m(h), [f(4), f(4)], torch.randn(2, 4))""": "input x; parameter linear_weight linear_bias linear_1_weight linear_1_bias",
    """
def make(n):
    return nn.Sequential(nn.Linear(n, n), nn.Tanh())
make(4)(torch.randn(2, 4))""": "input x; parameter sequential_0_weight sequential_0_bias",
    """
def lin(n):
    return nn.Linear(n, n)
def app(x):
    return lin(4)(x)
app(app(torch.randn(2, 4)))""": "input x; parameter linear_weight linear_bias linear_1_weight linear_1_bias",
    "m = nn.ModuleList()\nm.append(nn.Linear(3, 3))\nm[0](torch.randn(2, 3))": "input x; parameter m_0_weight m_0_bias",
    """
class B(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
        self.register_buffer('t', torch.arange(n).float())
    def forward(self, x):
        return x * self.w + self.t + torch.arange(4)
B(4)(torch.randn(3, 4))""": "input x; parameter b_w; buffer b_t",
    "x = torch.randn(4, 5)\nm = nn.Linear(5, 3)\nw = [torch.randn(3) for _ in 'ab']\nm(x) + w[0] + w[1]": "input x y z; parameter m_weight m_bias",
    """
x = torch.randn(4, 4)
m = nn.Linear(4, 4)
nn.init.ones_(m.weight)
h = m(x).relu()
if True:
    h = h * 2
h @ x""": "input x; parameter m_weight m_bias",
    "m = nn.Linear(4, 4)\nm.weight.data = torch.randn(4, 4)\nm(torch.randn(2, 4))": "input x; parameter m_weight m_bias",
    "m = nn.Linear(4, 4)\nwith torch.no_grad():\n    m.weight[0] = 1\nm(torch.randn(2, 4))": "input x; parameter m_weight m_bias",
    "m = nn.Linear(4, 4)\nm.weight.data.fill_(0.5)\nm(torch.randn(2, 4))": "input x; parameter m_weight m_bias",
    """
m = nn.Linear(4, 4)
def part(w):
    x = torch.randn(2, 4)
    unused = torch.zeros(4, 4)
    unused.grad = w.detach()
    return x
h = part(m.weight)
m(h)""": "input h; parameter m_weight m_bias",
    "m = nn.Linear(4, 4)\nm.weight = nn.Parameter(torch.randn(4, 4))\nm(torch.randn(2, 4))": "input x; parameter m_weight m_bias",
    "m = nn.Linear(4, 4)\nm.act = nn.ReLU()\nm.act(m(torch.randn(2, 4)))": "input x; parameter m_weight m_bias",
    "w = nn.Parameter(torch.randn(4, 4))\ntorch.randn(2, 4) @ w.exp()": "input y; parameter w",
    "x = torch.randn(4)\nfor i in range(3):\n    x = torch.sin(x) + i\nx": "input y",
    "(y := torch.randn(3)) + y": "input y",
    "import torch.nn.functional as G\nG.relu(torch.randn(3))": "input x",
    "sum(map(torch.randn, [3, 3]))": "input x y",
    """
n = 1
x = torch.randn(3)
h = x * n
n = 2
h * n""": "input x",
    """
acc = []
x = torch.randn(3)
for i in range(2):
    acc.append(x * i)
torch.stack(acc)""": "input x",
    "x = torch.randn(3)\nh = x.sin()\ny = h\ny + 1": "input x",
    """
class B(nn.Module):
    def forward(self, x):
        return x * w + k
w = torch.randn(3)
k = w.exp()
B()(torch.randn(3))""": "input w x",
    """
w = torch.randn(3)
class B(nn.Module):
    def forward(self, x, w=w):
        return x * w
B()(torch.randn(3))""": "input w x",
    """
w = torch.randn(3)
w.add_(1)
class B(nn.Module):
    def forward(self, x, w=w):
        return x * w
B()(torch.randn(3))""": "input x; constant constant",
    """
class B(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w
    def forward(self, x):
        return x * self.w
B(torch.randn(3))(torch.randn(3))""": "input x y",
    """
fs = [lambda x, w=w: x @ w for w in [torch.randn(3, 3), torch.randn(3, 3)]]
fs[1](fs[0](torch.randn(2, 3)))""": "input x y z",
    "x = torch.randn(4)\ndef f(n):\n    return x * n if n < 2 else f(n - 1) + x\nf(4)": "input x",
    "x = torch.zeros(3)\nx[0] = 1\nx.add_(2)\nx * 2": "input x; constant constant",
    "a = torch.randn(3)\nb = a\nb.add_(1)\na + b": "input a",
    "x = torch.empty(3).normal_()\nx.exp()": "input x x_1",
    "x = torch.empty(3)\ny = x.view(3)\nx.uniform_(1, 2)\ny.exp()": "input x x_1",
    "torch.tensor([1, 2, 3]) + torch.tensor([True, False, True])": "input x y",
    "nn.Embedding(10, 4)(torch.randint(0, 10, (2, 3)))": "input x; parameter embedding_weight",
    "nn.Embedding(10, 4).weight.sum()": "parameter embedding_weight",
    "(lambda x: (x.exp(), x.sum(), 3, None))(torch.randn(3))": "input x",
    "{'a': torch.randn(3).exp(), 'b': [torch.randn(2).sum(), 'text']}": "input x y",
    "torch.randn(3)": "input x",
    "(lambda y: (y, y))(torch.randn(3).exp())": "input x",
    "torch.randn(0) * 2": "input x",
    "torch.tensor(2.5).exp()": "input x",
    "a = torch.randn(3)\nb = torch.randn(3)\nb.exp()": "input b",
    "nn.BatchNorm1d(4).eval()(torch.randn(5, 4))": "input x; parameter batchnorm1d_weight batchnorm1d_bias; buffer batchnorm1d_running_mean batchnorm1d_running_var",
    "nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()(torch.randn(2, 4))": "input x; parameter sequential_0_weight sequential_0_bias",
    "torch.compile(lambda x: x.relu())(torch.randn(3))": "input x",
    "torch.manual_seed(3)\ntorch.randn(3).exp()": "input x",
    "    x = torch.randn(3)\n    math.pi * x": "input x",
    """
x = torch.randn(2, 4)
y = x * 1
view = y.view(-1)
z = view * 2
view.mul_(3)
y + z.view_as(y)""": "input x",
    """
x = torch.randn(2, 4)
with torch.enable_grad():
    y = x * 2
with torch.autocast("cpu", enabled=False):
    y = y * 3
with torch.no_grad():
    z = y + 1
z""": "input x",
    "(lambda a: (a > 0) & (a < 1) | (a == 2))(torch.randn(2, 4))": "input x",
    "(lambda a: (a.split(1)[0], a.chunk(2, -1)[1], a.max(1)))(torch.randn(2, 4))": "input x",
    "torch.nan_to_num(torch.randn(3) / 0)": "input x",
    "x = torch.arange(4) + 2**62\n(x // 3, x % 7, x > 2**62 + 1, x.to(torch.int32))": "input y",
}  # fmt: skip


@pytest.mark.parametrize(("text", "inputs"), TEXTS.items())
def test_a_text_means_what_python_says(text: str, inputs: str) -> None:
    captured, want = capture_text(text, seed=7), evaluated(text.replace("torch.compile", ""), seed=7)
    assert_means(captured, want)
    assert inputs_of(captured) == inputs
    assert capture_text(text, seed=7).graph is captured.graph
    leaves = torch.utils._pytree.tree_leaves(want)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel())
    torch.testing.assert_close(captured.reference, tensors, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        # initialisation is not a part, nor is what no output needs
        (
            "nn.Linear(8, 8).double().float()(torch.randn(2, 8))",
            "linear: f32[2, 8] = Linear(x, linear_weight, linear_bias)",
        ),
        ("x = torch.randn(4)\ntorch.fft.fft(x)\nx + 1", "add_1: f32[4] = Add(x, other=1)"),
        # only fields that differ from their default are said
        ("torch.randn(2, 3).sum(1, keepdim=False)", "sum: f32[2] = Sum(x, dim=(1))"),
        ("F.softmax(torch.randn(2), 0, dtype=torch.float32)", "softmax: f32[2] = Softmax(x, dim=0, dtype=f32)"),
        # the eps of a norm is that of the input's dtype
        (
            "nn.RMSNorm(4)(torch.randn(2, 4))",
            f"rms_norm: f32[2, 4] = RmsNorm(x, normalized_shape=(4), weight=rmsnorm_weight, eps={torch.finfo().eps})",
        ),
        # a word of the syntax is not the name of a value
        ("exp = torch.randn(3)\nload = exp.exp()\nload", "exp_2: f32[3] = Exp(exp_1)"),
        ("torch.maximum(torch.randn(3), torch.ones(()))", "maximum_1: f32[3] = Maximum(x, y)"),
    ],
)
def test_what_the_program_of_a_text_is(text: str, program: str) -> None:
    assert "\n".join(map(print_torch_op, capture_text(text).graph.body)) == program


def test_the_seed_decides_inputs_weights_and_reference() -> None:
    one, same, other = (capture_text("nn.Linear(4, 3)(torch.randn(2, 4))", seed) for seed in (1, 1, 2))
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, same.tensors[name])
        assert not torch.equal(tensor, other.tensors[name])
    assert one.graph is other.graph


def test_a_capture_leaves_torch_as_it_was() -> None:
    torch.manual_seed(5)
    want = torch.randn(3)
    torch.manual_seed(5)
    capture_text("torch.set_default_dtype(torch.float16)\ntorch.manual_seed(9)\ntorch.randn(4, dtype=torch.float32)")
    assert torch.get_default_dtype() is torch.float32
    assert torch.equal(torch.randn(3), want)


def test_modules_are_in_evaluation_mode() -> None:
    """A dropout and a batch norm that nobody put in evaluation mode."""
    captured = capture_text("nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))(torch.randn(5, 4))")
    assert_same([x.double() for x in captured.reference or ()], [captured.tensors["x"] / math.sqrt(1 + 1e-5)])


def test_statements_print_once(capsys: pytest.CaptureFixture[str]) -> None:
    capture_text("print('once')\ntorch.randn(3).exp()")
    assert capsys.readouterr().out == "once\n"


def test_every_statement_knows_its_expression() -> None:
    captured = capture_text("h = torch.randn(2, 3)\n1 + torch.cumprod(h.exp(), 0) * 2")
    spans: list[Any] = [captured.spans[statement.dst] for statement in captured.graph.body]
    assert [f"{span.location}: {pointed_at(span)}" for span in spans] == [
        "-c:2:19: h.exp()",
        "-c:2:5: torch.cumprod(h.exp(), 0)",
        "-c:2:5: torch.cumprod(h.exp(), 0) * 2",
        "-c:2:1: 1 + torch.cumprod(h.exp(), 0) * 2",
    ]


def test_the_signature_takes_the_inputs_in_order() -> None:
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    assert capture_text("torch.randn(2, 3) @ torch.randn(3, 4)").signature.bind((x, y)) == {"x": x, "y": y}


# ---- A text that is only compiled is captured without computing its products.

LARGE = 512
assert MOST_COMPUTED < 2 * LARGE**3


@pytest.mark.parametrize(
    "product",
    [
        lambda: torch.ones(LARGE, LARGE) @ torch.ones(LARGE, LARGE),
        lambda: torch.nn.functional.linear(*torch.ones(2, LARGE, LARGE), torch.ones(LARGE)),
        lambda: torch.ones(2, LARGE, LARGE) @ torch.ones(2, LARGE, LARGE),
        lambda: torch.nn.functional.conv2d(torch.ones(1, 64, 48, 48), torch.ones(256, 64, 3, 3)),
    ],
)
def test_large_products_are_zeros_of_the_right_shape(product: Callable[[], torch.Tensor]) -> None:
    right = product()
    with SkipLargeProducts():
        found = product()
    assert not found.any() and right.any()
    assert (found.shape, found.dtype, found.stride()) == (right.shape, right.dtype, right.stride())


@pytest.mark.parametrize("more", [0, 1])
def test_as_many_operations_as_may_be_are_computed(more: int) -> None:
    k = MOST_COMPUTED // (2 * LARGE * LARGE)
    assert 2 * LARGE * LARGE * k == MOST_COMPUTED
    with SkipLargeProducts():
        found = torch.ones(LARGE, k + more) @ torch.ones(k + more, LARGE)
    assert bool((found == (0 if more else k)).all())


@pytest.mark.parametrize(
    "text",
    [
        f"torch.relu(torch.randn({LARGE}, {LARGE}) @ torch.randn({LARGE}, {LARGE}))",
        f"F.scaled_dot_product_attention(*torch.randn(3, 8, {LARGE}, 64).unbind(0))",
    ],
)
def test_the_program_is_the_same_without_values(text: str) -> None:
    computed, left_out = capture_text(text), capture_text(text, values=False)
    assert computed.reference is not None and left_out.reference is None
    assert compiler_with(target()).compile(computed).cuda == compiler_with(target()).compile(left_out).cuda


def test_a_product_in_a_statement_is_computed() -> None:
    """What a text prepares may be a weight."""
    ones = f"torch.ones({LARGE}, {LARGE})"
    text = f"m = nn.Linear({LARGE}, {LARGE}, bias=False)\nm.weight.copy_({ones} @ {ones})\nm({ones})"
    assert (capture_text(text, values=False).tensors["m_weight"] == LARGE).all()
