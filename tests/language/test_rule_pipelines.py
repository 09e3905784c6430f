"""Pipelines: file order unless a line says otherwise, users' files laid over, contradictions pointed at."""

from __future__ import annotations

import pytest

from dplc.engine.language.pipeline import describe, pipelines
from dplc.engine.language.rule import RuleFile, RuleSet, read_rules
from dplc.ir.diagnostic import Source


def one_rule(name: str, level: str = "tile", body: str = "    Sync()\n    Sync()\n", parameters: str = "") -> RuleFile:
    """A file that holds one rule of its own name."""
    head = f"rule {name}{parameters} on {level}\n"
    return read_rules(Source(f"rules/{name}.rw", f"{head}match\n{body}rewrite\n    Sync()\n"))


PASSES = [one_rule(name) for name in ("a", "b", "c", "d", "e")] + [
    one_rule("tuned", parameters="(V: int in {1, 2} = 1)", body="    Sync()\n    Wait(keep=V)\n")
]
OURS = "pipeline tile\n    pass a\n    pass b\n    pass c\n    pass d\n    pass e\n    pass tuned last\n"


def rules(ours: str, user: str | None = None, *more: RuleFile) -> RuleSet:
    files = [*PASSES, read_rules(Source("rules/pipeline.rw", ours)), *more]
    return RuleSet(files if user is None else [*files, read_rules(Source("my.rw", user))])


def order(ours: str, user: str | None = None, *more: RuleFile) -> str:
    return " ".join(step.label for step in pipelines(rules(ours, user, *more))["tile"])


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("a b c d e tuned", "a b c d e tuned"),
        ("a, b, c last, d, e, tuned", "a b d e tuned c"),
        ("a, b, c first, d, e, tuned", "c a b d e tuned"),
        ("a after d, b, c, d, e, tuned", "b c d a e tuned"),
        ("a, b, c, d, e before b, tuned", "a e b c d tuned"),
        ("a, b after a, c after b, d, e, tuned", "a b c d e tuned"),
        ("a last, b last, c, d, e, tuned", "c d e tuned a b"),
        ("a after c, b after c, c, d, e, tuned", "c a b d e tuned"),
    ],
)
def test_lines_stay_unless_they_ask_to_move(lines: str, wanted: str) -> None:
    entries = lines.split(", ") if "," in lines else lines.split()
    assert order("pipeline tile\n" + "".join(f"    pass {entry}\n" for entry in entries)) == wanted


@pytest.mark.parametrize(
    ("user", "wanted"),
    [
        ("pass a as again after c", "a b c again d e tuned"),
        ("pass a as again before c", "a b again c d e tuned"),
        ("pass a as again", "a b c d e again tuned"),
        ("pass a as again first", "again a b c d e tuned"),
        ("pass a as again last", "a b c d e tuned again"),
        ("pass a as x after b\n    pass a as y after b", "a b x y c d e tuned"),
        ("pass c after e", "a b d e c tuned"),
        ("pass tuned(V=2)", "a b c d e tuned"),
    ],
)
def test_a_users_lines_go_beside_what_they_name(user: str, wanted: str) -> None:
    assert order(OURS, f"pipeline tile\n    {user}\n") == wanted


def test_a_line_said_again_brings_its_parameters() -> None:
    steps = pipelines(rules(OURS, "pipeline tile\n    pass tuned(V=2)\n"))["tile"]
    assert steps[-1].parameters == {"V": 2}
    assert steps[-1].location == "my.rw:2"


def test_a_line_is_said_again_by_its_label() -> None:
    ours = OURS.replace("pass tuned last", "pass tuned as spread")
    steps = pipelines(rules(ours, "pipeline tile\n    pass spread(V=2)\n"))["tile"]
    assert [(step.label, step.name, step.parameters) for step in steps][-1] == ("spread", "tuned", {"V": 2})


def test_line_given_again_keeps_its_number() -> None:
    user = "pipeline tile\n    pass tuned(V=2)\n"
    step = pipelines(rules(OURS.replace("pass tuned", "pass 006_tuned"), user))["tile"][-1]
    assert (step.numbered, step.parameters) == ("006_tuned", {"V": 2})


def test_lines_move_apart_for_a_users_line_between_them() -> None:
    ours = OURS.replace("pass b", "pass b after mine").replace("pass d", "pass d before mine")
    assert order(ours, "pipeline tile\n    pass a as mine\n") == "a d mine b c e tuned"


def test_a_pass_in_no_pipeline_runs_after_ours() -> None:
    assert order(OURS, None, one_rule("mine")) == "a b c d e mine tuned"


