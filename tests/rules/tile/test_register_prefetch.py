"""Register prefetch: a Stage in two, the fetch and its Put. Verified, printed, executed by its meaning and as CUDA."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulating import fault
from nest import Nest, matmul
from scheduling import MACHINE, difference, engine, rule_files, steps

from dplc.codegen.cuda import generate
from dplc.engine.facts.accesses import registers
from dplc.engine.rewrite.statements.driver import Engine, choices
from dplc.ir.loop import For
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Put, Stage
from dplc.ir.verify import tile as verify

# 13 rows of 29 elements, in chunks of 8: the last chunk has 5 columns, and 12 threads copy 13 rows of 8 words
RAGGED = """
kernel f(x: f32[13, 29]) -> y: f32[13]:
    Tile(t:13=THREAD):
        s = Stage(x, origin=(0, 0), slab=(i:13@0, c:8@1))
        for k in 0..4 serial:
            Sync()
            s = Stage(x, origin=(0, k*8 + 8), slab=(i:13@0, c:8@1), via=FETCH, when=k + 1 < 4)
            for c in 0..8 reduce:
                a = load s[(t + 1) % 13, c]
                sum <- add(sum, a)
            Sync()
            s = Put()
        y[t] = sum
"""
RING = """
kernel f(x: f32[13, 29]) -> y: f32[13]:
    Tile(t:13=THREAD):
        s = Stage(x, origin=(0, 0), slab=(i:13@0, c:8@1), depth=2)
        for k in 0..4 serial:
            Sync()
            s = Stage(x, origin=(0, k*8 + 8), slab=(i:13@0, c:8@1), depth=2, slot=(k + 1) % 2, via=FETCH, when=k + 1 < 4)
            for c in 0..8 reduce:
                a = load s[k % 2, (t + 1) % 13, c]
                sum <- add(sum, a)
            s = Put()
        y[t] = sum
"""
AT_ONCE = """
kernel f(x: f32[13, 29]) -> y: f32[13]:
    Tile(t:13=THREAD):
        for k in 0..4 serial:
            s = Stage(x, origin=(0, k*8), slab=(i:13@0, c:8@1), via=FETCH)
            s = Put()
            Sync()
            for c in 0..8 reduce:
                a = load s[(t + 1) % 13, c]
                sum <- add(sum, a)
            Sync()
        y[t] = sum
"""


def read(text: str) -> tuple[Kernel, ...]:
    return read_program(text, "a test")[1]  # type: ignore[return-value]


def data() -> tuple[dict[str, Any], dict[str, Any]]:
    x = np.random.default_rng(0).standard_normal((13, 29))
    return {"x": x}, {"y": np.roll(x.sum(1), -1)}


def mistakes(program: tuple[Kernel, ...]) -> tuple[str | None, str | None]:
    """What the meaning of Tile IR and checked mode find."""
    inputs, wanted = data()
    return difference(program, inputs, wanted, range(4)), fault(program, inputs, wanted, MACHINE)


@pytest.mark.parametrize("text", [RAGGED, RING, AT_ONCE])
def test_a_fetch_and_its_put_are_a_copy(text: str) -> None:
    program = read(text)
    assert read_program(print_program(program))[1] == program
    assert verify.problems(program[0]) == ()
    assert mistakes(program) == (None, None)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (RAGGED, "            Sync()\n            s = Put()", "            s = Put()"),
        (RAGGED, "        for k in 0..4 serial:\n            Sync()", "        for k in 0..4 serial:"),
        (RING, "            Sync()\n", ""),
        (RING, "slot=(k + 1) % 2", "slot=k % 2"),
        (AT_ONCE, "            s = Put()\n            Sync()", "            Sync()\n            s = Put()"),
    ],
    ids=["overwritten while read", "read before it is put", "no barrier at all", "the slot in use", "put behind it"],
)
def test_a_put_is_a_write(text: str, old: str, new: str) -> None:
    assert old in text
    meaning, emitted = mistakes(read(text.replace(old, new)))
    assert meaning is not None and ("race" in meaning or "uninitialised" in meaning)
    assert emitted is not None


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("            s = Put()\n", "", "`s` is fetched and not put"),
        ("            s = Put()\n", "            s = Put()\n            s = Put()\n", "nothing was fetched for `s`"),
        ("            s = Put()\n", "            if t < 5:\n                s = Put()\n", "Put in divergent control flow"),
        ("            s = Put()\n", "            for n in 0..1 serial:\n                s = Put()\n", "not put in this block"),
        ("            for c in", "            s = Stage(x, origin=(0, 0), slab=(i:13@0, c:8@1), via=FETCH)\n"
         "            for c in", "`s` is fetched again before its Put"),
        ("when=k + 1 < 4)", "when=sum < 4)", "no matter of axes and loops"),
        ("when=k + 1 < 4)", "when=t < 4)", "predicate varies by thread"),
        ("c:8@1), via=FETCH", "c:8@1), pad=1, via=FETCH", "two layouts"),
    ],
)  # fmt: skip
def test_what_is_refused(old: str, new: str, what: str) -> None:
    assert old in RAGGED
    assert any(what in problem for problem in verify.problems(read(RAGGED.replace(old, new))[0]))


def test_loads_stand_at_the_fetch() -> None:
    """And stores at the Put: what is between them hides the loads' latency."""
    text = generate(read(RAGGED)[0], MACHINE).text
    turn = text[text.index("int k = 0") :]
    assert turn.index("ldg_early") < turn.index("sum +=") < turn.index("sts32")


