"""A dump of any level, edited or written by hand, compiles and runs: `dplc compile FILE.ir`, `dplc run FILE.ir`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command

PROGRAMS = (
    "torch.softmax(torch.randn(8, 16) @ torch.randn(16, 5), -1)",
    "torch.randn(17, 33)[torch.randint(0, 17, (9,))].sum(-1)",
    "(lambda x: (x.sum(0), torch.cat([x, x * 2])[1:]))(torch.randn(3, 4))",
    "torch.randn(8, 4096) @ torch.randn(4096, 8)",  # two kernels: the sum is split
)
BY_HAND = """\
## level: tensor
graph scaled(x: f32[6, 35], w: f32[35]) -> y: f32[6]:
    product[i:6, k:35] = multiply(x[i, k], w[k])
    total[i] = Reduce(add, k, product)
    y[i] = tanh(total)
"""


LOOKED_UP = """\
## level: torch
graph main(t: f32[5, 4], i: i64[3]) -> y: f32[3, 4]:
    y: f32[3, 4] = Embedding(t, i)
"""
TWO_KERNELS = """\
## level: loop
kernel f(x: f32[6, 4]) -> sums: f32[6]:
    for i in 0..6 free:
        for k in 0..4 reduce:
            a = load x[i, k]
            s <- add(s, a)
        sums[i] = s

kernel g(sums: f32[6]) -> y: f32[6]:
    for i in 0..6 free:
        a = load sums[i]
        y[i] = exp(a)
"""


@pytest.mark.parametrize("level", ["torch", "tensor", "loop", "tile", "kernel"])
@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.sampled(4)
def test_a_dump_goes_on_to_the_same_cuda(ok: Command, tmp_path: Path, text: str, level: str) -> None:
    path = tmp_path / "program.ir"
    path.write_text(ok(f"compile --ir {level} -c", text).out)

    def cuda(out: str) -> str:
        return "\n".join(line for line in out.splitlines() if not line.startswith("//"))

    if level in ("loop", "tile", "kernel"):  # before, names come from where ops stood
        assert cuda(ok(f"compile {path}").out) == cuda(ok("compile -c", text).out)
    assert ": ok" in ok(f"run {path}").out


def test_an_edit_shows(ok: Command, tmp_path: Path) -> None:
    tile = tmp_path / "tile.ir"
    text = ok("compile --ir tile -c", "torch.randn(1024) + 1.0").out
    assert "1.0" in text
    tile.write_text(text.replace("1.0", "2.5"))
    assert "2.5f" in ok(f"compile {tile}").out and ": ok" in ok(f"run {tile}").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BY_HAND.replace("## level: tensor\n", ""), "does not say its level"),
        (BY_HAND.replace("tensor", "tensr", 1), "unknown level `tensr`"),
        ("## level: tensor\n", "holds no program"),
        ("## level: loop\nkernel f(x: f32[i]) -> y: f32[4]:\n    y[0] = 1.0\n", "neither a number nor made of sizes"),
        (BY_HAND.replace("x[i, k]", "x[i, q]"), "q"),
        (BY_HAND.replace("x[i, k]", "x[i, k + 9]"), "an index in 9..44 reads axis"),
        (BY_HAND.replace("multiply(x[i, k], w[k])", "Case(k < 1.5, x[i, k], w[k])"), "which are whole numbers"),
        (BY_HAND + BY_HAND.split("\n", 1)[1].replace("scaled", "again"), "one graph"),
        (LOOKED_UP.replace("y: f32[3, 4] = ", "y: f32[9, 4] = "), "torch gives float32[3, 4]"),
        (LOOKED_UP.replace("i: i64", "i: f32"), "torch refuses it"),
        (TWO_KERNELS.replace("sums: f32[6]) -> y", "sums: f32[7]) -> y"), "`sums` is f32[7] to kernel `g`"),
    ],
)
def test_what_is_wrong_is_said(dplc: Command, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.ir"
    path.write_text(text)
    for command in ("compile", "run"):
        done = dplc(f"{command} {path}")
        assert done.code == 1 and said in done.err, done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize("text", [LOOKED_UP, BY_HAND, TWO_KERNELS], ids=["torch", "tensor", "loop"])
def test_they_are_right_as_they_stand(ok: Command, tmp_path: Path, text: str) -> None:
    path = tmp_path / "good.ir"
    path.write_text(text)
    assert ": ok" in ok(f"run {path}").out


def test_a_place_that_is_not_there(dplc: Command, tmp_path: Path) -> None:
    """Values decide: the text compiles, torch refuses the drawn places."""
    path = tmp_path / "few.ir"
    path.write_text(LOOKED_UP.replace("t: f32[5, 4]", "t: f32[1, 4]"))
    assert dplc(f"compile {path}").code == 0
    done = dplc(f"run {path}")
    assert done.code == 1 and "Traceback" not in done.err


@pytest.mark.parametrize("level", ["tensor", "torch"])
def test_what_fits_no_memory_compiles_and_does_not_run(dplc: Command, tmp_path: Path, level: str) -> None:
    path = tmp_path / "large.ir"
    large = {"tensor": BY_HAND.replace("6", "68719476736"), "torch": LOOKED_UP.replace("5, 4", "68719476736, 4")}
    path.write_text(large[level])
    assert dplc(f"compile {path}").code == 0
    done = dplc(f"run {path}")
    assert done.code == 1 and "this machine has" in done.err, done.err
