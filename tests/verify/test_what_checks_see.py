"""Rules that are wrong at few places: at some elements, for one number, beside another rule; and rules that few reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import _rule

from dplc.engine.cli.app import main
from dplc.engine.kernels.examples import read_subject
from dplc.engine.language.rule import load
from dplc.engine.verify import outcome, run
from dplc.engine.verify.drawing import TermInstance
from dplc.engine.verify.mutants import survey
from dplc.engine.verify.outcome import Outcome, PlainDice, RuleVerdict, Subject, summary
from dplc.engine.verify.run import Checkers, CheckOptions, check_rule, named_numbers
from dplc.engine.verify.whole_programs import completed
from dplc.ir.node import nodes
from dplc.ir.tensor import Case
from tests.verify.template_mutants import mutants

LOG = """
@approx
rule log_of_product on tensor
match
    y = log(multiply(x, z))
rewrite
    y = add(log(x), log(z))
"""
ONE_LENGTH = """
rule one_turn_less on loop
match
    for k in 0..N reduce:
        body..
require N in [3, 29]                             else "another length"
rewrite
    for k in 0..N - N // 29 reduce:
        body..
"""
ONE_FACTOR = """
rule thirteen on tensor
match
    y = multiply(x, c)
require literal(c) == 13.0                       else "another factor"
rewrite
    y = multiply(x, 13.5)
"""
EXTENT = """
rule of_eleven on tensor
match
    y = Reduce(add, k, x)
require extent(k) % 11 == 0                      else "another length"
rewrite
    y = Reduce(maximum, k, x)
"""
FIELD = """
override rule unsqueeze on torch
match
    y = Glu(x, dim=d)
require d == 17 else "another"
rewrite
    y[os..] = x[os..]
"""


CUT = """
rule cut on tensor
match
    y = Case(c, a, b)
rewrite
    y = Case(c, a, b)
"""


def verdict(folder: Path, text: str, seed: int = 0, examples: int = 40) -> RuleVerdict:
    file = folder / "mine.rw"
    file.write_text(text)
    rules = load([file])
    name = _rule("", text).rule
    return check_rule(rules.rule(name), Checkers(rules), CheckOptions(examples, seed, borrow=False, shrink=False))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sampled(2)
def test_an_element_that_is_no_number_hides_no_other(tmp_path: Path, seed: int) -> None:
    """Of two negative numbers the product has a logarithm; half of all products have none."""
    assert verdict(tmp_path, LOG, seed).result == "wrong"


@pytest.mark.parametrize("text", [ONE_LENGTH, ONE_FACTOR, EXTENT], ids=["a length", "a factor", "a divisor"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sampled(3)
def test_the_numbers_of_guards_are_drawn(tmp_path: Path, text: str, seed: int) -> None:
    assert verdict(tmp_path, text, seed).result == "wrong"


def test_numbers_come_from_patterns_guards_and_domains(tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(ONE_LENGTH.replace("one_turn_less on", "one_turn_less(T: int in {64} = 64) on"))
    assert {0, 3, 29, 28, 30, 58, 64} <= set(named_numbers(load([file]).rule("one_turn_less")))


def test_what_differs_in_its_name_alone_is_one_subject() -> None:
    one, other = (Subject(f"## level: tensor\ngraph g{n}(x: f32[3]) -> y: f32[3]:", None) for n in (1, 2))
    assert one.key == other.key and one.seed != other.seed


def test_few_firings_are_thin() -> None:
    found = RuleVerdict("r", "tile", "here")
    for _ in range(outcome.ENOUGH - 1):
        found.add(Outcome(firings=40))
    assert found.result == "thin" and run.failed([found]) and not run.failed([found], run.ALL)
    assert not run.failed([found], ["r"]) and run.failed([found], ["another"])
    found.add(Outcome(firings=1))
    assert found.result == "ok"


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["check", *arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_thin_is_an_error_unless_it_is_allowed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "ENOUGH", 10_000)
    monkeypatch.setattr(run, "ENOUGH", 3)
    file = tmp_path / "mine.rw"
    file.write_text(ONE_FACTOR.replace("13.5", "13.0").replace("x, 13.0)", "13.0, x)"))
    code, out, err = check(capsys, str(file), "--examples", "5")
    assert code == 1 and "1 thin" in out and "1 by fewer than" in err and "--allow-thin" in err
    assert check(capsys, str(file), "--examples", "5", "--allow-thin")[0] == 0


UNDO = """
rule double_to_sum on tensor
match
    y = multiply(x, 2.0)
rewrite
    y = add(x, x)
rule sum_to_double on tensor
match
    y = add(x, x)
rewrite
    y = multiply(x, 2.0)
"""
UNDO_OURS = """
rule negative_of_difference on tensor
match
    y = subtract(x, z)
rewrite
    y = add(x, negative(z))
"""
UNDO_STATEMENTS = """
@repeat
rule up on tile
match
    Wait(keep=0)
rewrite
    Wait(keep=1)
@repeat
rule down on tile
match
    Wait(keep=1)
rewrite
    Wait(keep=0)
"""
UNMEASURED = """
@repeat
rule longer_wait on tile
match
    Wait(keep=n)
require n < 50                                   else "waits for few"
decreases size(statements("Wait"))
rewrite
    Wait(keep=n + 1)
