"""Kernel IR by itself: its text, and what its verifier finds."""

from __future__ import annotations

import pytest
from lowering_oracle import read

from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.kernel import STATEMENTS, Commit, Launch, WaitPhase, method_for_each
from dplc.ir.text.programs import print_program
from dplc.ir.verify.kernel import problems

GOOD = """## level: kernel
kernel copy(x: f32[64, 8], n: i64[64]) -> y: f32[64, 8]:
    Launch(grid=(2, 1, 1), block=32, shared=1024):
        i = Define(i32, block_x)
        t = Define(i32, thread)
        x_at = Base(x, i*256 + t*8)
        y_at = Base(y, i*256 + t*8)
        x_smem = Base(smem, t*32)
        slot = Define(i32, 0, mutable=1)
        k = Registers(i64)
        LoadFrom(k, i64, Address(n), when=i < 1, other=0)
        CopyAsync(Address(x_smem, xor=16), Address(x_at, offset=4), bytes=16, when=i < 1, inside=t < 31)
        Commit()
        WaitGroup(0)
        Barrier()
        a = Registers(f32, shape=(2, 4), fill=0.0)
        x_at1 = Base(x_at, 0, mutable=1)
        Loop(c, 0, 2, step=1, unroll=1):
            Replicate(q, 2):
                LoadFrom(a[q], f32, Address(x_at1, offset=q*4), width=4)
            Advance(x_at1, 8)
            Assign(slot, where(slot == 512, 0, slot + 512))
        r = Define(f32, a[0, 0], mutable=1)
        Butterfly(r, add, 1, 16)
        Branch(t < 16):
            Replicate(q, 2):
                Replicate(v, 4, reverse=q):
                    Assign(a[q, v], add(a[q, v], multiply(r, 2.0)))
            StoreTo(f32, Address(x_smem, offset=16), values=(a[0, 0], a[0, 1], a[0, 2], a[0, 3]))
        StoreTo(f32, Address(y_at), values=(a[0, 0], a[0, 1], a[0, 2], a[0, 3]))
"""


def test_text_round_trips():
    (kernel,) = read(GOOD)
    assert print_program(kernel, "kernel").replace(", step=1", "") == GOOD.replace(", step=1", "")
    assert read(print_program(kernel, "kernel"))[0] is kernel
    assert problems(kernel) == ()


def test_a_statement_without_a_method_is_named_at_import():
    from dplc.codegen.cuda import PRINT
    from dplc.ir.verify.kernel import CHECKS

    for table in (PRINT, CHECKS):
        assert set(table) == set(STATEMENTS) - {Launch}
    assert CHECKS[WaitPhase] is CHECKS[Commit]  # both are intrinsics
    with pytest.raises(TypeError, match=r"None: no method for Advance, Assign, .*WaitPhase"):
        method_for_each(type("None", (), {}))


# (what is changed, into what, what the verifier says)
BAD = [
    ("x_at = Base(x, i*256 + t*8)", "x_at = Base(z, i*256 + t*8)", "undefined z"),
    ("x_at = Base(x, i*256 + t*8)", "x_at = Base(x, i*256 + t*2)", "a multiple of 8 bytes only"),
    ("x_smem = Base(smem, t*32)", "x_smem = Base(smem, t*4)", "a multiple of 4 bytes only"),
    ("t = Define(i32, thread)", "i = Define(i32, thread)", "defined twice"),
    ("x_at1 = Base(x_at, 0, mutable=1)", "x_at1 = Base(x_at)", "`x_at1` is not mutable"),
    ("r = Define(f32, a[0, 0], mutable=1)", "r = Define(f32, a[0, 0])", "`r` is not mutable"),
    ("r = Define(f32, a[0, 0], mutable=1)", "r = Define(f32, a[0], mutable=1)", "`a` has 2 dimensions"),
    ("r = Define(f32, a[0, 0], mutable=1)", "r = Define(f32, a[0, c], mutable=1)", "undefined c"),
    ("r = Define(f32, a[0, 0], mutable=1)", "r = Define(f32, a[0, t], mutable=1)", "indexed at run time"),
    ("r = Define(f32, a[0, 0], mutable=1)", "r = Define(f32, a[2, 0], mutable=1)", "has 2 registers here"),
    ("Butterfly(r, add, 1, 16)", "Butterfly(r, add, 1, 24)", "powers of two"),
    ("LoadFrom(a[q], f32,", "LoadFrom(a[q], i32,", "points to f32"),
    ("offset=q*4), width=4)", "offset=q*4), width=3)", "no instruction moves 12 bytes"),
    (
        "LoadFrom(a[q], f32, Address(x_at1, offset=q*4), width=4)",
        "LoadFrom(a, f32, Address(x_at1), width=4)",
        "another",
    ),
    ("StoreTo(f32, Address(y_at)", "StoreTo(f32, Address(x_at)", "`x_at` is an input"),
    ("StoreTo(f32, Address(y_at)", "StoreTo(f32, Address(r)", "`r` is not an address"),
    ("bytes=16", "bytes=2", "no instruction moves 2 bytes"),
    ("bytes=16", "bytes=0", "no instruction moves 0 bytes"),
    ("offset=q*4), width=4)", "offset=q*4), width=0)", "no instruction moves 0 bytes"),
    ("Address(x_smem, xor=16), Address(x_at, offset=4)", "Address(y_at), Address(x_at)", "from global to shared"),
    ("        Barrier()\n", "        Branch(t < 3):\n            Barrier()\n", "not every thread"),
    ("        Barrier()\n", "        Loop(z, t, 9):\n            Barrier()\n", "not every thread"),
    ("        WaitGroup(0)\n", "        Branch(k == 0):\n            WaitGroup(0)\n", "not every thread"),
    ("shape=(2, 4), fill=0.0)", "shape=(2, 4), fill=1.0)", "filled with zeros only"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{n}" for n in range(len(BAD))])
def test_the_verifier_finds(old, new, message):
    assert GOOD.count(old) == 1
    (kernel,) = read(GOOD.replace(old, new))
    assert any(message in problem for problem in problems(kernel)), problems(kernel)


def test_a_uniform_branch_may_hold_a_barrier():
    (kernel,) = read(GOOD.replace("        Barrier()\n", "        Branch(i < 1):\n            Barrier()\n"))
    assert problems(kernel) == ()


def test_same_bytes():
    """Lowering keeps no order of sets or hashes: twice the same text, also from another process (see the goldens)."""
    text = """
kernel sums(x: f32[8, 64], z: f32[64]) -> y: f32[8]:
    Tile(i:8=BLOCK, t:16=THREAD, v:4=VEC):
        a = load x[i, t*4 + v]
        b = load z[t*4 + v]
        s <- add(s, a)
        m <- maximum(m, b)
        Combine(s, add, over=(v, t))
        Combine(m, maximum, over=(v, t))
        y[i] = add(s, m)
"""
    (kernel,) = read(text)
    texts = {print_program(materialise(kernel, target("sm_80"))) for _ in range(3)}
    assert len(texts) == 1
