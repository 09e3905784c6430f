"""Passes, order, fixpoints, and what a trace shows."""

import pytest
from trial import TARGET, block, engine, fire, plain, text

from dplc.engine.language.pipeline import PassStep
from dplc.engine.rewrite.statements.driver import only, run_pipeline
from dplc.engine.rewrite.trace import STRICT, Firing, Skip, Trace
from dplc.ir.diagnostic import DplcError

BUMP = """
rule bump(U: int in {2, 3} = 2) on tile
match
    for k in 0..n serial:
        body..
require n > 1                            else "one round"
rewrite
    for k in 0..n - 1 serial:
        body..
"""
LOOP = "for k in 0..4 serial:\n    y[k] = 1.0"
TWO = """
kernel f(x: f32[4]) -> y: f32[4]:
    for k in 0..4 serial:
        y[k] = 1.0

kernel g(y: f32[4]) -> z: f32[4]:
    for k in 0..1 serial:
        z[k] = 1.0

kernel h(y: f32[4]) -> w: f32[4]:
    for k in 0..3 serial:
        w[k] = 1.0
"""


def test_a_pass_fires_once_per_kernel():
    assert fire(BUMP, LOOP).startswith("for k in 0..3")
    made = text(engine(BUMP).fire("bump", block(TWO), TARGET))
    assert [line.strip() for line in made.splitlines() if "for" in line] == [
        "for k in 0..3 serial:", "for k in 0..1 serial:", "for k in 0..2 serial:",
    ]  # fmt: skip


def test_repeat_goes_on_until_no_site_is_left():
    assert fire("@repeat" + BUMP, LOOP).startswith("for k in 0..1")


def test_a_pass_that_does_not_stop_names_its_rule():
    endless = BUMP.replace('require n > 1                            else "one round"\n', "").replace("n - 1", "n + 1")
    with pytest.raises(
        DplcError, match=r"does not stop after 64 firings in kernel `example`: `bump` fires on what it made"
    ):
        fire("@repeat" + endless, LOOP)


def test_an_endless_rule_gets_a_short_message():
    grow = "@repeat\nrule grow on tile\nmatch\n    Wait(keep=n)\nrewrite\n    Wait(keep=n + 1)\n"
    with pytest.raises(DplcError) as stop:
        fire(grow, "Wait()\nSync()")
    assert (
        stop.value.render()
        == """\
rules/tile/001_test1.rw:2:6: error: pass `grow` does not stop after 64 firings in kernel `example`: `grow` fires on what it made
 2 | rule grow on tile
   |      ^^^^
  note: `grow` at rules/tile/001_test1.rw:2 changes
  note:   -    Wait(keep=63)
  note:   +    Wait(keep=64)
  help: add a condition that fails on what the rule made, or `decreases N`: a number N that every firing makes smaller"""
    )


