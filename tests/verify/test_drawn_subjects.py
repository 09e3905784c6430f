"""What checks draw: every kind of body, functions with as many operands as the pattern has, programs next to an example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplc.engine.language.rule import Rule, load
from dplc.engine.verify.drawing import Instance, TermInstance
from dplc.engine.verify.outcome import PlainDice
from dplc.engine.verify.torch_subjects import NoSubject, from_schema, retyped, scaled
from dplc.engine.verify.whole_programs import Meaning, completed, difference, observed
from dplc.ir.expr import Var
from dplc.ir.functions import FUNCTIONS
from dplc.ir.loop import For, Store
from dplc.ir.node import nodes
from dplc.ir.tensor import Elementwise, postorder
from dplc.ir.text.programs import read_program
from dplc.ir.tile import Tile

LOOPS = """
rule exchanged on loop
match
    for i in 0..M free:
        for j in 0..N free:
            body..
rewrite
    for j in 0..N free:
        for i in 0..M free:
            body..
"""
ONE_OPERAND = """
rule applied on tensor
match
    y = fn(exp(x))
rewrite
    y = exp(x)
"""
CAT = """## level: torch
graph f(x: f32[4, 6], z: f32[4, 6]) -> y: f32[8, 6]:
    y: f32[8, 6] = Cat(tensors=(x, z), dim=0)
"""


def rule(folder: Path, text: str) -> Rule:
    path = folder / "mine.rw"
    path.write_text(text)
    return load([path]).rule(text.split("rule ", 1)[1].split()[0])


def test_between_two_axes_stand_sums_rows_and_values_of_elements(tmp_path: Path) -> None:
    """Each of them alone, too: a rule that is wrong for one of them must not always meet it beside another."""
    text, found = rule(tmp_path, LOOPS), set()
    for seed in range(60):
        (kernel,) = Instance(text, PlainDice(seed)).program()
        found.add(frozenset(loop.role for loop in nodes(kernel.body, For) if loop.var not in ("i", "j")))
    assert found >= {frozenset(), frozenset({"free"}), frozenset({"reduce"})}


SUMS = """
rule turned on loop
match
    for k in 0..K reduce:
        body..
rewrite
    for k in 0..K reduce:
        body..
"""


def test_within_a_sum_stand_sums_alone(tmp_path: Path) -> None:
    """A row would be stored once in every turn."""
    text = rule(tmp_path, SUMS)
    for seed in range(60):
        (kernel,) = Instance(text, PlainDice(seed)).program()
        (loop,) = (loop for loop in nodes(kernel.body, For) if loop.var == "k")
        assert {inner.role for inner in nodes(loop.body, For)} <= {"reduce"}


def test_a_function_has_as_many_operands_as_its_pattern(tmp_path: Path) -> None:
    text = rule(tmp_path, ONE_OPERAND)
    instances = [TermInstance(text, PlainDice(seed)) for seed in range(30)]
    assert all(one.graph() for one in instances)
    drawn = {str(one.values["fn"]) for one in instances}
    assert len(drawn) > 4 and {FUNCTIONS[fn].arity for fn in drawn} == {1}


READ = """
rule read_further on tensor
match
    e = exp(x)
    y = relu(e[i + 1])
rewrite
    y = e[i + 1]
"""


def test_what_a_pattern_reads_at_places_is_what_it_computes(tmp_path: Path) -> None:
    """No input of the name of a value that the pattern says: the rule would never meet it."""
    text = rule(tmp_path, READ)
    for seed in range(20):
        graph = TermInstance(text, PlainDice(seed)).graph()
        assert "e" not in {one.name for one in graph.ins}
        assert any(
            isinstance(term, Elementwise) and term.fn == "exp" for term in postorder(o.value for o in graph.outs)
        )


def test_an_op_without_a_schema_has_no_subject() -> None:
    for op in ("NoSuchOp", "Getitem"):
        with pytest.raises(NoSubject):
            from_schema(op, {}, PlainDice(0))


def test_a_gradient_of_another_batch_is_not_run() -> None:
    """PyTorch writes it beyond the input's: a day's draw ended in `free(): corrupted unsorted chunks`."""
    text = """## level: torch
graph f(g: f32[4, 2, 3, 5], x: f32[3, 2, 5, 8]) -> y: f32[3, 2, 5, 8]:
    y: f32[3, 2, 5, 8] = AvgPool2dBackward(g, x, kernel_size=(3, 2), stride=(2, 2), padding=(1, 1), ceil_mode=false, count_include_pad=true, divisor_override=none)
