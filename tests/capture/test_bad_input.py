"""Everything that cannot be captured: one message, a caret at the very expression, exit code 1, no traceback."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn as nn
from capture_checks import caret

from dplc.engine.capture.capture import capture, capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.language.rule import RuleSet
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.ir.diagnostic import DplcError

# text, what the message says, what the caret stands under
BAD_TEXTS = [
    ("torch.exp((torch.ones(3)", "'(' was never closed", "("),
    ("x = torch.randn(3)\n  y = 2", "unexpected indent", " "),
    ("a = 'ü' +", "syntax error", None),
    ("tocrh.tanh(torch.ones(3))", "name 'tocrh' is not defined", "tocrh"),
    ("torch.rlu(torch.randn(3))", "has no attribute 'rlu'", "torch.rlu"),
    ("torch.tanh(torch.ones(2, 3)) + torch.ones(4)", "must match", "torch.tanh(torch.ones(2, 3)) + torch.ones(4)"),
    ("torch.ones(2, 3) @ torch.ones(2, 3)", "mat1 and mat2", "torch.ones(2, 3) @ torch.ones(2, 3)"),
    ("(lambda t: t.abs() if bool(t.max() > 2) else t)(torch.rand(3))", "values of a tensor", "bool(t.max() > 2)"),
    ("x = torch.randn(3)\nx = x if x.sum() > 0 else -x\nx.exp()", "values of a tensor", "x.sum() > 0"),
    ("x = torch.randn(3)\nsum(x.exp() for _ in range(int(x.max())))", "values of a tensor", "int(x.max())"),
    ("x = torch.randn(3, 3)\nx[x > 0]", "shape that depends on the values", "x[x > 0]"),
    ("x = torch.randn(3)\nx * x.max().item()", "torch op 'item' is not supported", "x.max().item()"),
    ("x = torch.randn(3)", "last statement must be an expression", "x = torch.randn(3)"),
    ("return 1", "last statement must be an expression", "return 1"),
    ("lambda: 3", "gives function, not a tensor", "lambda: 3"),
    ("nn.Linear(3, 4)", "gives Linear, not a tensor", "nn.Linear(3, 4)"),
    ("torch.randn(3).shape[0]", "gives int, not a tensor", "torch.randn(3).shape[0]"),
    ("torch.unique(torch.randn(8)).abs()", "torch op '_unique2' is not supported", "torch.unique(torch.randn(8))"),
    ("é = torch.randn(3)\n'ü' and torch.unique(é).abs()", "'_unique2' is not supported", "torch.unique(é)"),
    ("x = torch.randn(3,\n  3)\ntorch.unique(\n  x).abs()", "'_unique2' is not supported", "torch.unique("),
    ("torch.randn(3, 4).to(torch.uint32).sum(0)", "gives u32", "torch.randn(3, 4).to(torch.uint32)"),
    ("torch.randn(3).to(torch.uint16) * 1.5", "gives u16", "torch.randn(3).to(torch.uint16)"),
    ("torch.randn(3) * 2j", "complex numbers are not supported", "torch.randn(3) * 2j"),
    ("F.dropout(torch.randn(3))", "`dropout` in training mode draws random numbers", "F.dropout(torch.randn(3))"),
    ("m = nn.Dropout(0.5)\nm.train()\nm(torch.randn(3))", "`dropout` in training mode draws random", "m(torch.randn(3))"),
    ("m = nn.BatchNorm1d(3).train()\nm(torch.ones(4, 3))", "changes `m_running_mean` in place", "m(torch.ones(4, 3))"),
    ("torch.func.grad(torch.sum)(torch.ones(3))", "torch.func.grad, vjp, jvp", "torch.func.grad(torch.sum)(torch.ones(3))"),
    ("x = torch.randn(3)\ny = x.sum()\ny.backward()\nx.grad", "does not require grad", "y.backward()"),
    ("torch.randn(3) + 'a'", "TypeError: unsupported operand", "torch.randn(3) + 'a'"),
    ("1 / 0", "ZeroDivisionError", "1 / 0"),
    ("{}['k']", "KeyError: 'k'", "{}['k']"),
    ("assert False, 'no'\ntorch.randn(3)", "AssertionError: no", None),
    ("exit()", "exits", "exit()"),
    ("""
class B(nn.Module):
    def forward(self, x):
        return x + torch.randn(3)
B()(torch.randn(3))""", "'randn' draws random numbers", "torch.randn(3)"),
    ("""
def helper(x):
    return x.view(7)
