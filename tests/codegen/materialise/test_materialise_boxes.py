"""Copies by TMA: boxes of every rank, swizzles, what lies outside, rings, waits that cannot be counted, assembled text."""

from __future__ import annotations

from typing import Any

import lowering_oracle
import numpy as np
import pytest
from emulated import check as run_checked
from test_materialise_mutants import mutants

from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.cuda import print_cuda
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir import kernel as k
from dplc.ir.diagnostic import DplcError
from dplc.ir.node import nodes, replace
from dplc.ir.program import Kernel
from dplc.ir.verify.kernel import problems


def uniform(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of these tests lowers for a machine with TMA."""
    lower = lowering_oracle.lower
    monkeypatch.setattr(lowering_oracle, "lower", lambda kernel, arch="sm_90a": lower(kernel, arch))


COPY = """
kernel staged(x: f32[{m}, {n}]) -> y: f32[32, 32]:
    Tile(i:8=THREAD, j:16=THREAD, r:4=REG, c:2=REG):
        s = Stage(x, origin=({origin}), box=(a:32@0, b:32@1), via=TMA{fields})
        Wait()
        v = load s[i*4 + r, j*2 + c]
        y[i*4 + r, j*2 + c] = v
"""


@pytest.mark.parametrize("swizzle", ["", ", swizzle=128"])
@pytest.mark.parametrize("origin", ["0, 0", "-5, -3", "20, 17", "40, 0", "-40, 3"])
@pytest.mark.sampled(5)
def test_what_lies_outside_is_zero(check, origin: str, swizzle: str) -> None:
    check(COPY.format(m=40, n=44, origin=origin, fields=swizzle), x=uniform(40, 44))


@pytest.mark.parametrize("size", [8, 16, 32])
def test_swizzles(check, size: int) -> None:
    """Rows of 32, 64 and 128 bytes, in a ring whose slots are not a multiple of the pattern."""
    text = f"""
kernel ring(x: f32[60, {size}]) -> y: f32[15, {size}]:
    Tile(t:{size}=THREAD):
        for n in 0..4 serial:
            s = Stage(x, origin=(n*15, 0), box=(a:15@0, b:{size}@1), depth=3, slot=n % 3, via=TMA, swizzle={4 * size})
            Wait()
            Sync()
            for a in 0..15 free unroll=15:
                if n == 3:
                    v = load s[n % 3, a, {size - 1} - t]
                    y[a, {size - 1} - t] = v
"""
    (kernel,) = check(text, x=uniform(60, size))
    assert f"swizzle={4 * size}" in str(kernel.params[-1].box)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i64"])
@pytest.mark.sampled(8)
def test_ranks_and_dtypes(check, rank: int, dtype: str) -> None:
    """The shared tile leaves dimensions out, takes some from the middle, and hangs over the last element."""
    shape = (3, 2, 5, 4, 12)[5 - rank :]
    kept = {1: (0,), 2: (0, 1), 3: (0, 2), 4: (1, 3), 5: (0, 2, 4)}[rank]
    origin = ", ".join("1" for _ in shape)
    axes = ", ".join(f"a{dim}:{min(shape[dim], 8) if dim == rank - 1 else 3}@{dim}" for dim in kept)
    whole = [8 if dim == rank - 1 else 3 for dim in kept]
    count = int(np.prod(whole))
    index, rest = [], "t"
    for side in reversed(whole[1:]):
        index.append(f"({rest}) % {side}")
        rest = f"({rest}) // {side}"
    place = ", ".join([rest, *reversed(index)])
    text = f"""
kernel boxes(x: {dtype}[{", ".join(map(str, shape))}]) -> y: {dtype}[{count}]:
    Tile(t:{count}=THREAD):
        s = Stage(x, origin=({origin}), box=({axes}), via=TMA)
        Wait()
        v = load s[{place}]
        y[t] = v
"""
    x = uniform(*shape) if dtype == "f32" else np.random.default_rng(0).integers(-9, 9, shape)
    check(text, x=x if dtype != "i32" else x.astype(np.int32))


@pytest.mark.parametrize("dtype", ["f16", "i64", "b8"])
def test_other_elements(check, dtype: str) -> None:
    text = COPY.format(m=40, n=64, origin="3, 16", fields="").replace("f32", dtype)
    check(
        text, x=np.random.default_rng(0).integers(0, 2, (40, 64)).astype({"f16": "f2", "i64": "i8", "b8": "?"}[dtype])
    )


def test_blocks_with_other_boxes(check) -> None:
    text = """
kernel turn(x: f32[64, 64]) -> y: f32[64, 64]:
    Tile(b:4=BLOCK, i:16=THREAD, j:16=THREAD, r:4=REG):
        s = Stage(x, origin=(0, b*16), box=(a:64@0, c:16@1), via=TMA)
        Wait()
        v = load s[i*4 + r, j]
        y[b*16 + j, i*4 + r] = v
"""
    check(text, x=uniform(64, 64))


RING = """
kernel mm(x: f32[30, 96], w: f32[96, 64]) -> y: f32[30, 64]:
    Tile(j_o:2=BLOCK, i:8=THREAD, j:8=THREAD, r:4=REG, v:4=VEC):
        for c in 0..6 serial:
            xs = Stage(x, origin=(0, c*16), box=(i:32@0, k:16@1), depth={depth}, slot=c % {depth}, via={one}{swizzle_one})
            ws = Stage(w, origin=(c*16, j_o*32), box=(k:16@0, j:32@1), depth={depth}, slot=c % {depth}, via={two}{swizzle_two})
            {wait}
            Sync()
            for q in 0..4 reduce unroll=4:
                for k in 0..4 VEC:
                    a = load xs[c % {depth}, i*4 + r, q*4 + k]
                    b = load ws[c % {depth}, q*4 + k, j*4 + v]
                    p = multiply(a, b)
                    acc <- add(acc, p)
        if i*4 + r < 30:
            y[i*4 + r, j_o*32 + j*4 + v] = acc
"""


@pytest.mark.parametrize(("one", "two"), [("TMA", "TMA"), ("TMA", "ASYNC"), ("ASYNC", "TMA"), ("TMA", "SYNC")])
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.sampled(4)
def test_kinds_of_copies_mix(check, one: str, two: str, depth: int) -> None:
    swizzles = {
        "swizzle_one": ", swizzle=64" if one == "TMA" else "",
        "swizzle_two": ", swizzle=128" if two == "TMA" else "",
    }
    check(
        RING.format(depth=depth, one=one, two=two, wait="Wait()", **swizzles),
        x=uniform(30, 96),
        w=uniform(96, 64, seed=1),
    )


# The first turn waits for nothing, later ones for one group: a loop counts.
UNCOUNTED = """
kernel late(x: f32[6, 32]) -> y: f32[32]:
    Tile(t:32=THREAD):
        for n in 0..6 serial:
            s = Stage(x, origin=(n, 0), box=(b:32@1), depth=3, slot=n % 3, via=TMA{when})
            Wait(keep=1)
            Sync()
            if n > 0:
                v = load s[(n + 2) % 3, t]
                acc <- add(acc, v)
        Wait()
        u = load s[2, t]
        z = add(acc, u)
        y[t] = z
"""


@pytest.mark.parametrize("when", ["", ", when=n < 6"])
def test_waits_that_depend_on_the_turn(check, when: str) -> None:
    (kernel,) = check(UNCOUNTED.format(when=when), x=uniform(6, 32))
    assert "issued - 1" in kernel.text


def test_a_copy_that_does_not_happen_ends_its_phase(check) -> None:
    """The predicate holds for the first four turns; the empty copies count for Wait all the same."""
    text = """
kernel some(x: f32[4, 32]) -> y: f32[32]:
    Tile(t:32=THREAD):
        s = Stage(x, origin=(0, 0), box=(b:32@1), depth=2, via=TMA)
        for n in 0..4 serial:
            Wait()
            Sync()
            s = Stage(x, origin=(n + 1, 0), box=(b:32@1), depth=2, slot=(n + 1) % 2, via=TMA, when=n + 1 < 4)
            v = load s[n % 2, t]
            acc <- add(acc, v)
        Wait()
        y[t] = acc
"""
    (kernel,) = check(text, x=uniform(4, 32))
    assert "mbarrier_expect(barriers + (issued & 1) * 8, 0);" in kernel.text


SPLIT = """
kernel spans(x: f32[{rows}, 64]) -> y: f32[64, {rows}]:
    Tile(t:64=THREAD):
        s = Stage(x, origin=(0, 0), box=(o:{o}@1 by {w}, r:{rows}@0, c:{w}@1), via=TMA{swizzle})
        Wait()
        for r in 0..{rows} free:
            v = load s[t // {w}, r, t % {w}]
            y[t, r] = v
"""


@pytest.mark.parametrize(
    ("rows", "width", "swizzle"), [(16, 32, 128), (15, 32, 128), (16, 16, 64), (8, 8, 32), (16, 32, 0)]
)
def test_rows_in_spans(check, rows: int, width: int, swizzle: int) -> None:
    """split_inner_for_swizzle: one box a span."""
    field = f", swizzle={swizzle}" if swizzle else ""
    check(SPLIT.format(rows=rows, o=64 // width, w=width, swizzle=field), x=uniform(rows, 64))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (COPY.format(m=40, n=42, origin="0, 0", fields=""), "rows of `x` are not multiples of 16 bytes"),
        (COPY.format(m=40, n=44, origin="0, 0", fields=", pad=4"), "not multiples of 16 bytes"),
        (COPY.format(m=40, n=44, origin="0, 0", fields=", swizzle=64"), "rows of 128 bytes do not fit swizzle=64"),
        (SPLIT.format(rows=3, o=16, w=4, swizzle=""), "would not end where the next may begin"),
    ],
)
def test_refusals(text: str, why: str) -> None:
    (kernel,) = lowering_oracle.read(text)
    with pytest.raises(DplcError, match=why):
        materialise(kernel, target("sm_90a"))


@pytest.mark.skipif(find_nvrtc() is None and find_program("nvcc") is None, reason="neither NVRTC nor nvcc here")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120"])
def test_assembled(arch: str) -> None:
    (kernel,) = lowering_oracle.read(ring())
    taken = assemble(device_text([print_cuda(materialise(kernel, target(arch)))]), arch).kernels["mm"]
    assert taken.spill_stores == taken.spill_loads == 0


# ---- one statement of the Kernel IR broken


def ring() -> str:
    return RING.format(
        depth=2, one="TMA", two="TMA", wait="Wait()", swizzle_one=", swizzle=64", swizzle_two=", swizzle=128"
    )


CHANGES: dict[str, tuple[type[Any], Any]] = {
    "barrier dropped": (k.Barrier, lambda s: None),
    "wait dropped": (k.WaitPhase, lambda s: None),
    "parity swapped": (k.WaitPhase, lambda s: replace(s, parity=1)),
    "no fence": (k.FenceBarriers, lambda s: None),
    "mbarrier not initialised": (k.InitBarrier, lambda s: None),
    "bytes not announced": (k.Expect, lambda s: replace(s, bytes=s.bytes - 16)),
    "no arrival": (k.Expect, lambda s: None),
    "a box not copied": (k.CopyBox, lambda s: None),
    "coordinates swapped": (k.CopyBox, lambda s: replace(s, at=s.at[::-1])),
    "box of another size": (k.TensorMap, lambda s: replace(s, box=(s.box[0] // 2, s.box[1]))),
    "another swizzle": (k.TensorMap, lambda s: replace(s, swizzle=0)),
    "everyone issues": (k.Branch, lambda s: replace(s, cond=True) if any(nodes(s.body, k.CopyBox)) else s),
    "everyone initialises": (k.Branch, lambda s: replace(s, cond=True) if any(nodes(s.body, k.InitBarrier)) else s),
    "counter not moved": (k.Assign, lambda s: None if getattr(s.place, "name", "") in ("issued", "waited") else s),
}


@pytest.mark.parametrize("title", CHANGES)
@pytest.mark.sampled(7)
def test_mutants(title: str) -> None:
    (kernel,) = lowering_oracle.read(ring())
    ir = materialise(kernel, target("sm_90a"))
    cls, change = CHANGES[title]
    tried = list(dict.fromkeys(mutants(ir, cls, change)))
    assert tried
    for mutant in tried:
        assert noticed(mutant), print_cuda(mutant).text


def noticed(ir: Kernel) -> bool:
    """By the verifier, or whatever the threads do by checked mode, or by wrong values."""
    if problems(ir):
        return True
    x, w = uniform(30, 96), uniform(96, 64, seed=1)
    for order in (0, 1, 2):
        try:
            got = run_checked(print_cuda(ir), {"x": x, "w": w}, order=order).outputs["y"]
        except EmulatorError:
            continue
        if np.allclose(got, x @ w, atol=1e-4):
            return False
    return True


def test_the_whole_ring_is_not_noticed() -> None:
    (kernel,) = lowering_oracle.read(ring())
    assert not noticed(materialise(kernel, target("sm_90a")))