"""
    (graph,) = read_program(text)[1]
    with pytest.raises(NoSubject, match="another batch"):
        retyped(graph)  # type: ignore[arg-type]
    (graph,) = read_program(text.replace("f32[4, 2, 3, 5]", "f32[3, 2, 3, 5]"))[1]
    assert retyped(graph) == graph  # type: ignore[arg-type]


def test_an_op_of_several_results_is_run() -> None:
    text = """## level: torch
graph f(x: f32[4]) -> y: i64[4]:
    c: (f32[4], i64[4]) = Sort(x)
    y: i64[4] = Getitem(c, index=1)
"""
    (graph,) = read_program(text)[1]
    assert retyped(graph) == graph  # type: ignore[arg-type]


def test_a_list_of_tensors_is_no_list_of_numbers() -> None:
    (graph,) = read_program(CAT)[1]
    made: Any = [scaled(graph, PlainDice(seed)) for seed in range(8)]  # type: ignore[arg-type]
    assert {dict(one.body[0].args)["tensors"] for one in made} == {(Var("x"), Var("z"))}
    assert len({one.ins[0].shape for one in made}) > 2


def test_a_thread_more_than_a_shared_tile_has_cells_is_none() -> None:
    """The threads of a fragment are as many as its shared tile has places for: here every other one, from the second on."""
    text = """## level: tile
kernel f(x: f32[8]) -> y: f32[4]:
    s = Stage(x, origin=(0), box=(a:8@0))
    Sync()
    v = load s[2*t + 1]
    y[t] = v
"""
    (kernel,) = completed(read_program(text)[1])  # type: ignore[arg-type]
    (tile,) = nodes(kernel.body, Tile)
    assert [(axis.name, axis.extent) for axis in tile.axes] == [("t", 4)]


def test_the_last_bits_of_floats_may_differ_and_of_integers_nothing() -> None:
    """An order of threads is another order of a sum; whole numbers come to the same in any."""
    one = {"y": np.ones(3, np.int64)}

    def said(a: Any, b: Any) -> bool:
        return difference(Meaning({"y": np.array(a)}, one), Meaning({"y": np.array(b)}, one)) is not None

    near, far = 1.0 + 1e-13, 1.0 + 1e-10
    assert not said([1.0, 2.0, 3.0], [near, 2.0, 3.0]) and said([1.0, 2.0, 3.0], [far, 2.0, 3.0])
    large = 10**15
    assert said([large, 2, 3], [large + 1, 2, 3])


TURNS = """## level: loop
kernel f(x: f32[4, 6]) -> y: f32[4]:
    for i in 0..4 {outer}:
        for j in 0..6 {inner}:
            v = load x[i, j]
            acc <- add(acc, v)
"""


@pytest.mark.parametrize(("outer", "inner", "deep", "depth"), [
    ("free", "reduce", False, 1), ("free", "reduce", True, 1), ("free", "serial", False, 1), ("free", "serial", True, 2),
    ("reduce", "reduce", False, 0), ("serial", "reduce", False, 0), ("serial", "reduce", True, 1), ("reduce", "serial", True, 0),
])  # fmt: skip
def test_a_sum_shows_behind_the_loops_that_make_it(outer: str, inner: str, deep: bool, depth: int) -> None:
    """depth: of the loops around the store. Deep, a loop in turns starts the sum anew in each."""
    (kernel,) = read_program(TURNS.format(outer=outer, inner=inner))[1]
    body: Any = observed(kernel, deep)  # type: ignore[arg-type]
    found = 0
    while not any(isinstance(statement, Store) for statement in body):
        (body,) = (statement.body for statement in body if isinstance(statement, For))
        found += 1
    assert found == depth


def test_the_labels_of_a_gathered_copy_are_its_own() -> None:
    """No name that a program would have to define elsewhere: as loops say `k // 3` of places, so does an origin."""
    text = """## level: tile
kernel f(x: f32[4, 8]) -> y: f32[6]:
    Tile(t:6=THREAD):
        x_smem = Stage(x, origin=(k_at // 3, k_at % 3), box=[k_at:6])
        Sync()
        a = load x_smem[t]
        y[t] = a
"""
    whole = completed(read_program(text, "test")[1])  # type: ignore[arg-type]
    assert [param.name for kernel in whole for param in kernel.ins] == ["x"]
    assert [axis.name for tile in nodes(whole[0].body, Tile) for axis in tile.axes] == ["t"]
