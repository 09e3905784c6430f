"""Faults planted where a walk over tiles goes from one to the next: each is found, and its line named."""

from __future__ import annotations

import pytest
import torch
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, halves, told_in_orders
from products_of_halves import TEAMS, operands, product

import dplc

ORDERS = (0, 1, 7)  # in which threads start: forwards, backwards, shuffled
SIZES = {
    "blockify_launch": {"BM": 64, "BN": 64},
    "chunk_matmul_k": {"BK": 64},
    "group_mma": {"N": 4},
    "walk_tiles": {"W": 3},
}

# No barrier behind the last read of the slab is no fault here: a tile has more turns than the ring has slots, so its last
# slot was given back by warps that had read theirs.
FREE = "          mbarrier_wait(ring + ((tile * 5 + i_o) & 3) * 8 + 32, (((tile * 5 + i_o) >> 2) + 1) & 1);\n"
FULL = "      mbarrier_wait(ring + ((tile * 5 + i_o) & 3) * 8, ((tile * 5 + i_o) >> 2) & 1);\n"
LAST = "    mbarrier_arrive_shared<2>(ring + (tile * 5 & 3) * 8 + 32);\n"
TEAM, OTHERS = "      for (int tile = 0; tile < 3", "  for (int tile = 0; tile < 3"
RACE = "copy_box|wgmma_m64"
RING = RACE + "|mbarrier_wait"
FAULTS = {
    "team: phases of one tile": Fault(FREE, FREE.replace("((tile * 5 + i_o) >> 2)", "(i_o >> 2)"), RING),
    "team: slots that begin anew with a tile": Fault("x_smem + ((tile * 5 + i_o) & 3) * 8192;\n          c", "x_smem + (i_o & 3) * 8192;\n          c", RING),
    "team: no wait for a free slot": Fault(FREE, "", RACE + "|mbarrier_expect"),
    "team: a tile less": Fault(TEAM, TEAM.replace("< 3", "< 2"), "mbarrier_wait", 1),
    "team: a tile more": Fault(TEAM, TEAM.replace("< 3", "< 4"), RING, 1),
    "team: a turn of each tile less": Fault("for (int i_o = 0; i_o < 5; ++i_o) {\n          c", "for (int i_o = 0; i_o < 4; ++i_o) {\n          c", RING, 1),
    "team: one block's part of the columns twice": Fault("i_o * 64, k_o_c * 32)", "i_o * 64, 0)"),
    "team: the rows of another tile": Fault("tile * 128 + k_o_c * 64", "(tile ^ 1) % 3 * 128 + k_o_c * 64"),
    "reader: phases of one tile": Fault(FULL, FULL.replace("((tile * 5 + i_o) >> 2)", "(i_o >> 2)"), RING),
    "reader: slots that begin anew with a tile": Fault("x_smem + ((tile * 5 + i_o) & 3) * 8192;\n      c", "x_smem + (i_o & 3) * 8192;\n      c", RING),
    "reader: the last slot of a tile is kept": Fault(LAST, "", "mbarrier_wait"),
    "reader: another slot is given back at the end": Fault(LAST, LAST.replace("tile * 5 & 3", "(tile * 5 + 1) & 3"), RING + "|mbarrier_arrive"),
    "reader: the last slot before its product is done": Fault("    wgmma_wait<0>();\n    wgmma_done(sum);\n" + LAST, LAST + "    wgmma_wait<0>();\n    wgmma_done(sum);\n", RACE),
    "reader: a tile less": Fault("#pragma unroll 1\n" + OTHERS + "; ++tile) {\n    float", "#pragma unroll 1\n" + OTHERS.replace("< 3", "< 2") + "; ++tile) {\n    float", RING),
    "reader: a sum that goes on over tiles": Fault("    float sum[4][2][2][2] = {};\n", "", more=("  bf16* matmul_at1 = matmul_at;\n", "  bf16* matmul_at1 = matmul_at;\n  float sum[4][2][2][2] = {};\n")),
    "slab: no barrier before it is read": Fault("    part_sync<128>();\n    bf16*", "    bf16*", "lds128|sts32"),
    "results: a tile over another": Fault("matmul_at1 += 8192", "matmul_at1 += 0 * 8192"),
}  # fmt: skip


INPUTS = operands("nt", 384, 64, 320)
ARRAYS = dict(zip("xy", INPUTS, strict=True))
WANTED = product("nt")(*INPUTS)


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    made = dplc.compile(product("nt"), INPUTS, target="h200", device="emulator", db=False, settings=SIZES, rules=TEAMS)
    (whole,) = made.compilation.cuda_kernels
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_fault_it_is_right(kernels: FaultyKernels, order: int) -> None:
    torch.testing.assert_close(halves(kernels.launched("none", ARRAYS, order)), WANTED, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(7)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    """In one order of threads or another, by a line of the fault's own; where only numbers tell, by them."""
    found = told_in_orders(lambda order: kernels.launched(name, ARRAYS, order), ORDERS, WANTED)
    assert found
    for told in found:
        assert FAULTS[name].names(told), told
