"""Sizes in checks of rules on tensor, torch and kernel: what is proved for a range by mistake is found at one of its
numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dplc.engine.language.rule import load
from dplc.engine.rewrite.statements.compiled import CompiledRule
from dplc.engine.verify import checkers, sized
from dplc.engine.verify.outcome import Subject, Wrong
from dplc.engine.verify.run import Checkers
from dplc.ir.expr import Size, Var, floordiv, subtract
from dplc.ir.node import replace
from dplc.ir.sizes import at_the_hints, has_sizes, numbers
from dplc.ir.substitute import with_hints, with_sizes
from dplc.ir.text.programs import read_program

ALGEBRA = """
rule every_place on tensor
match
    y = where(less(Index(i), n), a, _)
require extent(i) <= literal(n)                  else "some places are beyond"
rewrite
    y = a
"""
CHOSEN = """
graph f(x: f32[4], z: f32[4]) -> y: f32[4]:
    here[i:4] = less(Index(i), 4)
    y[i] = where(here, x[i], z[i])
"""
FUSION = """
graph f(x: f32[6, 8]) -> y: f32[6]:
    wide[i:6, k:8] = exp(x[i, k])
    y[i] = Reduce(add, k, wide)
"""
TORCH = """
rule few_rows on torch
match
    y = Relu(x)
require at(shape(x), 0) <= 4                     else "many rows"
rewrite
    y[i, os..] = where(Index(i < 4), relu(x[i, os..]), 0)
"""
ROWS = """
graph f(x: f32[4, 6]) -> y: f32[4, 6]:
    y: f32[4, 6] = Relu(x)
"""
FOLDED = """
graph f(x: f32[4, 6]) -> y: f32[4, 12]:
    a: f32[24] = Reshape(x, shape=(24))
    b: f32[24] = Relu(a)
    c: f32[4, 6] = Reshape(b, shape=(4, 6))
    y: f32[4, 12] = Cat(tensors=(c, c), dim=1)
"""


def checked(folder: Path, text: str, name: str, program: str) -> Any:
    """(a checker, the rule, the program as its subject)"""
    path = folder / "mine.rw"
    path.write_text(text)
    rules = load([path])
    checker = Checkers(rules).of(rules.rule(name).level)
    level = "torch" if rules.rule(name).level == "torch" else "tensor"
    return checker, rules.rule(name), checker.read(f"## level: {level}\n{program.strip()}\n", "subject.ir")


@pytest.mark.parametrize(
    ("text", "name", "program"), [(ALGEBRA, "every_place", CHOSEN), (TORCH, "few_rows", ROWS)], ids=["tensor", "torch"]
)
def test_what_holds_at_the_hint_only_is_found(text: str, name: str, program: str, tmp_path: Path) -> None:
    """The rule is right for numbers, and refused for a range. Where its guard is asked at the hint it fires, wrongly."""
    checker, rule, subject = checked(tmp_path, text, name, program)
    assert checker.check(rule, subject).firings > 0
    with at_the_hints(), pytest.raises(Wrong, match=r"where `sized` is \d+ of ") as wrong:
        checker.check(rule, subject)
    assert "sized:" in " ".join(wrong.value.details)


def test_subjects_with_a_size_are_what_they_were_at_the_hint() -> None:
    (graph,) = read_program(f"## level: tensor\n{FUSION.strip()}\n")[1]
    kept = 0
    for seed in range(20):
        found = sized.with_a_size(graph, seed)  # type: ignore[arg-type]
        assert found is not None and has_sizes(found[0].outs)
        made, each, size = found
        assert with_sizes(made, {size.name: size.hint}).outs == graph.outs  # type: ignore[attr-defined]
        kept += len(each) == len(numbers(size))
    assert kept == 20


def test_a_number_at_which_an_index_divides_by_zero_is_left_out() -> None:
    """`k // (s - 1)` means nothing where s is one; an ArithmeticError there ended a check."""
    size = Size(sized.NAME, 1, 21, 1, 7)
    found = sized.at_numbers(floordiv(Var("k"), subtract(size, 1)), size)
    assert set(found) == set(numbers(size)) - {1} and found[21] == floordiv(Var("k"), 20)


def test_types_are_lines_over_a_size() -> None:
    (graph,) = read_program(f"## level: torch\n{FOLDED.strip()}\n")[1]
    drawn = [sized.with_a_size(graph, seed) for seed in range(12)]  # type: ignore[arg-type]
    found = [one for one in drawn if one is not None]
    assert {size.hint for _, _, size in found} == {4, 6}
    for made, each, size in found:
        assert len(each) >= sized.FEWEST and each[size.hint] == graph
        assert all(with_sizes(made, {size.name: n}) == at for n, at in each.items())
    shapes = {str(made.body[0].types[0].shape[0]) for made, _, size in found if size.hint == 4}
    assert any("6)" in shape for shape in shapes), shapes  # x.reshape(6*s)


def test_fusion_rules_are_asked_with_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are right at the hint alone are found."""
    checker = Checkers(load()).of("tensor")
    subject = checker.read(f"## level: tensor\n{FUSION.strip()}\n", "subject.ir")
    real = checkers._memory

    def wrong_elsewhere(kernels: Any, data: Any, graph: Any) -> Any:
        found = real(kernels, data, graph)
        return found if data["x"].shape == (6, 8) else [array * 2 for array in found]

    fired = [rule for rule in checker.fusion if checker.check(rule, subject).firings]
    assert fired
    monkeypatch.setattr(checkers, "_memory", wrong_elsewhere)
    with pytest.raises(Wrong, match=r"where `sized` is \d+ of "):
        checker.check(fired[0], subject)


def test_kernel_rules_are_asked_with_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule whose result has the blocks and turns of the hint is found at another number."""
    rules = load()
    checker, rule = Checkers(rules).of("kernel"), rules.rule("base_from_base")
    compared: list[Any] = []
    real_difference, real_rewrite = checker._differs, CompiledRule.rewrite

    def counted(*given: Any, **named: Any) -> Any:
        compared.append(given)
        return real_difference(*given, **named)

    def at_the_hint(self: CompiledRule, match: Any) -> Any:
        return tuple(map(launched, real_rewrite(self, match)))

    def launched(kernel: Any) -> Any:
        return replace(kernel, body=with_hints(kernel.body))

    monkeypatch.setattr(checker, "_differs", counted)
    compiled = checker.engine.rule(rule)
    subjects = [s for s in checker.examples([rule]) if matched(compiled, s, checker.machine)][:2]
    for subject in subjects:
        checker.check(rule, subject)
    assert len(compared) > 4
    monkeypatch.setattr(CompiledRule, "rewrite", at_the_hint)
    with pytest.raises(Wrong, match=r"where `sized` is \d+ of "):
        for subject in subjects:
            checker.check(rule, subject)


def matched(rule: CompiledRule, subject: Subject, machine: Any) -> bool:
    program = subject.value
    return any(True for _ in rule.matches(program, range(len(program)), machine, {}, None, True))
