"""The prototype's tile rules through the engine, and the traps of LANGUAGE section 13 that concern it."""

from pathlib import Path

import prototype_facts
import pytest
from trial import TARGET, block, plain, text

from dplc.engine.match.choices import choices
from dplc.engine.match.driver import Engine
from dplc.engine.match.examples import run_examples
from dplc.engine.match.trace import Trace
from dplc.engine.match.wellformed import wellformed
from dplc.engine.rw.facts import FACTS, fact
from dplc.engine.rw.rule import RuleSet, read_rules
from dplc.ir.diagnostic import Source
from dplc.ir.text.print import print_program
from dplc.ir.text.read import read_program

FILE = Path(__file__).with_name("prototype.rw")


@pytest.fixture
def made():
    before = dict(FACTS)
    for level, name in before:  # facts of their own instead of the compiler's
        if name in prototype_facts.TABLE:
            del FACTS[level, name]
    for name, ask in prototype_facts.TABLE.items():
        fact(prototype_facts.signature(name), levels="module loop tile kernel")(ask)
    yield Engine(RuleSet([read_rules(Source("prototype.rw", FILE.read_text()))]), check=True)
    FACTS.clear()
    FACTS.update(before)


MATMUL = """
kernel mm(X: f32[{m}, {k}], W: f32[{k}, {n}]) -> Y: f32[{m}, {n}]:
    for i in 0..{m} free:
        for j in 0..{n} free:
            for k in 0..{k} reduce:
                a = load X[i, k]
                w = load W[k, j]
                p = multiply(a, w)
                acc <- add(acc, p)
            r = relu(acc)
            Y[i, j] = r
"""
RULES = [
    "tileify", "tileify_chain", "chunk_matmul_k", "blockify_launch", "stage_inputs", "register_tile", "double_buffer",
    "async_copy", "pipeline_k_outer",
]  # fmt: skip


def run(made, program, *steps):
    for name, parameters in steps:
        program = made.fire(name, program, TARGET, parameters)
    return program


def matmul(made, m, k, n, *names, **pins):
    program = read_program(MATMUL.format(m=m, k=k, n=n))[1]
    for name in names:
        parameters = {p: v for p, v in pins.items() if p in made.rule(name).parameters}
        program = made.fire(name, program, TARGET, parameters)
    return program


def test_every_rule_compiles_in_both_variants(made):
    for name in made.rules.rules:
        rule = made.rule(name)
        assert rule.pattern and rule.reporting and rule.decisions and rule.template


def test_the_examples_pass(made):
    count, failures = run_examples(made)
    assert count == 11 and [f.render() for f in failures] == []


def test_a_ragged_matmul_goes_through_the_whole_pipeline(made):
    program = matmul(made, 17, 33, 65, *RULES, BM=16, BN=32, N=3)
    assert print_program(program).rstrip() == EXPECTED.strip()
    assert read_program(print_program(program))[1] == program  # identical, not only equal: nodes are interned
    assert all(a is b for a, b in zip(read_program(print_program(program))[1], program, strict=True))
    assert wellformed(program[0]) is None


EXPECTED = """
kernel mm(X: f32[17, 33], W: f32[33, 65]) -> Y: f32[17, 65]:
    Tile(i_o:2=BLOCK, j_o:3=BLOCK, i:4=THREAD, j:8=THREAD, i_r:4=REG, j_r:4=REG):
        X_smem = Stage(X, origin=(i_o*16, 0), slab=(i:16@0, k:16@1), depth=3, via=ASYNC)
        W_smem = Stage(W, origin=(0, j_o*32), slab=(k:16@0, j:32@1), depth=3, via=ASYNC)
        X_smem = Stage(X, origin=(i_o*16, 16), slab=(i:16@0, k:16@1), depth=3, slot=1, via=ASYNC)
        W_smem = Stage(W, origin=(16, j_o*32), slab=(k:16@0, j:32@1), depth=3, slot=1, via=ASYNC)
        for k_o in 0..1 serial:
            Wait(keep=2)
            Sync()
            X_smem = Stage(X, origin=(i_o*16, k_o*16 + 32), slab=(i:16@0, k:16@1), depth=3, slot=(k_o + 2) % 3, \
via=ASYNC)
            W_smem = Stage(W, origin=(k_o*16 + 32, j_o*32), slab=(k:16@0, j:32@1), depth=3, slot=(k_o + 2) % 3, \
via=ASYNC)
            if i_o*16 + i*4 + i_r < 17:
                if j_o*32 + j*4 + j_r < 65:
                    for k in 0..16 reduce:
                        a = load X_smem[k_o % 3, i*4 + i_r, k]
                        w = load W_smem[k_o % 3, k, j*4 + j_r]
                        p = multiply(a, w)
                        acc <- add(acc, p)
        Wait(keep=2)
        Sync()
        if i_o*16 + i*4 + i_r < 17:
            if j_o*32 + j*4 + j_r < 65:
                for k in 0..16 reduce:
                    a = load X_smem[1, i*4 + i_r, k]
                    w = load W_smem[1, k, j*4 + j_r]
                    p = multiply(a, w)
                    acc <- add(acc, p)
        Wait()
        Sync()
        if i_o*16 + i*4 + i_r < 17:
            if j_o*32 + j*4 + j_r < 65:
                for k in 0..16 reduce:
                    if k + 32 < 33:
                        a = load X_smem[2, i*4 + i_r, k]
                        w = load W_smem[2, k, j*4 + j_r]
                        p = multiply(a, w)
                        acc <- add(acc, p)
        if i_o*16 + i*4 + i_r < 17:
            if j_o*32 + j*4 + j_r < 65:
                r = relu(acc)
                Y[i_o*16 + i*4 + i_r, j_o*32 + j*4 + j_r] = r
"""


