"""Rules with one mistake each, as a user could write them. Each says what went wrong."""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    """A rule file. built_in: it overrides a rule of ours with one piece of its text replaced."""

    what: str
    rule: str
    text: str


def _rule(what: str, text: str) -> Broken:
    name = text.split("rule ", 1)[1].split()[0].split("(")[0]
    return Broken(what, name, text)


RING = """
@repeat
rule ring(N: int in {2, 3} = 2) on tile
match
    for k in 0..K serial:
        stages: Stage(depth=1)+
        Sync()
        rest..
        Sync()
let bufs = {s.dst for s in stages}
require K >= N                                   else "fewer chunks than buffers"
require not writes(rest, bufs)                   else "the body writes a staged tile"
require not escapes(rest, bufs)                  else "a shared tile is read outside of the loop"
rewrite
    for k in 0..K serial:
        stages.. with depth=N, slot=k % N
        Sync()
        rest.. with load B[i..] => load B[k % N, i..] where B in bufs
    if repeated():
        Sync()
"""

AHEAD = """
@repeat
rule ring_ahead on tile
match
    for k in 0..K serial:
        stages: Stage(depth=N, via=ASYNC, when=true)+
        Wait(keep=0)
        Sync()
        rest..
let n = size(stages)
require copied_once(stages)                      else "another copy fills the shared tile"
require N >= 2                                   else "single-buffered"
require K >= N                                   else "fewer chunks than buffers"
rewrite
    each j in 0..N - 1:
        stages[k := j]..
    for k in 0..K serial:
        Wait(keep=n*(N - 2))
        Sync()
        stages[k := k + N - 1].. with when=k + (N - 1) < K
        rest..
    if repeated():
        Sync()
example "the loop comes again"
    for i in 0..2 serial:
        for k in 0..8 serial:
            As = Stage(A, origin=(k*16), box=(t:16@0), depth=3, slot=k % 3, via=ASYNC)
            Wait()
            Sync()
            a = load As[k % 3, t]
            acc <- add(acc, a)
gives no "single-buffered"
"""

