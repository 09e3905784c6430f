"""Broken rules are caught: one piece of a rule's text is replaced, and some subject must notice, whatever the threads do."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from choices import choices
from emulating import fault
from nests import NESTS
from scheduling import MACHINE, difference, engine, rule_files, steps

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.materialise import materialise
from dplc.codegen.target import Target
from dplc.engine.language.pipeline import PassStep
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError
from dplc.ir.program import Kernel

MATMUL, RAGGED, ROW, NT = (
    "matmul 64x64x64",
    "relu(matmul(x + bias, w)) 17x33x65",
    "rms_norm 4x256",
    "matmul transposed 64x64x64",
)
ODD_ROW = "softmax 5x97"
TMA = ("pipeline_predicated",), ("tma_copy",)
BOXES = (), ("tma_copy",)
PEELED = ("pipeline_predicated",), ()
SWIZZLED = (), ("tma_copy", "split_inner_for_swizzle")
SLICED = (), ("slice_matmul_k",)
ODD_MATMUL, FLAT = "matmul 3x70x40", "a large pointwise kernel"

STAGED = """require in_shared_tiles(body)                    else "an unguarded load could leave its shared tile"
let loop = size(body) == 1 and size(loops(body, reduce)) > 0
require zero_product(body, c) or loop and only_staged(body) and read_under(body, c)
"""
ANYWHERE = """let loop = size(body) == 1 and size(loops(body, reduce)) > 0
require zero_product(body, c) or loop and read_under(body, c)
"""


class Mutant(NamedTuple):
    """What is broken, in which file, the text and its replacement, a subject that reaches it, passes to leave out and in."""

    what: str
    file: str
    old: str
    new: str
    subject: str
    swap: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


MUTANTS = (
    Mutant("no barrier after staging", "stage_inputs", "                Sync()\n                body.. with", "                body.. with", RAGGED, (("double_buffer",), ())),
    Mutant("no barrier before the next chunk", "stage_inputs", "site)\n                Sync()\n", "site)\n", RAGGED, (("double_buffer",), ())),
    Mutant("loads look elsewhere in the shared tile", "stage_inputs", "f.smem[local(i, f)..] for f in which where lies_in(i, f, body, axes, site)", "f.smem[i..] for f in which where lies_in(i, f, body, axes, site)", MATMUL),
    Mutant("wrong slot in the loads", "double_buffer", "load B[k % N, i..] where", "load B[(k + 1) % N, i..] where", MATMUL),
    Mutant("no barrier in the ring", "double_buffer", "slot=k % N\n        Sync()", "slot=k % N", MATMUL, (("async_copy",), ())),
    Mutant("no barrier after the wait", "async_copy", "        Wait()\n        Sync()\n        rest..\n", "        Wait()\n        rest..\n", MATMUL, (("pipeline_predicated", "pipeline_k_outer"), ())),
    Mutant("no wait", "async_copy", "        Wait()\n        Sync()\n        rest..\n", "        Sync()\n        rest..\n", MATMUL),
    Mutant("missing edge guard", "blockify_launch", "split j:N => j_o:ceildiv(N, BN)=BLOCK", "split j:N => j_o:(N + BN - 1) // BN=BLOCK", RAGGED),
    Mutant("missing edge guard, pointwise", "blockify_launch", "j_o:G*ceildiv(N, G*T)=BLOCK", "j_o:(N + T - 1) // T=BLOCK", "silu(g)*u 6x100"),
    Mutant("missing guard at the end of K", "chunk_matmul_k", "k_o:ceildiv(K, BK)=serial", "k_o:(K + BK - 1) // BK=serial", "exponentials of the end"),
    Mutant("issue before wait", "pipeline_predicated", "        Wait(keep=n*(N - 2 - late))\n        Sync()\n        stages[k := k + N - 1 - late].. with when=k + (N - 1 - late) < K\n", "        stages[k := k + N - 1 - late].. with when=k + (N - 1 - late) < K\n        Wait(keep=n*(N - 1))\n        Sync()\n", MATMUL),
    Mutant("one chunk too few waited for", "pipeline_predicated", "Wait(keep=n*(N - 2 - late))", "Wait(keep=n*(N - 1))", MATMUL),
    Mutant("a copy beyond the last chunk", "pipeline_predicated", " with when=k + (N - 1 - late) < K", "", MATMUL),
    Mutant("prologue one chunk short", "pipeline_predicated", "each j in 0..N - 1 - late:", "each j in 0..N - 2 - late:", MATMUL),
    Mutant("peeled: issue before wait", "pipeline_k_outer", "        Wait(keep=n*(N - 2))\n        Sync()\n        stages[k := k + N - 1]..\n", "        stages[k := k + N - 1]..\n        Wait(keep=n*(N - 1))\n        Sync()\n", MATMUL, PEELED),
    Mutant("peeled: one chunk too few waited for", "pipeline_k_outer", "Wait(keep=n*(N - 2))", "Wait(keep=n*(N - 1))", MATMUL, PEELED),
    Mutant("peeled: epilogue off by one", "pipeline_k_outer", "K - (N - 1) + j]", "K - N + j]", MATMUL, PEELED),
    Mutant("TMA: issue before wait", "pipeline_k_outer", "        Wait(keep=n*(N - 2))\n        Sync()\n        stages[k := k + N - 1]..\n", "        stages[k := k + N - 1]..\n        Wait(keep=n*(N - 1))\n        Sync()\n", MATMUL, TMA),
    Mutant("TMA: no wait", "tma_copy", "        Wait()\n", "", MATMUL, (("pipeline_predicated", "pipeline_k_outer"), ("tma_copy",))),
    Mutant("no Combine", "cooperative_reduce", "        each a in accumulators(body):\n            Combine(a.acc, a.fn, over=[t])\n", "", ODD_ROW),
    Mutant("every thread stores the row's result", "cooperative_reduce", ", rule guarded_store(t < 1, stores)", "", "argmax: two sweeps, i64 out"),
    Mutant("threads share out inner loops too", "cooperative_reduce", "require k in shared                              else \"an inner loop stays with one thread\"\n", "", "softmax and values: a contraction inside of a row"),
    Mutant("vectors not combined", "register_row", ", rule widen(t, q, v)", "", ROW),
    Mutant("vectors overlap", "register_row", "split k:K => q, t:T, v:V", "split k:K => q, t:T, v:1", ROW),
    Mutant("register tile forgets an axis", "register_tile", "j_r:FN=REG", "j_r:1=REG", MATMUL),
    Mutant("vectors of columns left out", "permute_register_tile", "r_q:F // V=REG", "r_q:1=REG", MATMUL),
    Mutant("rows of a short block left out", "blockify_short", "i:B=THREAD", "i:1=THREAD", "concatenation: guarded loads"),
    Mutant("rows of a block left out", "rows_per_block", "i:R=THREAD", "i:1=THREAD", "softmax 300x64"),
    Mutant("elements of vectors left out", "vector_reduce", "k:V=VEC", "k:1=VEC", MATMUL),
    Mutant("permuted rows not read alike", "permute_stage", "y % V, y % (L*V) // V, i]", "y % (L*V) // L, y % L, i]", NT),
    Mutant("guard lifted though the product is not zero", "zero_filled", "require zero_product(body, c) or", "require 0 < 1 or", "exponentials of the end"),
    Mutant("guard lifted over global loads", "zero_filled", STAGED, ANYWHERE, RAGGED, (("stage_inputs",), ())),
    Mutant("split-K leaves chunks out", "split_matmul_k", "ko:ceildiv(KO, S)=serial", "ko:1=serial", "matmul 5x24x3000"),
    Mutant("swizzled rows not read alike", "split_inner_for_swizzle", "load s.dst[z, x // w, i.., x % w]", "load s.dst[z, x % (C // w), i.., x // (C // w)]", MATMUL, SWIZZLED),
    Mutant("elements of a chunk left out", "chunk_matmul_k", "k:BK=reduce", "k:1=reduce", MATMUL),
    Mutant("a guard sinks below a value", "canonical", "    for k in 0..K role:\n        if c:\n            body..\n    if c:\n        post..", "    for k in 0..K role:\n        body..\n    if c:\n        post..", RAGGED, (("stage_inputs",), ())),
    Mutant("TMA: no barrier", "tma_copy", "        Wait()\n        Sync()\n        rest..\n", "        Wait()\n        rest..\n", MATMUL, (("pipeline_predicated", "pipeline_k_outer"), ("tma_copy",))),
    Mutant("TMA: odd rows", "tma_copy", "require box_ok(stages) ", "require 0 < 1 ", ODD_MATMUL, BOXES),
    Mutant("TMA: one chunk too few waited for", "pipeline_predicated", "Wait(keep=n*(N - 2 - late))", "Wait(keep=n*(N - 1))", MATMUL, BOXES),
    Mutant("TMA: a copy beyond the last chunk", "pipeline_predicated", " with when=k + (N - 1 - late) < K", "", MATMUL, BOXES),
    Mutant("TMA: peeled, no barrier in the steady state", "pipeline_k_outer", "        Sync()\n        stages[k := k + N - 1]", "        stages[k := k + N - 1]", MATMUL, TMA),
    Mutant("TMA: peeled, one chunk too few waited for", "pipeline_k_outer", "Wait(keep=n*(N - 2))", "Wait(keep=n*(N - 1))", MATMUL, TMA),
    Mutant("TMA: peeled, the end waits for one chunk too few", "pipeline_k_outer", "Wait(keep=n*(N - 2 - j))", "Wait(keep=n*(N - 1 - j))", MATMUL, TMA),
    Mutant("TMA: peeled, the next chunk in the slot that is read", "pipeline_k_outer", "stages[k := k + N - 1]..", "stages[k := k + N].. ", MATMUL, TMA),
    Mutant("peeled: the end does not wait", "pipeline_k_outer", "        Wait(keep=n*(N - 2 - j))\n", "", MATMUL, PEELED),
    Mutant("peeled: no barrier at the end", "pipeline_k_outer", "        Wait(keep=n*(N - 2 - j))\n        Sync()\n", "        Wait(keep=n*(N - 2 - j))\n", MATMUL, PEELED),
    Mutant("no barrier in the predicated ring", "pipeline_predicated", "        Sync()\n        stages[k := k + N - 1 - late]", "        stages[k := k + N - 1 - late]", MATMUL),
    Mutant("stale swizzle", "split_inner_for_swizzle", "c:w@d), swizzle=SW", "c:w@d), swizzle=SW // 2", MATMUL, SWIZZLED),
    Mutant("swizzled rows: spans of the wrong stride", "split_inner_for_swizzle", "(co:C // w@d by w,", "(co:C // w@d by 1,", MATMUL, SWIZZLED),
    Mutant("swizzled rows: swapped index", "split_inner_for_swizzle", "load s.dst[z, x // w, i.., x % w]", "load s.dst[z, x % (C // w), i.., x % w]", MATMUL, SWIZZLED),
    Mutant("wrong slot in the copies", "double_buffer", "slot=k % N", "slot=(k + 1) % N", MATMUL),
    Mutant("slices not combined", "slice_matmul_k", "        each a in sums:\n            Combine(a.acc, a.fn, over=[w])\n", "", MATMUL, SLICED),
    Mutant("slices leave elements out", "slice_matmul_k", "k:K // W=reduce", "k:1=reduce", MATMUL, SLICED),
    Mutant("every slice stores", "slice_matmul_k", "        if w < 1:\n            tail..", "        tail..", MATMUL, SLICED),
    Mutant("vectors of a row left out", "blockify_flat", "j_v:V=REG", "j_v:1=REG", FLAT),
    Mutant("rows of a thread left out", "rows_per_thread", "i_r:R=REG", "i_r:1=REG", "a row sum computed for each element"),
)  # fmt: skip


# What defaults choose for a small matmul reaches too little: here there are two warps, and more chunks than slots.
PINNED: dict[str, dict[str, dict[str, int]]] = {
    MATMUL: {
        "chunk_matmul_k": {"BK": 16}, "blockify_launch": {"BM": 64, "BN": 64}, "register_tile": {"FM": 8, "FN": 8},
        "double_buffer": {"N": 3},
    },
}  # fmt: skip
UNWANTED = ("slice_matmul_k", "split_rows")  # they leave too little of the subjects; mutants may ask for them


def schedule(broken: Engine, name: str, swap: Any, machine: Target) -> tuple[Kernel, ...]:
    """The default order on a nest, without some passes; what others may do they do, preferred or not."""
    program, (out, add), pinned = NESTS[name].kernels, swap, PINNED.get(name, {})
    for step in steps():
        if step.label in out or (step.label in UNWANTED and step.label not in add):
            continue
        current = replace(broken.step(step.name), parameters={**step.parameters, **pinned.get(step.label, {})})
        made = broken.fire(current, program, machine)
        program = forced(broken, current, program, machine) if made is program and step.label in add else made
    return program


def forced(broken: Engine, step: PassStep, program: tuple[Kernel, ...], machine: Target) -> tuple[Kernel, ...]:
    """A pass at every site in turn."""
    for _ in range(4):
        choice = next(reversed(list(choices(broken, step, program, machine))), None)
        program = program if choice is None else choice.apply()
    return program


def subject(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of a nest and the outputs wanted."""
    nest = NESTS[name]
    inputs = nest.inputs()
    return inputs, {buffer: np.asarray(value) for buffer, value in nest.meaning(**inputs).items()}


