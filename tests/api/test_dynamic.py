"""`dplc.compile(dynamic=)`: one program for every length of a range, and messages where a call or a program asks more."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamic_checks import checked, is_right, sized
from torch import nn

import dplc
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.dynamic_shapes import Extent, sizes_of_factory
from dplc.ir.diagnostic import DplcError, UsageError
from dplc.ir.expr import Size
from dplc.ir.text.programs import print_program
from dplc.ir.verify import kernel as kernel_rules
from dplc.ir.verify import loop as loop_rules
from dplc.ir.verify import tensor as tensor_rules

S = -1  # the length in a shape


class SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


HEADS = [(1, 2, S, 32)] * 3
PROGRAMS: dict[str, tuple[Any, ...]] = {  # a function and the shapes of its inputs
    "elements": (lambda x: F.gelu(x) * 2 + 1, (S, 300)),
    "RMSNorm": (nn.RMSNorm(256), (S, 256)),
    "softmax": (lambda x: torch.softmax(x, -1), (S, 96)),
    "Linear": (nn.Linear(256, 192), (S, 256)),
    "SwiGLU": (SwiGLU(64, 160), (S, 64)),
    "LayerNorm": (nn.LayerNorm(300), (S, 300)),
    "sum of rows and its place": (lambda x: x + torch.arange(x.shape[0])[:, None], (S, 40)),
    "transposed": (lambda x: x.t() * 2, (S, 40)),
    "merged": (lambda x: torch.relu(x.reshape(x.shape[0] * 10, 4)), (S, 40)),
    "two halves": (lambda x: torch.cat([x, -x], 0), (S, 40)),
    "softmax over s": (lambda x: torch.softmax(x, -1), (16, S)),
    "sums of columns": (lambda x: x.sum(0), (S, 40)),
    "running sums": (lambda x: x.cumsum(-1), (3, S)),
    "largest of a row": (lambda x: x.amax(-1), (7, S)),
    "a product": (lambda x: x.t() @ x, (S, 24)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *HEADS),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *HEADS),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_is_right_at_every_length(name: str) -> None:
    """Its IRs are well formed, a binding has the same kernels, and a checked run finds nothing."""
    function, *shapes = PROGRAMS[name]

    def inputs(length: int) -> list[torch.Tensor]:
        return [torch.randn([length if extent == S else extent for extent in shape]) for shape in shapes]

    program = sized(function, *inputs(37), at=shapes[0].index(S))
    made = program.compilation
    assert list(tensor_rules.check(made.tensor)) == []
    for kernels, rules in ((made.plan.kernels, loop_rules), (made.kernels, kernel_rules)):
        assert [problem for kernel in kernels for problem in rules.problems(kernel)] == []
    for length in (1, 2, 31, 64, 129, 500):
        assert is_right(program, function, *inputs(length)), length
    assert {kernel.text for kernel in made.at({"s": 7}).kernels} == {k.text for k in program.program.kernels}
    for length in (1, 33):
        assert is_right(checked(program), function, *inputs(length)), length


def test_a_schedule_for_rows_is_the_one_of_the_hint() -> None:
    """Nothing falls back to serial code: a product of symbolic rows has the tiles, rings and vectors of a static one."""
    layer = nn.Linear(2048, 1536)  # 512 rows are whole tiles
    static = dplc.compile(layer, (torch.randn(512, 2048),))
    dynamic = sized(layer, torch.randn(512, 2048))
    kernels = [made.compilation.cuda_kernels for made in (static, dynamic)]
    assert [(k.block, k.smem, k.grid) for k in kernels[0]] == [(k.block, k.smem, k.grid) for k in kernels[1]]
    before, after = (
        {(k.name, rule) for k in each for rule in k.comment.partition("rules:")[2].partition("grid")[0].split()}
        for each in kernels
    )
    assert before <= after and {rule for _, rule in after - before} == {"zero_filled"}


def test_the_trace_says_what_a_size_left_open() -> None:
    """A rule that would have fired for a number is reported: chunks of a sum over a size are not shared by blocks."""
    size = dplc.Dim("s", 1, 4096, hint=512)
    factors = torch.randn(64, 8), torch.randn(8, 63)
    program = dplc.compile(lambda x, y: x @ y, factors, dynamic={"x": {1: size}, "y": {0: size}}, rows=())
    assert program.trace is not None and "left open by sizes" in repr(program.trace)
    told = program.trace.render(1)
    assert re.search(r"left open by a size at matmul: \w+: .*s.*\(s: 1\.\.4096 hint 512\)", told), told
    assert program.trace.left_open[0].record()["event"] == "left open"
    static = dplc.compile(lambda x: torch.softmax(x, -1), (torch.randn(8, 64),))
    assert static.trace is not None and not static.trace.left_open


def test_a_size_has_no_number_until_a_call() -> None:
    program = sized(nn.RMSNorm(64), torch.randn(8, 64))
    assert "s: 1..4096 hint 512" in program.ir("tensor") and "Tile(i_o:-(-s // 2)=BLOCK" in program.ir("tile")
    assert "const int s" in program.cuda


ROWS = torch.export.Dim("rows", min=1, max=99)


class Scaled(nn.Module):
    def forward(self, x: Any, scale: Any, y: Any) -> Any:
        return x * scale + y


@pytest.mark.parametrize("kind", [tuple, list])
def test_dims_of_torch_export_are_taken(kind: Any) -> None:
    inputs = torch.randn(8, 4), torch.randn(4), torch.randn(8, 4)
    shapes = kind(({0: ROWS}, None, [ROWS, None]))
    torch.export.export(Scaled(), inputs, dynamic_shapes=shapes)  # it is what torch takes
    program = dplc.compile(Scaled(), inputs, dynamic=shapes, rows=())
    assert "rows: 1..99 hint 8" in program.ir("torch")
    for n in (1, 99):
        assert is_right(program, Scaled(), torch.randn(n, 4), inputs[1], torch.randn(n, 4))


def test_multiples_of_a_dim_of_torch_export() -> None:
    program = dplc.compile(quads, (torch.randn(8, 8),), dynamic={"x": [4 * ROWS, None]}, rows=())
    assert "rows_4: 4..396 by 4 hint 8" in program.ir("torch")
    for n in (4, 64, 396):
        assert is_right(program, quads, torch.randn(n, 8))


def test_the_reference_binds_sizes_too() -> None:
    program = sized(nn.RMSNorm(64), torch.randn(8, 64), device="reference")
    assert program(torch.randn(9, 64)).shape == (9, 64)


QUADS = dplc.Dim("s", 4, 512, multiple=4)
CALLS = [
    ((520, 8), "`s` is 520 (dimension 0 of `x`); compiled for 4..512, a multiple of 4", 'dplc.Dim("s", 4, 520, multiple=4)'),
    ((6, 8), "`s` is 6 (dimension 0 of `x`); compiled for 4..512, a multiple of 4", 'wider range: dplc.Dim("s", 4, 512)'),
    ((0, 8), "`s` is 0", "a length is 1 or more: where there is nothing to compute, leave the call out"),
    ((8, 9), "argument `x` must be f32[8, 8]; it is f32[8, 9]", "compile again"),
    ((8,), "argument `x` must be f32[", "compile again"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "said", "hint"), CALLS)
def test_a_call_outside_of_the_range(shape: Any, said: str, hint: str) -> None:
    program = sized(lambda x: x * 2, torch.randn(8, 8), size=QUADS)
    with pytest.raises(DplcError, match=re.escape(said)) as found:
        program(torch.randn(shape))
    assert hint in (found.value.hint or "")


def test_two_dimensions_of_one_name_agree_in_a_call() -> None:
    program = sized(lambda x, y: x + y, torch.randn(8, 8), torch.randn(8, 8))
    with pytest.raises(DplcError, match=re.escape("`s` is 8 (dimension 0 of `x`) and 9 (dimension 0 of `y`)")):
        program(torch.randn(8, 8), torch.randn(9, 8))


def fixed(x: Any) -> Any:
    return x + torch.ones(8, 8)


def branching(x: Any) -> Any:
    return x + 1 if x.shape[0] > 5 else x


def quads(x: Any) -> Any:
    return x.reshape(-1, 4, 8).sum(1)


ASKING = [
    (fixed, "but the program asks for 8", "take the number from the shape", "x + torch.ones(8, 8)"),
    (
        branching,
        "this way through the program is that of 6..512",
        'Dim("s", 6, 512)',
        "return x + 1 if x.shape[0] > 5 else x",
    ),
    (quads, "the program asks for a multiple of 4", "multiple=4", "x.reshape(-1, 4, 8)"),
]


@pytest.mark.parametrize(("function", "said", "hint", "line"), ASKING)
def test_a_program_that_asks_for_more(function: Any, said: str, hint: str, line: str) -> None:
    """One message, with the range, the remedy and the user's own line."""
    with pytest.raises(DplcError, match=re.escape(said)) as found:
        sized(function, torch.randn(8, 8), size=dplc.Dim("s", 1, 512))
    assert hint in (found.value.hint or "")
    span = found.value.span
    assert span is not None and span.source.line(span.line)[span.column : span.end_column] == line