def test_registers_of_a_chunk_are_counted() -> None:
    """13 threads copy 13 rows of 8 elements."""
    fetched, copied = read(RAGGED)[0], read(RAGGED.replace("via=FETCH", "via=SYNC"))[0]
    counts = [
        registers(SimpleNamespace(kernel=kernel, target=MACHINE), kernel.body[0].axes, kernel.body)
        for kernel in (fetched, copied)
    ]
    assert counts[0] - counts[1] == 8


PRIMES = Nest(matmul(61, 53, 67), lambda x, w: {"y": x @ w})
TRANSPOSED = Nest(matmul(61, 53, 67, True), lambda x, w: {"y": x @ w.T})


def prefetched(nest: Nest, without: tuple[str, ...], rules: Engine) -> tuple[Kernel, ...]:
    """The default schedule without some passes, and with register prefetch wherever it is legal."""
    program = nest.kernels
    for step in steps():
        if step.label in without:
            continue
        if step.label == "register_prefetch":
            while found := list(choices(rules, step, program, MACHINE)):
                program = found[0].apply()
        program = rules.fire(step, program, MACHINE)
    return program


@pytest.mark.parametrize("nest", [PRIMES, TRANSPOSED], ids=["nn", "nt"])
@pytest.mark.parametrize("without", [("double_buffer",), ("async_copy",)], ids=["one slot", "a ring"])
@pytest.mark.sampled(2)
def test_a_product_of_prime_extents(nest: Nest, without: tuple[str, ...]) -> None:
    program = prefetched(nest, without, engine())
    loops = [loop for loop in nodes(program, For) if any(isinstance(stmt, Put) for stmt in loop.body)]
    fetched = [stmt for loop in loops for stmt in loop.body if isinstance(stmt, Stage) and stmt.via == "FETCH"]
    assert len(loops) == 1 and len(fetched) == 2
    inputs = nest.inputs()
    wanted = {name: np.asarray(value) for name, value in nest.meaning(**inputs).items()}
    assert difference(program, inputs, wanted) is None
    assert fault(program, inputs, wanted, MACHINE) is None


def test_a_lost_barrier_is_noticed() -> None:
    """Without the barrier that ends a turn of `stage_inputs`, a Put overwrites what others still read."""
    broken = Engine(rule_files({"stage_inputs": (
        "for f in which where lies_in(i, f, body, axes, site)\n                Sync()\n",
        "for f in which where lies_in(i, f, body, axes, site)\n")}))  # fmt: skip
    program = prefetched(PRIMES, ("double_buffer",), broken)
    inputs = PRIMES.inputs()
    wanted = {name: np.asarray(value) for name, value in PRIMES.meaning(**inputs).items()}
    assert "race" in (difference(program, inputs, wanted, range(4)) or "")
    assert fault(program, inputs, wanted, MACHINE) is not None
