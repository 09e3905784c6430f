"""Strength of the oracle: break the lowering, or one statement of what it made, and see it noticed.

A mutant is noticed by the Kernel IR verifier, by the compiler, by checked mode, or by a wrong result. Those that only cost
time are listed by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from emulated import check
from lowering_oracle import read, same

from dplc.codegen.cuda import print_cuda
from dplc.codegen.materialise import blocks, expressions, materialise, reductions, shared_memory, values
from dplc.codegen.target import target
from dplc.ir import kernel as k
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import tile
from dplc.ir.node import nodes, replace
from dplc.ir.program import Kernel
from dplc.ir.verify.kernel import problems

RING = """
kernel mm(x: f32[30, 96], w: f32[96, 62]) -> y: f32[30, 62]:
    Tile(j_o:2=BLOCK, i:8=THREAD, j:8=THREAD, r:4=REG, v:4=VEC, snake=1):
        xs = Stage(x, origin=(0, 0), box=(i:32@0, k:16@1), depth=3, slot=0, via=ASYNC, xor=(31, 1))
        ws = Stage(w, origin=(0, j_o*32), box=(k:16@0, j:32@1), depth=3, slot=0, via=ASYNC)
        xs = Stage(x, origin=(0, 16), box=(i:32@0, k:16@1), depth=3, slot=1, via=ASYNC, xor=(31, 1))
        ws = Stage(w, origin=(16, j_o*32), box=(k:16@0, j:32@1), depth=3, slot=1, via=ASYNC)
        for c in 0..6 serial:
            Wait(keep=2)
            Sync()
            xs = Stage(x, origin=(0, c*16 + 32), box=(i:32@0, k:16@1), depth=3, slot=(c + 2) % 3, via=ASYNC, xor=(31, 1), when=c + 2 < 6)
            ws = Stage(w, origin=(c*16 + 32, j_o*32), box=(k:16@0, j:32@1), depth=3, slot=(c + 2) % 3, via=ASYNC, when=c + 2 < 6)
            for q in 0..4 reduce unroll=4:
                for k in 0..4 VEC:
                    a = load xs[c % 3, i*4 + r, q*4 + k]
                    b = load ws[c % 3, q*4 + k, j*4 + v]
                    p = multiply(a, b)
                    acc <- add(acc, p)
        if i*4 + r < 30:
            if j_o*32 + j*4 + v < 62:
                y[i*4 + r, j_o*32 + j*4 + v] = acc
"""
ROWS = """
kernel rows(x: f32[3, 512], g: f32[512]) -> y: f32[3, 512]:
    Tile(t:64=THREAD, q:2=REG, v:4=VEC):
        for i in 0..3 serial:
            a = load x[i, q*256 + t*4 + v]
            total <- add(total, a)
            Combine(total, add, over=(q, v, t))
            b = load g[q*256 + t*4 + v]
            d = subtract(a, total)
            e = multiply(d, b)
            y[i, q*256 + t*4 + v] = e
"""
# negative numbers under a maximum: whatever is not the number wanted wins
COLUMNS = """
kernel columns(x: f32[40, 30]) -> y: f32[32]:
    Tile(t:8=THREAD, v:4=VEC):
        for i in 0..40 by 8 reduce:
            if t*4 + v < 30:
                a = load x[i, t*4 + v]
                top <- maximum(top, a)
        s = Stage(x, origin=(8, 2), box=(a:5@0, b:28@1), pad=1)
        Sync()
        if t*4 + v < 28:
            b = load s[4, t*4 + v]
            top <- maximum(top, b)
        c = load x[39, t*2 + v]
        top <- maximum(top, c)
        y[t*4 + v] = top
"""
OVERLAP = """
kernel overlap(x: f32[40, 16]) -> y: f32[32, 16]:
    Tile(t:8=THREAD, c:16=THREAD, v:4=REG):
        s = Stage(x, origin=(0, 0), box=(a:40@0, b:16@1), xor=(3, 0))
        Sync()
        b = load s[t*4 + v + 1, c]
        y[t*4 + v, c] = b
