"""Every family of kernels once or twice, small: what must be right on a device before anything on it is timed.

A case is the text of `-c`. `check` runs it three times, so that launches, a capture and a replay are all looked at, and
compares each with float64. test_on_gpu.py does so on a GPU, families_on_mock.py on the mock driver.
"""

from __future__ import annotations

from dplc.codegen.launch import CudaExecutor
from dplc.codegen.target import Target
from dplc.engine.api import Compiled
from dplc.engine.capture.text import capture_text
from dplc.engine.compiler import CompileOptions, compile_captured
from dplc.engine.ruleset import toolchain
from dplc.engine.run.judge import accepted, errors, run_reference

SDPA = "F.scaled_dot_product_attention"
FAMILIES = {
    "elementwise": "F.silu(torch.randn(16, 512)) * torch.randn(16, 512)",
    "broadcast": "torch.randn(3, 1, 40) + torch.randn(5, 1)",
    "reduction": "torch.randn(7, 1025).sum(-1)",
    "column reduction": "torch.randn(70, 40).sum(0)",
    "softmax": "torch.softmax(torch.randn(6, 1000), -1)",
    "rms norm": "nn.RMSNorm(2048)(torch.randn(4, 2048))",
    "layer norm": "nn.LayerNorm(33)(torch.randn(2, 7, 33) + 3)",
    "matmul": "torch.randn(130, 72) @ torch.randn(72, 136)",
    "matmul, k split": "torch.randn(16, 2048) @ torch.randn(2048, 64)",
    "matmul, transposed": "torch.randn(64, 256).T @ torch.randn(64, 128)",
    "matmul, batched": "torch.bmm(torch.randn(2, 5, 130), torch.randn(2, 130, 9))",
    "linear, bias, gelu": "F.gelu(nn.Linear(128, 96)(torch.randn(48, 128)))",
    "attention": f"{SDPA}(torch.randn(1, 4, 33, 64), torch.randn(1, 2, 65, 64), torch.randn(1, 2, 65, 64), enable_gqa=True)",
    "attention, causal": f"{SDPA}(torch.randn(1, 2, 33, 64), torch.randn(1, 2, 33, 64), torch.randn(1, 2, 33, 64), is_causal=True)",
    "gather": "nn.Embedding(50, 64)(torch.randint(0, 50, (3, 7)))",
    "joined": "torch.cat([torch.randn(3, 20), torch.randn(5, 20)]) * 2",
}
HALVES = ("elementwise", "softmax", "rms norm", "matmul", "matmul, k split", "attention, causal")
CASES = {f"{name}, f32": (text, None) for name, text in FAMILIES.items()} | {
    f"{name}, {dtype}": (FAMILIES[name], dtype) for dtype in ("f16", "bf16") for name in HALVES
}


def check(name: str, target: Target, executor: CudaExecutor, place: str) -> str:
    """What is wrong with a case on a device, "" if nothing. place: of its tensors, for torch."""
    captured = capture_text(CASES[name][0], dtype=CASES[name][1])
    compiled = Compiled(compile_captured(captured, CompileOptions(toolchain(), target)), "cuda")
    compiled.executor = executor
    tensors = {key: tensor.to(place) for key, tensor in captured.tensors.items()}
    reference = run_reference(captured, captured.tensors)
    for turn in ("launched", "captured", "replayed"):
        results = [result.cpu() for result in compiled.run(tensors)]
        if compiled.notes:
            return f"{turn}: {compiled.notes}"
        if not accepted(results, reference, captured.reference):
            return f"{turn}: off by {errors(results, reference)[1]:.1e}"
    return ""
