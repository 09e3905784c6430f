"""Stages of every transport, layout and dtype; rings; loops of every kind; launch geometry; 64-bit offsets."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_oracle import lower, read

from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.diagnostic import DplcError, InternalError
from dplc.ir.kernel import StoreTo
from dplc.ir.node import nodes

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


COPY = """
kernel staged(x: {dtype}[{m}, {n}]) -> y: {dtype}[32, 32]:
    Tile(i:8=THREAD, j:16=THREAD, r:4=REG, c:2=REG):
        s = Stage(x, origin=({origin}), box=(a:32@0, b:32@1), via={via}{fields})
        Wait()
        Sync()
        v = load s[i*4 + r, j*2 + c]
        y[i*4 + r, j*2 + c] = v
"""


@pytest.mark.parametrize("via", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("fields", [
    "", ", pad=4", ", pad=1", ", lanes=4, xor=(31, 1)", ", xor=(2, 1, 0)", ", xor=(3, 31, 4)", ", swizzle=128",
])  # fmt: skip
@pytest.mark.parametrize("shape", [(33, 36), (20, 27)])
@pytest.mark.sampled(6)
def test_layouts(check, via, fields, shape):
    """Chunks and single words, padded, flipped and ragged: cells beyond the source are zero."""
    m, n = shape
    check(COPY.format(dtype="f32", m=m, n=n, origin="4, 8", via=via, fields=fields), x=floats(m, n))


@pytest.mark.parametrize("unroll", ["", " unroll=48"])
@pytest.mark.parametrize(("before", "columns"), [(64, 128), (32, 96), (128, 128)])
@pytest.mark.sampled(3)
def test_an_xor_touches_what_rows_are_aligned_for(check, unroll, before, columns):
    """Rows of more than eight chunks, in a shared tile behind another, or of a pitch that is not a power of two."""
    check(
        f"""
