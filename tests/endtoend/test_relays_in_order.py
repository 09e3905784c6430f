"""Groups of threads that go one behind the other, on the emulator: no two are within a turn; every fault is found."""

from __future__ import annotations

import numpy as np
import pytest
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels

from dplc.codegen.cuda import generate
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.target import target
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

# A group stores to cells that all of them use, and reads them: right if no two are within a turn.
TEXT = """## level: tile
kernel f(A: f32[5, 3, 32]) -> C: f32[5, 3, 32]:
    Tile(i:3=THREAD, t:32=THREAD):
        s = Slab(c:32)
        for k in 0..5 serial:
            Enter(k, over=(i))
            a = load A[k, i, t]
            s[t] = a
            b = load s[t]
            C[k, i, t] = b
            Leave(k, over=(i))
"""
A = np.random.default_rng(7).integers(-9, 9, (5, 3, 32)).astype(np.float32)

WAIT = "    mbarrier_wait(relay + i * 8, (k + (i + 2) / 3 + 1) & 1);\n"
GO = "    mbarrier_arrive(relay + (i + 1) % 3 * 8);\n"
RACE = "lds32|sts32"
FAULTS = {
    "nobody waits": Fault(WAIT, "", RACE + "|mbarrier_arrive"),
    "the first waits for nobody": Fault("(k + (i + 2) / 3 + 1) & 1", "(i > 0 ? k : relay_turns) & 1", RACE + "|mbarrier", more=("  #pragma", "  const int relay_turns = 1;\n  #pragma")),
    "the first waits from the start": Fault("(k + (i + 2) / 3 + 1) & 1", "k & 1", "mbarrier_wait"),
    "all wait for one": Fault("relay + i * 8,", "relay,", RACE + "|mbarrier"),
    "nobody leaves": Fault(GO, "", "mbarrier_wait"),
    "it leaves too early": Fault(GO, "", RACE, more=("    const float b", GO + "    const float b")),
    "it leaves twice": Fault(GO, GO + GO, RACE + "|mbarrier"),
    "it tells itself": Fault("(i + 1) % 3", "i", RACE + "|mbarrier"),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    (kernel,) = read_program(TEXT)[1]
    assert isinstance(kernel, Kernel)
    whole = generate(kernel, target("h200"))
    return faulty_kernels({name: (whole, fault) for name, fault in {"none": NONE, **FAULTS}.items()})


@pytest.mark.parametrize("order", range(8))
def test_no_two_groups_are_within_a_turn(kernels: FaultyKernels, order: int) -> None:
    np.testing.assert_array_equal(kernels.launched("none", {"A": A}, order), A)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    """In every order of threads, by a line of the fault's own."""
    for order in range(3):
        with pytest.raises(EmulatorError) as found:
            kernels.launched(name, {"A": A}, order)
        assert FAULTS[name].names(str(found.value)), str(found.value)