"""


def test_rules_that_undo_one_another_are_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, UNDO)
    assert found.wrong is not None
    assert "`double_to_sum` and `sum_to_double` undo one another" in found.wrong.problem
    assert [note for note in found.wrong.details if "mine.rw:" in note] == [
        f"`double_to_sum` at {tmp_path}/mine.rw:2 changes", f"`sum_to_double` at {tmp_path}/mine.rw:7 changes",
    ]  # fmt: skip
    assert any("=>  add(" in note for note in found.wrong.details)
    assert any("=>  multiply(" in note for note in found.wrong.details)


def test_a_rule_that_undoes_one_of_ours_is_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, UNDO_OURS)
    assert found.wrong is not None
    assert "undo one another" in found.wrong.problem and "`negative_of_difference`" in found.wrong.problem
    assert any("rules/tensor" in note for note in found.wrong.details)


def test_rules_of_a_pass_that_undo_one_another_are_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, UNDO_STATEMENTS)
    assert found.wrong is not None and "`up` and `down` undo one another" in found.wrong.problem


def test_a_measure_that_no_firing_decreases_is_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, UNMEASURED)
    assert found.wrong is not None and found.wrong.problem.startswith("`decreases` is 1, and 1 at ")


def test_the_error_of_a_compile_names_the_rules_of_the_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(UNDO)
    with pytest.raises(SystemExit) as stop:
        main(["compile", "--rules", str(file), "-c", "torch.randn(8) * 2.0"])
    err = capsys.readouterr().err
    assert stop.value.code == 1 and "`double_to_sum` and `sum_to_double` undo one another" in err
    assert "mine.rw:2" in err and "mine.rw:7" in err and "multiply(x, 2.0)  =>  add(x, x)" in err
    assert "multiply_one" not in err


def test_static_checks_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A typo is an error, and no variable that matches anything."""
    file = tmp_path / "mine.rw"
    file.write_text(UNDO.split("rule sum_to")[0].replace("multiply", "multipli"))
    code, out, err = check(capsys, str(file))
    assert code == 1 and "multipli" in err and "wrong" not in out + err


def test_a_rule_that_another_file_leaves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.rw", tmp_path / "second.rw"
    first.write_text("rule any_sine on tensor\nmatch\n    y = sin(x)\nrewrite\n    y = cos(subtract(x, 1.5))\n")
    second.write_text("rule same_sine on tensor\nmatch\n    a = sin(b)\nrewrite\n    a = exp(sin(b))\n")
    with pytest.raises(SystemExit):
        main(["rules", "test", str(first), str(second)])
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "rule `same_sine`: can never fire: `any_sine` fires wherever it matches" in said
    assert "first.rw:1" in said


def test_a_drawn_case_is_cut_close_to_an_end(tmp_path: Path) -> None:
    """After the first elements, so that in most axes both sides have some; and now and then nothing is left of one."""
    file = tmp_path / "mine.rw"
    file.write_text(CUT)
    rule, cuts = load([file]).rule("cut"), set()
    for seed in range(60):
        graph = TermInstance(rule, PlainDice(seed)).graph()
        cuts |= {case.cond.b for out in graph.outs for case in nodes((out.value,), Case)}
    assert cuts == {1, 2, 3}


def test_a_file_tells_how_many_of_its_guards_were_tested() -> None:
    """Of three guards one refused something; without `--each` a file is one line."""
    found = RuleVerdict("r", "tile", "mine.rw:3", guards=("one", "two", "three"))
    for _ in range(outcome.ENOUGH):
        found.add(Outcome(firings=1))
    found.refusals["two"] += 1
    line = next(line for line in summary([found], 0.5, each=False).splitlines() if line.startswith("mine.rw"))
    assert " 1/3 " in line and line.endswith("1 of 1 ok")


def test_a_shared_tile_that_tma_fills_is_no_input_and_what_a_product_reads_is_read() -> None:
    """An example on tensor cores is a whole program as it stands."""
    (example,) = (one for one in load().rules["pipeline_predicated"].examples if one.title == "four slots")
    (kernel,) = completed(read_subject(example.before))
    assert [param.name for param in kernel.ins] == ["A", "B"]
    assert [param.name for param in kernel.outs] == ["C"]


def test_a_local_rule_is_seen_through_the_rules_that_use_it() -> None:
    checker, rule = Checkers(load()).of("loop"), load().rule("split_digits")
    used = [checker.check(rule, subject).locals for subject in checker.examples([rule])]
    assert "digits_of_load" in set().union(*used)


NESTED = """
@local
rule exchanged on loop
match
    x = add(a, b)
rewrite
    x = add(b, a)
@local
rule exchanged_in_a_loop on loop
match
    for k in 0..K role:
        body..
rewrite
    for k in 0..K role:
        body.. with rule exchanged()
rule exchanged_in_two_loops on loop
match
    for i in 0..N free:
        body..
rewrite
    for i in 0..N free:
        body.. with rule exchanged_in_a_loop()
example "a sum of two inputs"
    kernel f(A: f32[4, 4], B: f32[4, 4]) -> C: f32[4, 4]:
        for i in 0..4 free:
            for k in 0..4 free:
                a = load A[i, k]
                b = load B[i, k]
                x = add(a, b)
                C[i, k] = x
gives
    kernel f(A: f32[4, 4], B: f32[4, 4]) -> C: f32[4, 4]:
        for i in 0..4 free:
            for k in 0..4 free:
                a = load A[i, k]
                b = load B[i, k]
                x = add(b, a)
                C[i, k] = x
"""


def test_mutants_of_a_local_rule_are_seen_through_another_local_rule(tmp_path: Path) -> None:
    path = tmp_path / "nested.rw"
    path.write_text(NESTED)
    rules = load([path])
    results = survey(rules, rules.rule("exchanged"), CheckOptions(examples=0), mutants=mutants).results
    assert [(result.what.split(" in ")[0], result.how) for result in results] == [("`subtract` for `add`", "wrong")]
