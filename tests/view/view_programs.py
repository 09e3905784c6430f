"""Programs and their records, a suite, a page on a server that has a thread of its own, and waiting for threads."""

from __future__ import annotations

import functools
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.rewrite.trace import Trace
from dplc.engine.view.records import view_record
from dplc.engine.view.server import LivePage, PageServer


@functools.cache
def compiled(text: str) -> Compilation:
    """A compile of a `-c` text by the rules in their order, with its trace. Each text is compiled once."""
    settings = {"online_attention": {"SLOWER": 0}} if text == ATTENTION else None  # three kernels
    return compiler_with(target(), settings=settings, trace=Trace()).compile(capture_text(text))


def record_of(text: str) -> dict[str, Any]:
    """The record of a page with the effects of all firings."""
    return view_record(compiled(text), text, seconds=math.inf)


# {name: (a text, {function of its CUDA: the lines of the text that it comes from})}
PROGRAMS: dict[str, tuple[str, dict[str, set[int]]]] = {
    "softmax": (
        "x = torch.randn(64, 512)\ns = torch.softmax(x, -1)\ntorch.sin(s)",
        {"max_nan": {2}, "exp2_approx": {2}, "rcp_approx": {2}, "sinf": {2, 3}, "shfl_xor": {2}},
    ),
    "rmsnorm": (
        "x = torch.randn(32, 2048)\ny = nn.RMSNorm(2048)(x)\ntorch.cos(y)",
        {"rsqrt_approx": {2}, "cosf": {2, 3}, "shfl_xor": {2}, "ldg128": {2}},
    ),
    "product": (
        "x = torch.randn(64, 256)\nw = torch.randn(256, 128)\ny = x @ w\ntorch.tanh(y)",
        {"tanhf": {4}, "cp_async16": {3}},
    ),
    "prologue": (
        "x = torch.randn(512, 512)\nw = torch.randn(512, 512)\ny = torch.exp(x)\ntorch.relu(y @ w)",
        {"exp2_approx": {3}, "max_nan": {4}},  # computed in place, ahead of the product
    ),
    "deviations": (
        "x = torch.randn(64, 512)\nm = x.mean(-1, keepdim=True)\ny = x - m\nv = torch.sqrt(torch.abs(y))\nv.sum(-1)",
        {"sqrtf": {3, 4}},
    ),
    "layernorm": (
        "x = torch.randn(16, 300)\ny = nn.LayerNorm(300)(x)\ntorch.erf(y)",
        {"rsqrt_approx": {2}, "erff": {2, 3}},
    ),
    "transposed": ("x = torch.randn(8, 16, 64)\ny = x.transpose(1, 2)\ntorch.sin(y)", {"sinf": {3}}),
    "joined": (
        "x = torch.randn(128, 64)\ny = torch.cat([torch.sin(x), torch.cos(x)], 1)\ntorch.tanh(y)",
        {"tanhf": {2, 3}},
    ),
    "one pass": (
        "x = torch.randn(2, 4, 128, 64)\nk = torch.randn(2, 4, 128, 64)\nv = torch.randn(2, 4, 128, 64)\n"
        "a = F.scaled_dot_product_attention(x, k, v)\ntorch.tanh(a)",
        {"max_nan": {4}, "exp2_approx": {4}, "rcp_approx": {4}, "tanhf": {4, 5}},
    ),
    "attention": (
        "x = torch.randn(2, 16, 197, 64)\nk = torch.randn(2, 16, 197, 64)\nv = torch.randn(2, 16, 197, 64)\n"
        "a = F.scaled_dot_product_attention(x, k, v)\ntorch.tanh(a)",
        {"max_nan": {4}, "exp2_approx": {4}, "rcp_approx": {4}, "tanhf": {4, 5}, "cp_async16_zfill": {4}},
    ),
    "convolution": ("x = torch.randn(4, 3, 32, 32)\ny = nn.Conv2d(3, 8, 3)(x)\ntorch.tanh(y)", {"tanhf": {2, 3}}),
    "scan": ("x = torch.randn(64, 512)\ny = x.cumsum(-1)\ntorch.sin(y)", {"sinf": {3}, "shfl_xor": {2}}),
    "embedding": (
        "i = torch.randint(0, 100, (32,))\nw = torch.randn(100, 64)\ne = F.embedding(i, w)\ntorch.cos(e)",
        {"cosf": {3, 4}, "check_place": {3, 4}},
    ),
    "columns": (
        "x = torch.randn(33, 65)\ny = F.gelu(x)\nz = y.sum(0)\ntorch.exp(z)",
        {"erff": {2, 3}, "exp2_approx": {4}},
    ),
    "steps": (
        "x = torch.randn(64, 64)\na = torch.tanh(x)\nb = torch.sin(a)\nc = torch.cos(b)\na + b + c",
        {"tanhf": {2}, "sinf": {3}, "cosf": {4, 5}},
    ),
}
RMSNORM, ATTENTION, PRODUCT = (PROGRAMS[name][0] for name in ("rmsnorm", "attention", "product"))

SEARCHED = "torch.softmax(torch.randn(64, 512) @ torch.randn(512, 64) * 2.0, -1)"

# A program, and a rule that a file may bring for it.
EXPONENTIALS = "torch.exp(torch.randn(64)) * torch.exp(torch.randn(64))"
RULE = """
## A product of exponentials is the exponential of a sum.
@approx
rule product_of_exponentials on tensor
match
    y = multiply(exp(a), exp(b))
rewrite
    y = exp(add(a, b))
"""

CASE = {"operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}}
SUITE = {
    "about": "two cases <b>&</b>",
    "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
    "cases": [{"name": "staged", **CASE}, {"name": "plain", "rules": ["plain.rw"], **CASE}],
}


def suite(folder: Path) -> Path:
    """The file of a suite in which one case has a rule less than the other."""
    (folder / "plain.rw").write_text("without stage_inputs\n")
    (file := folder / "suite.json").write_text(json.dumps(SUITE))
    return file


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """What a function gives, once it is true. Raises AssertionError where it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it was never true")


@contextmanager
def served(shown: LivePage, program: Any = None) -> Iterator[PageServer]:
    server = PageServer(shown)
    server.program = program
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
