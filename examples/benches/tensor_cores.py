"""Products and attention of 16 bits on tensor cores: what the model predicts, and what the assembler makes of them.

python examples/benches/tensor_cores.py             # predicted times, with the rules and without, by device
python examples/benches/tensor_cores.py --static    # registers and the hot loop, by single warps (needs nvcc, nvdisasm)
python examples/benches/tensor_cores.py --tile      # one such product's Tile IR
python examples/benches/tensor_cores.py --shapes    # the 84 shapes in bf16 with the rules and without, predicted
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec

from dplc.codegen.build import assemble, device_text
from dplc.codegen.sass import disassemble
from dplc.codegen.target import target
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.ruleset import Toolchain, toolchain

SDPA = "F.scaled_dot_product_attention(*(torch.randn(1, 32, {n}, {d}) for _ in 'qkv'){more})"
PROGRAMS = {
    "nn 1024³": "torch.randn(1024, 1024) @ torch.randn(1024, 1024)",
    "nn 4096³": "torch.randn(4096, 4096) @ torch.randn(4096, 4096)",
    "linear 4096³, bias, gelu": "F.gelu(F.linear(torch.randn(4096, 4096), torch.randn(4096, 4096), torch.randn(4096)))",
    "nn 1000 x 2000 x 3000": "torch.randn(1000, 3000) @ torch.randn(3000, 2000)",
    "nn 32 x 4096 x 4096": "torch.randn(32, 4096) @ torch.randn(4096, 4096)",
    "attention 32 x 1024 x 64": SDPA.format(n=1024, d=64, more=""),
    "attention 32 x 4096 x 128": SDPA.format(n=4096, d=128, more=""),
    "attention 32 x 4096 x 128, causal": SDPA.format(n=4096, d=128, more=", is_causal=True"),
}
SHAPES = Path(__file__).resolve().parents[1] / "suites/kernels_84.json"
DEVICES = ("a100", "h200", "rtx5090")
FMA = "".join(f"without {rule}\n" for rule in ("fragment_tile", "online_fragments"))


@cache
def tools(own: str) -> Toolchain:
    """The rules, beside a file of one's own."""
    with tempfile.NamedTemporaryFile("w", suffix=".rw") as file:
        file.write(own)
        file.flush()
        return toolchain([file.name] if own else None)


def made(name: str, device: str, own: str = "") -> Compilation:
    """A program of bf16 for a device."""
    return Compiler(tools(own), target(device)).compile(capture_text(PROGRAMS[name], dtype="bf16", values=False))


def microseconds(compilation: Compilation, device: str) -> float:
    """What all its kernels take, predicted."""
    return sum(1e6 * predict(instruction_counts(kernel), target(device)).seconds for kernel in compilation.kernels)


def print_times() -> None:
    """Launches and predicted times."""
    print(f"| bf16 | {' | '.join(f'{device}: launches, µs | FMA, µs | gain' for device in DEVICES)} |")
    print("|---|" + "--:|--:|--:|" * len(DEVICES))
    for name in PROGRAMS:
        row = []
        for device in DEVICES:
            new, old = made(name, device), made(name, device, FMA)
            here, before = microseconds(new, device), microseconds(old, device)
            row += [f"{len(new.kernels)}, {here:.1f}", f"{before:.1f}", f"{before / here:.1f}"]
        print(f"| {name} | {' | '.join(row)} |")


def print_static() -> None:
    """What the assembler makes of the kernel that multiplies most."""
    print("| bf16 | arch | registers | spills | hot loop | mma | share | ldmatrix an mma | wavefronts / ideal |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in PROGRAMS:
        for device in DEVICES:
            compilation, arch = made(name, device), target(device).arch
            counts = [instruction_counts(kernel) for kernel in compilation.kernels]
            most = max(range(len(counts)), key=lambda n: counts[n].tensor)
            kernel = compilation.cuda_kernels[most]
            assembly = assemble(device_text([kernel]), arch)
            resources, hot = assembly.kernels[kernel.name], disassemble(assembly.cubin)[kernel.name].hot
            found = Counter(op.split(".")[0] for op in hot)
            spills, mma = resources.spill_stores + resources.spill_loads, found["HMMA"]
            waves = counts[most].wavefronts / counts[most].ideal_wavefronts
            print(
                f"| {name} | {arch} | {resources.registers} | {spills} | {len(hot)} | {mma} | {mma / len(hot):.2f} "
                f"| {found['LDSM'] / max(mma, 1):.2f} | {waves:.2f} |"
            )


def print_shapes() -> None:
    """The times of all shapes over those without the rules: no program should be slower by them."""
    suite = read_suite(SHAPES)
    cases = [msgspec.structs.replace(case, dtype="bfloat16") for case in suite.cases]
    print("| bf16, the 84 shapes | multiplied on tensor cores | of FMA's time, geometric mean | most | of which |")
    print("|---|--:|--:|--:|---|")
    for device in DEVICES:
        ratios: dict[str, float] = {}
        for case in cases:
            captured = subject_of(suite, case).capture()
            new, old = (Compiler(tools(own), target(device)).compile(captured) for own in ("", FMA))
            if any(instruction_counts(kernel).tensor for kernel in new.kernels):
                ratios[case.name] = microseconds(new, device) / microseconds(old, device)
        worst = max(ratios, key=lambda name: ratios[name])
        mean = statistics.geometric_mean(ratios.values())
        print(f"| {device} | {len(ratios)} | {mean:.2f} | {ratios[worst]:.2f} | {worst} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--tile", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    options = parser.parse_args()
    if options.shapes:
        print_shapes()
    elif options.tile:
        print(made("nn 4096³", "h200").ir("tile").strip())
    elif options.static:
        print_static()
    else:
        print_times()


if __name__ == "__main__":
    main()
