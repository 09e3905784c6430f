"""A dump of any level, edited or written by hand, compiles and runs: `dplc compile FILE.ir`, `dplc run FILE.ir`."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("level", ["torch", "tensor", "loop", "tile", "kernel"])
@pytest.mark.parametrize("text", PROGRAMS)
def test_a_dump_goes_on_to_the_same_cuda(ok: Command, tmp_path: Path, text: str, level: str) -> None:
    path = tmp_path / "program.ir"
    path.write_text(ok("compile", "-c", text, "--ir", level).out)

    def cuda(out: str) -> str:
        return "\n".join(line for line in out.splitlines() if not line.startswith("//"))

    if level in ("loop", "tile", "kernel"):  # before, names come from where ops stood
        assert cuda(ok("compile", str(path)).out) == cuda(ok("compile", "-c", text).out)
    assert ": ok" in ok("run", str(path)).out


def test_a_program_written_by_hand(ok: Command, tmp_path: Path) -> None:
    """Tensor IR is a front end of its own."""
    path = tmp_path / "scaled.ir"
    path.write_text(BY_HAND)
    assert "tanh" in ok("compile", str(path)).out
    assert ok("compile", str(path), "--ir", "loop").out.startswith("## level: loop\n")
    done = ok("run", str(path))
    assert "out0: float32[6]" in done.out and ": ok" in done.out
    record = json.loads(ok("run", str(path), "--json").out)
    assert record["ok"] and len(record["kernels"]) == 1


def test_an_edit_shows(ok: Command, tmp_path: Path) -> None:
    path = tmp_path / "edited.ir"
    path.write_text(BY_HAND.replace("tanh", "exp"))
    assert "tanh" not in ok("compile", str(path)).out
    tile = tmp_path / "tile.ir"
    text = ok("compile", "-c", "torch.randn(1024) + 1.0", "--ir", "tile").out
    assert "1.0" in text
    tile.write_text(text.replace("1.0", "2.5"))
    assert "2.5f" in ok("compile", str(tile)).out and ": ok" in ok("run", str(tile)).out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BY_HAND.replace("## level: tensor\n", ""), "does not say its level"),
        (BY_HAND.replace("tensor", "tensr", 1), "unknown level `tensr`"),
        ("## level: tensor\n", "holds no program"),
        ("## level: loop\nkernel f(x: f32[i]) -> y: f32[4]:\n    y[0] = 1.0\n", "no number, nor made of sizes"),
        (BY_HAND.replace("x[i, k]", "x[i, q]"), "q"),
        (BY_HAND.replace("x[i, k]", "x[i, k + 9]"), "an index in 9..44 reads axis"),
        (BY_HAND + BY_HAND.split("\n", 1)[1].replace("scaled", "again"), "one graph"),
    ],
)
def test_what_is_wrong_is_said(dplc: Command, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.ir"
    path.write_text(text)
    for command in ("compile", "run"):
        done = dplc(command, str(path))
        assert done.code == 1 and said in done.err, done.err
        assert "Traceback" not in done.err


def test_an_earlier_stage_is_not_there(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "scaled.ir"
    path.write_text(BY_HAND)
    done = dplc("compile", str(path), "--ir", "torch")
    assert done.code == 2 and "the program is given in tensor IR: there is no torch IR of it" in done.err
    assert dplc("compile", str(tmp_path / "none.ir")).code == 1
