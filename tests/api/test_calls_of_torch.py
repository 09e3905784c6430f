"""Ops that no rule lowers are calls of torch: between kernels, in dumps, in the interpreter, with gradients."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from drawing import draws
from torch import Tensor, nn

import dplc
from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.engine.cli.programs import read_dump, reference_of
from dplc.engine.torch_backend import EagerWarning
from dplc.ir.interp.torch import operator
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.tensor import check

Matrix = Callable[[Tensor], Tensor]
EYE = torch.eye(4)


def svd(x: Tensor) -> Tensor:
    u, s, v = torch.linalg.svd(x)
    return (u * s) @ v + s


def eigh(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x + x.t())
    return (vectors * values.sin()) @ vectors.t()


def frexp(x: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(x)
    return mantissa * exponent


def ldl(x: Tensor) -> Tensor:
    factor, pivots = torch.linalg.ldl_factor(x + x.t() + 9 * EYE)
    return factor + pivots


def unpacked(x: Tensor) -> Tensor:
    _, lower, upper = torch.lu_unpack(*torch.linalg.lu_factor(x + 5 * EYE))
    return lower + upper


def geqrf(x: Tensor) -> Tensor:
    a, tau = torch.geqrf(x)
    return a.abs() + tau


CALLED: dict[str, Matrix] = {
    "airy_ai": torch.special.airy_ai,
    "cond": lambda x: x / torch.linalg.cond(x + 5 * EYE),
    "eigh": eigh,
    "eigvalsh": lambda x: x + torch.linalg.eigvalsh(x + x.t()),
    "frexp": frexp,  # a result of integers
    "geqrf": geqrf,
    "histogram": lambda x: x + torch.histogram(x, 4, range=(-2.0, 2.0)).hist,  # a list of floats
    "householder_product": lambda x: torch.linalg.householder_product(x, x[0].sigmoid()),
    "ldl_factor": ldl,
    "lu": lambda x: torch.linalg.lu(x + 5 * EYE).U,
    "lu_unpack": unpacked,  # operands of integers
    "matrix_exp": lambda x: torch.matrix_exp(x.t() / 8),
    "matrix_rank": lambda x: x * torch.linalg.matrix_rank(x + 5 * EYE),
    "nextafter": lambda x: torch.nextafter(x, x.t()),
    "pinv": lambda x: torch.linalg.pinv(x + 5 * EYE),
    "qr": lambda x: torch.linalg.qr(x + 5 * EYE).R,
    "svd": svd,
    "svdvals": lambda x: x - torch.linalg.svdvals(x)[:, None],
    "tensorinv": lambda x: torch.linalg.tensorinv((x + 5 * EYE).reshape(4, 2, 2), ind=1).reshape(4, 4),
}
RULED: tuple[Matrix, ...] = (
    lambda x: x * 2 - 1,
    lambda x: torch.softmax(x, -1),
    lambda x: x @ x.t() / 4,
    lambda x: x.t().contiguous().tanh(),
    lambda x: x - x.mean(0),
    lambda x: torch.cat([x[2:], x[:2]]),
)


def chained(steps: list[Matrix]) -> Matrix:
    def function(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x).tanh() * 2
        return x

    return function


def called(compiled: dplc.Compiled) -> list[str]:
    return [step.call.statement.op for step in compiled.program.calls]


def assert_same(function: Any, *given: Tensor, calls: int | None = None) -> dplc.Compiled:
    """The compiled function gives what eager gives; so does what its dump means."""
    compiled = dplc.compile(function, given, db=False)
    want = function(*given)
    for got in (compiled(*given), function_of(compiled)(*given)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    if calls is not None:
        assert len(compiled.program.calls) == calls
    return compiled


def function_of(compiled: dplc.Compiled) -> Any:
    """The program of a compile with its temporaries in one arena, as a GPU has them."""
    again = replace(compiled.compilation)
    other = dplc.Compiled(again, "emulator", compiled._original)
    other.executor = EmulatorExecutor(arena=True)
    return other


@pytest.mark.parametrize("name", CALLED)
def test_an_op_without_a_rule_is_a_call(name: str) -> None:
    torch.manual_seed(0)
    compiled = assert_same(chained([RULED[0], CALLED[name], RULED[2]]), torch.randn(4, 4))
    assert compiled.program.calls and len(compiled.program.kernels) >= 2


@pytest.mark.parametrize("seed", range(draws(4)))
def test_random_programs_of_ops_with_rules_and_without(seed: int) -> None:
    dice = random.Random(seed)
    torch.manual_seed(seed)
    steps = [dice.choice((*CALLED.values(), *RULED, *RULED)) for _ in range(4)]
    assert_same(chained([*steps, CALLED["svdvals"]]), torch.randn(4, 4))


# ---- random numbers


class Started(nn.Module):
    """A recurrent layer whose first state is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(4, 4, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        states = torch.randn(2, 1, 4, device=x.device), torch.randn(2, 1, 4, device=x.device)
        return self.cell(x[:, None], states)[0].squeeze(1)


def steps(x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.tanh(x + torch.randn(4, 4)) * F.dropout(x, 0.25)
    return x


def unused(x: Tensor) -> Tensor:
    torch.rand(5)
    F.dropout(x, 0.5)
    return x * torch.rand(4)


def in_place(x: Tensor) -> Tensor:
    y = x.clone().normal_(1, 2)
    y[0].bernoulli_(0.5)
    return torch.empty_like(x).uniform_(-1, 1) + y + torch.empty(4).exponential_()


def under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        noise = torch.randn_like(x)
    return x + noise


RANDOM: dict[str, Callable[[], Matrix]] = {
    "factories": lambda: lambda x: torch.randn(4, 4) + torch.rand(4, dtype=torch.float64).float() * x,
    "equal": lambda: lambda x: torch.rand(4, 4) - torch.rand(4, 4) + x,
    "integers": lambda: lambda x: x[torch.randperm(4)] + torch.randint(3, 9, (4,)) * torch.randint_like(x, 5),
    "like": lambda: lambda x: torch.rand_like(x) + torch.randn_like(x * 2),
    "bernoulli": lambda: lambda x: torch.bernoulli(x.sigmoid()) * x,
    "distributions": lambda: lambda x: torch.normal(x, 2.0) + torch.poisson(x.exp()),
    "sampled": lambda: lambda x: torch.distributions.Normal(x, x.exp()).rsample(),
    "multinomial": lambda: lambda x: x[torch.multinomial(x.softmax(-1)[0], 3)],
    "gumbel": lambda: lambda x: F.gumbel_softmax(x, dim=-1),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4), nn.Dropout(0.5)),
    "channels": lambda: lambda x: F.dropout2d(x[None, :, None], 0.5)[0, :, 0] + F.dropout1d(x[None], 0.5)[0],
    "alpha": lambda: lambda x: F.alpha_dropout(x, 0.5, True) + F.feature_alpha_dropout(x, 0.5, True),
    "rrelu": lambda: lambda x: F.rrelu(x, training=True),
    "attention": lambda: lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.4)[0],
    "recurrent": Started,
    "steps": lambda: steps,
    "unused": lambda: unused,
    "in place": lambda: in_place,
    "under no_grad": lambda: under_no_grad,
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_that_eager_draws(name: str) -> None:
    """From the same seed, each time the program runs; and the next numbers are the same, too."""
    torch.manual_seed(0)
    function, x = RANDOM[name](), torch.randn(4, 4)
    compiled = dplc.compile(function, (x,), db=False)
    for seed in range(2):
        found = []
        for run in (function, compiled):
            torch.manual_seed(seed)
            with torch.no_grad():
                found.append((run(x), run(x), torch.rand(())))
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(dplc.DplcError, match="draws random numbers"):
        dplc.compile(function, (x,), db=False, calls="none")