def test_split_k_makes_a_second_kernel_that_later_passes_reach_too(made):
    """Trap 9: once per kernel, not once per program."""
    names = ["tileify", "tileify_chain", "chunk_matmul_k", "split_matmul_k"]
    program = matmul(made, 64, 64, 64, *names, S=2)
    assert [kernel.name for kernel in program] == ["mm_partial", "mm"]
    assert [p.name for p in program[1].ins] == ["X", "W", "part"]
    blocked = made.fire("005", program, TARGET) if "005" in made.rules.passes else program
    for name in ("blockify_launch", "blockify_flat"):
        blocked = made.fire(name, blocked, TARGET)
    assert all(axis.role in ("BLOCK", "THREAD") for kernel in blocked for axis in kernel.body[0].axes)
    assert wellformed(blocked[0]) is None and wellformed(blocked[1]) is None


def test_trap_1_a_stride_is_not_dropped_silently(made):
    strided = (
        "for k in 0..33 by 2 reduce:\n    a = load A[k]\n    b = load B[k]\n"
        "    p = multiply(a, b)\n    acc <- add(acc, p)"
    )
    assert text(made.fire("chunk_matmul_k", block(strided), TARGET)) == strided


def test_trap_4_a_slab_label_is_its_own(made):
    program = (
        "Tile(i:16=THREAD, j:16=THREAD):\n    As = Stage(A, origin=(0), slab=(i:16@0))\n"
        "    for k in 0..8 reduce:\n        a = load As[i]\n        b = load A[k]\n"
        "        c = load B[k]\n        acc <- add(acc, a)"
    )
    out = text(made.fire("register_tile", block(program), TARGET, {"FM": 2, "FN": 2}))
    assert "slab=(i:16@0)" in out and "load As[i*2 + i_r]" in out


def test_trap_5_an_affine_form_is_found_inside_a_sum(made):
    program = matmul(made, 64, 64, 64, *RULES[:-3])
    out = print_program(program)
    assert "i_o*64 + i*4 + i_r" in out


def test_trap_11_peeled_copies_rename_values_but_not_accumulators(made):
    flat = (
        "for k in 0..4 serial:\n"
        "    As = Stage(A, origin=(k*16), slab=(t:16@0), depth=2, slot=k % 2, via=ASYNC)\n"
        "    Wait()\n    Sync()\n    a = load As[k % 2, t]\n    acc <- add(acc, a)"
    )
    out = text(made.fire("pipeline_k_outer", block(flat), TARGET))
    assert out.count("acc <- add(acc, a)") == 2 and wellformed(block(out)[0]) is None


def test_trap_13_a_recorded_choice_names_its_site(made):
    program = block(
        "for i in 0..4 serial:\n    Sync()\n    for j in 0..8 reduce:\n"
        "        a = load A[j]\n        b = load B[j]\n        acc <- add(acc, a)\n"
        "for l in 0..8 reduce:\n    a = load A[l]\n    b = load B[l]\n    acc <- add(acc, a)"
    )
    keys = [c.key for c in choices(made, "chunk_matmul_k", program, TARGET)]
    assert keys == ["chunk_matmul_k@0/1(BK=2)", "chunk_matmul_k@0/1(BK=4)"]


def test_trap_14_a_lone_name_in_a_list_of_a_program_is_an_element(made):
    program = block("Combine(acc, add, over=[t])")
    assert len(program[0].body[0].over) == 1
    assert plain("Combine(acc, add, over=(t))") == text(program)


def test_a_trace_of_the_pipeline_names_every_pass(made):
    trace = Trace()
    program = read_program(MATMUL.format(m=17, k=33, n=65))[1]
    for name in RULES:
        program = made.fire(name, program, TARGET, trace=trace)
    rendered = trace.render(2)
    assert all(f">>> t:{name}\n" in rendered for name in RULES[:4])
    assert rendered.count(">>> ") == rendered.count("<<< ") == len(trace.firings)
    assert all(skip.line().startswith("--- t:") and " skipped at mm: " in skip.line() for skip in trace.skips)
