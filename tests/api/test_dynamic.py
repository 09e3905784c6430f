"""Lengths that are known at a call: one program for a range, and messages where a call or a program asks for more."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from drawing import some
from dynamic_checks import is_right, sized, sized_text
from torch import nn

import dplc
from dplc.codegen.judge import judge
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.dynamic_shapes import MOST_TRIED
from dplc.ir.diagnostic import DplcError, UsageError
from dplc.ir.expr import Size
from dplc.ir.verify import kernel as kernel_rules, loop as loop_rules, tensor as tensor_rules

ROWS = "n = dim(s, 1..4096, hint=512)\nx = torch.randn(n, 40)\n"
OF_ROWS = """
F.gelu(torch.randn(n, 300)) * 2 + 1
nn.RMSNorm(256)(torch.randn(n, 256))
torch.softmax(torch.randn(n, 96), -1)
nn.Linear(256, 192)(torch.randn(n, 256))
nn.Linear(160, 40)(F.silu(nn.Linear(40, 160, bias=False)(x)) * nn.Linear(40, 160, bias=False)(x))
nn.LayerNorm(300)(torch.randn(n, 300))
x + torch.arange(x.shape[0])[:, None]
x.t() * 2
torch.relu(x.reshape(x.shape[0] * 10, 4))
torch.cat([x, -x], 0)
torch.softmax(torch.randn(16, n), -1)
x.sum(0)
torch.randn(3, n).cumsum(-1)
torch.randn(7, n).amax(-1)
x.t() @ x
F.scaled_dot_product_attention(torch.randn(1, 2, n, 32), torch.randn(1, 2, n, 32), torch.randn(1, 2, n, 32))
F.scaled_dot_product_attention(*[torch.randn(1, 2, n, 32) for _ in range(3)], is_causal=True)
x.var(0)
x.argmax(0)
F.rms_norm(x.t(), (x.shape[0],), eps=1e-5)
x * x.shape[0]
x / x.shape[0]
(x * 9).int() * x.shape[0] % x.shape[0]
(x.double() * x.shape[0]).mean(0)
x.bfloat16() * x.shape[0]
x[x.argmax(1) % x.shape[0]]
(x[:, None] * x[:, :3, None]).flatten(0, 1)
torch.cat([torch.cat([x, x])[1:][:1], x])
x[-1:]
x.roll(3, 0)
torch.cat([x, x, x, x])[::2][::2]
torch.randn(30, 40).index_add(0, torch.randint(0, 30, (n,)), x)
"""
IMAGES = "x = torch.randn(1, 2, dim(s, 3..256, hint=64))\n"
OF_IMAGES = """
F.conv1d(x, torch.randn(3, 2, 3), stride=2, padding=1)
F.max_pool1d(x, 3, 2, padding=1)
F.max_pool2d(x, (1, 3), 2, padding=(0, 1))
F.avg_pool1d(x, 3, 2, padding=1, count_include_pad=False)
F.adaptive_avg_pool1d(x, 7)
F.adaptive_max_pool1d(x, 5, return_indices=True)
torch.randn(dim(s, 3..256, hint=64), 8)[:3] * 2
F.interpolate(x, scale_factor=2.0, mode="nearest")
F.interpolate(x, scale_factor=1.5, mode="nearest")
F.interpolate(x, scale_factor=3.14159, mode="nearest")
F.interpolate(x[None], scale_factor=2.0, mode="bilinear")
x * (1.0 / x.shape[2] ** 0.5)
x.bfloat16() * (x.shape[2] / 3)
x.double() / (x.shape[2] ** 0.5)
x.long() * (x.shape[2] / 3)
x.abs() ** (1 / x.shape[2])
x.clamp(max=1 / x.shape[2])
x.clamp(-1 / x.shape[2], 1 / x.shape[2])
torch.where(x > 1 / x.shape[2], x, 1 / x.shape[2])
(x - x.shape[2] ** 0.5) * (1 - x.shape[2] ** 0.5)
torch.linspace(0, 1, x.shape[2]) * x
F.interpolate(x, size=20, mode="linear")
F.interpolate(x, scale_factor=2, mode="linear", align_corners=True)
F.interpolate(x, size=20, mode="nearest")
F.interpolate(x[None], size=(20, 20), mode="bilinear")
F.interpolate(x[None], size=(7, 20), mode="bicubic", align_corners=True)
F.grid_sample(x[None], torch.linspace(-1.1, 1.1, 50).reshape(1, 5, 5, 2), align_corners=False)
"""
# Axes, values, shared tiles and accumulators have names of their own, next to an input that is called like the size.
NAMED = "torch.softmax(torch.randn(dim({}, 1..300, hint=64), 32) @ torch.randn(32, 40), -1)"
PROGRAMS = [
    *(ROWS + line for line in OF_ROWS.strip().splitlines()),
    *(IMAGES + line for line in OF_IMAGES.strip().splitlines()),
    *map(NAMED.format, ["i", "x", "top", "m", "acc"]),
]
LENGTHS = (3, 4, 9, 33, 64, 71, 129)


@pytest.mark.parametrize("text", PROGRAMS, ids=lambda text: text.splitlines()[-1])
@pytest.mark.sampled(32)
def test_one_program_is_right_at_every_length(text: str) -> None:
    """Its IRs are well formed, a binding has the same kernels, and a checked run finds nothing."""
    program = sized_text(text)
    made = program.compilation
    problems = [*tensor_rules.check(made.tensor)]
    problems += [problem for kernel in made.plan.kernels for problem in loop_rules.problems(kernel)]
    problems += [problem for kernel in made.kernels for problem in kernel_rules.problems(kernel)]
    assert problems == [] or "adaptive" in text  # the verifier does not prove the ends of such windows
    ((name, size),) = made.sizes.items()
    assert {kernel.text for kernel in made.at({name: 7}).kernels} == {k.text for k in program.program.kernels}
    for length in (size.low, *some(LENGTHS, 2)):
        assert is_right(program, text, **{name: length}), length


def test_floats_of_a_length_are_right_in_every_row() -> None:
    text = IMAGES + "torch.linspace(0, 1, x.shape[2]) * x / x.shape[2] ** 0.5"
    program = sized_text(text, rows=[dplc.Dim("s", 9, 9), dplc.Dim("s", 32, 64)])
    assert all(is_right(program, text, s=length) for length in (9, 33, 200))


def test_a_schedule_for_rows_is_the_one_of_the_hint() -> None:
    """Nothing falls back to serial code: a product of symbolic rows has the tiles, rings and vectors of a static one."""
    layer = nn.Linear(2048, 2048)  # 512 rows are whole tiles
    static = dplc.compile(layer, (torch.randn(512, 2048),))
    dynamic = sized(layer, torch.randn(512, 2048))
    kernels = [made.compilation.cuda_kernels for made in (static, dynamic)]
    assert [(k.block, k.smem, k.grid) for k in kernels[0]] == [(k.block, k.smem, k.grid) for k in kernels[1]]
    before, after = (
        {(k.name, rule) for k in each for rule in k.comment.partition("rules:")[2].partition("grid")[0].split()}
        for each in kernels
    )
    assert before <= after and {rule for _, rule in after - before} == {"zero_filled"}
    assert "s: 1..4096 hint 512" in dynamic.ir("tensor") and "const int s" in dynamic.cuda


def test_the_trace_says_what_a_size_left_open() -> None:
    """A rule that would have fired for a number is reported: chunks of a sum over a size are not shared by blocks."""
    size = dplc.Dim("s", 1, 8192, hint=4096)
    factors = torch.randn(64, 8), torch.randn(8, 63)
    trace = dplc.compile(lambda x, y: x @ y, factors, dynamic={"x": {1: size}, "y": {0: size}}, rows=()).trace
    assert trace is not None and "left open by sizes" in repr(trace)
    assert re.search(r"left open by a size at matmul: \w+: .*s.*\(s: 1\.\.8192 hint 4096\)", trace.render(1))
    assert trace.left_open[0].record()["event"] == "left open"
    static = dplc.compile(lambda x: torch.softmax(x, -1), (torch.randn(8, 64),)).trace
    assert static is not None and not static.left_open


# ---- declarations


@pytest.mark.parametrize(("kind", "device"), [(tuple, "emulator"), (list, "reference")])
def test_dims_of_torch_export_are_taken(kind: Any, device: str) -> None:
    def function(x: Any, scale: Any, y: Any) -> Any:
        return x * scale, y.reshape(-1, 4, 4).sum(1)

    rows, scale = torch.export.Dim("rows", min=1, max=99), torch.randn(4)
    shapes = kind(({0: rows}, None, [4 * rows, None]))
    example = torch.randn(8, 4), scale, torch.randn(32, 4)
    program = dplc.compile(function, example, dynamic=shapes, rows=(), device=device)
    assert "rows: 1..99 hint 8" in program.ir("torch") and "rows_4: 4..396 by 4 hint 32" in program.ir("torch")
    for n in (1, 99):
        given = torch.randn(n, 4), scale, torch.randn(4 * n, 4)
        assert judge(program(*given), function(*(x.double() for x in given))).ok


def of_four(x: Any, y: Any) -> dplc.Compiled:
    return sized(lambda x, y: x + y, x, y, size=dplc.Dim("s", 4, 512, multiple=4))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((520, 8), '`s` is 520 (dimension 0 of `x`); compiled for 4..512, a multiple of 4\n  help: compile it for a wider range: dplc.Dim("s", 4, 520, multiple=4)'),
        ((6, 8), '`s` is 6 (dimension 0 of `x`); compiled for 4..512, a multiple of 4\n  help: compile it for a wider range: dplc.Dim("s", 4, 512)'),
        ((0, 8), "`s` is 0 (dimension 0 of `x`); compiled for 4..512, a multiple of 4\n  help: a length is 1 or more: where there is nothing to compute, leave the call out"),
        ((8, 9), "argument `x` must be f32[8, 8]; it is f32[8, 9]\n  help: shapes and dtypes are part of what was compiled: compile again for others"),
        ((8,), "argument `x` must be f32[8, 8]; it is f32[8]\n  help: shapes and dtypes are part of what was compiled: compile again for others"),
        ((12, 8), "`s` is 12 (dimension 0 of `x`) and 8 (dimension 0 of `y`): they must agree\n  help: dimensions of one name have one length in a call"),
    ],
)  # fmt: skip
def test_a_call_outside_of_the_range(shape: Any, message: str) -> None:
    example = torch.randn(8, 8)
    with pytest.raises(DplcError) as found:
        of_four(example, example)(torch.randn(shape), example)
    assert str(found.value) == f"error: {message}"


DECLARED = dplc.Dim("s", 1, 9)


@pytest.mark.parametrize(
    ("dynamic", "said"),
    [
        ({"y": {0: DECLARED}}, "names `y`, which is not an input"),
        ({0: {0: DECLARED}}, "names `0`, which is not an input"),
        ({"x": {2: DECLARED}}, "names dimension 2 of `x`, which has 2"),
        ({"x": {0: torch.export.Dim("s")}}, "`s` is not a dimension with a range"),
        ({"x": {0: 5}}, "`5` is not a dimension with a range"),
        ({"x": 5}, "is {dimension: Dim}, not int"),
        (1, "is {input: {dimension: Dim}}, not int"),
        ([1, None], "says it for 2 inputs; there are 1"),
        ({"x": {0: DECLARED, 1: dplc.Dim("s", 1, 99)}}, "`s` is declared twice: 1..9 and 1..99"),
        ({"x": {0: dplc.Dim("load", 1, 9)}}, "`load` is a word of the IRs"),
    ],
)
def test_a_declaration_that_means_nothing(dynamic: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        dplc.compile(lambda x: x * 2, (torch.randn(8, 8),), dynamic=dynamic, rows=())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("s", 0, 4), "from 1 or more"), (("s", 5, 7, 4), "is a multiple of 4"),
     (("s t", 1, 4), "a name and whole numbers"), (("s", 1, 4.5), "a name and whole numbers")],
)  # fmt: skip
def test_a_dim_that_holds_nothing(arguments: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        dplc.Dim(*arguments)


def test_factories_take_a_size_where_their_arguments_say_their_shape() -> None:
    s = Size("s", 1, 9, 1, 9)
    shapes = {
        "torch.randn(n, 4)": (s, 4), "torch.randn((n, 4))": (s, 4), "torch.zeros(size=(n, 4))": (s, 4),
        "torch.full((n, 4), 2.0)": (s, 4), "torch.randint(3, (4, n))": (4, s), "torch.arange(n)": (s,),
        "torch.randn(3, n, dtype=torch.float32)": (3, s), "torch.eye(n)": (9, 9), "torch.arange(end=n, start=1)": (8,),
        "torch.eye(9)": (9, 9), 'torch.randn(dim("s", 1, 9))': (s,),
    }  # fmt: skip
    graphs = {text: capture_text(f"n = dim(s, 1..9)\n{text} * 2").graph for text in shapes}
    assert {text: given.shape for text, graph in graphs.items() for given in graph.ins} == shapes


# ---- programs that ask for more: one message with the range, the remedy and the user's own text

TWO = "x = torch.randn(dim(s, 1..64), 8)\ny = torch.randn(dim(t, 2..128, hint=64), 8)\n"
ASKING = [
    """\