kernel wide(x: f32[{before}], w: f32[8, {columns}]) -> y: f32[8, {columns}]:
    Tile(t:8=THREAD, c:2=THREAD):
        s = Stage(x, origin=(0), box=(u:{before}@0))
        z = Stage(w, origin=(0, 0), box=(n:8@0, l:{columns}@1), xor=(2, 1, 0))
        Sync()
        a = load s[t]
        for o in 0..{columns // 2} free{unroll}:
            b = load z[t, o*2 + c]
            v = multiply(a, b)
            y[t, o*2 + c] = v
""",
        x=floats(before), w=floats(8, columns),
    )  # fmt: skip


def test_an_xor_touches_what_shared_memory_is_aligned_for(check):
    """Rows of 4 KB, chunks 2 KB apart in one thread: where shared memory begins is a multiple of 1 KB only."""
    check(
        """
kernel long(x: f32[2, 1024], w: f32[8]) -> y: f32[2, 1024]:
    Tile(t:128=THREAD, r:2=REG, c:2=REG, v:4=VEC):
        s = Stage(x, origin=(0, 0), box=(i:2@0, l:1024@1), xor=(31, 0))
        z = Stage(w, origin=(0), box=(u:8@0))
        Sync()
        a = load s[r, c*512 + t*4 + v]
        b = load z[0]
        m = multiply(a, b)
        y[r, c*512 + t*4 + v] = m
""",
        x=floats(2, 1024), w=floats(8),
    )  # fmt: skip


@pytest.mark.parametrize("via", ["SYNC", "ASYNC"])
@pytest.mark.parametrize(("dtype", "array"), [
    ("i32", RNG.integers(-9, 9, (40, 40)).astype(np.int32)), ("i64", RNG.integers(-9, 9, (40, 40))), ("b8", RNG.random((40, 40)) < 0.5),
])  # fmt: skip
def test_dtypes(check, via, dtype, array):
    check(COPY.format(dtype=dtype, m=40, n=40, origin="0, 4", via=via, fields=""), x=array)


def test_more_threads_than_rows(check):
    """The last turn of rows is partial, and so is the only one: threads without a row copy nothing."""
    check(
        """
kernel few(x: f32[10, 12]) -> y: f32[10, 12]:
    Tile(t:96=THREAD, q:2=REG):
        s = Stage(x, origin=(0, 0), box=(a:10@0, b:12@1), via=ASYNC)
        Wait()
        Sync()
        if q*96 + t < 120:
            v = load s[(q*96 + t) // 12, (q*96 + t) % 12]
            y[(q*96 + t) // 12, (q*96 + t) % 12] = v
""",
        x=floats(10, 12),
    )


def matmul(depth: int, via: str = "ASYNC", fields: str = "", k: int = 96) -> str:
    """A ring of `depth` slots, filled ahead by a predicate; K ragged if k is not a multiple of 16."""
    chunks, ahead = -(-k // 16), depth - 1
    fill = "".join(
        f"""
        xs = Stage(x, origin=(0, {16 * s}), box=(i:32@0, k:16@1), depth={depth}, slot={s}, via={via}{fields})
        ws = Stage(w, origin=({16 * s}, 0), box=(k:16@0, j:32@1), depth={depth}, slot={s}, via={via})"""
        for s in range(ahead)
    )
    steady = f"when=c + {ahead} < {chunks}"
    return f"""
kernel mm(x: f32[32, {k}], w: f32[{k}, 32]) -> y: f32[32, 32]:
    Tile(i:8=THREAD, j:8=THREAD, r:4=REG, v:4=VEC, snake=1):{fill}
        for c in 0..{chunks} serial:
            Wait(keep={2 * (ahead - 1)})
            Sync()
            xs = Stage(x, origin=(0, c*16 + {16 * ahead}), box=(i:32@0, k:16@1), depth={depth}, slot=(c + {ahead}) % {depth}, via={via}{fields}, {steady})
            ws = Stage(w, origin=(c*16 + {16 * ahead}, 0), box=(k:16@0, j:32@1), depth={depth}, slot=(c + {ahead}) % {depth}, via={via}, {steady})
            for q in 0..4 reduce unroll=4:
                for k in 0..4 VEC:
                    a = load xs[c % {depth}, i*4 + r, q*4 + k]
                    b = load ws[c % {depth}, q*4 + k, j*4 + v]
                    p = multiply(a, b)
                    acc <- add(acc, p)
        y[i*4 + r, j*4 + v] = acc
"""


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("k", [96, 100, 90])
@pytest.mark.sampled(5)
def test_rings(check, depth, k):
    kernels = check(matmul(depth, fields=", xor=(31, 1), lanes=2", k=k), x=floats(32, k), w=floats(k, 32))
    assert "_if" in kernels[0].text  # predicated, never branched around
    assert f"cp_async_wait<{depth - 2}>" in kernels[0].text


def test_unequal_groups(check):
    """A Wait that cuts a run: every copy is a group of its own."""
    check(
        """
kernel uneven(x: f32[32], w: f32[32]) -> y: f32[32]:
    Tile(t:32=THREAD):
        a = Stage(x, origin=(0), box=[u:32@0], via=ASYNC)
        b = Stage(w, origin=(0), box=[u:32@0], via=ASYNC)
        Wait(keep=1)
        Sync()
        p = load a[31 - t]
        Wait()
        Sync()
        q = load b[31 - t]
        r = add(p, q)
        y[t] = r
""",
        x=floats(32), w=floats(32),
    )  # fmt: skip


def test_shared_tile_with_permuted_rows(check):
    """Rows of the shared tile in another order than the source's, and a stride between neighbours."""
    check(
        """
kernel permuted(w: f32[40, 16]) -> y: f32[32, 16]:
    Tile(i:4=THREAD, k:16=THREAD, r:8=REG):
        s = Stage(w, origin=(8, 0), box=(h:2@0 by 16, q:4@0, j:4@0 by 4, k:16@1))
        Sync()
        z = load s[(i*8 + r) // 16, (i*8 + r) % 4, (i*8 + r) % 16 // 4, k]
        y[i*8 + r, k] = z
""",
        w=floats(40, 16),
    )


@pytest.mark.parametrize("loop", [
    "0..24 reduce", "0..24 by 3 reduce", "0..24 reduce unroll=4", "0..24 reduce unroll=24", "3..24 by 7 reduce unroll=3",
    "0..24 serial", "5..6 reduce", "4..4 reduce", "t..24 by 8 reduce", "t*3..t*3 + 3 reduce",
])  # fmt: skip
@pytest.mark.sampled(5)
def test_loops(check, loop):
    check(
        f"""
kernel looped(x: f32[24, 16]) -> y: f32[16, 8]:
    Tile(t:8=THREAD, v:16=REG):
        acc <- add(acc, 0.0)
        for k in {loop}:
            a = load x[k, v]
            acc <- add(acc, a)
        y[v, t] = acc
""",
        x=floats(24, 16),
    )


def test_nested_loops_move_pointers(check):
    """A pointer per level: rows outside, columns inside, both ragged in their step."""
    check(
        """
kernel nested(x: f32[6, 10, 32]) -> y: f32[6, 32]:
    Tile(t:32=THREAD):
        for i in 0..6 by 2 free:
            for k in 0..10 by 5 reduce:
                for l in 0..5 reduce:
                    a = load x[i, k + l, t]
                    b = load x[i + 1, k + l, t]
                    p <- add(p, a)
                    q <- add(q, b)
            y[i, t] = p
            y[i + 1, t] = q
""",
        x=floats(6, 10, 32),
    )


@pytest.mark.parametrize("extents", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_grid_axes(check, extents):
    """More than three BLOCK axes are divided out of x."""
    names = "abcde"[: len(extents)]
    shape, index = ", ".join(map(str, extents)), ", ".join(names)
    axes = ", ".join(f"{n}:{e}=BLOCK" for n, e in zip(names, extents, strict=True))
    check(
        f"""
kernel grid(x: f32[{shape}, 8]) -> y: f32[{shape}, 8]:
    Tile({axes}, t:8=THREAD):
        v = load x[{index}, t]
        w = negative(v)
        y[{index}, t] = w
""",
        x=floats(*extents, 8),
    )


def test_many_rows_go_in_x():
    (kernel,) = read("""
kernel tall(x: f32[70000, 2]) -> y: f32[70000, 2]:
    Tile(i:70000=BLOCK, j:2=BLOCK):
        v = load x[i, j]
        y[i, j] = v
""")
    assert lower(kernel).grid == (140000, 1, 1)


def test_offsets_beyond_an_int():
    """A buffer of more than 2^31 elements: 64 bits exactly where a term may need them."""
    (kernel,) = read("""
kernel huge(x: f32[70000, 40000], n: i32[70000]) -> y: f32[70000, 40000]:
    Tile(i:70000=BLOCK, t:100=THREAD):
        m = load n[i]
        for k in 0..400 free:
            v = load x[m, k*100 + t]
            y[i, k*100 + t] = v
""")
    text = lower(kernel).text
    assert "y + (long long)i * 40000 + t" in text and "(long long)m * 40000" in text and "+ k * 100" not in text


def test_guard_beyond_an_int():
    (kernel,) = read("""
kernel huge(x: b8[3000000000]) -> y: b8[3000000000]:
    Tile(i:2929688=BLOCK, t:256=THREAD, v:4=VEC):
        if i*1024 + t*4 + v < 2999999998:
            a = load x[i*1024 + t*4 + v]
            y[i*1024 + t*4 + v] = a
""")
    text = lower(kernel).text
    assert "if ((long long)i * 1024 + t * 4 + v < 2999999998LL) {" in text
    assert "x + (long long)i * 1024 + t * 4;" in text


@pytest.mark.parametrize("shift", [1, 3, 7])
@pytest.mark.parametrize("extent", [7, 8])
def test_division_rounds_down(check, shift, extent):
    """A roll: what C's % would get wrong for negative numbers, in addresses, guards and values."""
    check(
        f"""
kernel roll(x: f32[{extent}, 24]) -> y: f32[{extent}, 24], q: i64[{extent}]:
    Tile(i:{extent}=BLOCK, t:8=THREAD, v:3=REG):
        if (i + v - {shift}) % {extent} >= 2:
            a = load x[(i - {shift}) % {extent}, (t*3 + v - 5) % 24]
            y[i, t*3 + v] = a
        if (i + v - {shift}) % {extent} < 2:
            y[i, t*3 + v] = 1.0
        if t < 1:
            if v < 1:
                q[i] = (i - {shift}) // {extent}
""",
        x=floats(extent, 24),
    )


def test_limits():
    (kernel,) = read("""
kernel wide(x: f32[2048]) -> y: f32[2048]:
    Tile(t:2048=THREAD):
        v = load x[t]
        y[t] = v
""")
    with pytest.raises(DplcError, match="2048 threads per block; 1024 are possible"):
        materialise(kernel, target("sm_80"))
    (kernel,) = read("""
kernel wide(x: f32[4294967296]) -> y: f32[1]:
    Tile(t:1=THREAD, v:4294967296=VEC):
        v1 = load x[v]
        sum <- add(sum, v1)
        Combine(sum, add, over=(v))
        y[t] = sum
""")
    with pytest.raises(DplcError, match="4294967296 elements along v=VEC; 16384 are possible"):
        materialise(kernel, target("sm_80"))
    (kernel,) = read(
        COPY.format(dtype="f32", m=40, n=40, origin="0, 0", via="ASYNC", fields=", depth=64, slot=0").replace(
            "s[i", "s[0, i"
        )
    )
    with pytest.raises(DplcError, match="262144 bytes of shared memory"):
        materialise(kernel, target("sm_80"))
    (kernel,) = read(COPY.format(dtype="f32", m=40, n=40, origin="0, 0", via="TMA", fields=""))
    with pytest.raises(DplcError, match="A100 has no TMA"):
        materialise(kernel, target("sm_80"))


def test_refusals():
    (kernel,) = read("""
kernel back(x: f32[32]) -> y: f32[32], z: f32[32]:
    Tile(t:32=THREAD):
        v = load x[t]
        y[t] = v
        w = load y[t]
        z[t] = w
""")
    with pytest.raises(InternalError, match="reads `y`, which it writes"):
        materialise(kernel, target("sm_80"))


@pytest.mark.parametrize(
    ("dtype", "width", "stores"), [("f32", 4, {4}), ("f32", 8, {4}), ("f64", 4, {2}), ("f32", 3, {1})]
)
@pytest.mark.parametrize("columns", [240, 216])
def test_a_loop_over_vectors_stores_vectors(check, dtype, width, stores, columns):
    """Where its steps add nothing up: a row that threads pass in turns, the last of them with a part of the threads."""
    text = f"""
kernel rows(x: {dtype}[2, {columns}], m: {dtype}[2]) -> y: {dtype}[2, {columns}]:
    Tile(i:2=BLOCK, t:16=THREAD):
        b = load m[i]
        for o in t..{columns // width} by 16 free:
            for v in 0..{width} VEC:
                a = load x[i, o*{width} + v]
                c = subtract(a, b)
                y[i, o*{width} + v] = c
"""
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    check(text, x=RNG.integers(-99, 99, (2, columns)).astype(kind), m=np.array([1, 2], kind))
    (kernel,) = read(text)
    assert {len(store.values) for store in nodes(materialise(kernel, target("sm_80")), StoreTo)} == stores
