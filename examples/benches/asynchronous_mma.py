"""Products and attention on WGMMA compared with single warps, on an H200: predicted bounds, and the loops.

python examples/benches/asynchronous_mma.py     # needs nvcc or NVRTC, and nvdisasm
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dplc.codegen.build import assemble, device_text
from dplc.codegen.sass import disassemble
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.ruleset import Toolchain, toolchain


def attention(size: int, how: str = "") -> str:
    """32 heads of one size, 4096 queries, keys and values."""
    return f"F.scaled_dot_product_attention(*(torch.randn(32, 4096, {size}) for _ in 'qkv'){how})"


PROGRAMS = {
    "nt 4096³": "F.linear(torch.randn(4096, 4096), torch.randn(4096, 4096))",
    "nn 4096³": "torch.randn(4096, 4096) @ torch.randn(4096, 4096)",
    "linear 4096³, bias, gelu": "F.gelu(F.linear(torch.randn(4096, 4096), torch.randn(4096, 4096), torch.randn(4096)))",
    "nt 2000 x 3000 x 4096": "F.linear(torch.randn(2000, 4096), torch.randn(3000, 4096))",
    "attention 32 x 4096 x 64": attention(64),
    "attention 32 x 4096 x 128": attention(128),
    "attention 32 x 4096 x 128, causal": attention(128, ", is_causal=True"),
}
OVERRIDES = Path(__file__).resolve().parents[1] / "overrides"
WAYS = {  # the rules laid over
    "mma.sync": "single_warps.rw",
    "wgmma": None,
}
BOUNDS = ("L2", "shared", "issue", "tensor", "latency")


def tools(way: str) -> Toolchain:
    """The rules, as they are by default or with products of four warps."""
    over = WAYS[way]
    return toolchain([OVERRIDES / over] if over else None)


def print_row(name: str, way: str) -> None:
    """One program, multiplied in one way."""
    machine = target("h200")
    captured = capture_text(PROGRAMS[name], dtype="bf16", values=False)
    compilation = Compiler(tools(way), machine).compile(captured)
    (kernel,) = compilation.cuda_kernels
    told = predict(instruction_counts(compilation.kernels[0]), machine)
    assembly = assemble(device_text([kernel]), machine.arch)
    resources, hot = assembly.kernels[kernel.name], disassemble(assembly.cubin)[kernel.name].hot
    found = Counter(op.split(".")[0] for op in hot)
    bounds = " | ".join(f"{1e6 * told.bounds[bound]:.1f}" for bound in BOUNDS)
    spills = resources.spill_stores + resources.spill_loads
    products = f"{found['HGMMA']} HGMMA" if found["HGMMA"] else f"{found['HMMA']} HMMA"
    print(
        f"| {name} | {way} | {1e6 * told.seconds:.1f} | {bounds} | {resources.registers} "
        f"| {spills} | {len(hot)} | {products} | {len(assembly.warnings)} |"
    )


def main() -> None:
    print(f"| bf16, h200 | by | µs | {', µs | '.join(BOUNDS)}, µs | registers | spills | loop | of it | C7510 |")
    print("|---|---|" + "--:|" * (5 + len(BOUNDS) - 1) + "---|--:|")
    for name in PROGRAMS:
        for way in WAYS:
            if name.startswith("attention") or "turns" not in way:
                print_row(name, way)


if __name__ == "__main__":
    main()
