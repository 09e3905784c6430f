"""Blocks of a cluster that copy boxes for each other: right, clean, cheaper by the model; planted faults are all found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, halves
from products_of_halves import compiled, judged, operands, product

import dplc
from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.node import nodes
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Tile
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems


def asked(folder: Path, ways: int) -> str:
    """A user's file: so many blocks of a cluster."""
    path, numbers = folder / "ways.rw", {"asynchronous_mma": 1, "cluster_blocks": ways}
    path.write_text("".join(f"override number {name} = {value}\n" for name, value in numbers.items()))
    return str(path)


# rows that are shared, columns that are shared, ragged in all three, shared tiles in several boxes, four blocks, two groups of warps
CASES = (
    ("nt", (256, 128, 256), (64, 128), 2),
    ("nt", (128, 256, 256), (128, 64), 2),
    ("nn", (256, 256, 256), (64, 128), 2),
    ("tn", (256, 256, 192), (128, 64), 2),
    ("tt", (200, 136, 328), (64, 64), 2),
    ("nt", (256, 256, 192), (64, 128), 4),
)


@pytest.mark.parametrize(("form", "shape", "block", "ways"), CASES)
@pytest.mark.sampled(2)
def test_products_of_clusters(
    form: str, shape: tuple[int, int, int], block: tuple[int, int], ways: int, tmp_path: Path
) -> None:
    inputs = operands(form, *shape)
    made = compiled(product(form), inputs, *block, asked(tmp_path, ways))
    (kernel,) = made.compilation.cuda_kernels
    assert [stmt.cluster for stmt in nodes(made.compilation.tile, Tile)] == [ways] == [kernel.cluster]
    assert f"_shared<{ways}>(" in kernel.text
    judged(made, product(form), inputs)


@pytest.mark.parametrize("columns", [64, 128])
def test_rows_of_any_length_share_the_columns_of_a_cluster(columns: int, tmp_path: Path) -> None:
    """Two blocks of columns are whole clusters; blocks of rows are, however many there are, with one that may be empty."""
    x, w = operands("nt", 200, 128, 256)
    options: dict[str, Any] = {"dynamic": ({0: dplc.Dim("s", 130, 300)}, None), "rules": asked(tmp_path, 2)}
    pinned = {"blockify_launch": {"BM": 64, "BN": columns}, "chunk_matmul_k": {"BK": 64}}
    made = dplc.compile(product("nt"), (x, w), target="h200", device="emulator", db=False, settings=pinned, **options)
    assert [stmt.cluster for stmt in nodes(made.compilation.tile, Tile)] == [2]
    for length in (130, 200, 256, 300):
        judged(made, product("nt"), (operands("nt", length, 128, 256)[0], w))


def test_the_meaning_of_kernel_ir_agrees(tmp_path: Path) -> None:
    inputs = operands("nn", 128, 128, 256)
    made = compiled(product("nn"), inputs, 64, 64, asked(tmp_path, 2))
    (kernel,) = made.compilation.kernels
    arrays = {param.name: x.double().numpy() for param, x in zip(kernel.ins, inputs, strict=True)}
    want = (inputs[0].double() @ inputs[1].double()).to(torch.bfloat16).double().numpy()
    for seed in range(2):
        got = run_kernels((kernel,), arrays, seed)[kernel.outs[0].name]
        np.testing.assert_allclose(got, want, rtol=1e-2)


def compiled_by_default(ways: int, x: torch.Tensor, tmp_path: Path) -> dplc.Compiled:
    """x @ x.mT with the sizes that the rules choose."""
    rules = asked(tmp_path, ways)
    return dplc.compile(product("nt"), (x, x), target="h200", device="emulator", db=False, rules=rules)


def test_l2_is_asked_for_less(tmp_path: Path) -> None:
    """4096 x 4096 x 4096 on an H200, predicted."""
    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    seconds = {}
    for ways in (1, 2):
        made = compiled_by_default(ways, x, tmp_path)
        (counts,) = (instruction_counts(kernel) for kernel in made.compilation.kernels)
        seconds[ways] = predict(counts, target("h200")).seconds
    assert seconds[2] < 0.7 * seconds[1]


