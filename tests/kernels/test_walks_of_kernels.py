"""Facts, verifiers and counts of kernels visit each shared expression of a statement a bounded number of times."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from growing import DEPTH, GROWTH, MOST, calls_of, grown

from dplc.codegen.target import target
from dplc.engine.cost import instruction_counts, limits
from dplc.engine.language.check import load_facts
from dplc.engine.language.evaluate import FACTS, Fact
from dplc.engine.rewrite.statements.site import Site
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Var
from dplc.ir.facts import dataflow, layout, structure, warp_accesses
from dplc.ir.loop import For, If, Load
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.substitute import substitute
from dplc.ir.text.programs import read_program
from dplc.ir.tile import Stage
from dplc.ir.verify import kernel as code, loop, sorts, tile

load_facts()
TARGET = target("sm_80")
UNANSWERED = {  # facts of kernels or lists that these arguments are not
    "reads", "zero", "float_values", "join_dims", "join_places", "footprints", "blocks_alike",
    "seconds_of", "folded", "stays_inside",
}  # fmt: skip
NAMES = ("fresh",)  # whose arguments are names
CACHED = 5000  # calls at most of what an equal kernel of an earlier test has cached
SQUARES, SQUARE = ("periods",), 5  # looks below each quotient at all quotients
TEXT = """
kernel example(x: f32[64, 64], w: f32[64, 64]) -> y: f32[64]:
    Tile(b:8=BLOCK, i:8=THREAD):
        for ko in 0..8 reduce:
            xs = Stage(x, origin=(b*8, ko*8), box=(i:8@0, k:8@1))
            Sync()
            for k in 0..8 reduce:
                a = load xs[i, place]
                if place < 3:
                    c = load w[place, k]
                    p = multiply(value, c)
                    acc <- add(acc, p)
            Sync()
        e = exp(acc)
        y[b*8 + i] = e
"""

LOOPS = """
kernel example(x: f32[64, 64], w: f32[64, 64]) -> y: f32[64]:
    for i in 0..64 free:
        for k in 0..8 reduce:
            a = load x[i, place]
            if place < 3:
                c = load w[place, k]
                p = multiply(value, c)
                acc <- add(acc, p)
        y[i] = acc
"""
CODE = """
kernel example(x: f32[64]) -> y: f32[64]:
    Launch(grid=(2, 1, 1), block=32):
        a = Registers(f32)
        LoadFrom(a, f32, Address(x, offset=place))
        StoreTo(f32, Address(y, offset=block_x*32 + place), values=(value))