@pytest.mark.parametrize("name", ["s", "i", "x", "top", "m", "acc"])
@pytest.mark.sampled(3)
def test_nothing_in_a_kernel_takes_the_name_of_a_size(name: str) -> None:
    """Axes, values, shared tiles and accumulators have names of their own, beside an input that is called like the size."""
    function, x, y = lambda x, y: torch.softmax(x @ y, -1), torch.randn(33, 32), torch.randn(32, 40)
    program = dplc.compile(function, (x, y), dynamic={"x": {0: dplc.Dim(name, 1, 300, hint=64)}}, rows=())
    assert is_right(program, function, x, y)


def test_a_size_is_no_word_of_the_irs() -> None:
    with pytest.raises(UsageError, match="`load` is a word of the IRs"):
        sized(lambda x: x * 2, torch.randn(8), size=dplc.Dim("load", 1, 9))


def test_two_sizes_that_must_be_equal() -> None:
    s, t = dplc.Dim("s", 1, 300), dplc.Dim("t", 1, 300)
    with pytest.raises(DplcError, match="`t` and `s` must be equal in this program") as found:
        dplc.compile(lambda x, y: x + y, (torch.randn(8), torch.randn(8)), dynamic={"x": {0: s}, "y": {0: t}}, rows=())
    assert found.value.hint == "give both the name `s`"
    assert "declared 1..300 (dimension 0 of `y`) and 1..300 (dimension 0 of `x`)" in found.value.what