BROKEN = (
    _rule("wrong slot", RING.replace("load B[k % N, i..] where", "load B[(k + 1) % N, i..] where")),
    _rule("dropped barrier", RING.replace("slot=k % N\n        Sync()\n", "slot=k % N\n")),
    _rule("no slot in the loads", RING.replace("=> load B[k % N, i..] where B in bufs", "=> load B[0, i..] where B in bufs")),
    _rule("the ring is read after its loop", RING.replace('require not escapes(rest, bufs)                  else "a shared tile is read outside of the loop"\n', "")),
    _rule("the next round overwrites what is read", RING.replace("    if repeated():\n        Sync()\n", "")),
    _rule("the ring comes again and overwrites what is read", AHEAD.replace("    if repeated():\n        Sync()\n", "")),
    _rule("a chunk left out", AHEAD.replace("k + (N - 1) < K", "k + N < K")),
    _rule("fewer chunks than slots", AHEAD.replace('require K >= N                                   else "fewer chunks than buffers"\n', "").replace("0..8", "0..2")),
    _rule("a guard too wide", """
@repeat
rule either_guard on kernel
match
    Branch(a):
        Branch(b):
            body..
rewrite
    Branch(a or b):
        body..
"""),
    _rule("the base of the wrong address", """
rule one_base on kernel
match
    p = Base(x, offset=e, mutable=0)
    mid..
    q = Base(x, offset=f, mutable=m)
rewrite
    p = Base(x, offset=e)
    mid..
    q = Base(x, offset=e, mutable=m)
"""),
    _rule("a wait too few", """
@repeat
rule asynchronous on tile
match
    for k in 0..K serial:
        stages: Stage(depth=N, via=SYNC)+
        Sync()
        rest..
require N >= 2                                   else "single-buffered"
require copies_words(stages)                     else "the elements are not words"
rewrite
    for k in 0..K serial:
        stages.. with via=ASYNC
        Sync()
        rest..
"""),
    _rule("missing guard of the last chunk", """
@repeat
rule chunk(BK: int in {2, 4, 8} = 4) on tile
match
    for k in 0..K reduce:
        body..
require size(loops(body)) == 0                   else "not the innermost loop"
require BK < K                                   else "a single chunk"
let ko = fresh(k, "o")
rewrite
    for ko in 0..ceildiv(K, BK) reduce:
        for k in 0..BK reduce:
            body[k := ko*BK + k]..
"""),
    _rule("swapped index", """
@repeat
rule flatten on tile
match
    for i in 0..M free:
        for j in 0..N free:
            body..
let n = fresh(i, "flat")
rewrite
    for n in 0..M*N free:
        body[i := n // M, j := n % M]..
"""),
    _rule("forgotten Combine", """
rule cooperative(T: int in {2, 4} = 4) on tile
match
    Tile(axes..=BLOCK):
        for k in 0..K reduce:
            body..
        rest..
let t = fresh("t")
rewrite
    Tile(axes.., t:T=THREAD):
        for k in t..K by T reduce:
            body..
        if t < 1:
            rest..
"""),
    _rule("register axes overlap", """
rule registers(F: int in {2, 4} = 2) on tile
match
    Tile(outer.., i:M=THREAD):
        body..
require M % F == 0                               else "ragged"
require not combined(body)                       else "combined"
require not bounded_by(body, [i])                else "a loop starts with the thread"
let r = fresh(i, "r")
rewrite
    Tile(outer.., i:M // F=THREAD, r:F=REG):
        body[i := i*F]..
"""),
    _rule("a statement lost", """
rule first_only on tile
match
    a = load B[i..]
    b = load B[i..]
rewrite
    a = load B[i..]
    b = copy(0.0)
"""),
    _rule("a guard sinks past its value", """
rule unguarded on tile
match
    if c:
        body..
rewrite
    body..
"""),
    _rule("the loop ends early", """
@repeat
rule peel on loop
match
    for k in 0..K reduce:
        body..
require K > 1                                    else "one turn"
rewrite
    for k in 0..K - 1 serial:
        body..
"""),
    _rule("sign error", """
rule minus_minus on tensor
match
    y = subtract(x, negative(z))
rewrite
    y = subtract(x, z)
"""),
    _rule("operands exchanged", """
rule reverse on tensor
match
    y = add(x, negative(z))
rewrite
    y = subtract(z, x)
"""),
    _rule("only true of finite numbers", """
rule times_zero on tensor
match
    y = multiply(x, 0)
rewrite
    y = 0
"""),
    _rule("not exact", """
rule reciprocal_product on tensor
match
    y = divide(x, z)
rewrite
    y = multiply(x, reciprocal(z))
"""),
    _rule("a factor that varies along the sum", """
@approx
rule hoist on tensor
match
    p = multiply(x, c)
    y = Reduce(add, k, p)
require k in axes(x)                             else "nothing to sum"
rewrite
    t = Reduce(add, k, x)
    y = multiply(t, c)
"""),
    _rule("true of sums, used for every fold", """
@approx
rule fold_of_sum on tensor
match
    s = add(x, z)
    y = Reduce(f, k, s)
require k in axes(x)                             else "x does not vary"
require k in axes(z)                             else "z does not vary"
rewrite
    a = Reduce(f, k, x)
    b = Reduce(f, k, z)
    y = add(a, b)
"""),
    _rule("it never ends", """
rule round_and_round on tensor
match
    y = add(x, z)
rewrite
    y = add(z, x)
"""),
    _rule("wrong dimension", """
override rule linear on torch
match
    y = Linear(x, w, bias=none)
require rank(w) == 2 else "the weight is a vector"
rewrite
    y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[k, j]))
example "without a bias"
    graph f(x: f32[4, 4], w: f32[4, 4]) -> y: f32[4, 4]:
        y: f32[4, 4] = Linear(x, w)
gives no "the weight is a vector"
"""),
    _rule("the mean is not divided", """
override rule silu on torch
match
    y = Silu(x)
rewrite
    y[os..] = sigmoid(x[os..])
"""),
    _rule("a remainder that only a size has", """
rule four_at_once on tile
match
    for k in 0..K serial:
        body..
require highest(K) % 4 == 0                      else "the loop has a remainder"
split k:K => ko:K // 4=serial, k:4=serial
rewrite
    for ko:
        for k:
            body..
"""),
    _rule("an argument is dropped", """
override rule leaky_relu on torch
match
    y = LeakyRelu(x, negative_slope=_)
rewrite
    y[os..] = where(greater(x[os..], 0), x[os..], multiply(x[os..], 0.01))
"""),
)  # fmt: skip