WAITS = "rule {} on tile\nmatch\n    Wait(keep=n)\n{}rewrite\n    Wait(keep={})\n"
COUNTED = 'decreases size([w for w in statements("Wait") if w.keep == {}])\n'
ENDLESS = {
    "equal": ["@repeat\n" + WAITS.format("up", 'decreases size(statements("Wait"))\n', "n + 1")],
    "greater": ["@repeat\n" + WAITS.format("up", "decreases n\n", "n + 1")],
    "below zero": ["@repeat\n" + WAITS.format("up", "decreases 3 - n\n", "n + 1")],
    "a list": ["@repeat\n" + WAITS.format("up", 'decreases [size(statements("Wait")), 2*n]\n', "n + 2")],
    "two rules": [
        "@repeat\n" + WAITS.format("up", COUNTED.format(0), 1).replace("keep=n", "keep=0"),
        "@repeat\n" + WAITS.format("down", COUNTED.format(1), 0).replace("keep=n", "keep=1"),
    ],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_measure_that_does_not_decrease_is_named(name):
    with pytest.raises(DplcError, match=r"rule `(up|down)` does not decrease `.*: it was .* and is") as stop:
        made = engine("".join(ENDLESS[name]))
        made.fire("test1", block("Wait()"), TARGET)
    assert "decreases" in stop.value.span.source.line(stop.value.span.line)


def test_a_measure_that_grows_ends_only_endless_rules(monkeypatch):
    up = '@repeat\nrule up on tile\nmatch\n    Wait(keep=n)\nrequire n < 9 else "nine"\ndecreases n\n'
    up += "rewrite\n    Wait(keep=n + 1)\n"
    with pytest.raises(DplcError, match="does not decrease `n`"):
        fire(up, "Wait()")
    monkeypatch.setenv(STRICT, "0")
    assert fire(up, "Wait()") == "Wait(keep=9)"
    with pytest.raises(DplcError, match="does not decrease `n`"):
        fire(up.replace("n < 9", "n >= 0"), "Wait()")


def test_a_rule_that_decreases_its_measure_needs_no_fuel():
    down = '@repeat\nrule down on tile\nmatch\n    Wait(keep=n)\nrequire n > 0 else "zero"\n'
    assert fire(down + "decreases n\nrewrite\n    Wait(keep=n - 1)\n", "Wait(keep=300)") == "Wait()"


def test_a_rule_without_repeat_fires_once_beside_one_that_repeats():
    turn = "rule turn on tile\nmatch\n    Sync()\n    Wait()\nrewrite\n    Wait()\n    Sync()\n"
    back = "rule back on tile\nmatch\n    Wait()\n    Sync()\nrewrite\n    Sync()\n    Wait()\n"
    once = "@repeat\nrule none on tile\nmatch\n    Wait(keep=9)\nrewrite\n    Sync()\n"
    made = engine(once + turn + back)
    assert text(made.fire("test1", block("Sync()\nWait()"), TARGET)) == "Sync()\nWait()"


def test_the_result_must_differ():
    same = "@repeat\nrule same on tile\nmatch\n    Sync()\nrewrite\n    Sync()\n"
    assert fire(same, "Sync()") == "Sync()"


def test_what_the_canonical_rules_undo_is_no_firing():
    undone = (
        "@repeat\nrule twice on tile\nmatch\n    Wait()\nrewrite\n    Wait()\n    Wait()\n"
        "@canonical\nrule once on tile\nmatch\n    Wait()\n    Wait()\nrewrite\n    Wait()\n"
    )
    assert fire(undone, "Wait()") == "Wait()"


def test_rules_of_a_pass_are_tried_in_file_order():
    rules = (
        'rule first on tile\nmatch\n    Wait(keep=n)\nrequire n > 3 else "x"\nrewrite\n'
        "    Wait(keep=1)\nrule second on tile\nmatch\n    Wait(keep=n)\nrewrite\n"
        "    Wait(keep=2)\n"
    )
    made = engine(rules)
    step = "test1"
    assert text(made.fire(step, block("Wait(keep=9)"), TARGET)) == "Wait(keep=1)"
    assert text(made.fire(step, block("Wait(keep=3)"), TARGET)) == "Wait(keep=2)"


CANONICAL = """
@canonical
rule sync_sync on tile
match
    Sync()
    Sync()
rewrite
    Sync()
"""


def test_canonical_rules_run_to_a_fixpoint_after_every_firing():
    rules = "rule r on tile\nmatch\n    Wait()\nrewrite\n    Sync()\n    Sync()\n    Sync()\n" + CANONICAL
    assert fire(rules, "Wait()") == "Sync()"


def test_canonical_rules_that_undo_each_other_are_named():
    rules = (
        "rule r on tile\nmatch\n    Sync()\nrewrite\n    Wait()\n@canonical\n"
        "rule up on tile\nmatch\n    Wait(keep=0)\nrewrite\n    Wait(keep=1)\n@canonical\n"
        "rule down on tile\nmatch\n    Wait(keep=1)\nrewrite\n    Wait(keep=0)\n"
    )
    with pytest.raises(DplcError, match="`up` and `down` undo one another"):
        fire(rules, "Sync()")


def test_a_kernel_is_made_canonical_once():
    made = engine(CANONICAL)
    program = made.normal(block("Sync()\nSync()"), TARGET)
    assert made.normal(program, TARGET) is program


def test_kernels_that_a_pass_makes_count_as_done():
    split = (
        "rule split on module\nmatch\n    kernel f(ins..) -> outs..:\n        body..\n"
        'let g = fresh(f, "a")\nrewrite\n    kernel g(ins..) -> outs..:\n        body..\n'
        "    kernel f(ins..) -> outs..:\n        body..\n"
    )
    made = engine(split).fire("split", block("kernel k(x: f32[4]) -> y: f32[4]:\n    y[0] = 1.0"), TARGET)
    assert [kernel.name for kernel in made] == ["k_a", "k"]


def test_fuel_is_counted_per_kernel():
    many = "\n".join(
        f"kernel f{n}(x: f32[4]) -> y{n}: f32[4]:\n    for k in 0..4 serial:\n        y{n}[k] = 1.0\n"
        for n in range(70)
    )
    made = engine("@repeat" + BUMP).fire("bump", block(many), TARGET)
    assert len(made) == 70 and all(kernel.body[0].stop == 1 for kernel in made)


def test_a_rewrite_that_breaks_the_program_is_found_in_tests():
    rules = "rule r on tile\nmatch\n    a = load A[i..]\nrewrite\n    a = load A[i..]\n    a = load A[i..]\n"
    with pytest.raises(DplcError, match="`a` is defined twice in one block"):
        fire(rules, "a = load A[0]")


def test_an_unknown_pass():
    with pytest.raises(DplcError, match="did you mean `bump`"):
        engine(BUMP).step("bumpp")


# ---- pipelines


def step(made, name, label=None, group=None, **parameters):
    found = made.step(name)
    return PassStep(found.name, found.rules, parameters, label or name, found.span, group)


def test_passes_run_in_the_order_of_the_pipeline():
    made = engine(
        "rule a on tile\nmatch\n    Sync()\nrewrite\n    Wait()\n",
        "rule b on tile\nmatch\n    Wait()\nrewrite\n    Wait(keep=1)\n",
    )
    assert (
        text(run_pipeline(made, [step(made, "test1"), step(made, "test2")], block("Sync()"), TARGET)) == "Wait(keep=1)"
    )
    assert text(run_pipeline(made, [step(made, "test2"), step(made, "test1")], block("Sync()"), TARGET)) == "Wait()"


def test_one_of_a_group_fires_in_each_kernel():
    made = engine(
        "rule a on tile\nmatch\n    for k in 0..4 serial:\n        b..\nrewrite\n"
        "    for k in 0..4 free:\n        b..\n",
        "rule b on tile\nmatch\n    for k in 0..n role:\n        b..\nrewrite\n"
        "    for k in 0..n reduce:\n        b..\n",
    )
    steps = [step(made, "a", group="a | b"), step(made, "b", group="a | b")]
    trace = Trace()
    result = run_pipeline(made, steps, block(TWO), TARGET, trace)
    assert [kernel.body[0].role for kernel in result] == ["free", "reduce", "reduce"]
    assert "--- t:b skipped at f: another pass of `one of a | b` fired" in trace.render(2, ["each"])


def test_only():
    made = engine(
        BUMP,
        "rule b on tile\nmatch\n    Wait()\nrewrite\n    Sync()\nrule c on tile\nmatch\n"
        "    Sync()\nrewrite\n    Wait()\n",
    )
    steps = [step(made, "test1", "first"), step(made, "test2")]
    assert [s.label for s in only(steps, ["first"])] == ["first"]
    assert [[r.name for r in s.rules] for s in only(steps, ["c"])] == [["c"]]
    assert [s.label for s in only(steps, ["001_test1", "test2"])] == ["first", "test2"]
    assert only(steps, ["bumb"]) == ()


# ---- the trace


def test_a_trace_is_sliceable():
    made = engine(BUMP, CANONICAL + "rule r on tile\nmatch\n    Wait()\nrewrite\n    Sync()\n")
    trace = Trace()
    run_pipeline(made, [step(made, "test1"), step(made, "test2")], block(TWO), TARGET, trace)
    lines = trace.render(2, ["each"]).splitlines()
    assert lines[0] == ">>> t:001_test1"
    assert lines[1] == "# t:001_test1 bump at f 0/0 (U=2) rules/tile/001_test1.rw:2"
    assert "-    for k in 0..4 serial:" in lines and "+    for k in 0..3 serial:" in lines
    assert lines.index("<<< t:001_test1") < lines.index(">>> t:001_test1", 1)
    skip = '--- t:001_test1 skipped at g: rules/tile/001_test1.rw:6: bump: matched, but "one round" [n > 1; n=1]'
    assert skip in lines
    assert sum(line.startswith("--- t:002_test2 skipped at ") for line in lines) == 3
    assert not any(line.startswith(("---", "+++")) and ": " not in line for line in lines)


def test_of_several_reasons_the_deepest_is_told():
    rules = BUMP.replace("rewrite", 'require n > 8                            else "few rounds"\nrewrite')
    trace = Trace()
    program = block(
        "for a in 0..1 serial:\n    Sync()\nfor k in 0..4 serial:\n    Sync()\nfor b in 0..1 serial:\n    Sync()"
    )
    engine(rules).fire("bump", program, TARGET, trace=trace)
    (skip,) = trace.skips
    assert 'matched, but "few rounds" [n > 8; n=4]' in skip.line()


def test_one_line_per_firing():
    made = engine(BUMP)
    trace = Trace()
    made.fire("bump", block(TWO), TARGET, trace=trace)
    assert trace.render(1).splitlines() == [
        "t:bump bump at f 0/0 (U=2) rules/tile/001_test1.rw:2", "t:bump bump at h 2/0 (U=2) rules/tile/001_test1.rw:2",
    ]  # fmt: skip


def test_an_alias_is_the_label():
    made = engine(BUMP)
    trace = Trace().at("loop")
    made.fire(step(made, "test1", "shorten"), block(LOOP), TARGET, trace=trace)
    assert trace.firings[0].marker == "l:shorten"


def test_the_canonical_rules_that_ran_are_shown():
    made = engine(CANONICAL + "rule r on tile\nmatch\n    Wait()\nrewrite\n    Sync()\n    Sync()\n")
    trace = Trace()
    made.fire("test1", block("Wait()"), TARGET, trace=trace)
    assert trace.firings[0].cleaned == ("sync_sync",) and "; then sync_sync" in trace.render(2)


def test_without_a_trace_no_evidence_is_collected():
    made = engine(BUMP)
    made.fire("bump", block(LOOP), TARGET)
    assert "reporting" not in made.rule("bump").__dict__  # the second matcher was never generated


def test_other_levels_write_the_same_records():
    trace = Trace().at("torch")
    trace.add(
        Firing(
            trace.prefix, "relu", "relu", "rules/torch/x.rw:1", "f", "3", {}, ("y = Relu(x)",), ("y = maximum(x, 0)",)
        )
    )
    trace.add(Skip("f", "fuse", "fuse", "f", "too big"))
    assert trace.render(2, ["each"]) == (
        ">>> d:relu\n# d:relu relu at f 3 rules/torch/x.rw:1\n@@ -1 +1 @@\n-y = Relu(x)\n"
        "+y = maximum(x, 0)\n<<< d:relu\n"
        "--- f:fuse skipped at f: too big\n"
    )
    assert [event.record()["event"] for event in trace.events] == ["fired", "skipped"]


def test_the_same_input_gives_the_same_text():
    made = [text(engine("@repeat" + BUMP).fire("bump", block(TWO), TARGET)) for _ in range(3)]
    assert len(set(made)) == 1 and plain(made[0]) == made[0]


def test_a_trace_of_a_pipeline_names_every_pass():
    texts = [f"rule r{n} on tile\nmatch\n    Wait(keep={n})\nrewrite\n    Wait(keep={n + 1})\n" for n in range(4)]
    made, trace = engine(*texts), Trace()
    steps = [step(made, f"test{n}") for n in range(1, 5)]
    run_pipeline(made, steps, block("Wait(keep=0)"), TARGET, trace)
    assert [firing.marker for firing in trace.firings] == [f"t:00{n}_test{n}" for n in range(1, 5)]
    rendered = trace.render(2, ["each"])
    assert rendered.count(">>> ") == rendered.count("<<< ") == 4
