"""Teams and rings: what the verifiers say of them, and what the meanings of Tile IR and Kernel IR find."""

from __future__ import annotations

import re
from textwrap import indent

import numpy as np
import pytest
from altered_texts import altered
from products_in_rings import is_the_product, only_kernel, whole_numbers

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.kernel import LastThreads
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems

TEXT = """## level: tile
kernel f(A: bf16[128, 448], B: bf16[32, 448]) -> C: f32[128, 32]:
    Tile(b:2=BLOCK, p1:4=THREAD, g:8=THREAD, t:4=THREAD, q:2=REG, s:2=REG, h:2=REG, v:2=REG, ks:4=REG, u:2=REG, w:2=REG):
        r = Ring(depth=3)
        Team(threads=128):
            for kp in 0..7 serial:
                Acquire(r, kp)
                As = Stage(A, origin=(b*64, kp*64), slab=(i:64@0, k:64@1), depth=3, slot=kp % 3, via=TMA, swizzle=128)
                Bs = Stage(B, origin=(0, kp*64), slab=(j:32@0, k:64@1), depth=3, slot=kp % 3, via=TMA, swizzle=128)
        for ko in 0..7 serial:
            Await(r, ko)
            a = load As[ko % 3, p1*16 + h*8 + g, ks*16 + u*8 + t*2 + w]
            z = load Bs[ko % 3, q*16 + s*8 + g, ks*16 + u*8 + t*2 + w]
            Mma(acc, a, z, atom=m64n32k16, axes=(p1, g, t, q, s, h, v, u, w), over=(ks))
            Settle(keep=1)
            Release(r, ko - 1, when=ko >= 1)
        Settle()
        Release(r, 6)
        C[b*64 + p1*16 + h*8 + g, q*16 + s*8 + t*2 + v] = acc
"""
TEAM = TEXT[TEXT.index("        Team(") : TEXT.index("        for ko")]
RING, AWAIT = "        r = Ring(depth=3)\n", "            Await(r, ko)\n"
SHAPES = {"A": (128, 448), "B": (32, 448)}


def kernel(text: str = TEXT) -> Kernel:
    return only_kernel(text)


def operands() -> dict[str, np.ndarray]:
    return whole_numbers(SHAPES)


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_means_the_product(seed: int) -> None:
    is_the_product(kernel(), operands(), seed)


