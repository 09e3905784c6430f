"""`dplc rules new` and `dplc rules test --accept`: a rule to fill in, filled in, and what its example then says."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest

from dplc.engine.cli.app import main

GRAPH = """\
## level: tensor
graph scaled(x: f32[6, 35], w: f32[35]) -> y: f32[6]:
    product[i:6, k:35] = multiply(x[i, k], w[k])
    total[i] = Reduce(add, k, product)
    y[i] = tanh(total)
"""
NEST = """\
## level: loop
kernel twice(x: f32[64]) -> y: f32[64]:
    for i in 0..64 free:
        a = load x[i]
        b = add(a, a)
        y[i] = b
"""


class Typed:
    """A command line, its output and errors."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        printed = self.capsys.readouterr()
        assert int(stop.value.code or 0) == code, printed.out + printed.err
        return printed.out + printed.err


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.chdir(tmp_path)
    Path("scaled.ir").write_text(GRAPH)
    Path("twice.ir").write_text(NEST)
    return Typed(capsys)


def filled(path: str, before: str, after: str) -> None:
    """Change what stands behind `rewrite`."""
    head, rest = Path(path).read_text().split("rewrite\n", 1)
    template, examples = rest.split("example ", 1)
    assert before in template
    Path(path).write_text(f"{head}rewrite\n{template.replace(before, after)}example {examples}")


def test_lines_of_values_become_a_pattern_of_values(dplc: Typed) -> None:
    dplc("rules", "new", "mean", "--from", "scaled.ir:3-4", "-o", "mean.rw")
    text = Path("mean.rw").read_text()
    assert "    product = multiply(x, w)\n    total = Reduce(add, k, product)\nrewrite" in text
    assert text.count("    graph scaled(") == 2


def test_remarks_above_the_lines_are_no_pattern(dplc: Typed) -> None:
    Path("said.ir").write_text(NEST.replace("        a = load", "# what is doubled\n\n        a = load"))
    dplc("rules", "new", "doubled", "--from", "said.ir:4-7", "-o", "doubled.rw")
    text = Path("doubled.rw").read_text()
    assert "match\n    a = load x[i]\n    b = add(a, a)\n" in text and "# what is doubled" not in text


def test_lines_of_loops_become_a_rule_that_is_filled_in_and_accepted(dplc: Typed) -> None:
    dplc("rules", "new", "doubled", "--from", "twice.ir:3-6", "-o", "doubled.rw")
    text = Path("doubled.rw").read_text()
    assert "for i in 0..I free:" in text
    assert 'example "refused"\n    for i in 0..1 free:' in text
    filled("doubled.rw", "b = add(a, a)", "b = multiply(a, 2.0)")
    said = dplc("rules", "test", "doubled.rw", code=1)
    assert "+    b = multiply(a, 2.0)" in said
    assert "1 examples rewritten" in dplc("rules", "test", "--accept", "doubled.rw")
    after = Path("doubled.rw").read_text().split("\ngives\n")[1]
    assert "b = multiply(a, 2.0)" in after
    assert "2 examples, 0 failed" in dplc("rules", "test", "doubled.rw")


def test_an_expression_becomes_a_rule(dplc: Typed) -> None:
    said = dplc("rules", "new", "both", "-c", "torch.exp(torch.randn(64)) * torch.exp(torch.randn(64))")
    assert "multiply(exp_1, exp_2)" in said.split("rewrite")[0]
    assert said.count("graph main(") == 2


def test_the_error_of_an_unsupported_op_is_the_command_that_begins_its_rule(dplc: Typed) -> None:
    said = dplc("compile", "-c", "torch.linalg.matrix_exp(torch.randn(4, 4))", code=1)
    (command,) = [line.split("rule: ")[1] for line in said.splitlines() if "help: begin its rule: " in line]
    dplc(*shlex.split(command)[1:])
    text = Path("linalg_matrix_exp.rw").read_text()
    assert "y = LinalgMatrixExp(x)" in text
    assert "does not say yet what the rule gives" in dplc("rules", "test", "linalg_matrix_exp.rw", code=1)
    assert "1 examples rewritten" in dplc("rules", "test", "--accept", "linalg_matrix_exp.rw")
    assert "copy(x[" in Path("linalg_matrix_exp.rw").read_text().split("\ngives\n")[1]
    kernel = dplc(
        "compile",
        "-c",
        "torch.linalg.matrix_exp(torch.randn(4, 4))",
        "--rules",
        "linalg_matrix_exp.rw",
        "--ir",
        "tensor",
    )
    assert "= x[i, j]" in kernel  # wrong, and compiled: what it means is for its author to say


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("--from", "twice.ir:4-9", "-c", "x"), "takes one program: `-c` and `--from` were given", 2),
        ((), "a program is needed", 2),
        (("--from", "twice.ir:9-12"), "there is nothing in lines 9 to 12", 1),
        (("--from", "twice.ir:5-3"), "lines count from 1", 2),
        (("--op", "linalg_matrix_expp"), "did you mean `linalg_matrix_exp`?", 1),
        (("--op", "linalg_matrix_exp", "-c", "torch.relu(torch.randn(3))"), "the program has no `LinalgMatrixExp`", 1),
    ],
)
def test_what_cannot_be_a_rule_is_said(dplc: Typed, words: tuple[str, ...], says: str, code: int) -> None:
    assert says in dplc("rules", "new", "mine", *words, code=code)


def test_names_of_values_and_axes_in_an_example_on_torch_are_its_own(dplc: Typed) -> None:
    text = (
        "rule linear on torch\nmatch\n    y = Frac(x)\nrewrite\n    y[is..] = subtract(x[is..], floor(x[is..]))\n"
        'example "any names"\n    graph f(x: f32[4]) -> y: f32[4]:\n        y: f32[4] = Frac(x)\n'
        "gives\n    graph f(x: f32[4]) -> y: f32[4]:\n"
        "        down[place:4] = floor(x[place])\n        y[place] = subtract(x[place], down)\n"
    ).replace("rule linear", "rule my_frac")
    Path("frac.rw").write_text(text)
    assert "1 examples, 0 failed" in dplc("rules", "test", "frac.rw")


def test_the_text_of_an_op_may_be_standard_input(dplc: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("torch.exp(torch.randn(3, 5))"))
    assert "exp" in dplc("rules", "new", "exponential", "--op", "exp", "-c", "-")
