"""`-c` texts: what is an input, what is a weight, what runs once, and that the program means what the text says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capture_checks import assert_means, assert_same, assert_well_formed, ops

from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.ir.diagnostic import Span

# title: text. Every one is evaluated by Python too; that is the reference.
TEXTS = {
    "rms norm": "nn.RMSNorm(64)(torch.randn(1, 8, 64))",
    "relu of matmul": "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))",
    "class": """
class LN(nn.Module):
    def forward(self, x):
        m = x.mean(-1, keepdim=True)
        v = ((x - m) ** 2).mean(-1, keepdim=True)
        return (x - m) * torch.rsqrt(v + 1e-6)
LN()(torch.randn(6, 20))""",
    "modules in a lambda": "(lambda a: nn.Linear(8, 4)(torch.tanh(nn.Linear(6, 8)(a))))(torch.randn(3, 6))",
    "modules in a comprehension": "nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)], nn.Tanh())(torch.randn(2, 4))",
    "modules by map": "nn.Sequential(*map(lambda n: nn.Linear(n, n), [4, 4]))(torch.randn(2, 4))",
    "modules by map of a class": "nn.Sequential(*map(nn.Linear, [4, 5], [5, 6]))(torch.randn(2, 4))",
    "a module by a call that may give none": """
x = torch.randn(2, 4)
def part(whole):
    m = nn.Linear(4, 4)
    return m if whole else m(x)
a = part(True)
part(False) + a(x)""",
    "a module in a statement that prepares": """
x = torch.randn(2, 4)
def part(prepared):
    m = nn.Linear(4, 4)
    if prepared:
        nn.init.ones_(m.weight)
    return m(x)
y = part(True)
part(False) + y""",
    "a class knows itself": """
class B(nn.Module):
    def forward(self, x):
        return x.exp() if isinstance(self, B) else x
m = B()
m(torch.randn(3))""",
    "modules by partial": """
from functools import partial, reduce
f = partial(nn.Linear, 4)
reduce(lambda h, m: m(h), [f(4), f(4)], torch.randn(2, 4))""",
    "module by a function": """
def make(n):
    return nn.Sequential(nn.Linear(n, n), nn.Tanh())
make(4)(torch.randn(2, 4))""",
    "modules by one function called twice": """
def lin(n):
    return nn.Linear(n, n)
def app(x):
    return lin(4)(x)
app(app(torch.randn(2, 4)))""",
    "module list": "m = nn.ModuleList()\nm.append(nn.Linear(3, 3))\nm[0](torch.randn(2, 3))",
    "buffers and factories in a forward": """