@functools.cache
def healthy(name: str, swap: Any) -> tuple[tuple[Kernel, ...], str | None]:
    """The schedule of unbroken rules, and what is wrong with it."""
    inputs, wanted = subject(name)
    made = schedule(engine(), name, swap, MACHINE)
    return made, difference(made, inputs, wanted, range(4)) or fault(made, inputs, wanted, MACHINE, (0,))


def caught_by(mutant: Mutant) -> str | None:
    """Who notices a broken rule first: the engine, the simulator, the meaning of Kernel IR, or checked mode."""
    broken = Engine(rule_files({mutant.file: (mutant.old, mutant.new)}))
    inputs, wanted = subject(mutant.subject)
    try:
        made = schedule(broken, mutant.subject, mutant.swap, MACHINE)
    except DplcError:
        return "engine"
    assert made != healthy(mutant.subject, mutant.swap)[0], "the subject does not reach the mutation"
    if difference(made, inputs, wanted, range(8)) is not None:
        return "simulator"
    if not lowered_alike(made, inputs, wanted):
        return "Kernel IR"
    return "checked mode" if fault(made, inputs, wanted, MACHINE) is not None else None


def lowered_alike(made: tuple[Kernel, ...], inputs: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the Kernel IR of a schedule means what is wanted."""
    try:
        lowered = tuple(materialise(kernel, MACHINE) for kernel in made)
        memory = [run_kernels(lowered, inputs, seed) for seed in range(2)]
    except DplcError:
        return False
    return all(
        np.allclose(m[name], value, rtol=1e-5, atol=1e-5, equal_nan=True)
        for m in memory
        for name, value in wanted.items()
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.what for mutant in MUTANTS])
@pytest.mark.sampled(9)
def test_a_broken_rule_is_caught(mutant: Mutant, record_property: Any) -> None:
    assert healthy(mutant.subject, mutant.swap)[1] is None
    who = caught_by(mutant)
    record_property("mutant", who or "nobody")
    assert who is not None


def test_there_are_enough() -> None:
    assert len({(mutant.file, mutant.old, mutant.new, mutant.swap) for mutant in MUTANTS}) == len(MUTANTS) >= 50