def test_the_name_of_a_length_may_stand_in_quotes() -> None:
    plain, quoted = (capture_text(f"torch.relu(torch.randn(dim({said}), 8))") for said in ("s, 1..64", '"s", 1, 64'))
    texts = [print_program(one.graph) for one in (plain, quoted)]
    assert texts[0] == texts[1] and "s: 1..64" in texts[0]


TWO = "x = torch.randn(dim(s, 1..64), 8)\ny = torch.randn(dim(t, 2..128, hint=64), 8)\nz = torch.relu(x)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("z + y", ("-c:4:1: error: `t` and `s` must be equal", "the name `s` and the range 2..64")),
        ("w = z + y\nw.sum(0)", ("-c:4:5: error: `t` and `s` must be equal",)),
        ("w = y.reshape(2, -1)\nw.sum() * x", ("-c:4:5: error: `t` is declared 2..128 (dimension 0 of `y`)",)),
        ("z * y.reshape(-1, 8)[9]", ("-c:4:5: error: `t` is declared 2..128", "10..128")),
        (
            "z + torch.randn(5, 8)",
            ("-c:4:1: error: The size", "`s` is 64 here, of 1..64", "`t` is 64 here, of 2..128"),
        ),
    ],
)
def test_what_ties_a_length_is_told_where_it_stands(text: str, said: tuple[str, ...]) -> None:
    with pytest.raises(DplcError) as found:
        capture_text(TWO + text)
    told = found.value.render()
    assert all(part in told for part in said), told


