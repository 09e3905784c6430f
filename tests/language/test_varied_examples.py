"""Examples that are others but for some edits: what they come to, and one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest

from dplc.engine.language import core as s
from dplc.engine.language.format import format_file
from dplc.engine.language.rule import read_rules
from dplc.engine.language.spelling import statement
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

RULE = """\
rule one_loop(N: int in {2, 4} = 2) on tile
match
    for k in 0..K serial:
        body..
require K % N == 0                               else "turns are left over"
rewrite
    for k in 0..K serial unroll=N:
        body..
example "eight turns" (N=4)
    for k in 0..8 serial:
        a = load x[k]
        s <- add(s, a)
gives
    for k in 0..8 serial unroll=4:
        a = load x[k]
        s <- add(s, a)
"""
FURTHER = """\
examples one_loop
example "seven turns" as "eight turns"
    "0..8" => "0..7"
    "s <- add(s, a)" => "if k < 3:", "    s <- add(s, a)"
gives no "left over"
example "nothing added" (N=2) as "seven turns"
    "if k < 3:" => ""
    "    s <- add(s, a)" => "  Sync()"
gives no "left over"
"""


def lines(program: s.Nodes) -> tuple[str, ...]:
    return tuple(line for node in program for line in statement(node))


def examples(further: str) -> list[tuple[str, ...]]:
    (rule,) = read_rules(Source("rule.rw", RULE), further=Source("rule.examples.rw", further)).rules
    return [lines(example.before) for example in rule.examples[1:]]


def test_a_line_becomes_lines_and_a_part_becomes_another() -> None:
    seven = FURTHER[: FURTHER.index('example "nothing')]
    assert examples(seven) == [
        ("for k in 0..7 serial:", "    a = load x[k]", "    if k < 3:", "        s <- add(s, a)")
    ]


def test_edits_may_be_none_where_a_parameter_differs() -> None:
    other = 'examples one_loop\nexample "in twos" (N=2) as "eight turns"\ngives no "left over"\n'
    assert examples(other) == [("for k in 0..8 serial:", "    a = load x[k]", "    s <- add(s, a)")]
    assert format_file(parse(Source("rule.examples.rw", other))) == other


def test_arguments_are_those_of_the_other_unless_it_says_its_own() -> None:
    (rule,) = read_rules(
        Source("rule.rw", RULE), further=Source("rule.examples.rw", FURTHER[: FURTHER.index('example "nothing')])
    ).rules
    assert rule.examples[1].arguments == rule.examples[0].arguments


def test_what_was_written_is_shown() -> None:
    assert format_file(parse(Source("rule.examples.rw", FURTHER))) == FURTHER


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'as "eight turns"', 'as "eight turn"',
            """\
rule.examples.rw:2:9: error: no example before this one is called "eight turn"
 2 | example "seven turns" as "eight turn"
   |         ^^^^^^^^^^^^^
  help: did you mean `eight turns`?""",
        ),
        (
            '"0..8" =>', '"0..9" =>',
            """\
rule.examples.rw:3:5: error: no line of the example says `0..9`
 3 |     "0..9" => "0..7"
   |     ^^^^^^""",
        ),
        (
            '"0..8" => "0..7"', '"0..8" => "0..7", "pass"',
            """\
rule.examples.rw:3:5: error: several lines take the place of a whole line
 3 |     "0..8" => "0..7", "pass"
   |     ^^^^^^""",
        ),
        (
            '"0..8" => "0..7"', '"0..8" => ")"',
            """\
rule.examples.rw:2:9: error: edited, the example is not a program: """,
        ),
    ],
)  # fmt: skip
def test_mistakes(old: str, new: str, expected: str) -> None:
    text = FURTHER[: FURTHER.index('example "nothing')]
    assert text.count(old) == 1
    with pytest.raises(DplcError) as error:
        examples(text.replace(old, new))
    assert error.value.render().startswith(expected)


FIRING = """\
examples one_loop
example "nine turns" (N=3) as "eight turns"
    "0..8" => "0..9"
gives
    "0..8" => "0..9"
    "unroll=4" => "unroll=3"
"""


def test_what_an_example_gives_may_be_edited_too() -> None:
    (rule,) = read_rules(Source("rule.rw", RULE), further=Source("rule.examples.rw", FIRING)).rules
    nine = rule.examples[1]
    assert lines(nine.before)[0] == "for k in 0..9 serial:"
    assert lines(nine.gives) == ("for k in 0..9 serial unroll=3:", "    a = load x[k]", "    s <- add(s, a)")
    assert format_file(parse(Source("rule.examples.rw", FIRING))) == FIRING


def test_what_a_refusal_gives_is_nothing_to_edit() -> None:
    seven = FURTHER[: FURTHER.index('example "nothing')]
    wrong = seven + 'example "and on" as "seven turns"\ngives\n    "0..7" => "0..8"\n'
    with pytest.raises(DplcError) as caught:
        examples(wrong)
    assert caught.value.what == '"seven turns" gives no program that could be edited'
    assert caught.value.hint == "write out what this example gives, or refer to one that fires"
    assert caught.value.span is not None and caught.value.span.line == wrong.count("\n", 0, wrong.index('"and on"')) + 1