def test_a_compile_draws_nothing_and_the_reference_draws_alike() -> None:
    x = torch.randn(4, 4)
    torch.manual_seed(0)
    compiled = dplc.compile(steps, (x,), device="reference")
    assert torch.equal(torch.rand(3), torch.manual_seed(0) and torch.rand(3))
    torch.manual_seed(1)
    want = steps(x)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(x), want, rtol=1e-5, atol=1e-5)


def test_a_rate_of_nothing_draws_nothing() -> None:
    layers = nn.Sequential(nn.Dropout(0.0), nn.Dropout(1.0), nn.Dropout(0.5).eval(), nn.LSTM(4, 4, dropout=0.0))
    compiled = dplc.compile(lambda x: layers(x)[0], (torch.randn(3, 4),), db=False, calls="none")
    assert not compiled.program.calls


# ---- what calls read and give


def stored_and_returned(x: Tensor) -> tuple[Tensor, ...]:
    """What a call reads is a result, an input, a view, and what another call gives."""
    y = x * 2
    first, second = torch.special.airy_ai(y), torch.special.airy_ai(x)
    return y, first, torch.special.airy_ai(first), torch.special.airy_ai(x.t()) + second.t(), torch.special.airy_ai(y)


def test_results_inputs_views_and_other_calls_are_read() -> None:
    assert_same(stored_and_returned, torch.randn(3, 5), calls=5)


