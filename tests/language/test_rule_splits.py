"""Splits and `let` in a template: what they are written out as, and one seeded mistake each, the whole message."""

from __future__ import annotations

import re

import pytest
from broken_rules import change, report

from dplc.engine.language import core as s
from dplc.engine.language.format import format_rule
from dplc.engine.language.rule import BUILT_IN, Rule, read_rules
from dplc.engine.language.spelling import expression, statement
from dplc.ir.diagnostic import Source

BLOCKS = """\
rule blocks(B: int in pow2(1, 256) = 16) on tile
match
    Tile(outer.., i:M=THREAD):
        body..
split i:M => i_o:ceildiv(M, B)=BLOCK, i:B=THREAD
rewrite
    Tile(outer..=BLOCK, i..):
        body..
"""
CHUNKS = """\
rule chunks(B: int in pow2(1, 256) = 16) on tile
match
    before..
    for k in 0..K reduce:
        body..
split k:K => ko=serial, k:B=reduce
rewrite
    before..
    for ko:
        for k unroll=2:
            body..
"""
TWICE = """\
rule twice(B: int in {32, 64} = 32) on tile
match
    Tile(outer.., i:M=THREAD):
        for j in 0..J reduce:
            score..
            value..
        tail..
split i:M => i_o=BLOCK, row:B
split row:B => ri:B // 8=REG, i:8=THREAD
split j:J => jo=serial, j:64=reduce
split j:64 => q:2=REG, n:32=THREAD
rewrite
    Tile(outer..=BLOCK, i_o, i, n, ri, q):
        P = SharedTile(row, j)
        for jo:
            if within(i, j):
                score..
            P[row, j] = x
            for j:
                w = load P[row, j] if within(j) else 0.0
                value..
        tail..
"""
JOINED = """\
rule joined on tile
match
    for k in 0..K reduce:
        for l in 0..L reduce:
            body..
let k_flat = fresh(k, "flat")
rewrite
    for k_flat in 0..K*L reduce:
        body[k := k_flat // L, l := k_flat % L]..
"""


def rule(text: str) -> Rule:
    return read_rules(Source("rule.rw", text)).rules[0]


def template(text: str) -> str:
    return "\n".join(line for node in rule(text).rewrite for line in statement(node))


def test_an_axis_is_split_and_guarded() -> None:
    assert (
        template(BLOCKS)
        == """\
Tile(outer..=BLOCK, i_o:ceildiv(M, B)=BLOCK, i:B=THREAD):
    if i_o*B + i < M:
        body[i := i_o*B + i].."""
    )


def test_what_divides_has_no_guard() -> None:
    assert (
        template(change(BLOCKS, "ceildiv(M, B)", "M // B"))
        == """\
Tile(outer..=BLOCK, i_o:M // B=BLOCK, i:B=THREAD):
    body[i := i_o*B + i].."""
    )


def test_a_part_is_called_after_what_is_split() -> None:
    assert [(c.name, c.value.items[1].value) for c in rule(BLOCKS).clauses] == [("i_o", "o")]  # type: ignore[union-attr]


def test_a_loop_is_split_where_it_stood_only() -> None:
    assert (
        template(CHUNKS)
        == """\
before..
for ko in 0..ceildiv(K, B) serial:
    for k in 0..B reduce unroll=2:
        if ko*B + k < K:
            body[k := ko*B + k].."""
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("score[row := 7]", "score[i := i_o*B + 7]"),
        ("score[m := 3]", "score[m := 3]"),
        ("score[row := 7, m := 3]", "score[i := i_o*B + 7, m := 3]"),
    ],
)
def test_a_clause_asks_for_a_part_at_one_place(said: str, meant: str) -> None:
    """A part stands for the axis that has it; what is no part is taken as it is."""
    asked = rule(TWICE.replace("rewrite\n", f"let m = 5\nlet high = {said}\nrewrite\n"))
    (high,) = (clause.value for clause in asked.clauses if isinstance(clause, s.LetClause) and clause.name == "high")
    assert expression(high) == meant