"""


def example(depth: int, text: str = TEXT) -> Kernel:
    """Return a kernel that reads at an index, below a condition and of a value of this depth."""
    (kernel,) = read_program(text.strip(), sizes=None)[1]
    counter = Var("thread" if text is CODE else "k")
    shared = {"place": grown("quotients", counter, depth), "value": grown("calls", Var("a"), depth)}
    return substitute(kernel, shared)


def arguments(fact: Fact, kernel: Kernel, name: str, copies: bool) -> list[Any]:
    """Return the site and arguments of the sorts of a fact.

    name: for each argument that is one. copies: for statements, whether they are copies to shared memory, else loads.
    """
    (block,), path = kernel.body, (0, 0, 0)
    loop_ko, *_ = block.body
    inner = next(s for s in loop_ko.body if isinstance(s, For))
    loads, stage = tuple(nodes(kernel, Load)), next(nodes(kernel, Stage))
    (condition,) = (s.cond for s in nodes(kernel, If))
    given: dict[str, Any] = {
        "run": inner.body, "name": Var(name), "int": 4, "num": 2.0, "bool": True, "text": "add", "dtype": "f32", "fn": "add",
        "expr": condition, "axis": block.axes[1], "stmt": stage if copies else loads[0], "[stmt]": (stage,) if copies else loads,
        "[axis]": block.axes, "[expr]": loads[0].idx, "[name]": (Var("i"), Var(name)), "[int]": (4, 8),
        "[any]": (loads[0].idx[1], condition), "any": loads[0].idx[1],
    }  # fmt: skip
    sorts = [sort.rstrip("*?") for sort in fact.arguments]
    return [Site((kernel,), path, TARGET)] * fact.sited + [given[sort] for sort in sorts]


OF_KERNELS: dict[str, Callable[[Kernel], Any]] = {
    "problems of the level tile": tile.problems,
    "problems of sorts": lambda kernel: list(sorts.sort_problems(kernel)),
    "bytes of buffers": instruction_counts.buffer_bytes,
    "dtypes of values": structure.value_dtypes,
    "scopes of accumulators": structure.accumulator_scopes,
    "ranges of names": layout.ranges_of,
    "bytes of shared memory": layout.all_shared_tile_bytes,
    "bank cycles": lambda kernel: warp_accesses.bank_cycles(kernel, kernel.body),
    "bytes of exchanges": warp_accesses.exchange_bytes,
    "accumulators": lambda kernel: structure.accumulators(kernel.body),
    "uses": lambda kernel: structure.uses(kernel.body),
    "variation": lambda kernel: structure.variation({"i"}, kernel.body),
    "dependencies": lambda kernel: structure.dependencies({"a"}, kernel.body),
    "places of a reduction": dataflow.places_of_fold,
}
OF_CODE: dict[str, Callable[[Kernel], Any]] = {
    "problems of the level kernel": code.problems,
    "instruction counts": instruction_counts.instruction_counts,
}
OF_LOOPS: dict[str, Callable[[Kernel], Any]] = {
    "problems of the level loop": loop.problems,
    "least seconds of loops": lambda kernel: limits.least_seconds(kernel, TARGET),
}


@pytest.mark.parametrize("name", [*OF_KERNELS, *OF_LOOPS, *OF_CODE])
def test_twice_the_levels_in_a_kernel_take_at_most_thrice_the_calls(name: str) -> None:
    found = ((OF_KERNELS, TEXT), (OF_LOOPS, LOOPS), (OF_CODE, CODE))
    ((function, text),) = [(table[name], text) for table, text in found if name in table]
    function(example(1, text))
    calls = calls_of(functools.partial(function, example(DEPTH, text)), MOST)
    assert calls_of(functools.partial(function, example(2 * DEPTH, text)), MOST) <= GROWTH * calls + CACHED


# Sorts of arguments that no kernel holds: `AtomRecord` and other records, contexts and monoids.
GIVEN = {
    name: fact
    for (level, name), fact in FACTS.items()
    if level == "tile"
    and name not in NAMES
    and not {"record", "[record]", "context", "monoid"} & {sort.rstrip("*?") for sort in fact.arguments}
}
REFUSALS = (DplcError, AttributeError, KeyError, StopIteration, TypeError, ValueError, AssertionError, IndexError)


def asked(fact: Fact, *given: Any) -> bool:
    """Return whether a fact answers; another kind of argument is an error of a rule, which its check finds."""
    try:
        fact.ask(*given)
    except REFUSALS:
        return False
    return True


@pytest.mark.parametrize("name", GIVEN)
def test_facts_of_twice_the_levels_take_at_most_thrice_the_calls(name: str) -> None:
    fact, answered = GIVEN[name], False
    for variable, copies in (("k", False), ("p", True)):
        few, many = (arguments(fact, example(depth), variable, copies) for depth in (DEPTH, 2 * DEPTH))
        asked(fact, *arguments(fact, example(1), variable, copies))  # reads the policy
        calls = calls_of(functools.partial(asked, fact, *few), MOST)
        most = SQUARE if name in SQUARES else GROWTH
        assert calls_of(functools.partial(asked, fact, *many), MOST) <= most * calls + CACHED
        answered |= asked(fact, *few)
    assert answered or name in UNANSWERED