helper(torch.randn(3))""", "shape '[7]' is invalid", "x.view(7)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says", "under"), BAD_TEXTS, ids=[text[:40] for text, _, _ in BAD_TEXTS])
@pytest.mark.sampled(9)
def test_a_bad_text(text: str, says: str, under: str | None) -> None:
    with pytest.raises(DplcError) as caught:
        capture_text(text)
    error = caught.value
    assert says in error.what
    assert "\n" not in error.what
    assert error.exit_code == 1
    assert error.span is not None
    assert error.span.source.name == "-c"
    assert under is None or caret(error) == under
    assert error.__cause__ is None


def test_torch_says_nothing_of_its_own() -> None:
    """It would print the graph, a traceback of its meta kernel, and warn that it found no user code."""
    code = (
        "import torch\n"
        "from dplc.engine.capture.capture import capture\n"
        "from dplc.ir.diagnostic import DplcError\n"
        "for f in (lambda x: x if x.sum() > 0 else -x, lambda x: x @ x[None], lambda x: x[x > 0]):\n"
        "    try: capture(f, (torch.ones(3),))\n"
        "    except DplcError as error: print(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n1\n1\n", "")


@pytest.mark.parametrize(("text", "hint"), [
    ("torch.rlu(torch.randn(3))", "did you mean `relu`?"),
    ("torch.randn(3).to(torch.float8_e4m3fnuz).float()", "use .float()"),
])  # fmt: skip
def test_a_bad_text_gets_help(text: str, hint: str) -> None:
    with pytest.raises(DplcError) as caught:
        capture_text(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize("text", ["", "  \n ", "# nothing"])
def test_an_empty_text(text: str) -> None:
    with pytest.raises(DplcError, match="the text is empty"):
        capture_text(text)


def test_the_whole_message() -> None:
    with pytest.raises(DplcError) as caught:
        capture_text("x = torch.randn(3)\nx + tocrh.ones(3)")
    assert caught.value.render() == (
        "-c:2:5: error: name 'tocrh' is not defined\n"
        " 2 | x + tocrh.ones(3)\n"
        "   |     ^^^^^\n"
        "  help: did you mean `torch`?"
    )


CLOSED_OVER = torch.zeros(3)


def changes_its_input(x: Any) -> Any:
    x.add_(1)
    return x * 2


def changes_a_view(x: Any, y: Any) -> Any:
    part = y.view(-1)[1:]
    part.mul_(3)
    return x + y


def changes_its_own_first(x: Any, y: Any) -> Any:
    own = x * 2
    own.add_(1)
    y[1:].mul_(3)
    return own + y


def changes_its_closure(x: Any) -> Any:
    CLOSED_OVER.add_(1)
    return x + CLOSED_OVER


BAD_FUNCTIONS = [
    (changes_its_input, 1, "changes `x` in place", "x.add_(1)"),
    (changes_a_view, 2, "changes `y` in place", "part.mul_(3)"),
    (changes_its_own_first, 2, "function changes `y` in place", "y[1:].mul_(3)"),
    (changes_its_closure, 1, "changes a tensor of its closure in place", "CLOSED_OVER.add_(1)"),
    (lambda x: x + torch.randn(3), 1, "'randn' draws random numbers", "torch.randn(3)"),
    (lambda x: x if x.sum() > 0 else -x, 1, "values of a tensor", "x.sum() > 0"),
    (lambda x: x @ x[None], 1, "same reduction dim", "x @ x[None]"),
    (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), 1, "control flow", None),
    (lambda x: nothing + x, 1, "name 'nothing' is not defined", "nothing"),  # type: ignore[name-defined]  # noqa: F821
    (lambda x: x.tolist(), 1, "returns a list, not a tensor", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "count", "says", "under"), BAD_FUNCTIONS, ids=[says for _, _, says, _ in BAD_FUNCTIONS]
)
def test_a_bad_function(function: Any, count: int, says: str, under: str | None) -> None:
    with pytest.raises(DplcError) as caught:
        capture(function, tuple(torch.randn(3) for _ in range(count)))
    error = caught.value
    assert says in error.what
    assert error.exit_code == 1
    if under is not None:
        assert caret(error) == under and error.span is not None
        assert error.span.source.name.endswith("test_bad_input.py")


def test_an_argument_of_a_dtype_that_is_not_supported() -> None:
    with pytest.raises(DplcError, match="input `x` is u16, which is not supported"):
        capture(lambda x: x + 1, (torch.randn(3).to(torch.uint16),))


def refusal(captured: Capture) -> str:
    """What is said of the first op where there is no rule at all."""
    with pytest.raises(DplcError) as caught:
        lower(captured, RuleSet(()))
    return caught.value.render()


def test_an_op_that_no_rule_takes() -> None:
    assert refusal(capture_text("x = torch.randn(8)\ntorch.linalg.norm(x, 3.0)")) == (
        "-c:2:1: error: torch op 'linalg_norm' is not supported\n"
        " 2 | torch.linalg.norm(x, 3.0)\n"
        "   | ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  help: begin its rule: dplc rules new linalg_norm --op linalg_norm -o linalg_norm.rw"
    )


def test_an_op_of_a_module_that_no_rule_takes() -> None:
    said = refusal(capture(nn.Sequential(nn.CELU(), nn.Linear(4, 4)), (torch.randn(2, 4),)))
    help_ = "begin its rule: dplc rules new celu --op celu -o celu.rw"
    assert said == f"error: torch op 'celu' is not supported\n  note: in 0 (CELU)\n  help: {help_}"