BOX = "copy_box|wgmma_m64|mbarrier|cluster_sync"
FAULTS = {
    "no barrier in a turn": Fault("    cluster_sync();\n", "", BOX),
    "no barrier before the first box": Fault("  }\n  cluster_sync();\n", "  }\n", BOX),
    "a barrier of one block": Fault("    cluster_sync();", "    block_sync();", "block_sync"),
    "a box that one block keeps": Fault("_shared<2>(", "(", "mbarrier"),
    "the same part by both": Fault("y_smem + k_o * 8192", "y_smem + 0 * k_o", BOX),
    "fewer bytes are announced": Fault("(issued & 7) * 8, 24576)", "(issued & 7) * 8, 16384)", BOX),
    "a box for four": Fault("_shared<2>(", "_shared<4>(", "_shared<4>"),
    "a slot too early": Fault("y_smem_wr + slot1", "y_smem_wr + (slot1 == 0 ? 16384 : slot1 - 16384)", BOX),
    "no wait for a box": Fault("    mbarrier_wait(", "    if (false) mbarrier_wait(", BOX),
    "no wait for a product": Fault("    wgmma_wait<1>();\n", "", BOX),
}  # fmt: skip


INPUTS = operands("nt", 128, 128, 640)
ARRAYS = dict(zip("xy", INPUTS, strict=True))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> FaultyKernels:
    """The kernel of every fault, and of none."""
    made = compiled(product("nt"), INPUTS, 64, 128, asked(tmp_path_factory.mktemp("rules"), 2))
    (whole,) = made.compilation.cuda_kernels
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


def test_without_a_fault_it_is_right(kernels: FaultyKernels) -> None:
    got = halves(kernels.launched("none", ARRAYS))
    torch.testing.assert_close(got, product("nt")(*INPUTS), rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(2)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    with pytest.raises(EmulatorError) as found:
        kernels.launched(name, ARRAYS)
    assert FAULTS[name].names(str(found.value)), str(found.value)


TILE = """## level: tile
kernel f(x: f32[64]) -> y: f32[4, 8]:
    Tile(i:{blocks}=BLOCK, t:8=THREAD, cluster={ways}):
        for k in 0..{turns} serial:
            Sync()
        a = load x[t]
        y[i, t] = a
"""
LAWS = {
    "pairs": (4, 2, "3", ""),
    "no whole clusters": (3, 2, "3", "not a whole number of clusters of 2"),
    "none": (4, 0, "3", "not a whole number of clusters of 0"),
    "too many": (16, 16, "3", "not a whole number of clusters of 16"),
    "barriers that one block alone comes to": (4, 2, "i", "Sync in divergent control flow"),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_tile_ir(name: str) -> None:
    blocks, ways, turns, message = LAWS[name]
    (kernel,) = read_program(TILE.format(blocks=blocks, ways=ways, turns=turns))[1]
    found = problems(kernel)  # type: ignore[arg-type]
    assert any(message in problem for problem in found) if message else not any("cluster" in p for p in found), found


def test_laws_of_kernel_ir(tmp_path: Path) -> None:
    made = compiled(product("nt"), operands("nt", 128, 128, 256), 64, 128, asked(tmp_path, 2))
    text = print_program(made.compilation.kernels[0], "kernel")
    wrong = {
        ("Barrier(cluster=2)", "Barrier()"): "a barrier of 1 blocks in clusters of 2",
        ("cluster=2)", "cluster=4)"): "in clusters of",
        ("grid=(2, 1, 1)", "grid=(3, 1, 1)"): "not whole clusters",
    }
    assert kernel_problems(read_program(text)[1][0]) == ()  # type: ignore[arg-type]
    for (old, new), message in wrong.items():
        assert old in text, text
        (kernel,) = read_program(text.replace(old, new, 1))[1]
        assert any(message in problem for problem in kernel_problems(kernel)), message  # type: ignore[arg-type]
