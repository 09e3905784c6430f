"""The laws of a rule, for every rule on torch: documented, an example that fires, a refusal for every `where`."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.kernels.examples import run_example
from dplc.engine.language.rule import RuleSet, built_in_files, load, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.rewrite.torch_rules.lower import compile_rules, lower_graph
from dplc.ir.diagnostic import DplcError, Source, Span
from dplc.ir.text.parse import parse
from dplc.ir.text.programs import print_unit
from dplc.ir.text.tensor import print_lines
from dplc.ir.text.torch import print_torch_op, read_torch_graph

RULES = load()
TORCH = RULES.at("torch")


@pytest.mark.parametrize("file", sorted({rule.file for rule in TORCH}))
def test_examples_hold(file: str) -> None:
    for rule in TORCH:
        for example in rule.examples if rule.file == file else ():
            failure = run_example(Engine(RULES), rule, example, target())
            assert failure is None, failure.render()


def test_rules_are_documented_and_exemplified() -> None:
    for rule in TORCH:
        assert rule.docs, rule.name
        examples = list(rule.examples) or [e for r in TORCH if r.family and r.family == rule.family for e in r.examples]
        assert any(not isinstance(example.gives, str) for example in examples), rule.name
        for guard in rule.guards:
            assert any(isinstance(e.gives, str) and e.gives in guard.reason for e in examples), guard.reason


RELU = "graph f(x: f32[5]) -> y: f32[5]:\n    y: f32[5] = Relu(x)\n"
MATCHED = "rule mine on torch\nmatch\n    y = Relu(x)\nrewrite\n"


def program(text: str) -> Any:
    return read_torch_graph(parse(Source("text", text))[0])  # type: ignore[arg-type]


def refusal(text: str, rules: RuleSet = RULES, spans: dict[str, Span | str] | None = None) -> DplcError:
    with pytest.raises(DplcError) as caught:
        lower_graph(program(text), rules, spans=spans)
    return caught.value


def with_mine(text: str, built_in: RuleSet = RULES) -> RuleSet:
    return RuleSet((*built_in.files, read_rules(Source("mine.rw", text))))


def test_an_argument_that_no_rule_mentions_is_an_error() -> None:
    error = refusal(RELU.replace("Relu(x)", "Dropout(x, p=0.5, train=true)"))
    assert error.what == "torch op 'dropout' is not supported"
    assert "train: true is not false" in error.render()


def test_an_unknown_op_names_the_op_and_the_place() -> None:
    source = Source("-c", "torch.linalg.qr(x).Q")
    error = refusal(RELU.replace("Relu", "MatrixExp"), spans={"y": Span(source, 1, 0, 1, 15)})
    assert error.what == "torch op 'matrix_exp' is not supported"
    assert "torch.linalg.qr(x).Q" in error.render()
    assert "^^^^^^^^^^^^^^^" in error.render()


def test_an_unsupported_op_of_a_module_names_the_module() -> None:
    spans: dict[str, Span | str] = {"y": "layers.0.norm (Norm)"}
    assert "in layers.0.norm" in refusal(RELU.replace("Relu", "SpecialAiryAi"), spans=spans).render()


def test_an_op_of_several_results_is_named_not_getitem() -> None:
    body = "    c: (f32[5], i32[5]) = Frexp(x)\n    y: f32[5] = Getitem(c, index=0)\n"
    text = "graph f(x: f32[5]) -> y: f32[5]:\n" + body
    assert refusal(text).what == "torch op 'frexp' is not supported"


KRON = "graph f(x: f32[2, 3, 4]) -> y: f32[4, 9, 16]:\n    y: f32[4, 9, 16] = Kron(x, x)\n"


def test_refusals_give_the_reason_of_every_candidate() -> None:
    assert "the operands are not matrices" in refusal(KRON).render()


def test_nothing_that_nobody_reads_is_lowered() -> None:
    text = "graph f(x: f32[5]) -> y: f32[5]:\n    z: f32[5] = Lgamma(x)\n    y: f32[5] = Relu(x)\n"
    assert "relu" in print_unit(lower_graph(program(text), RULES).graph)


def test_firings_tell_the_rule_and_both_texts() -> None:
    text = "graph f(x: f32[4, 8]) -> y: f32[4]:\n    a: f32[4, 8] = Relu(x)\n    y: f32[4] = Mean(a, dim=(1))\n"
    lowered = lower_graph(program(text), RULES, trace=True)
    relu, mean = lowered.firings
    assert (relu.rule.name, mean.rule.name) == ("unary_relu", "mean")
    assert print_torch_op(mean.before) == "y: f32[4] = Mean(a, dim=(1))"
    after = print_lines(lowered.graph, mean.after.term, mean.operands)
    assert after == "total[i] = Reduce(add, j, a)\ny[i] = multiply(total, 0.125)"


def test_rules_of_users_override_ours_and_the_others_are_compiled_once() -> None:
    merged = with_mine("override " + MATCHED.replace("mine", "unary_relu") + "    y[os..] = maximum(x[os..], 0)\n")
    assert "maximum(x[i], 0.0)" in print_unit(lower_graph(program(RELU), merged).graph)
    ours, theirs = compile_rules(RULES), compile_rules(merged)
    assert ours["Roll"][0] is theirs["Roll"][0] and ours["Relu"][0] is not theirs["Relu"][0]


@pytest.mark.parametrize(
    ("rewrite", "said"),
    [
        ("y[axess(x)..] = x[os..]", "unknown fact `axess`"),
        ("z = relu(x[os..])", "must end by defining `y`"),
        ("y[os..] = relu(x[os..], 1)", "`relu` takes 1 arguments, not 2"),
        ("y[os..] = Reduce(exp, k, x[os.., k])", "cannot reduce"),
    ],
)
def test_a_broken_rule_is_refused_where_it_is_broken(rewrite: str, said: str) -> None:
    with pytest.raises(DplcError) as caught:
        compile_rules(with_mine(f"{MATCHED}    {rewrite}\n", RuleSet(())))
    assert said in caught.value.render()


def test_one_tensor_is_not_a_list_of_tensors() -> None:
    rules = with_mine(MATCHED + "    y[] = Reduce(add, k, Stacked(k, x[i]))\n", RuleSet(()))
    told = refusal(RELU.replace("y: f32[5]", "y: f32[]"), rules)
    assert told.what == "torch op 'relu' is not supported"
    assert "`Stacked` reads a list of tensors" in told.render()


def test_rules_that_make_themselves_again_end_with_an_error() -> None:
    assert "do not end" in refusal(RELU, with_mine(MATCHED + "    y = Relu(x)\n", RuleSet(()))).what


def test_an_op_that_became_another_one_is_told_before_the_reasons() -> None:
    rules = with_mine("override " + MATCHED.replace("mine", "unary_relu") + "    y = Kron(x, x)\n")
    told = refusal(RELU.replace("[5]", "[2, 3, 4]"), rules)
    assert told.what == "torch op 'kron' is not supported"
    first, *others = told.notes
    assert first == "it is part of `relu`" and any("the operands are not matrices" in note for note in others)


@pytest.mark.parametrize("match", ["Relu(x)", "y = x", "y[i] = Relu(x)", "x..", "Tile(i:4=THREAD):\n        body.."])
def test_a_pattern_is_the_result_of_an_op(match: str) -> None:
    rules = with_mine(MATCHED.replace("y = Relu(x)", match) + "    y[os..] = multiply(x[os..], 1)\n", RuleSet(()))
    with pytest.raises(DplcError, match=r"mine.rw:3:5: error: a pattern on torch is `y = Op"):
        compile_rules(rules)


FAMILY = """## Two ops that a rule takes for another one.
rule mine(Op) for LogSoftmax, SpecialLogSoftmax on torch
match
    y = Op(x, dim=_, dtype=_)
rewrite
    y[os..] = exp(x[os..])
example "after another op"
    graph f(a: f32[4]) -> y: f32[4]:
        b: f32[4] = Neg(a)
        y: f32[4] = {op}(b, dim=0)
gives
    graph f(a: f32[i:4]) -> y: f32[4]:
        b[i:4] = negative(a[i])
        y[i] = {gives}(b)
"""


@pytest.mark.parametrize(
    ("op", "gives", "wrong"),
    [
        ("Op", "exp", []),
        ("Op", "log", ["LogSoftmax", "SpecialLogSoftmax"]),
        ("LogSoftmax", "exp", []),
        ("LogSoftmax", "log", ["LogSoftmax"]),
    ],
)
def test_an_example_of_a_family_is_run_for_every_member_that_it_holds(op: str, gives: str, wrong: list[str]) -> None:
    """Whatever other ops stand in it."""
    mine = read_rules(Source("mine.rw", FAMILY.format(op=op, gives=gives)))
    rules = RuleSet([*built_in_files(), mine])
    failed = [rule for rule in mine.rules if run_example(Engine(rules), rule, rule.examples[0], target()) is not None]
    assert [str(rule.match[-1].value.fn) for rule in failed] == wrong  # type: ignore[attr-defined]