-c:3:1: error: `s` is declared 1..64 (dimension 0 of `x`), but the program asks for 64
 3 | x + torch.ones(64, 8)
   | ^^^^^^^^^^^^^^^^^^^^^
  help: take the number from the shape, `x.shape[..]`; or leave `s` out of dynamic=""",
    """\
-c:3:1: error: `s` is declared 1..64 (dimension 0 of `x`), but this way through the program is that of 6..64
 3 | x + 1 if x.shape[0] > 5 else x
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: narrow it: Dim("s", 6, 64); other lengths take another way through the program""",
    """\
-c:3:1: error: `s` is declared 1..64 (dimension 0 of `x`), but this way through the program is that of 3..64
 3 | x[:3] * 2
   | ^^^^^
  help: narrow it: Dim("s", 3, 64); other lengths take another way through the program""",
    """\
-c:3:1: error: `s` is declared 1..64 (dimension 0 of `x`), but the program asks for a multiple of 4
 3 | x.reshape(-1, 4, 8).sum(1)
   | ^^^^^^^^^^^^^^^^^^^
  help: declare it so: Dim("s", .., multiple=4)""",
    """\
-c:3:5: error: `t` and `s` must be equal in this program, and are declared 2..128 (dimension 0 of `y`) and 1..64 (dimension 0 of `x`)
 3 | w = x + y; w.sum(0)
   |     ^^^^^
  help: give both the name `s` and the range 2..64""",
    """\