def test_what_a_template_says_of_a_run_itself_is_not_said_again() -> None:
    """The axes that are split, unless the run has another place for one of them."""
    text = template(TWICE.replace("                score..", "                score[j := 0, m := 5].."))
    assert "score[j := 0, m := 5, i := i_o*B + ri*8 + i].." in text
    text = template(TWICE.replace("                score..", "                score[3].."))
    assert "score[3, i := i_o*B + ri*8 + i, j := jo*64 + q*32 + n].." in text, "left to the check, which tells it"


def test_splits_compose_and_a_loop_holds_its_part() -> None:
    assert (
        template(TWICE)
        == """\
Tile(outer..=BLOCK, i_o:ceildiv(M, B)=BLOCK, i:8=THREAD, n:32=THREAD, ri:B // 8=REG, q:2=REG):
    P = SharedTile(row:B, j:64)
    for jo in 0..ceildiv(J, 64) serial:
        if i_o*B + ri*8 + i < M:
            if jo*64 + q*32 + n < J:
                score[i := i_o*B + ri*8 + i, j := jo*64 + q*32 + n]..
        P[ri*8 + i, q*32 + n] = x
        for j in 0..64 reduce:
            w = load P[ri*8 + i, j] if jo*64 + j < J else 0.0
            value[i := i_o*B + ri*8 + i, j := jo*64 + j]..
    tail[i := i_o*B + ri*8 + i].."""
    )


SHARED = """\
rule diagonal on tile
match
    Tile(outer.., i:M=THREAD, j:N=THREAD):
        body..
split i:M => x=BLOCK, y:4=REG
split j:N => z:2=REG, x
rewrite
    Tile(outer..=BLOCK, x, y, z):
        body..
"""


def test_shared_part_without_size_weighs_the_parts_outside_it() -> None:
    assert (
        template(SHARED)
        == """\
Tile(outer..=BLOCK, x:ceildiv(M, 4)=BLOCK, y:4=REG, z:2=REG):
    if x*4 + y < M:
        if z*ceildiv(M, 4) + x < N:
            body[i := x*4 + y, j := z*ceildiv(M, 4) + x].."""
    )


def test_a_let_is_written_out_in_its_block() -> None:
    lines = "        let place = i*2\n        let next = place + 1\n        y[next] = 1.0\n"
    text = change(BLOCKS, "    Tile(outer..=BLOCK, i..):\n", "    Tile(outer..=BLOCK, i..):\n" + lines)
    assert template(text).splitlines()[1] == "    y[i*2 + 1] = 1.0"


def test_lets_that_double_each_other_are_refused() -> None:
    doubling = "".join(f"    let a{n + 1} = a{n} + a{n}\n" for n in range(40))
    lines = f"    let a0 = k_flat + 1\n{doubling}    y[a40] = 1.0\n"
    assert (
        report(
            change(
                JOINED,
                "    for k_flat in 0..K*L reduce:\n",
                "    for k_flat in 0..K*L reduce:\n" + lines.replace("    ", "        "),
            )
        )
        == """\
rule.rw:20:13: error: rule `joined`: `a11`, written out, is too long: every `let` before it doubles it
 20 |         let a11 = a10 + a10
    |             ^^^
  help: read a `let` once, or take fewer of them"""
    )


@pytest.mark.parametrize("text", [BLOCKS, CHUNKS, TWICE, JOINED])
def test_what_was_written_is_shown(text: str) -> None:
    assert format_rule(rule(text)) == text


def test_no_rule_of_ours_has_index_arithmetic_of_a_split_by_hand() -> None:
    """`body[k := ko*BK + k]`: a substitution of a name by a sum that has it as its last digit."""
    by_hand = []
    for path in sorted((BUILT_IN / "tile").rglob("*.rw")):
        if not path.name.endswith(".examples.rw"):
            for one in read_rules(Source(path.name, path.read_text())).rules:
                lines = (line for line in "\n".join(format_rule(one).split("\nexample")[:1]).splitlines())
                by_hand += [f"{path.name}: {line}" for line in lines if re.search(r"(?:\[|, )\w+ := [^,]*\*", line)]
    assert by_hand == []