def test_weights_are_read_at_every_call() -> None:
    layer = torch.nn.Linear(4, 4).requires_grad_(False)
    compiled = assert_same(lambda x: layer(x) @ torch.matrix_exp(layer.weight), torch.randn(2, 4), calls=1)
    layer.weight.mul_(-0.5)
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), layer(x) @ torch.matrix_exp(layer.weight), rtol=1e-4, atol=1e-4)


def test_kernels_of_one_loop_are_parted_by_a_call() -> None:
    """Two kernels that one launch could be, were there no call between them."""
    x = torch.randn(1, 6)
    assert_same(lambda x: (x.exp(), torch.special.airy_ai(x.exp()) + 1, (x + 1).exp()), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_call_computes_in_its_own_dtype(dtype: torch.dtype) -> None:
    compiled = assert_same(lambda x: torch.special.airy_ai(x + 1), torch.randn(7, dtype=dtype), calls=1)
    assert compiled(torch.zeros(7, dtype=dtype)).dtype is dtype


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.linalg.eigvals(x).abs(), lambda x: torch.linalg.svdvals(torch.complex(x, x))],
    ids=["given", "read"],
)
def test_complex_numbers_are_not_passed(function: Matrix) -> None:
    with pytest.raises(dplc.DplcError, match="complex numbers"):
        dplc.compile(function, (torch.randn(4, 4),), db=False)


def test_one_buffer_is_read_in_several_shapes() -> None:
    """Two tensors that differ in dimensions of size 1 alone."""
    assert_same(
        lambda x: torch.nextafter(x, x[:, None]) + torch.nextafter(x * 2, (x * 2)[None]), torch.randn(4), calls=2
    )


def test_strides_of_a_result_are_its_own_matter() -> None:
    """PyTorch gives vectors column by column; the buffer has them row by row."""
    vectors = torch.linalg.eigh(torch.randn(4, 4)).eigenvectors
    assert vectors.stride() == (1, 4)
    assert_same(lambda x: torch.linalg.eigh(x @ x.t()).eigenvectors.abs() + x, torch.randn(4, 4), calls=1)


def test_lengths_that_are_known_at_a_call() -> None:
    function = lambda x: torch.special.airy_ai(x * 2).cos() + x.sum()  # noqa: E731
    compiled = dplc.compile(function, (torch.randn(6, 3),), dynamic={"x": {0: dplc.Dim("s", 2, 64)}}, db=False, rows=())
    for rows in (2, 6, 33):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)
    assert called(compiled) == ["SpecialAiryAi"]


def test_tensors_without_elements() -> None:
    x = torch.randn(4, 4)
    assert_same(lambda x: torch.cat([torch.special.airy_ai(x[:0]), x * 2]), x, calls=0)
    with pytest.raises(dplc.DplcError, match="calls and loops read tensors that have elements"):
        dplc.compile(lambda x: torch.linalg.householder_product(x, x[0, :0]), (x,), db=False)


# ---- what is no call


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        ("Resize", (("self", 1),), "not an operator of torch that can be called"),
        ("Transpose", (("self", 1), ("dim0", 0), ("dim1", 1)), "writes an argument or gives a view of one"),
        ("AsStrided", (("self", 1), ("size", (2,)), ("stride", (1,))), "writes an argument or gives a view of one"),
        ("Getitem", (("self", 1), ("index", 0)), "not an operator of torch that can be called"),
        ("System", (("self", 1),), "not an operator of torch that can be called"),
    ],
)
def test_an_op_that_does_more_than_compute_is_not_called(op: str, args: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError, match=message):
        operator(op, args)


