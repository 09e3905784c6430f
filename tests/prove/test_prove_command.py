"""`dplc check --prove` and `dplc rules list --proofs`: labels, counterexamples and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Command

from dplc.engine.verify import proofs

RULE = """
## Distributivity, to divide once.
@approx
rule divide_once_more on tensor
match
    y = add(divide(x, c), divide(z, c))
rewrite
    t = {}(x, z)
    y = divide(t, c)
example "two quotients"
    graph g(x: f32[i:4], z: f32[i:4], c: f32[i:4]) -> y: f32[4]:
        a[i:4] = divide(x[i], c[i])
        b[i] = divide(z[i], c[i])
        y[i] = add(a, b)
gives
    graph g(x: f32[i:4], z: f32[i:4], c: f32[i:4]) -> y: f32[4]:
        t[i:4] = {}(x[i], z[i])
        y[i] = divide(t, c[i])
"""


def written(folder: Path, fn: str) -> Path:
    path = folder / "mine.rw"
    path.write_text(RULE.replace("{}", fn))
    return path


def test_right_rule_is_proved_with_its_assumptions(dplc: Command, tmp_path: Path) -> None:
    out = dplc("check --prove --examples 4", written(tmp_path, "add")).out
    assert out.startswith("divide_once_more: proved for all ranks and sizes\n")
    assert "assumed: arithmetic on real numbers" in out and "1 rules: 1 proved for all ranks and sizes" in out


def test_wrong_rule_is_refuted_by_a_program(dplc: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "subtract")
    done = dplc("check --prove --examples 4 --json", path, code=1)
    (proof,) = json.loads(done.out)["proofs"]
    assert proof["label"] == "refuted" and not proof["equation"]["laws"]
    shown = dplc("check --prove --examples 4", path, code=1)
    assert (
        "is wrong" in shown.out and "divide_once_more: refuted" in shown.out and (tmp_path / "counterexamples").is_dir()
    )


def test_unknown_rule_is_a_mistake_of_usage(dplc: Command) -> None:
    dplc("check --prove --rule nonsense", code=2)


@pytest.mark.parametrize(("fn", "label"), [("add", "proved for all ranks and sizes"), ("subtract", "refuted")])
def test_list_shows_labels(fn: str, label: str, dplc: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of a file is tried on programs first. Without Z3, rules on tile are tested alone."""
    monkeypatch.setattr(proofs, "solver_module", lambda: None)
    lines = dplc("rules list --proofs --rules", written(tmp_path, fn)).out.splitlines()
    assert f"divide_once_more: {label}" in lines
    assert "hoist_divisor: proved for all ranks and sizes" in lines and "chunk_matmul_k: tested" in lines
