"""Facts for the prototype's tile rules, as far as their examples and three pipelines need them. Tests only."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from dplc.engine.match.names import names_at, unused
from dplc.ir import expr as e
from dplc.ir.loop import Accumulate, For, If, Let, Load, Store
from dplc.ir.node import nodes
from dplc.ir.ranges import decide
from dplc.ir.tile import Combine, Stage, Sync, Wait

Var = e.Var


@dataclass(frozen=True)
class Footprint:
    buf: Any
    smem: Any
    origin: tuple[Any, ...]
    slab: tuple[Any, ...]
    base: tuple[Any, ...]
    dims: tuple[int, ...]
    reuse: bool
    bytes: int


def names_used(block: Any) -> set[str]:
    found: set[str] = set()
    for x in nodes(block, Load, Store, Let, Accumulate, If):
        for field in ("idx", "val", "cond"):
            if hasattr(x, field):
                found |= e.free_names(getattr(x, field))
    return found


def loops(block: Any, *role: Any) -> tuple[Any, ...]:
    return tuple(Var(x.var) for x in nodes(block, For) if not role or x.role == role[0].name)


def indexed_by(block: Any, k: Any) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(Var(x.buf) for x in nodes(block, Load) if k.name in e.free_names(x.idx)))


def matmul_shaped(block: Any) -> bool:
    return any(len(indexed_by(x.body, Var(x.var))) >= 2 for x in nodes(block, For) if x.role == "reduce")


def accumulators(block: Any) -> tuple[Any, ...]:
    return tuple({(x.acc, x.fn): x for x in nodes(block, Accumulate)}.values())


def footprints(site: Any, body: Any, axes: Any, *extra: Any) -> tuple[Any, ...]:
    ranges = dict(site.ranges)
    for axis in axes:
        ranges[axis.name] = (0, axis.extent - 1)
    for k, n in zip(extra[::2], extra[1::2], strict=True):
        ranges[k.name] = (0, n - 1)
    inner = {x.var for x in nodes(body, For)} | {k.name for k in extra[::2]}
    for x in nodes(body, For):
        ranges[x.var] = (0, x.stop - 1) if isinstance(x.stop, int) else (0, 10**6)
    local = {a.name for a in axes if a.role in ("THREAD", "REG")} | inner
    threads = {a.name for a in axes if a.role == "THREAD" and a.extent > 1}
    staged = {x.dst for k in site.program for x in nodes(k, Stage)}
    by_buffer: dict[str, list[Any]] = {}
    for load in nodes(body, Load):
        if load.buf not in staged:
            by_buffer.setdefault(load.buf, []).append(load)
    out = []
    for buffer, loads in by_buffer.items():
        found = _box(loads, local, ranges)
        if found is None:
            continue
        origin, extents, labels = found
        dims = tuple(d for d, n in enumerate(extents) if n > 1)
        if not dims:
            continue
        slab = tuple(e.Axis(labels[d] or f"d{d}", extents[d], None, d) for d in dims)
        used = set().union(*(e.free_names(load.idx) for load in loads))
        reuse = len(loads) > 1 or bool(threads - used)
        smem = Var(unused(f"{buffer}_smem", names_at(site)))
        size = 4 * math.prod(a.extent for a in slab)
        out.append(Footprint(Var(buffer), smem, tuple(origin), slab, tuple(origin[d] for d in dims), dims, reuse, size))
    return tuple(out)


def _box(loads: Any, local: Any, ranges: Any) -> Any:
    origin = extents = labels = None
    for load in loads:
        o, x, names = [], [], []
        for index in load.idx:
            terms, constant = e.linear(index)
            moving = {a: n for a, n in terms.items() if e.free_names(a) & local}
            if any(not isinstance(a, Var) or n < 0 for a, n in moving.items()):
                return None
            o.append(e.from_linear({a: n for a, n in terms.items() if a not in moving}, constant))
            x.append(1 + sum(n * ranges[a.name][1] for a, n in moving.items()))
            names.append(next((a.name for a in moving), None))
        if origin is not None and o != origin:
            return None
        origin, labels = o, labels or names
        extents = x if extents is None else [max(a, b) for a, b in zip(extents, x, strict=True)]
    return origin, extents, labels


def under(site: Any, role: Any) -> bool:
    return any(isinstance(x, For) and x.role == role.name for x in site.enclosing)


def guarded(site: Any, context: Any) -> bool:
    return any(isinstance(x, If) for x in (*site.enclosing, *context.around))


def escapes(site: Any, block: Any, buffers: Any) -> bool:
    def count(x: Any) -> int:
        return sum(Var(load.buf) in buffers for load in nodes(x, Load))

    return count(site.kernel) > count(block)


def crosses(before: Any, *later: Any) -> bool:
    return bool({x.dst for x in nodes(before, Let, Load)} & set().union(*map(names_used, later)))


def strided(body: Any, i: Any, r: Any, factor: int) -> bool:
    for x in nodes(body, Load, Store):
        for index in x.idx:
            terms, _ = e.linear(index)
            if terms.get(i, 0) != factor * terms.get(r, 0):
                return False
    return True


def slab_bytes(stages: Any) -> int:
    return sum(4 * math.prod(a.extent for a in s.slab) for s in stages)


def strided_extent(body: Any, t: Any) -> int:
    found = [x for x in nodes(body, For) if isinstance(x.step, int) and x.step > 1 and x.start == t]
    ends = {x.stop for x in found}
    return found[0].stop if len(ends) == 1 and len(found) == len(tuple(nodes(body, For))) else 0


def only_staged(site: Any, body: Any) -> bool:
    slabs = {x.dst for x in nodes(site.kernel, Stage)}
    plain = not any(True for _ in nodes(body, Store, Stage, Sync, Wait, Combine))
    return plain and all(x.buf in slabs for x in nodes(body, Load))


TABLE: dict[str, Any] = {
    "size": lambda site, xs: len(xs),
    "min": lambda site, *a: min(a[0]) if isinstance(a[0], tuple) else min(a),
    "max": lambda site, *a: max(a[0]) if isinstance(a[0], tuple) else max(a),
    "ceildiv": lambda site, a, b: -(-a // b),
    "divisors": lambda site, n: tuple(d for d in range(1, n + 1) if n % d == 0),
    "pow2": lambda site, a, b: tuple(2**i for i in range(20) if a <= 2**i <= b),
    "pow2floor": lambda site, n: 2 ** (max(n, 1).bit_length() - 1),
    "pow2ceil": lambda site, n: 2 ** (max(n, 1) - 1).bit_length(),
    "subsets": lambda site, xs: tuple(c for n in range(len(xs), 0, -1) for c in itertools.combinations(xs, n)),
    "names": lambda site, xs: tuple(Var(a.name) for a in xs),
    "extents": lambda site, xs: tuple(a.extent for a in xs),
    "bytes": lambda site, ss: slab_bytes(ss),
    "slab_words": lambda site, s: slab_bytes((s,)) // 4,
    "always": lambda site, c: decide(c, site.ranges) is True,
    "combined": lambda site, body: any(True for _ in nodes(body, Combine)),
    "combined_over": lambda site, body, r: any(r in x.over for x in nodes(body, Combine)),
    "staged": lambda site, body: any(True for _ in nodes(body, Stage)),
    "loops": lambda site, body, *role: loops(body, *role),
    "indexed_by": lambda site, body, k: indexed_by(body, k),
    "matmul_shaped": lambda site, body: matmul_shaped(body),
    "accumulators": lambda site, body: accumulators(body),
    "reduce_extent": lambda site, body: next((x.stop for x in nodes(body, For) if x.role == "reduce"), 0),
    "footprints": footprints,
    "local": lambda site, idx, f: tuple(e.subtract(idx[d], f.base[n]) for n, d in enumerate(f.dims)),
    "axes_in_scope": lambda site: site.tile.axes if site.tile else (),
    "disjoint": lambda site, idx, ns: not (e.free_names(idx) & {n.name for n in ns}),
    "under": under,
    "guarded": guarded,
    "escapes": escapes,
    "crosses": lambda site, before, *later: crosses(before, *later),
    "writes": lambda site, body, bufs: any(
        Var(getattr(x, "buf", None) or x.dst) in bufs for x in nodes(body, Store, Stage)
    ),
    "reads": lambda site, x, b: sum(y.buf == b.name for y in nodes(x, Load)),
    "barrier": lambda site, mid, b: any(True for _ in nodes(mid, Stage, Sync, Wait)),
    "changes": lambda site, mid, x: bool({a.acc for a in nodes(site.kernel, Accumulate)} & e.free_names(x)),
    "strided": lambda site, *a: strided(*a),
    "strided_extent": lambda site, body, t: strided_extent(body, t),
    "all_vary": lambda site, body, t: True,
    "bank_cycles": lambda site, *a: 0,
    "box_ok": lambda site, ss: True,
    "only_staged": only_staged,
    "read_under": lambda site, accs, c: True,
    "threads": lambda site, axes: math.prod(a.extent for a in axes if a.role == "THREAD"),
    "registers": lambda site, axes, body: 64,
    "copy_lanes": lambda site, s: 4,
}


def signature(name: str) -> str:
    """Any number of arguments of any sort."""
    return f"{name}(any*) -> any"