def test_a_rule_on_several_kernels_stands_on_the_side_of_tile_that_it_mentions() -> None:
    kernel = "    kernel f(ins..) -> outs..:\n        {}"
    plain = one_rule("plain", "module", kernel.format("body..\n"))
    tiled = one_rule("tiled", "module", kernel.format("Tile(axes..):\n            body..\n"))
    found = pipelines(rules(OURS, None, plain, tiled))
    assert [step.label for step in found["loop"]] == ["plain"]
    assert [step.label for step in found["tile"]][-2:] == ["tiled", "tuned"]


def test_without_takes_out_a_pass_a_label_or_a_rule() -> None:
    assert order(OURS, "without b\nwithout tuned\n") == "a c d e"
    assert order(OURS.replace("pass b", "pass b as spread"), "without spread\n") == "a c d e tuned"
    both = read_rules(Source("both.rw", "\n".join(PASSES[0].source.text.replace("rule a", f"rule {n}") for n in "xy")))
    steps = pipelines(rules(OURS, "without x\n", both))["tile"]
    assert [rule.name for step in steps if step.name == "both" for rule in step.rules] == ["y"]


def test_a_later_file_puts_back_what_an_earlier_one_took_out() -> None:
    ours = OURS.replace("    pass b\n", "") + "\nwithout b\n"
    assert order(ours) == "a c d e tuned"
    assert order(ours, "pipeline tile\n    pass b after c\n") == "a c b d e tuned"


def test_a_rule_that_moves_a_mat_decides_what_is_stored() -> None:
    keep = "rule keep on tensor\nmatch\n    h = mat(v)\nrewrite\n    h = v\n"
    text = keep + "\n" + keep.replace("keep", "fold").replace("mat(", "exp(")
    found = pipelines(rules(OURS, None, read_rules(Source("my.rw", text))))
    assert {name: [rule.name for step in found[name] for rule in step.rules] for name in ("tensor", "fusion")} == {
        "tensor": ["fold"],
        "fusion": ["keep"],
    }


def test_a_wish_about_a_dropped_pass_is_no_error() -> None:
    assert order(OURS, "without b\npipeline tile\n    pass a as again after b\n") == "a again c d e tuned"


def test_one_of_ties_passes_together() -> None:
    steps = pipelines(rules(OURS.replace("    pass d\n", '    one of d, b because "both rotate"\n')))["tile"]
    assert [(step.label, step.group) for step in steps[1:4]] == [("b", "d | b"), ("c", None), ("d", "d | b")]


def test_describe_shows_order_origin_and_reasons() -> None:
    text = describe(rules(OURS, 'pipeline tile\n    pass tuned(V=2) as more after a because "twice"\n'))
    assert text == (
        "pipeline tile\n"
        "    a                   rules/pipeline.rw:2\n"
        "    tuned(V=2) as more  my.rw:2              twice\n"
        "    b                   rules/pipeline.rw:3\n"
        "    c                   rules/pipeline.rw:4\n"
        "    d                   rules/pipeline.rw:5\n"
        "    e                   rules/pipeline.rw:6\n"
        "    tuned               rules/pipeline.rw:7\n"
    )


def test_describe_shows_what_a_file_replaces_and_takes_out() -> None:
    user = "override rule c on tile\nmatch\n    Sync()\nrewrite\n    Sync()\n\nwithout e\n\n"
    text = describe(rules(OURS, user + 'pipeline tile\n    without b because "slow"\n'))
    assert text == (
        "pipeline tile\n"
        "    a                  rules/pipeline.rw:2\n"
        "    c                  rules/pipeline.rw:4\n"
        "      override rule c  my.rw:1              in the place of the library's own\n"
        "    d                  rules/pipeline.rw:5\n"
        "    tuned              rules/pipeline.rw:7\n"
        "    - without e        my.rw:7\n"
        "    - without b        my.rw:10             slow\n"
    )
    back = OURS.replace("    pass b\n", "") + "\nwithout b\n"
    assert "without" not in describe(rules(back, "pipeline tile\n    pass b after c\n"))


def test_without_in_a_pipeline_takes_out_of_that_pipeline_alone() -> None:
    both = one_rule("m", "module", "    kernel f(ins..) -> outs..:\n        body..\n")
    ours = OURS + "pipeline loop\n    pass m\npipeline tile\n    pass m\n"
    for name, left in (("loop", "a b c d e m tuned"), ("tile", "a b c d e tuned")):
        assert order(ours, f"pipeline {name}\n    without m\n", both) == left


def test_without_takes_out_a_canonical_rule() -> None:
    clean = read_rules(Source("clean.rw", "@canonical\n" + PASSES[0].source.text.replace("rule a", "rule clean")))
    assert [rule.name for rule in rules(OURS, None, clean).canonical] == ["clean"]
    assert rules(OURS, "without clean\n", clean).canonical == ()
    assert "- without clean  my.rw:1" in describe(rules(OURS, "without clean\n", clean))
