"""The programs of the manifest: suites, expressions of the pages, and three models of two layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.models.compiling import capture_results
from dplc.engine.models.sources import build, find

EXAMPLES = Path(__file__).parents[2] / "examples"
SUITES = ("kernels_84", "halves")
# What the pages of the project show, and what is traced.
EXPRESSIONS = {
    "rms_norm": "nn.RMSNorm(2048)(torch.randn(32, 2048))",
    "softmax": "torch.softmax(torch.randn(64, 512), -1)",
    "relu_matmul": "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))",
    "linear": "nn.Linear(2048, 2048)(torch.randn(512, 2048))",
    "norm_linear": "nn.Linear(64, 64)(F.rms_norm(torch.randn(32, 64), (64,)))",
    "attention": "F.scaled_dot_product_attention(*(torch.randn(32, 128, 64) for _ in range(3)))",
    "ragged_matmul": "torch.randn(501, 1003) @ torch.randn(1003, 77)",
    "product_of_exponentials": "torch.exp(torch.randn(32, 64)) * torch.exp(torch.randn(32, 64))",
    "layer_norm": "F.layer_norm(torch.randn(128, 768), (768,))",
    "embedding": "nn.Embedding(1000, 64)(torch.randint(0, 1000, (32,)))",
    "long_rows": "torch.softmax(torch.randn(8, 1048576), -1)",
    "arg_max": "torch.randn(64, 4096).argmax(-1)",
}
MODELS = {
    "tinyllama.f32": ("tinyllama-1.1b.json", 128, "f32"),
    "qwen2.5-7b.f32": ("qwen2.5-7b.json", 32, "f32"),
    "qwen2.5-7b.bf16": ("qwen2.5-7b.json", 32, "bf16"),
}


@dataclass(frozen=True)
class Program:
    """A program by name. traced: its trace is part of the manifest."""

    name: str
    capture: Callable[[], Capture]
    traced: bool = False


def programs() -> Iterator[Program]:
    """All of them, in a fixed order."""
    for name in SUITES:
        suite = read_suite(EXAMPLES / "suites" / f"{name}.json")
        for case in suite.cases:
            yield Program(f"{name}/{case.name}", subject_of(suite, case).capture)
    for name, text in EXPRESSIONS.items():
        yield Program(f"expressions/{name}", lambda text=text: capture_text(text), True)  # type: ignore[misc]
    for name, (file, length, dtype) in MODELS.items():
        yield Program(f"models/{name}", lambda a=file, b=length, c=dtype: _model(a, b, c))  # type: ignore[misc]


def _model(file: str, length: int, dtype: str) -> Capture:
    model = build(find(str(EXAMPLES / "models" / file)), dtype, layers=2)
    return capture_results(model, length).captured
