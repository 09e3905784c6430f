"""Index arithmetic of rules, proved for all extents: what is right is proved, what is wrong is refuted and shown."""

from __future__ import annotations

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.cli.app import main
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import Rule, RuleSet, load
from dplc.engine.rewrite.trace import written
from dplc.engine.verify import proofs
from dplc.engine.verify.outcome import Wrong, counterexample_text
from dplc.engine.verify.proofs import prove
from dplc.engine.verify.run import Checkers, CheckOptions, check_rule, check_subject
from dplc.ir import expr as e
from dplc.ir.text import syntax as s

z3 = pytest.importorskip("z3")

CHUNKS = """
@repeat
rule chunks(BK: int in {2, 4, 8} = 4) on tile
match
    for k in 0..K reduce:
        body..
require size(loops(body)) == 0                   else "not the innermost loop"
require BK < K                                   else "a single chunk"
require K % BK == 0                              else "the chunks leave a rest"
let ko = fresh(k, "o")
rewrite
    for ko in 0..K // BK reduce:
        for k in 0..BK reduce:
            body[k := ko*BK + k]..
"""
WRONG = {
    "a rest left out": CHUNKS.replace('require K % BK == 0                              else "the chunks leave a rest"\n', ""),
    "turns overlap": CHUNKS.replace("ko*BK + k]", "ko + k]"),
    "a turn too many": CHUNKS.replace("0..K // BK reduce", "0..K // BK + 1 reduce"),
    "twice over": CHUNKS.replace("        for k in 0..BK reduce:", "        for k in 0..2*BK reduce:"),
}  # fmt: skip


@functools.cache
def built_in() -> RuleSet:
    load_facts()
    return load()


def loaded(folder: Path, text: str) -> tuple[RuleSet, Rule]:
    path = folder / "mine.rw"
    path.write_text(text)
    rules = load([path])
    load_facts()
    return rules, rules.rule(text.split("rule ", 1)[1].split()[0].split("(")[0])


@pytest.mark.parametrize(
    ("told", "result"),
    [
        ("7 // 2 == 3", "proved"),
        ("-7 // 2 == -4", "proved"),
        ("7 // -2 == -4", "proved"),
        ("-7 % 2 == 1", "proved"),
        ("7 % -2 == -1", "proved"),
        ("7 // 2 == 4", "not provable"),
    ],
)
def test_numbers_are_divided_as_python_divides_them(told: str, result: str, tmp_path: Path) -> None:
    """A guard that never holds leaves nothing to prove."""
    text = CHUNKS.replace("require BK < K", f'require {told} else "so"\nrequire BK < K')
    assert prove(loaded(tmp_path, text)[1]).result == result


NUMBER_BY_NAME = CHUNKS.replace("require BK < K", 'require 64 // BK > 0 else "chunks of more"\nrequire BK < K')


@pytest.mark.parametrize("text", [CHUNKS, NUMBER_BY_NAME], ids=["chunks", "number by name"])
def test_what_is_right_is_proved(text: str, tmp_path: Path) -> None:
    assert prove(loaded(tmp_path, text)[1]).result == "proved"


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.sampled(3)
def test_what_is_wrong_is_refuted_and_shown_on_a_program(what: str, tmp_path: Path) -> None:
    rules, rule = loaded(tmp_path, WRONG[what])
    verdict = check_rule(rule, Checkers(rules), CheckOptions(examples=0, borrow=False))
    assert verdict.proof is not None
    assert verdict.proof.result == "refuted"
    assert verdict.result == "wrong"
    with pytest.raises(Wrong):
        check_subject(rules, rule, counterexample_text(verdict), "again.ir")


PROVED = """
unit_axis chunk_matmul_k split_matmul_k blockify_launch blockify_flat chunk_reduce register_tile permute_register_tile
pipeline_k_outer pipeline_predicated
vector_reduce collapse merge_axes
"""


@pytest.mark.parametrize("name", PROVED.split())
@pytest.mark.sampled(7)
def test_built_in_index_rules_are_proved(name: str) -> None:
    proof = prove(built_in().rule(name))
    assert proof.result == "proved", proof


# what these rules say of divisors and counts is what makes them right
NEEDED = {
    "permute_register_tile": ("F % V == 0", "strided(body, j, r, F)"),
    "pipeline_k_outer": ("K >= N",),
    "vector_reduce": ("K % V == 0",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "guard"), [(name, guard) for name, guards in NEEDED.items() for guard in guards])
def test_without_a_guard_the_proof_fails(name: str, guard: str) -> None:
    rule = built_in().rule(name)
    kept = tuple(c for c in rule.clauses if not (isinstance(c, s.Guard) and written(c.condition) == guard))
    assert len(kept) == len(rule.clauses) - 1
    assert prove(dataclasses.replace(rule, clauses=kept)).result == "refuted"


def test_a_rule_that_can_never_fire_is_not_proved(tmp_path: Path) -> None:
    text = CHUNKS.replace("require BK < K", 'require K < 0 else "never"\nrequire BK < K')
    assert prove(loaded(tmp_path, text)[1]).result == "not provable"


def test_the_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (mine := tmp_path / "mine.rw").write_text(CHUNKS)
    monkeypatch.setattr(Checkers, "borrowed", lambda *_: ())

    def said() -> str:
        with pytest.raises(SystemExit):
            main(["check", str(mine), "--examples", "0", "--allow-thin"])
        return capsys.readouterr().out

    assert "chunks: proved: `body` under k := ko*BK + k" in said()
    monkeypatch.setattr(proofs, "solver_module", lambda: None)
    assert "index arithmetic was not proved: Z3 is missing" in said()


# ---- canonical expressions, which every rule and the lowering are written in


def drawn(rnd: random.Random, depth: int) -> Any:
    """(an expression as it was written, over the integers; its canonical form)."""
    if depth == 0 or rnd.random() < 0.2:
        if rnd.random() < 0.7:
            name = rnd.choice("xyz")
            return z3.Int(name), e.Var(name)
        number = rnd.randint(-9, 9)
        return z3.IntVal(number), number
    op = rnd.choice(("+", "-", "*", "//", "%"))
    a = drawn(rnd, depth - 1)
    number = rnd.randint(1, 9)
    b = drawn(rnd, depth - 1) if op in "+-" else (z3.IntVal(number), number)
    plain = {"+": a[0] + b[0], "-": a[0] - b[0], "*": a[0] * b[0], "//": a[0] / b[0], "%": a[0] % b[0]}[op]
    return plain, e.binary(op, a[1], b[1])


def meant(value: Any) -> Any:
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, e.Var):
        return z3.Int(value.name)
    if isinstance(value, e.Sum):
        return sum((meant(atom) * n for atom, n in value.terms), z3.IntVal(value.constant))
    a, b = meant(value.a), meant(value.b)
    return {"*": lambda: a * b, "//": lambda: a / b, "%": lambda: a % b}[value.op]()


def test_canonical_forms_are_the_same_number_for_all_integers() -> None:
    rnd, solver = random.Random(5), z3.Solver()
    for _ in range(150):
        plain, canonical = drawn(rnd, 3)
        assert solver.check(plain != meant(canonical)) == z3.unsat, (plain, canonical)
