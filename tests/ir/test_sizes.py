"""Sizes: numbers that are known at launch, declared in the head of a unit of any IR, bound, and judged for all values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.programs import VERIFIERS, compile_dump, read_dump, reference_of
from dplc.engine.compiler import compiler_with
from dplc.engine.language.typed_slots import shape_of
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.expr import Axis, Size, Var, add, floordiv, modulo, multiply, only_sizes, subtract
from dplc.ir.program import LEVELS
from dplc.ir.ranges import interval
from dplc.ir.substitute import with_sizes
from dplc.ir.tensor import Elementwise, Input
from dplc.ir.text.parse import parse
from dplc.ir.text.print_statements import print_expr
from dplc.ir.text.programs import print_program, read_program, sizes_of
from dplc.ir.verify import tensor as tensor_rules

ROWS = "F.rms_norm(torch.randn(37, 96), (96,), torch.randn(96))"
SIZE = Size("s", 1, 4096, 1, 512)
PROGRAMS = {
    "rows": ROWS,
    "elements": "torch.tanh(torch.randn(37, 300) * torch.randn(300))",
    "rows of softmax": "torch.softmax(torch.randn(37, 64), -1)",
}
MACHINE = target("sm_90a")


def symbolic(text: str, number: int = 37, declared: str = "s: 1..4096 hint 512") -> str:
    """A dump in which a number that stands nowhere else is a size."""
    text = re.sub(rf"\b{number}\b", "s", text)
    return re.sub(r"^((?:kernel|graph) \w+\()", rf"\g<1>{declared}, ", text, flags=re.MULTILINE)


def dump(program: str, level: str) -> str:
    return compiler_with(MACHINE).compile(capture_text(program, 0)).ir(level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_size_is_printed_and_read_and_bound_on_every_level(program: str, level: str) -> None:
    static = dump(PROGRAMS[program], level)
    text = symbolic(static)
    assert list(sizes_of(text)) == ["s"] and sizes_of(text)["s"] is SIZE
    _, units = read_program(text, sizes=None)
    assert print_program(units, level) == text
    assert all(a is b for a, b in zip(read_program(print_program(units, level), sizes=None)[1], units, strict=True))
    bound = read_program(text, sizes={"s": 37})[1]  # as if somebody had written the number
    assert all(a is b for a, b in zip(bound, read_program(static)[1], strict=True))


def problems(text: str, level: str) -> list[str]:
    (unit,) = read_program(text, sizes=None)[1]
    return [*(tensor_rules.check(unit) if level == "tensor" else VERIFIERS[level](unit))]  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["tensor", "loop", "tile"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_verifiers_judge_all_bindings_at_once(program: str, level: str) -> None:
    assert problems(symbolic(dump(PROGRAMS[program], level)), level) == []


READS = {
    "tensor": "graph f(s: 1..99, x: f32[x_0:s]) -> y: f32[s]:\n    y[i:s] = exp(x[{}])\n",
    "loop": "kernel f(s: 1..99, x: f32[s]) -> y: f32[s]:\n    for i in 0..s free:\n        a = load x[{}]\n        y[i] = a\n",
    "tile": "kernel f(s: 1..99, x: f32[s, 32]) -> y: f32[s, 32]:\n    Tile(i:s=BLOCK, t:32=THREAD):\n"
    "        a = load x[{}, t]\n        y[i, t] = a\n",
}


@pytest.mark.parametrize(
    ("level", "index", "right"),
    [
        ("tensor", "i", True), ("tensor", "i + 1", False), ("tensor", "s - 1 - i", True), ("tensor", "s - i", False),
        ("loop", "i", True), ("loop", "i + 1", False), ("loop", "s - 1 - i", True),
        ("tile", "i", True), ("tile", "s - 1 - i", True), ("tile", "i + 1", False),
    ],
)  # fmt: skip
def test_an_index_that_leaves_what_a_size_says_is_found(level: str, index: str, right: bool) -> None:
    assert (problems(READS[level].format(index), level) == []) is right


@pytest.mark.parametrize("level", ["torch", "tensor", "loop", "tile", "kernel"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.sampled(8)
def test_one_text_is_right_at_many_lengths(tmp_path: Path, program: str, level: str) -> None:
    """From Tile IR on it is one schedule for all of them."""
    path = tmp_path / "program.ir"
    path.write_text(symbolic(dump(PROGRAMS[program], level)))
    for length in (1, 2, 31, 64, 201):
        found = read_dump(path, {"s": length})
        made = compile_dump(found, compiler_with(MACHINE), 0)
        tensors = made.captured.tensors
        results = Compiled(made, "emulator").run({})
        assert judge(results, reference_of(found, tensors)).ok, (length, made.cuda)


def test_intervals_hold_at_every_binding() -> None:
    few = Size("n", 4, 24, 4, 8)
    forms = [
        add(few, 3), subtract(100, few), multiply(few, 5), multiply(few, few), floordiv(add(few, 63), 64),
        floordiv(few, 3), modulo(few, 7), subtract(multiply(few, 3), floordiv(few, 4)),
    ]  # fmt: skip
    for form in forms:
        low, high = interval(form, {})
        values = [value_at(form, {"n": n}) for n in range(4, 25, 4)]
        assert only_sizes(form) and low <= min(values) and max(values) <= high


def value_at(form: object, values: Mapping[str, int]) -> int:
    text = f"kernel f(n: 4..24 by 4 hint 8, x: f32[99]) -> y: f32[99]:\n    y[{print_expr(form)}] = 1.0\n"
    found = read_program(text, sizes=values)[1][0].body[0].idx[0]  # type: ignore[attr-defined]
    assert isinstance(found, int)
    return found


HEAD = "kernel f({}, x: f32[s, 4]) -> y: f32[s]:\n    for i in 0..s free:\n        a = load x[i, 0]\n        y[i] = a\n"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("s: 0..4", "goes from 1 or more"),
        ("s: 5..4", "goes from 1 or more"),
        ("s: 5..7 by 4", "no number of 5..7 is a multiple of 4"),
        ("s: 1..8 by 4 hint 6", "the hint of `s` is 6, which is not a multiple of 4"),
        ("s: 1..8 hint 9", "the hint of `s` is 9, which is not in 1..8"),
        ("s: 1..8, s: 1..9", "another range"),
        ("s: 1..8, s: f32[4]", "`s` is a size: nothing else can have its name"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(declared: str, said: str) -> None:
    with pytest.raises(DplcError, match=re.escape(said)):
        read_program(HEAD.format(declared), sizes=None)


@pytest.mark.parametrize(
    ("old", "new"), [("for i in", "for s in"), ("a = load", "s = load"), ("y[i] = a", "s[i] = a"), ("-> y:", "-> s:")]
)
def test_nothing_else_takes_the_name_of_a_size(old: str, new: str) -> None:
    with pytest.raises(DplcError, match="is a size"):
        read_program(HEAD.format("s: 1..8").replace(old, new), sizes=None)


def test_a_number_is_needed_and_has_to_be_one_of_the_range() -> None:
    text = HEAD.format("s: 4..512 by 4")
    with pytest.raises(DplcError, match="`s` is a size: a number is needed") as found:
        read_program(text)
    assert found.value.hint == "--size s=512"
    for value, said in ((6, "not a multiple of 4"), (516, "not in 4..512"), (0, "not in 4..512")):
        with pytest.raises(DplcError, match=re.escape(said)):
            read_program(text, sizes={"s": value})


def test_a_rule_has_no_sizes() -> None:
    head = "kernel f({}x: f32[4]) -> y: f32[4]:\n        body..\n"
    rule = f"rule one on module\nmatch\n    {head.format('s: 1..9, ')}rewrite\n    {head.format('')}"
    with pytest.raises(DplcError, match="sizes stand in the heads of programs, not of rules"):
        shape_of(parse(Source("rule", rule))[0].clauses[0].body[0])  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", ["tile", "kernel"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_kernel_is_right_at_many_lengths(tmp_path: Path, program: str, level: str) -> None:
    """From Tile IR on: one text, which takes the size behind its buffers."""
    path = tmp_path / "program.ir"
    path.write_text(symbolic(dump(PROGRAMS[program], level)))
    texts = set()
    for length in (1, 2, 31, 64, 201):
        found = read_dump(path, {"s": length})
        made = compile_dump(found, compiler_with(MACHINE), 0)
        (kernel,) = made.program.kernels
        texts.add(kernel.text)
        assert kernel.values == (length,) and length in kernel.grid
        results = Compiled(made, "emulator").run({})
        assert judge(results, reference_of(found, made.captured.tensors)).ok, (length, made.cuda)
    (text,) = texts
    assert "const int s)" in text and "grid s x 1 x 1" in text


SCHEDULES = {  # of a size that stands in guards of a ring's copies, in strides and loops, in a sum
    "a product": (
        "torch.randn(167, 256) @ torch.randn(256, 96)",
        "i_o:11=BLOCK",
        "i_o:-(-s // 16)=BLOCK",
        (1, 15, 16, 300),
    ),
    "long rows": ("torch.softmax(torch.randn(64, 167), -1)", "", "", (1, 33, 166, 192)),
    "columns": ("torch.randn(167, 64).sum(0)", "", "", (1, 166, 1000)),
}


@pytest.mark.parametrize("level", ["tile", "kernel"])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.sampled(2)
def test_schedules_with_a_size_are_right_wherever_they_reach(tmp_path: Path, name: str, level: str) -> None:
    program, old, new, lengths = SCHEDULES[name]
    path = tmp_path / "program.ir"
    text = symbolic(dump(program, "tile"), 167)
    assert old in text
    path.write_text(text.replace(old, new) if old else text)
    if level == "kernel":
        made = compile_dump(read_dump(path, {"s": 167}), compiler_with(MACHINE), 0)
        path.write_text(print_program(made.kernels, "kernel"))
    texts = set()
    for length in lengths:
        found = read_dump(path, {"s": length})
        made = compile_dump(found, compiler_with(MACHINE), 0)
        texts.add(made.cuda)
        for executor in (EmulatorExecutor(), EmulatorExecutor(checked=True)):
            arrays = {b.name: made.captured.tensors[b.name] for b in made.program.inputs}
            results = executor.run(made.program, arrays)
            values = [results[param.name] for param in made.plan.outputs]
            assert judge(values, reference_of(found, made.captured.tensors)).ok, (length, made.cuda)
    assert len(texts) == 1


def test_sizes_of_a_product_are_one_factor() -> None:
    """So a stride that is a product of sizes is one stride, in whatever order it was multiplied."""
    s, t, i = Size("s", 1, 9, 1, 4), Size("t", 1, 9, 1, 4), Var("i")
    assert multiply(multiply(i, s), t) == multiply(i, multiply(s, t)) == multiply(multiply(t, i), s)
    assert only_sizes(multiply(i, multiply(s, t)).b)


def test_values_that_many_read_are_bound_once() -> None:
    """A sum of a value with itself, sixty times: as a tree it has 2^60 places."""
    value = Input("x", (Axis("i", Size("s", 1, 64, 1, 8)),))
    for _ in range(60):
        value = Elementwise("add", (value, value))
    bound = with_sizes(value, {"s": 5})
    for _ in range(60):
        bound = bound.args[0]
    assert bound == Input("x", (Axis("i", 5),))