"""
SUBJECTS = {"ring": RING, "rows": ROWS, "columns": COLUMNS, "overlap": OVERLAP}


def inputs(kernel: Kernel) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {p.name: (rng.uniform(-1, 1, p.shape) - 2).astype(np.float32) for p in kernel.ins}


def noticed(ir: Kernel, original: Kernel) -> bool:
    """Whether anything tells this Kernel IR from what it should be."""
    if problems(ir):
        return True
    given = inputs(original)
    want = tile.run((original,), given)
    try:
        for order in (0, 1, 2):
            got = check(print_cuda(ir), given, order=order).outputs
            for name, value in got.items():
                same(value, want[name])
    except (DplcError, AssertionError):
        return True
    return False


# ---- one statement of the Kernel IR

Change = Callable[[Any], Any]
CHANGES: dict[str, tuple[type[Any], Change]] = {
    "barrier dropped": (k.Barrier, lambda s: None),
    "wait for one group too few": (k.WaitGroup, lambda s: replace(s, keep=s.keep + 1)),
    "commit dropped": (k.Commit, lambda s: None),
    "copy always": (k.CopyAsync, lambda s: replace(s, when=True) if s.when is not True else s),
    "copy never fills": (k.CopyAsync, lambda s: replace(s, inside=True) if s.inside is not True else s),
    "xor dropped": (k.Address, lambda s: replace(s, xor=0)),
    "offset dropped": (k.Address, lambda s: replace(s, offset=0)),
    "base without its offset": (k.Base, lambda s: replace(s, offset=0)),
    "pointer not moved": (k.Advance, lambda s: None),
    "counter not moved": (k.Assign, lambda s: None if s.place.__class__.__name__ == "Var" else s),
    "one shuffle short": (k.Butterfly, lambda s: replace(s, high=s.high // 2)),
    "guard dropped": (k.Branch, lambda s: replace(s, cond=True)),
    "guard never holds": (k.Branch, lambda s: replace(s, cond=False)),
    "registers not filled": (k.Registers, lambda s: replace(s, fill=None)),
    "one value fewer": (k.Replicate, lambda s: replace(s, extent=s.extent - 1)),
    "forwards only": (k.Replicate, lambda s: replace(s, reverse=None)),
    "offset four too far": (k.Address, lambda s: replace(s, offset=s.offset + 4) if isinstance(s.offset, int) else s),
    "load without its guard": (k.LoadFrom, lambda s: replace(s, when=True)),
    "one value of the vector": (k.LoadFrom, lambda s: replace(s, width=1)),
    "half of the threads": (k.Launch, lambda s: replace(s, block=s.block // 2)),
    "no shared memory": (k.Launch, lambda s: replace(s, shared=s.shared // 2)),
}
# What may go unnoticed: it costs or saves time only, or fills cells that nobody reads.
HARMLESS = {
    "load without its guard": 1,
    "forwards only": 99,
    "copy always": 1,
    "copy never fills": 3,
    "guard dropped": 1,
    "guard never holds": 0,
}


def mutants(ir: Kernel, cls: type[Any], change: Change) -> Iterator[Kernel]:
    """The kernel with one node of a class changed or taken out, for each of them."""
    for number in range(sum(1 for _ in nodes(ir.body, cls))):
        left = [number]

        def visit(value: Any, left: list[int] = left) -> Any:
            if isinstance(value, tuple):
                return tuple(new for new in (visit(item, left) for item in value) if new is not None)
            if isinstance(value, cls):
                left[0] -= 1
                if left[0] == -1:
                    return change(value)
            if not hasattr(value, "_memo"):
                return value
            fields = {f.name: getattr(value, f.name) for f in type(value).fields}
            changed = {n: visit(v, left) for n, v in fields.items() if isinstance(v, tuple) or hasattr(v, "_memo")}
            return replace(value, **changed)

        mutant = visit(ir)
        if mutant is not ir:
            yield mutant


@pytest.mark.parametrize("title", CHANGES)
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.sampled(12)
def test_statements(subject, title):
    (kernel,) = read(SUBJECTS[subject])
    ir = materialise(kernel, target("sm_80"))
    cls, change = CHANGES[title]
    tried = list(dict.fromkeys(mutants(ir, cls, change)))[:6]
    if not tried:
        pytest.skip("nothing of the kind in this subject")
    survivors = [mutant for mutant in tried if not noticed(mutant, kernel)]
    assert len(survivors) <= HARMLESS.get(title, 0), print_cuda(survivors[-1]).text


def test_nothing_broken_is_not_noticed():
    for text in SUBJECTS.values():
        (kernel,) = read(text)
        assert not noticed(materialise(kernel, target("sm_80")), kernel)


# ---- the lowering itself


def no_identity(fn: str, dtype: str) -> Any:
    return 0.0


BREAKS: dict[str, tuple[Any, str, Any, str]] = {
    "accumulators start from zero": (values, "identity", no_identity, "columns"),
    "guards weakened across the edge": (expressions, "on_edge", lambda limit, width: True, "columns"),
    "vectors although misaligned": (blocks, "is_vector", lambda *a: True, "columns"),
    "axis of a vector left in the address": (blocks, "substitute", lambda value, mapping: value, "rows"),
    "parts of an xor that share bits": (shared_memory, "possible_bits", lambda low, e: 0, "overlap"),
    "ring starts at its first slot": (expressions, "linear", lambda e: (addresses_linear(e)[0], 0), "ring"),
    "copies narrowed by nothing": (blocks, "narrowed", lambda low, when: {**low.ranges, "c": (0, 0)}, "ragged"),
    "exchange areas on one another": (shared_memory, "allocate", lambda low, size, alignment=128: 0, "ring"),
    "lane bits taken for parts": (reductions, "floordiv", lambda a, b: 0, "rows"),
    "a chain too few folded": (reductions, "tree", lambda fn, terms: terms[0], "rows"),
}
addresses_linear = expressions.linear


@pytest.mark.parametrize("title", BREAKS)
@pytest.mark.sampled(5)
def test_lowering(monkeypatch, title):
    owner, name, broken, subject = BREAKS[title]
    (kernel,) = read({**SUBJECTS, "ragged": RING.replace("96", "90")}[subject])
    right = materialise(kernel, target("sm_80"))
    monkeypatch.setattr(owner, name, broken)
    try:
        ir = materialise(kernel, target("sm_80"))
    except Exception:
        return  # noticed
    finally:
        monkeypatch.undo()
    assert ir is not right, "the subject does not reach what is broken"
    assert noticed(ir, kernel)