FOUND = {
    "no Await": ("            Await(r, ko)\n", "", "is not awaited"),
    "no Release": ("            Release(r, ko - 1, when=ko >= 1)\n", "", "Await(r, ko)"),
    "a Release of the turn that is multiplied": (
        "Release(r, ko - 1, when=ko >= 1)",
        "Release(r, ko)",
        "before the Settle",
    ),
    "a Settle that keeps two": ("Settle(keep=1)", "Settle(keep=2)", "before the Settle"),
    "no Release at the end": ("        Release(r, 6)\n", "", "ends after 7 turns, 7 awaited and 6 released"),
    "another slot is read": ("load As[ko % 3", "load As[(ko + 1) % 3", "is not awaited"),
    "a slot that was given back is read": ("        C[", "        e = load As[0, p1*16 + h*8 + g, 0]\n        C[", "is not awaited"),
    "a turn less": ("kp in 0..7", "kp in 0..6", "Await(r, ko)"),
    "a turn more": ("kp in 0..7", "kp in 0..8", "ends after 8 turns"),
    "turns in another order": ("Acquire(r, kp)", "Acquire(r, 6 - kp)", "acquired as number 0"),
    "a turn awaited twice": ("Await(r, ko)", "Await(r, ko // 2)", "awaited as number 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_wrong_ring_is_found_in_every_run(name: str) -> None:
    old, new, message = FOUND[name]
    wrong = kernel(altered(TEXT, old, new))
    for seed in range(3):
        with pytest.raises(ScheduleError) as found:
            tile_meaning.run((wrong,), operands(), seed)
        assert message in "\n".join((found.value.what, *found.value.notes))


LAWS = {
    "no ring": ("Await(r, ko)", "Await(s, ko)", "`s` is no ring"),
    "the axes acquire": ("Await(r, ko)", "Acquire(r, ko)", "a Team acquires"),
    "a team awaits": ("Acquire(r, kp)", "Await(r, kp)", "a Team acquires"),
    "a turn of a thread": ("Await(r, ko)", "Await(r, ko + t)", "the turn varies by thread"),
    "no slots": ("Ring(depth=3)", "Ring(depth=0)", "a ring has a slot or more"),
    "half a warp": ("threads=128", "threads=16", "whole warps"),
    "too many threads": ("threads=128", "threads=1024", "1152 threads, the limit is 1024"),
    "registers of one warp": ("threads=128", "threads=32, registers=40", "registers at once"),
    "registers by ones": ("threads=128", "threads=128, registers=41", "registers at once"),
    "no Acquire": ("                Acquire(r, kp)\n", "", "but behind its Acquire"),
    "another slot": ("slot=kp % 3", "slot=(kp + 1) % 3", "it fills another slot than turn kp of `r`"),
    "another depth": ("Ring(depth=3)", "Ring(depth=2)", "it fills another slot"),
    "a team that stores": ("                Acquire(r, kp)\n", "                Sync()\n                Acquire(r, kp)\n", "a Team copies by TMA"),
    "under a guard": ("            Await(r, ko)\n", "            if t < 2:\n                Await(r, ko)\n", "divergent"),
    "two teams": ("        Team(threads=128):\n", "        Team(threads=128):\n            pass\n        Team(threads=32):\n", "one Team at most"),
    "a team under a guard": (TEAM, "        if b < 1:\n" + indent(TEAM, "    "), "a Team stands in the Tile"),
    "a team that goes by threads": ("kp in 0..7", "kp in 0..t", "a Team names an axis of the threads"),
    "a name that nothing defines": ("origin=(0, kp*64)", "origin=(0, kq*64)", "`kq` is not defined here"),
    "a box of a thread": ("origin=(b*64, kp*64)", "origin=(b*64 + t, kp*64)", "a Team names an axis of the threads"),
    "a Release of some threads": ("when=ko >= 1", "when=ko + t >= 1", "the turn varies by thread"),
    "too few registers": ("threads=128", "threads=128, registers=16", "registers at once"),
    "too many registers": ("threads=128", "threads=128, registers=264", "registers at once"),
    "a copy of some turns": ("via=TMA, swizzle=128)\n                Bs", "via=TMA, swizzle=128, when=kp < 9)\n                Bs", "it fills another slot"),
    "a team behind what threads do": (RING, "        q = load A[b*64 + p1, 0]\n" + RING, "a Team stands before all that threads do"),
    "a ring of a loop": (AWAIT, "            s = Ring(depth=3)\n" + AWAIT, "stands in the Tile, once"),
    "a ring that is made again": (AWAIT, "    " + RING + AWAIT, "stands in the Tile, once"),
    "two rings of one name": (RING, RING + RING.replace("3", "2"), "stands in the Tile, once"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_tile_ir(name: str) -> None:
    old, new, message = LAWS[name]
    found = problems(kernel(altered(TEXT, old, new)))
    assert any(message in problem for problem in found), found


LOWERED = {
    "a barrier of all beside a part": ("CommitProducts()", "Barrier()\n            CommitProducts()", "a barrier of 0 threads"),
    "no phase": ("arrivals=4", "arrivals=0", "one arrival or more"),
    "all threads are the last": ("LastThreads(128)", "LastThreads(256)", "a part of the threads, once"),
    "a part of a warp": ("LastThreads(128)", "LastThreads(48)", "a part of the threads, once"),
    "more registers than there are": ("LastThreads(128)", "LastThreads(128, registers=40, others=504)", "more registers"),
    "more than a block has beside another": ("block=256,", "block=256, resident=2,", "more registers"),
    "one lane arrives": ("Branch(ko >= 1)", "Branch(ko >= tid)", "not every thread"),
    "arrivals in a block that is not there": ("Arrive(Address(r, offset=24))", "Arrive(Address(r, offset=24), cluster=2)", "in clusters of 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOWERED)
def test_laws_of_kernel_ir(name: str) -> None:
    old, new, message = LOWERED[name]
    given = TEXT.replace("threads=128", "threads=128, registers=40") if "beside another" in name else TEXT
    text = print_program((materialise(kernel(given), target("h200")),), "kernel")
    found = kernel_problems(read_program(altered(text, old, new))[1][0])  # type: ignore[arg-type]
    assert any(message in problem for problem in found), found


GIVE = "            Branch(ko >= 1):\n                Arrive(Address(r, offset=((ko + 2) % 3)*8 + 24))\n"
SETTLE = "            WaitProducts(1)\n"
STEPS = {
    "no arrival": (GIVE, "", "deadlock"),
    "an arrival too many": (GIVE, GIVE + GIVE, "a product still reads"),
    "an arrival before the product is done": (SETTLE + GIVE, GIVE + SETTLE, "race: copies a box"),
    "no wait for a free slot": (
        "                    WaitPhase(Address(r, offset=(kp % 3)*8 + 24), (kp // 3 + 1) % 2)\n", "", "race"
    ),
    "no wait for a box": ("            WaitPhase(Address(r, offset=(ko % 3)*8), (ko // 3) % 2)\n", "", "nothing has written|has not waited"),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_the_meaning_of_kernel_ir_finds_faults(name: str) -> None:
    old, new, message = STEPS[name]
    text = print_program((materialise(kernel(), target("h200")),), "kernel")
    (wrong,) = read_program(altered(text, old, new))[1]
    with pytest.raises(EmulatorError) as found:
        run_kernels((wrong,), operands(), 0)  # type: ignore[arg-type]
    assert re.search(message, found.value.what)


def test_registers_change_hands_where_a_block_is_alone() -> None:
    """A block that shares its multiprocessor has not what would be handed out: its threads would wait for ever."""
    given = TEXT.replace("threads=128", "threads=128, registers=40")
    alone = materialise(kernel(given), target("h200"))
    assert [(team.registers, team.others) for team in nodes(alone, LastThreads)] == [(40, 240)]
    shared = materialise(kernel(given.replace("w:2=REG):", "w:2=REG, resident=2):")), target("h200"))
    assert [(team.registers, team.others) for team in nodes(shared, LastThreads)] == [(0, 0)]
