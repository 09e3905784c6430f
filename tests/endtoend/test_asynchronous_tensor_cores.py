"""Products on the asynchronous atoms of sm_90a, by rules: right, clean, and left as they are by the assembler."""

from __future__ import annotations

import pytest
import torch
from products_of_halves import (
    EPILOGUES,
    SINGLE_WARPS,
    Product,
    assembled_as_written,
    atoms,
    compiled,
    judged,
    operands,
    product,
)

import dplc
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.facts.fragments import products
from dplc.engine.rewrite.statements.site import Site
from dplc.ir.interp import tile
from dplc.ir.text.programs import read_program

# whole tiles; ragged in all three; primes on the side that is not a row of TMA; two groups of warps, and one
CASES = (
    ("nt", (128, 256, 256), (128, 256), "m64n256k16"),
    ("nn", (128, 256, 256), (128, 256), "m64n256k16"),
    ("tn", (128, 128, 192), (128, 128), "m64n128k16"),
    ("tt", (64, 128, 192), (64, 128), "m64n128k16"),
    ("nt", (200, 136, 328), (128, 128), "m64n128k16"),
    ("nn", (97, 136, 264), (64, 64), "m64n64k16"),
    ("nt", (97, 131, 256), (64, 64), "m64n64k16"),
)


@pytest.mark.parametrize(("form", "shape", "block", "atom"), CASES)
@pytest.mark.sampled(2)
def test_products(form: str, shape: tuple[int, int, int], block: tuple[int, int], atom: str) -> None:
    inputs = operands(form, *shape)
    made = compiled(product(form), inputs, *block, None)
    assert atoms(made) == {atom}
    judged(made, product(form), inputs)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.sampled(2)
def test_epilogues(name: str) -> None:
    inputs = operands("nt", 100, 128, 256, torch.float16 if "f16" in name else torch.bfloat16)
    made = compiled(EPILOGUES[name], inputs, 64, 128, None)
    assert atoms(made) == {"m64n128k16"}
    assert len(made.compilation.cuda_kernels) == 1
    judged(made, EPILOGUES[name], inputs)


def test_the_schedule_means_the_same_in_every_order() -> None:
    inputs = operands("nn", 64, 64, 256)
    made = compiled(product("nn"), inputs, 64, 64, None)
    (kernel,) = made.compilation.tile
    arrays = {param.name: x.double().numpy() for param, x in zip(kernel.ins, inputs, strict=True)}
    want = inputs[0].double() @ inputs[1].double()
    for seed in range(3):
        got = tile.run((kernel,), arrays, seed)[kernel.outs[0].name]
        assert abs(torch.from_numpy(got) - want).max() < 1e-9


STAY: dict[str, tuple[Product, tuple[int, ...], int]] = {
    "two products of one operand": (lambda x, y: torch.relu(x @ y.mT) * (x @ y.mT.flip(1)), (64, 128, 256), 64),
    "rows that are not words of 16 bytes": (product("nt"), (128, 128, 255), 64),
    "half a span": (product("nt"), (128, 128, 256), 32),
    "two chunks": (product("nt"), (128, 128, 128), 64),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_with_single_warps(name: str) -> None:
    f, shape, chunk = STAY[name]
    inputs = operands("nt", *shape)
    sizes = {"blockify_launch": {"BM": 64, "BN": 128}, "chunk_matmul_k": {"BK": chunk}}
    made = dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=sizes, rules=None)
    assert not any(atom.startswith("m64") for atom in atoms(made))


@pytest.mark.parametrize("device", ["a100", "b200", "rtx5090"])
def test_other_machines_do_not_have_them(device: str) -> None:
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    made = dplc.compile(product("nt"), inputs, target=device, device="emulator", db=False, rules=None)
    assert atoms(made) == {"m16n8k16"}


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_large_products(form: str) -> None:
    """Predicted faster than by single warps, and assembled without spills or products that wait (C7510)."""
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    single, made = (
        dplc.compile(product(form), inputs, target="h200", device="emulator", db=False, rules=rules)
        for rules in (SINGLE_WARPS, None)
    )
    assert atoms(single) == {"m16n8k16"}
    assert atoms(made) == {"m64n256k16"}
    counts = [[instruction_counts(kernel) for kernel in one.compilation.kernels] for one in (single, made)]
    seconds = [sum(predict(count, target("h200")).seconds for count in one) for one in counts]
    assert seconds[1] <= 0.7 * seconds[0]
    assert counts[1][0].tensor == counts[1][0].asynchronous == counts[0][0].tensor
    assembled_as_written(made, 96)


def test_a_loop_that_only_copies_has_no_product() -> None:
    """A copy that is made twice, in a loop of its own: no atom does what is not there."""
    text = """## level: tile
kernel f(A: bf16[4, 4]) -> C: f32[4]:
    Tile(p:4=THREAD, g:8=THREAD, t:4=THREAD):
        for again in 0..2 serial:
            A_smem = Stage(A, origin=(0, 0), box=(i:4@0, k:4@1))
        Sync()
        a = load A_smem[p, t]
        C[p] = a
"""
    _, program = read_program(text)
    assert products(Site(program, (0,), target("h200")), ()) == ()


def gated(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x @ w.mT) * (x @ u.mT)


@pytest.mark.parametrize(
    ("device", "rules", "kernels"), [("h200", None, 2), ("h200", SINGLE_WARPS, 1), ("a100", None, 1)]
)
@pytest.mark.sampled(2)
def test_two_products_that_flow_together(device: str, rules: str | None, kernels: int) -> None:
    """Groups of four warps multiply one product in a kernel; single warps multiply both."""
    dice = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=dice).bfloat16() for shape in ((128, 512), (128, 512), (128, 512)))
    sizes = {"blockify_launch": {"BM": 64, "BN": 128}, "chunk_matmul_k": {"BK": 64}}
    made = dplc.compile(gated, inputs, target=device, device="emulator", db=False, rules=rules, settings=sizes)
    assert len(made.program.kernels) == kernels
    assert [("wgmma_m64" in kernel.text) for kernel in made.program.kernels] == [kernels == 2] * kernels
    judged(made, gated, inputs)
