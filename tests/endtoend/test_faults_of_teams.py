"""Faults planted in the text of a product that a team copies for, in a cluster: each is found, and its line named."""

from __future__ import annotations

import pytest
import torch
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, halves
from products_of_halves import TEAMS, compiled, operands, product

from dplc.codegen.emulator.runtime import EmulatorError

ORDERS = (0, 1, 7)  # in which threads start: forwards, backwards, shuffled


FREE = "        mbarrier_wait(ring + i_o % 6 * 8 + 48, (i_o / 6 + 1) & 1);\n"
ANNOUNCE = "        mbarrier_expect(ring + i_o % 6 * 8, 24576);\n"
FULL = "    mbarrier_wait(ring + i_o % 6 * 8, i_o / 6);\n"
SETTLE = "    wgmma_wait<1>();\n"
GIVE = "    if (i_o >= 1) {\n      mbarrier_arrive_shared<2>(ring + (i_o + 5) % 6 * 8 + 48);\n    }\n"
RACE = "copy_box|wgmma_m64"  # either side of the conflict
RING = RACE + "|mbarrier_wait"  # or a wait that never ends
FAULTS = {
    "team: no wait for a free slot": Fault(FREE, "", RACE + "|mbarrier_expect"),
    "team: the wait for another slot": Fault(FREE, FREE.replace("i_o % 6 * 8 + 48", "(i_o + 5) % 6 * 8 + 48"), RING),
    "team: a wait for the other parity": Fault("(i_o / 6 + 1) & 1", "i_o / 6 & 1", RING),
    "team: a slot too early": Fault("x_smem_wr + slot;", "x_smem_wr + (slot == 81920 ? 0 : slot + 16384);", RING),
    "team: one turn less": Fault("i_o < 10", "i_o < 9", "mbarrier_wait", 1),
    "team: one turn more": Fault("i_o < 10", "i_o < 11", "", 1),
    "team: nothing announced": Fault(ANNOUNCE, "", RING),
    "team: fewer bytes announced": Fault("24576", "16384", RING),
    "team: more bytes announced": Fault("24576", "32768", RING),
    "team: announced twice": Fault(ANNOUNCE, ANNOUNCE + ANNOUNCE, "mbarrier_expect"),
    "team: the box of another turn's barrier": Fault("x_map, ring + i_o % 6", "x_map, ring + (i_o + 1) % 6", RING),
    "team: a box that one block keeps": Fault("copy_box_2d_shared<2>(", "copy_box_2d(", RING),
    "team: the same part by both": Fault("x_smem + j_o * 8192", "x_smem + 0 * j_o", RING),
    "reader: no wait for a box": Fault(FULL, "", "wgmma_m64"),
    "reader: the wait for another box": Fault(FULL, FULL.replace("i_o % 6", "(i_o + 5) % 6"), RING),
    "reader: another slot": Fault("x1_at + slot2;", "x1_at + (slot2 == 81920 ? 0 : slot2 + 16384);", RING),
    "reader: no arrival": Fault(GIVE, "", "mbarrier_wait"),
    "reader: the arrival of a slot still read": Fault("(i_o + 5) % 6 * 8 + 48", "i_o % 6 * 8 + 48", RING),
    "reader: an arrival in its own block alone": Fault("mbarrier_arrive_shared<2>(ring + (", "mbarrier_arrive(ring + (", "mbarrier_wait"),
    "reader: one group arrives": Fault("if (i_o >= 1)", "if (i_o >= 1 && k_w == 0)", "mbarrier_wait"),
    "reader: a warp that does not": Fault("if (i_o >= 1)", "if (i_o >= 1 && (k_w != 1 || p != 3))", "mbarrier_wait"),
    "reader: arrivals too many": Fault(GIVE, GIVE + GIVE, RING + "|mbarrier_arrive"),
    "reader: an arrival before the product is done": Fault(SETTLE + GIVE, GIVE + SETTLE, RACE),
    "reader: no wait for a product": Fault(SETTLE, "", RACE),
    "reader: a wait that keeps two": Fault("wgmma_wait<1>", "wgmma_wait<2>", RACE),
    "reader: no wait at the end": Fault("  wgmma_wait<0>();\n", "", "wgmma_m64"),
    "reader: no fence of products": Fault("    wgmma_fence();\n", "", "wgmma_m64"),
    "barriers: half the arrivals": Fault(", 16);", ", 8);", RING + "|mbarrier_arrive"),
    "barriers: an arrival more": Fault(", 16);", ", 17);", "mbarrier_wait"),
    "barriers: made twice": Fault("mbarrier_init(ring + 8, 1)", "mbarrier_init(ring, 1)", "mbarrier_init"),
    "barriers: not shown to the engine": Fault("    mbarrier_fence();\n", "", "copy_box"),
    "barriers: nobody waits until they are made": Fault("  cluster_sync();\n  float", "  float", "mbarrier"),
    "slab: no barrier of those who go on": Fault("  part_sync<256>();\n", "", "lds128|sts32"),
    "slab: a barrier of one group": Fault("part_sync<256>", "part_sync<128>", "part_sync"),
    "slab: a barrier of the block": Fault("part_sync<256>()", "block_sync()", "block_sync"),
    "slab: threads write where boxes land": Fault(
        "    wgmma_fence();\n", "    sts32(y_smem + slot3 + tid * 4, 0.0f);\n    wgmma_fence();\n", "sts32|wgmma_m64|copy_box"
    ),
    "cluster: no meeting at the end": Fault("  }\n  cluster_sync();\n}", "  }\n}", "mbarrier_arrive|copy_box"),
}  # fmt: skip


INPUTS = operands("nt", 128, 128, 640)
ARRAYS = dict(zip("xy", INPUTS, strict=True))


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    (whole,) = compiled(product("nt"), INPUTS, 128, 64, TEAMS).compilation.cuda_kernels
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_fault_it_is_right(kernels: FaultyKernels, order: int) -> None:
    got = halves(kernels.launched("none", ARRAYS, order))
    torch.testing.assert_close(got, product("nt")(*INPUTS), rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(6)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    """In one order of threads or another; wherever it is, it is named by a line of the fault's own."""
    found = []
    for order in ORDERS:
        try:
            kernels.launched(name, ARRAYS, order)
        except EmulatorError as error:
            found.append(str(error))
    assert found
    for told in found:
        assert FAULTS[name].names(told), told