-c:3:1: error: `v` and `s` must be equal in this program, and are declared 1..64 (dimension 0 of `z`) and 1..64 (dimension 0 of `x`)
 3 | x[:, 0] + torch.randn(dim(v, 1..64))
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: give both the name `s`""",
    """\
-c:3:1: error: The size of tensor a (64) must match the size of tensor b (5) at non-singleton dimension 0
 3 | x + torch.randn(5, 8)
   | ^^^^^^^^^^^^^^^^^^^^^
  note: `s` is 64 here, of 1..64
  note: `t` is 64 here, of 2..128""",
    """\
-c:3:25: error: arithmetic on `v` would fix it to 9
 3 | v = dim(v, 1..9); x.sum(v * 2)
   |                         ^^^^^
  help: compute with the shape of a tensor, `x.shape[0]`""",
    """\
-c:3:13: error: `v` goes from 1 or more up to 2^31 - 1 at most, not 9..1
 3 | torch.randn(dim(v, 9..1))
   |             ^^^^^^^^^^^^""",
    """\
-c:3:13: error: `s` is declared twice: 1..64 and 1..8
 3 | torch.randn(dim(s, 1..8)) * 2
   |             ^^^^^^^^^^^^""",
    """\
-c:3:1: error: torch op 'add' takes a float made of a length
 3 | torch.add(x, x, alpha=x.shape[0] / 7)
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: compute with a tensor instead; or leave the length out of dynamic=""",
]


@pytest.mark.parametrize("message", ASKING)
def test_a_program_that_asks_for_more_is_told_where(message: str) -> None:
    with pytest.raises(DplcError) as found:
        capture_text(TWO + message.splitlines()[1].removeprefix(" 3 | "))
    assert found.value.render() == message


@pytest.mark.parametrize(
    ("high", "text", "said"),
    [
        (256, "F.interpolate(x, scale_factor=0.7, mode='nearest')", "TruncToInt(0.7*ToFloat(s))"),
        (9 + MOST_TRIED, "F.interpolate(x, scale_factor=1.5, mode='nearest')", "TruncToInt(1.5*ToFloat(s))"),
        (256, "x / math.sqrt(x.shape[2])", "the program asks for 64"),
    ],
)
def test_a_float_that_is_no_number_for_all_lengths_is_told(high: int, text: str, said: str) -> None:
    """A quotient is taken where every length agrees, unless these are too many to ask one by one."""
    with pytest.raises(DplcError, match=re.escape(said)) as caught:
        capture_text(f"x = torch.randn(1, 2, dim(s, 8..{high}, hint=64))\n{text}")
    assert caught.value.hint
