"""Everything that cannot be captured: one message, a caret at the very expression, exit code 1, no traceback."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capture_checks import data, pointed_at
from torch._higher_order_ops.while_loop import while_loop

from dplc.engine.capture import places
from dplc.engine.capture.capture import capture, capture_text
from dplc.engine.language.rule import RuleSet
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.ir.diagnostic import DplcError, Span

# Texts and what their messages say. « and » are around what the caret is under.
BAD_TEXTS = {
    "torch.exp(«(»torch.ones(3)": "'(' was never closed",
    "x = torch.randn(3)\n « »y = 2": "unexpected indent",
    "a = 'ü' +": "syntax error",
    "«torch.tanh(torch.ones(2, 3)) + torch.ones(4)»": "must match",
    "«torch.ones(2, 3) @ torch.ones(2, 3)»": "mat1 and mat2",
    "(lambda t: t.abs() if «bool(t.max() > 2)» else t)(torch.rand(3))": "values of a tensor",
    "x = torch.randn(3)\nx = x if «x.sum() > 0» else -x\nx.exp()": "values of a tensor",
    "x = torch.randn(3)\nsum(x.exp() for _ in range(«int(x.max())»))": "values of a tensor",
    "x = torch.randn(3, 3)\n«x[x > 0]»": "shape that depends on the values",
    "x = torch.randn(3)\nx * «x.max().item()»": "torch op 'item' is not supported",
    "«x = torch.randn(3)»": "last statement must be an expression",
    "«return 1»": "last statement must be an expression",
    "«lambda: 3»": "gives function, not a tensor",
    "«nn.Linear(3, 4)»": "gives Linear, not a tensor",
    "«torch.randn(3).shape[0]»": "gives int, not a tensor",
    "«torch.unique(torch.randn(8))».abs()": "torch op '_unique2' is not supported",
    "é = torch.randn(3)\n'ü' and «torch.unique(é)».abs()": "'_unique2' is not supported",
    "x = torch.randn(3,\n  3)\n«torch.unique(\n  x)».abs()": "'_unique2' is not supported",
    "«torch.randn(3, 4).to(torch.uint32)».sum(0)": "gives u32",
    "«torch.randn(3).to(torch.uint16)» * 1.5": "gives u16",
    "z = torch.polar(torch.ones(3), torch.ones(3))\n«torch.addcmul(z, z, z, value=2j)»": "a complex number is not supported here",
    "«F.dropout(torch.randn(3))»": "`dropout` in training mode draws random numbers",
    "m = nn.Dropout(0.5)\nm.train()\n«m(torch.randn(3))»": "`dropout` in training mode draws random",
    "m = nn.BatchNorm1d(3).train()\n«m(torch.ones(4, 3))»": "changes `m_running_mean` in place",
    "«torch.func.grad(torch.sum)(torch.ones(3))»": "torch.func.grad, vjp, jvp",
    "x = torch.randn(3)\ny = x.sum()\n«y.backward()»\nx.grad": "does not require grad",
    "«torch.randn(3) + 'a'»": "TypeError: unsupported operand",
    "«1 / 0»": "ZeroDivisionError",
    "«{}['k']»": "KeyError: 'k'",
    "«assert False, 'no'»\ntorch.randn(3)": "AssertionError: no",
    "«exit()»": "exits",
    """
class B(nn.Module):
    def forward(self, x):
        return x + «torch.randn(3)»
B()(torch.randn(3))""": "'randn' draws random numbers",
    """
def helper(x):
    return «x.view(7)»