def test_without_calls_an_op_without_a_rule_is_an_error() -> None:
    x = torch.randn(3, 3)
    with pytest.raises(dplc.DplcError, match="torch op 'matrix_exp' is not supported"):
        dplc.compile(torch.matrix_exp, (x,), calls="none")
    with pytest.raises(dplc.DplcError, match="there is no call choice `some`"):
        dplc.compile(torch.matrix_exp, (x,), calls="some")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[x > 0].sum(), "gives a shape that depends on the values of a tensor"),
        (lambda x: x + torch.rand(4, generator=torch.Generator()), "custom_obj"),
        (lambda x: torch.cond(x.sum() > 0, lambda x: x + torch.rand(4), lambda x: x.sin(), (x,)), "draws random"),
        (lambda x: torch._higher_order_ops.map(lambda x: x + torch.rand(4), x), "draws random numbers"),
    ],
)
def test_what_is_refused_although_calls_may_be_made(function: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError, match=message):
        dplc.compile(function, (torch.rand(4, 4),), db=False)


# ---- dumps

DUMP = """## level: tensor
graph f(x: f32[4, 8]) -> y: f32[4]:
    a[i:4, j:8] = multiply(x[i, j], 2.0)
    svd: (f32[4, 4], f32[4], f32[4, 8]) = LinalgSvd(a, full_matrices=false)
    b[i] = add(svd_out1[i], 1.0)
    c: f32[1, 4] = SpecialAiryAi(b, shapes=((1, 4)))
    y[i] = multiply(b, c_out0[i])
"""


def test_a_dump_holds_calls(tmp_path: Path) -> None:
    (graph,) = read_program(DUMP)[1]
    assert check(graph) == [] and print_program(graph, "tensor") == DUMP
    file = tmp_path / "f.ir"
    file.write_text(DUMP)
    x = torch.randn(4, 8)
    sums = torch.linalg.svdvals(x.double() * 2) + 1
    torch.testing.assert_close(reference_of(read_dump(file), {"x": x})[0], sums * torch.special.airy_ai(sums))


WRONG = {
    ("SpecialAiryAi", "Bessel"): "torch has no op `Bessel`",
    ("SpecialAiryAi(b, shapes=((1, 4)))", "T(b, shapes=((1, 4)))"): "gives a view of one",
    ("shapes=((1, 4))", "shapes=((1, 5))"): r"torch gives float32\[1, 5\]",
    ("SpecialAiryAi(b,", "SpecialAiryAi(d,"): "`d` is not defined above",
    ("c: f32[1, 4]", "c: f32[4]"): r"torch gives float32\[1, 4\]",
    ("c: f32[1, 4]", "c: f16[1, 4]"): r"multiply\(f32, f16\)",
    ("full_matrices=false", "full_matrices=maybe"): "no overload of `LinalgSvd` takes these fields",
    ("LinalgSvd(a", "LinalgSvd(__import__(a)"): "LinalgSvd",
    ("SpecialAiryAi(b, shapes=((1, 4)))", "SpecialAiryAi(y)"): "`y` is not defined above",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change[1])
def test_a_wrong_call_in_a_dump_is_an_error(change: tuple[str, str], tmp_path: Path) -> None:
    assert change[0] in DUMP
    file = tmp_path / "f.ir"
    file.write_text(DUMP.replace(*change))
    with pytest.raises(dplc.DplcError, match=WRONG[change]):
        read_dump(file)


def test_every_dump_of_a_program_with_calls_reads_back() -> None:
    for name in CALLED:
        text = dplc.compile(chained([RULED[0], CALLED[name]]), (torch.randn(4, 4),), db=False).ir("tensor")
        (graph,) = read_program(text)[1]
        assert check(graph) == []
        assert print_program(graph, "tensor") == text


# ---- what is said


def test_calls_are_told() -> None:
    compiled = dplc.compile(CALLED["airy_ai"], (torch.randn(4, 4),), db=False)
    (line,) = compiled.compilation.calls_told
    assert line == "torch computes `special_airy_ai`, which no rule lowers: its time is not predicted"


# ---- torch.compile, with gradients


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ torch.matrix_exp(self.weight)) * torch.linalg.svdvals(x).sum()


@pytest.mark.usefixtures("fresh_dynamo")
def test_gradients_flow_through_calls() -> None:
    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(4, 4)
    given = [x.clone().requires_grad_() for _ in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerWarning)
        compiled = torch.compile(layer, backend="dplc", options={"db": False})
        results, gradients = [], []
        for function, y in zip((layer, compiled), given, strict=True):
            layer.zero_grad()
            results.append(function(y))
            results[-1].square().sum().backward()
            gradients.append((y.grad, layer.weight.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)
    told = "\n".join(str(one.message) for one in caught)
    assert "run in eager: torch op 'linalg_matrix_exp' is not supported" in told or "matrix_exp" in told