class B(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
        self.register_buffer('t', torch.arange(n).float())
    def forward(self, x):
        return x * self.w + self.t + torch.arange(4)
B(4)(torch.randn(3, 4))""",
    "statements": "x = torch.randn(4, 5)\nm = nn.Linear(5, 3)\nw = [torch.randn(3) for _ in 'ab']\nm(x) + w[0] + w[1]",
    "set-up of weights": """
x = torch.randn(4, 4)
m = nn.Linear(4, 4)
nn.init.ones_(m.weight)
h = m(x).relu()
if True:
    h = h * 2
h @ x""",
    "weights by data": "m = nn.Linear(4, 4)\nm.weight.data = torch.randn(4, 4)\nm(torch.randn(2, 4))",
    "weights by item": "m = nn.Linear(4, 4)\nwith torch.no_grad():\n    m.weight[0] = 1\nm(torch.randn(2, 4))",
    "weights by fill": "m = nn.Linear(4, 4)\nm.weight.data.fill_(0.5)\nm(torch.randn(2, 4))",
    "a weight as a gradient": """
m = nn.Linear(4, 4)
def part(w):
    x = torch.randn(2, 4)
    unused = torch.zeros(4, 4)
    unused.grad = w.detach()
    return x
h = part(m.weight)
m(h)""",
    "weights by parameter": "m = nn.Linear(4, 4)\nm.weight = nn.Parameter(torch.randn(4, 4))\nm(torch.randn(2, 4))",
    "another child": "m = nn.Linear(4, 4)\nm.act = nn.ReLU()\nm.act(m(torch.randn(2, 4)))",
    "a loose parameter": "w = nn.Parameter(torch.randn(4, 4))\ntorch.randn(2, 4) @ w.exp()",
    "loop": "x = torch.randn(4)\nfor i in range(3):\n    x = torch.sin(x) + i\nx",
    "walrus": "(y := torch.randn(3)) + y",
    "import": "import torch.nn.functional as G\nG.relu(torch.randn(3))",
    "factories by map": "sum(map(torch.randn, [3, 3]))",
    "a name bound twice": "n = 1\nx = torch.randn(3)\nh = x * n\nn = 2\nh * n",
    "a list that grows": "acc = []\nx = torch.randn(3)\nfor i in range(2):\n    acc.append(x * i)\ntorch.stack(acc)",
    "an alias of a value": "x = torch.randn(3)\nh = x.sin()\ny = h\ny + 1",
    "globals of a forward": """
class B(nn.Module):
    def forward(self, x):
        return x * w + k
w = torch.randn(3)
k = w.exp()
B()(torch.randn(3))""",
    "an input as a default": """
w = torch.randn(3)
class B(nn.Module):
    def forward(self, x, w=w):
        return x * w
B()(torch.randn(3))""",
    "a changed input as a default": """
w = torch.randn(3)
w.add_(1)
class B(nn.Module):
    def forward(self, x, w=w):
        return x * w
B()(torch.randn(3))""",
    "an input kept by a module": """
class B(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w
    def forward(self, x):
        return x * self.w
B(torch.randn(3))(torch.randn(3))""",
    "lambdas in a list": """
fs = [lambda x, w=w: x @ w for w in [torch.randn(3, 3), torch.randn(3, 3)]]
fs[1](fs[0](torch.randn(2, 3)))""",
    "recursion": "x = torch.randn(4)\ndef f(n):\n    return x * n if n < 2 else f(n - 1) + x\nf(4)",
    "in place": "x = torch.zeros(3)\nx[0] = 1\nx.add_(2)\nx * 2",
    "in place through an alias": "a = torch.randn(3)\nb = a\nb.add_(1)\na + b",
    "random in place": "x = torch.empty(3).normal_()\nx.exp()",
    "random in place as a statement": "x = torch.empty(3)\ny = x.view(3)\nx.uniform_(1, 2)\ny.exp()",
    "integers and booleans": "torch.tensor([1, 2, 3]) + torch.tensor([True, False, True])",
    "int32": "torch.arange(6, dtype=torch.int32).view(2, 3).sum(0, dtype=torch.int32)",
    "index": "torch.arange(5)[torch.tensor([0, 2])]",
    "embedding": "nn.Embedding(10, 4)(torch.randint(0, 10, (2, 3)))",
    "no input at all": "nn.Embedding(10, 4).weight.sum()",
    "several results": "(lambda x: (x.exp(), x.sum(), 3, None))(torch.randn(3))",
    "a dictionary": "{'a': torch.randn(3).exp(), 'b': [torch.randn(2).sum(), 'text']}",
    "an input is the result": "torch.randn(3)",
    "a result twice": "(lambda y: (y, y))(torch.randn(3).exp())",
    "empty": "torch.randn(0) * 2",
    "scalar": "torch.tensor(2.5).exp()",
    "unused inputs": "a = torch.randn(3)\nb = torch.randn(3)\nb.exp()",
    "batch norm": "nn.BatchNorm1d(4).eval()(torch.randn(5, 4))",
    "dropout": "nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()(torch.randn(2, 4))",
    "attention": "F.scaled_dot_product_attention(*(torch.randn(1, 2, 8, 4) for _ in range(3)), is_causal=True)",
    "compiled": "torch.compile(lambda x: x.relu())(torch.randn(3))",
    "seeded inside": "torch.manual_seed(3)\ntorch.randn(3).exp()",
    "indented": "    x = torch.randn(3)\n    math.pi * x",
}  # fmt: skip


def evaluated(text: str, seed: int) -> Any:
    """What Python says that a text is."""
    import ast
    import textwrap

    torch.manual_seed(seed)
    tree = ast.parse(textwrap.dedent(text).strip())
    scope: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "math": math, "__name__": "__main__"}
    with torch.no_grad():
        exec(compile(ast.Module(tree.body[:-1], []), "text", "exec"), scope)
        return eval(compile(ast.Expression(tree.body[-1].value), "text", "eval"), scope)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_means_what_python_says(text: str) -> None:
    captured = capture_text(text, seed=7)
    want = evaluated(text.replace("torch.compile", ""), 7)
    assert_means(captured, want)
    leaves = torch.utils._pytree.tree_leaves(want)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel()]
    assert captured.reference is not None
    for got, expected in zip(captured.reference, tensors, strict=True):
        assert torch.equal(got, expected)


def kinds(captured: Capture) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, kind in captured.kinds.items():
        found.setdefault(kind, []).append(name)
    return found


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("relu of matmul", {"input": ["x", "y", "z"]}),
        ("rms norm", {"input": ["x"], "parameter": ["rmsnorm_weight"]}),
        ("set-up of weights", {"input": ["x"], "parameter": ["m_weight", "m_bias"]}),
        ("weights by data", {"input": ["x"], "parameter": ["m_weight", "m_bias"]}),
        ("weights by parameter", {"input": ["x"], "parameter": ["m_weight", "m_bias"]}),
        ("a weight as a gradient", {"input": ["h"], "parameter": ["m_weight", "m_bias"]}),
        ("a loose parameter", {"input": ["y"], "parameter": ["w"]}),
        ("buffers and factories in a forward", {"input": ["x"], "parameter": ["b_w"], "buffer": ["b_t"]}),
        ("module list", {"input": ["x"], "parameter": ["m_0_weight", "m_0_bias"]}),
        ("unused inputs", {"input": ["b"]}),
        ("an input as a default", {"input": ["w", "x"]}),
        ("globals of a forward", {"input": ["w", "x"]}),
        ("batch norm", {
            "input": ["x"],
            "parameter": ["batchnorm1d_weight", "batchnorm1d_bias"],
            "buffer": ["batchnorm1d_running_mean", "batchnorm1d_running_var"],
        }),
    ],
)  # fmt: skip
def test_what_the_inputs_are(title: str, expected: dict[str, list[str]]) -> None:
    assert kinds(capture_text(TEXTS[title])) == expected


@pytest.mark.parametrize("title", ["class", "modules in a lambda", "set-up of weights", "in place", "attention"])
def test_two_captures_are_one_graph(title: str) -> None:
    assert capture_text(TEXTS[title]).graph is capture_text(TEXTS[title]).graph


def test_the_seed_decides_inputs_weights_and_reference() -> None:
    text = "nn.Linear(4, 3)(torch.randn(2, 4))"
    one, same, other = capture_text(text, 1), capture_text(text, 1), capture_text(text, 2)
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
    assert captured.reference is not None
    assert_same(captured.reference[0].double(), (captured.tensors["x"] / math.sqrt(1 + 1e-5)))


def test_initialisation_never_leaks_into_the_graph() -> None:
    assert ops(capture_text("nn.Linear(8, 8).double().float()(torch.randn(2, 8))")) == ["Linear"]


def test_statements_print_once(capsys: pytest.CaptureFixture[str]) -> None:
    capture_text("print('once')\ntorch.randn(3).exp()")
    assert capsys.readouterr().out == "once\n"


def test_every_statement_knows_its_expression() -> None:
    captured = capture_text("h = torch.randn(2, 3)\n1 + torch.cumprod(h.exp(), 0) * 2")
    found = {}
    for statement in captured.graph.body:
        span = captured.spans[statement.dst]
        assert isinstance(span, Span)
        assert span.source.name == "-c"
        found[statement.op] = (span.line, span.source.line(span.line)[span.column : span.end_column])
    assert found == {
        "Exp": (2, "h.exp()"),
        "Cumprod": (2, "torch.cumprod(h.exp(), 0)"),
        "Mul": (2, "torch.cumprod(h.exp(), 0) * 2"),
        "Add": (2, "1 + torch.cumprod(h.exp(), 0) * 2"),
    }


def test_the_signature_takes_the_inputs_in_order() -> None:
    captured = capture_text("torch.randn(2, 3) @ torch.randn(3, 4)")
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    assert captured.signature.bind((x, y)) == {"x": x, "y": y}
    assert captured.inputs == ("x", "y")


def test_only_fields_that_differ_from_their_default_are_said() -> None:
    captured = capture_text("F.softmax(torch.randn(2, 3).sum(1, keepdim=False), 0, dtype=torch.float32)")
    assert [[name for name, _ in statement.args] for statement in captured.graph.body] == [
        ["self", "dim"],
        ["self", "dim", "dtype"],
    ]
    assert_well_formed(captured)


def test_the_eps_of_rms_norm_is_the_input_dtypes() -> None:
    (statement,) = capture_text("nn.RMSNorm(4)(torch.randn(2, 4))").graph.body
    assert dict(statement.args)["eps"] == torch.finfo(torch.float32).eps


def test_no_value_is_called_by_a_word_of_the_syntax() -> None:
    captured = capture_text("exp = torch.randn(3)\nload = exp.exp() + 1\nload.maximum(exp)")
    names = [p.name for p in captured.graph.ins] + [s.dst for s in captured.graph.body]
    assert names == ["exp_1", "exp_2", "add_1", "maximum_1"]