helper(torch.randn(3))""": "shape '[7]' is invalid",
}  # fmt: skip

# The same of functions of vectors.
CLOSED_OVER = torch.zeros(3)
BAD_FUNCTIONS = [
    (lambda x: x.add_(1) * 2, "changes `x` in place", "x.add_(1)"),
    (lambda x, y: x + y.view(-1)[1:].mul_(3).sum(), "changes `y` in place", "y.view(-1)[1:].mul_(3)"),
    (lambda x, y: (x * 2).add_(1) + y[1:].mul_(3).sum(), "function changes `y` in place", "y[1:].mul_(3)"),
    (lambda x: x + CLOSED_OVER.add_(1), "changes a tensor of its closure in place", "CLOSED_OVER.add_(1)"),
    (lambda x: x + torch.randn(3), "'randn' draws random numbers", "torch.randn(3)"),
    (lambda x: x if x.sum() > 0 else -x, "values of a tensor", "x.sum() > 0"),
    (lambda x: x @ x[None], "same reduction dim", "x @ x[None]"),
    (lambda x: while_loop(lambda a: a.sum() > 0, lambda a: (a - 1,), (x,)), "while_loop is not supported", None),
    (lambda x: nothing + x, "name 'nothing' is not defined", "nothing"),  # type: ignore[name-defined]  # noqa: F821
    (lambda x: x.tolist(), "returns a list, not a tensor", None),
]  # fmt: skip


def marked(span: Span) -> str:
    """A text with « and » around a span."""
    lines = span.source.text.split("\n")
    for line, column, mark in ((span.end_line, span.end_column, "»"), (span.line, span.column, "«")):
        lines[line - 1] = lines[line - 1][:column] + mark + lines[line - 1][column:]
    return "\n".join(lines)


@pytest.mark.parametrize(("text", "says"), BAD_TEXTS.items())
@pytest.mark.sampled(9)
def test_a_bad_text(text: str, says: str) -> None:
    with pytest.raises(DplcError) as caught:
        capture_text(re.sub("[«»]", "", text))
    error = caught.value
    assert says in error.what and "\n" not in error.what
    assert error.span is not None and error.span.source.name == "-c"
    assert "«" not in text or marked(error.span) == text.strip("\n")
    assert error.exit_code == 1 and error.__cause__ is None


@pytest.mark.parametrize(("function", "says", "under"), BAD_FUNCTIONS)
def test_a_bad_function(function: Any, says: str, under: str | None) -> None:
    with pytest.raises(DplcError) as caught:
        capture(function, [torch.randn(3) for _ in range(function.__code__.co_argcount)])
    assert says in caught.value.what and caught.value.exit_code == 1
    if under is not None:
        assert caught.value.span is not None and pointed_at(caught.value.span) == under
        assert caught.value.span.source.name.endswith("test_bad_input.py")


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


@pytest.mark.parametrize("text", ["", "  \n ", "# nothing"])
def test_an_empty_text(text: str) -> None:
    with pytest.raises(DplcError, match="the text is empty"):
        capture_text(text)


MESSAGES = {
    "x = torch.randn(3)\nx + tocrh.ones(3)": """
-c:2:5: error: name 'tocrh' is not defined
 2 | x + tocrh.ones(3)
   |     ^^^^^
  help: did you mean `torch`?""",
    "torch.rlu(torch.randn(3))": """
-c:1:1: error: module 'torch' has no attribute 'rlu'
 1 | torch.rlu(torch.randn(3))
   | ^^^^^^^^^
  help: did you mean `relu`?""",
    "torch.randn(3).to(torch.float8_e4m3fnuz).float()": """
-c:1:1: error: torch op 'to' gives float8_e4m3fnuz, which is not supported
 1 | torch.randn(3).to(torch.float8_e4m3fnuz).float()
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: use .float()""",
}


@pytest.mark.parametrize(("text", "message"), MESSAGES.items())
def test_the_whole_message(text: str, message: str) -> None:
    with pytest.raises(DplcError) as caught:
        capture_text(text)
    assert caught.value.render() == message[1:]


def test_an_argument_of_a_dtype_that_is_not_supported() -> None:
    with pytest.raises(DplcError, match="input `x` is u16, which is not supported"):
        capture(lambda x: x + 1, (torch.randn(3).to(torch.uint16),))


def test_an_op_that_no_rule_takes_names_its_place_and_the_next_step() -> None:
    for captured, message in (
        (capture_text("x = torch.randn(8)\ntorch.linalg.norm(x, 3.0)"), """
-c:2:1: error: torch op 'linalg_norm' is not supported
 2 | torch.linalg.norm(x, 3.0)
   | ^^^^^^^^^^^^^^^^^^^^^^^^^
  help: begin its rule: dplc rules new linalg_norm --op linalg_norm -o linalg_norm.rw"""),
        (capture(nn.Sequential(nn.CELU(), nn.Linear(4, 4)), (data(2, 4),)), """
error: torch op 'celu' is not supported
  note: in 0 (CELU)
  help: begin its rule: dplc rules new celu --op celu -o celu.rw"""),
    ):  # fmt: skip
        with pytest.raises(DplcError) as caught:
            lower(captured, RuleSet(()))
        assert caught.value.render() == message[1:]


def test_files_of_torch_of_python_and_of_dplc_are_not_the_users() -> None:
    """Errors and ops are placed in files of the user, which may be installed, too."""
    python, installed = sysconfig.get_path("stdlib"), Path(torch.__file__).parents[1]
    libraries = f"{installed}/torch/nn/functional.py", places.__file__, f"{python}/contextlib.py"
    users = (
        "/home/somebody/model.py",
        f"{installed}/transformers/models/llama.py",
        f"{python}/site-packages/model.py",
        f"{python}/dist-packages/model.py",
        f"{python}_of_mine/model.py",
    )
    assert list(map(places.is_library, libraries + users)) == [True] * len(libraries) + [False] * len(users)