@pytest.mark.parametrize(
    ("dynamic", "said"),
    [
        ({"y": {0: dplc.Dim("s", 1, 9)}}, "names `y`, which is not an input"),
        ({0: {0: dplc.Dim("s", 1, 9)}}, "names `0`, which is not an input"),
        ({"x": {2: dplc.Dim("s", 1, 9)}}, "names dimension 2 of `x`, which has 2"),
        ({"x": {0: torch.export.Dim("s")}}, "is not a dimension with a range"),
        ({"x": {0: 5}}, "is not a dimension with a range"),
        ({"x": 5}, "is {dimension: Dim}, not int"),
        (1, "not int"),
        ([1, None], "says it for 2 inputs; there are 1"),
        ({"x": {0: dplc.Dim("s", 1, 9), 1: dplc.Dim("s", 1, 99)}}, "`s` is declared twice: 1..9 and 1..99"),
    ],
)
def test_a_declaration_that_means_nothing(dynamic: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        dplc.compile(lambda x: x * 2, (torch.randn(8, 8),), dynamic=dynamic, rows=())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("s", 0, 4), "from 1 or more"), (("s", 5, 4), "from 1 or more"), (("s", 5, 7, 4), "is a multiple of 4"),
     (("s t", 1, 4), "a name and whole numbers"), (("s", 1, 4.5), "a name and whole numbers")],
)  # fmt: skip
def test_a_dim_that_holds_nothing(arguments: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        dplc.Dim(*arguments)


@pytest.mark.parametrize(
    "made",
    ["torch.randn(dim(s, 1..9), 4)", "torch.randn((dim(s, 1..9), 4))", "torch.zeros(size=(dim(s, 1..9), 4))",
     "torch.full((dim(s, 1..9), 4), 2.0)", "torch.randint(0, 5, (dim(s, 1..9), 4))", "torch.arange(dim(s, 1..9))"],
)  # fmt: skip
def test_factories_take_a_size(made: str) -> None:
    (given,) = capture_text(f"{made} * 2").graph.ins
    assert given.shape[0] is Size("s", 1, 9, 1, 9)


def test_the_size_of_a_factory_stands_in_the_arguments_that_say_its_shape() -> None:
    size = Size("s", 1, 9, 1, 9)
    n = Extent(9, size)
    assert sizes_of_factory((n, 4), (9, 4)) == sizes_of_factory(((n, 4),), (9, 4)) == {0: size}
    assert sizes_of_factory((3, n, torch.float32), (3, 9)) == {1: size} == sizes_of_factory((3, (4, n)), (4, 9))
    assert sizes_of_factory((n,), (9, 9)) == {}, "an identity has more dimensions than arguments"
    assert sizes_of_factory((n,), (8,)) == sizes_of_factory((9,), (9,)) == sizes_of_factory((), ()) == {}


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("n = dim(s, 1..9); torch.randn(n * 2)", "arithmetic on `s` would fix it to 9", 30),
        ("torch.randn(dim(s, 9..1))", "not 9..1", 12),
        ("torch.randn(dim(s, 1..9), dim(s, 1..8)) * 2", "declared twice: 1..9 and 1..8", 26),
    ],
)
def test_a_text_that_misuses_a_size(text: str, said: str, column: int) -> None:
    with pytest.raises(DplcError, match=re.escape(said)) as found:
        capture_text(text)
    assert found.value.span is not None and found.value.span.column == column


def test_the_least_of_a_length_and_a_number() -> None:
    """`x[:3]` has 3 rows, or as many as there are: one of these for every length of a range, or a message."""

    def first(x: Any) -> Any:
        return x[:3] * 2

    program = sized(first, torch.randn(20, 8), size=dplc.Dim("s", 3, 64))
    for n in (3, 4, 64):
        assert is_right(program, first, torch.randn(n, 8)), n
    with pytest.raises(DplcError) as told:
        sized(first, torch.randn(20, 8), size=dplc.Dim("s", 1, 64))
    assert 'Dim("s", 3, 64)' in (told.value.hint or "") + told.value.what
