"""Numbers of the policy: what a file may say, who reads them, and that one compile's overrides are no other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.facts.accesses import registers
from dplc.engine.language.check import check
from dplc.engine.language.rule import BUILT_IN, RuleSet, load, policy, read_rules, shown, under
from dplc.engine.rewrite.statements.site import Site
from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import digests_of, tools_of
from dplc.ir.diagnostic import DplcError, Source

RULE = """\
rule unroll(U: int in divisors(K) = K) on tile
match
    for k in 0..K reduce:
        body..
prefer U <= few_copies                           else "too many copies"
require U > 1                                    else "none"
rewrite
    for k in 0..K reduce unroll=U:
        body..
"""
NUMBER = 'number few_copies = 8 because "they fit"\n'


def rules(text: str, *more: str) -> RuleSet:
    files = [read_rules(Source(f"{n}.rw", each)) for n, each in enumerate((text, *more))]
    return RuleSet(files)


def refusal(text: str, *more: str) -> str:
    with pytest.raises(DplcError) as raised:
        rules(text, *more)
    return raised.value.render()


def test_a_rule_reads_a_number_as_if_it_were_written_out() -> None:
    named, plain = rules(NUMBER + RULE), rules(RULE.replace("few_copies", "8"))
    assert digests_of(named).digest("unroll") == digests_of(plain).digest("unroll")
    assert named.written["unroll"].clauses != named.rules["unroll"].clauses


def test_an_override_is_one_line() -> None:
    found = rules(NUMBER + RULE, "override number few_copies = 4\n")
    assert found.numbers["few_copies"].value == 4
    same = rules(RULE.replace("few_copies", "4"))
    assert digests_of(found).digest("unroll") == digests_of(same).digest("unroll")


def test_list_of_one_that_is_another_number_stays_a_list() -> None:
    text = 'number few_ways = [4] because "one"\nnumber same_ways = few_ways because "as many"\n'
    (unroll,) = rules(text + RULE.replace("divisors(K) = K", "same_ways = 4").replace("few_copies", "8")).at("tile")
    assert shown(unroll, "U") == "{4}"


def test_a_number_made_of_others_follows_them() -> None:
    text = NUMBER + 'number twice_copies = 2*few_copies because "two of them"\n'
    assert rules(text, "override number few_copies = 5\n").numbers["twice_copies"].value == 10


def test_a_list_of_numbers_is_a_domain() -> None:
    text = 'number good_copies = {2, few_copies} because "they divide"\n' + NUMBER
    text += RULE.replace("divisors(K) = K", "good_copies = few_copies")
    assert check(rules(text), {"0.rw"}) == [] or all("example" in f.what for f in check(rules(text), {"0.rw"}))


@pytest.mark.parametrize(
    ("text", "place", "what", "hint"),
    [
        (NUMBER + NUMBER + RULE, "0.rw:2:8", "declared twice", "override number few_copies"),
        ("override " + NUMBER + RULE, "0.rw:1:17", "there is no number `few_copies`", ""),
        ("number few_copies = 8\n" + RULE, "0.rw:1:8", "has no reason", "because"),
        ('number few_copies = 8 because " "\n' + RULE, "0.rw:1:8", "has no reason", "because"),
        (NUMBER.replace("few_copies", "copies") + RULE, "0.rw:1:8", "two words or more", "short names"),
        (NUMBER.replace("8", "K") + RULE, "0.rw:1:", "not a constant: unbound variable `K`", ""),
        (NUMBER.replace("8", "target.smem") + RULE, "0.rw:1:", "not a constant", ""),
        (NUMBER.replace("8", '"8"') + RULE, "0.rw:1:", "neither a number nor a list", ""),
        (NUMBER.replace("8", "few_copies + 1") + RULE, "0.rw:1:8", "made of itself", ""),
        (NUMBER.replace("8", "1 // 0") + RULE, "0.rw:1:", "not a constant", ""),
        (NUMBER + RULE.replace("    body..", "    few_copies.."), "0.rw:2:6", "a number of the policy", "another name"),
        (
            NUMBER + 'number other_copies = few_copy because "x"\n' + RULE,
            "0.rw:2:",
            "unbound variable `few_copy`",
            "`few_copies`",
        ),
    ],
)
def test_what_a_declaration_may_not_say(text: str, place: str, what: str, hint: str) -> None:
    message = refusal(text)
    assert message.startswith(place) and what in message and hint in message and "^" in message, message


KINDS = (  # what the number is, what overrides it, what it is then (None: an error)
    ("8", "4", 4),
    ("8", "4.0", None),
    ("8", "(4,)", 4),
    ("8", "[4]", None),
    ("8", "(4, 2)", None),
    ("8.5", "4", 4.0),
    ("8.5", "4.5", 4.5),
    ("8.5", "[4.5]", None),
    ("(8, 4)", "(4,)", None),
    ("(8, 4)", "4", None),
    ("(8, 4)", "[4]", (4,)),
    ("(8, 4)", "{4, 2}", (4, 2)),
    ("(8, 4)", "[4.0]", None),
    ("(8.0, 4.0)", "[4]", (4.0,)),
    ("(8.0, 4.0)", "4.0", None),
)


@pytest.mark.parametrize("device", ["", " for h200"])
@pytest.mark.parametrize(("number", "other", "value"), KINDS)
def test_an_override_keeps_the_kind_of_its_number(number: str, other: str, value: object, device: str) -> None:
    texts = NUMBER.replace("8", number), f"override number few_copies = {other}{device}\n"
    if value is None:
        with pytest.raises(DplcError) as raised:
            rules(*texts).on(target("h200"))
        message = raised.value.render()
        assert message.startswith("1.rw:1:30: error: number `few_copies` is a") and "^" in message
        assert ("a list of one: `[4" in message) is (number[0] == "(" and other in ("4", "(4,)", "4.0"))
    else:
        found = rules(*texts).on(target("h200")).numbers["few_copies"].value
        assert repr(found) == repr(value)


def test_an_unknown_number_is_an_unbound_name_with_the_one_that_was_meant() -> None:
    found = [f.render() for f in check(rules(NUMBER + RULE.replace("few_copies", "few_copis")), {"0.rw"})]
    assert any("unbound variable `few_copis`" in text and "did you mean `few_copies`?" in text for text in found)


def test_a_number_that_nothing_reads_is_an_error() -> None:
    (found,) = [f for f in check(rules(NUMBER + RULE.replace("few_copies", "8")), {"0.rw"}) if "never read" in f.what]
    assert found.render().startswith("0.rw:1:8: error: number `few_copies` is never read")
    assert "name it in a rule, or take it out" in found.render()


def test_overrides_travel_with_the_target_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "my_policy.rw").write_text("override number most_unrolled = 5\n")
    machine, tools = target(), toolchain([tmp_path / "my_policy.rw"])
    assert policy(tools.on(machine)).most_unrolled == 5
    assert policy(machine).most_unrolled == policy(toolchain().on(machine)).most_unrolled == 32
    assert toolchain().on(machine) is machine and tools_of(tools.on(machine)) != tools_of(machine)
    assert under(tools.on(machine), load().numbers) == machine


def test_what_a_compile_overrides_reaches_facts_and_no_other_compile(tmp_path: Path) -> None:
    (tmp_path / "my_policy.rw").write_text("override number address_registers = 999\n")
    tools, captured = toolchain([tmp_path / "my_policy.rw"]), capture_text("torch.relu(torch.randn(8))", 0)
    assert Compiler(tools, target()).compile(captured).target.policy == (("address_registers", 999),)
    kernel = compiler_with(target()).compile(captured).tile[0]
    counted = [
        registers(Site((kernel,), (0,), machine), kernel.body[0].axes, kernel.body[0].body)
        for machine in (target(), tools.on(target()), target())
    ]
    assert counted[1] - counted[0] == 999 - 24 and counted[0] == counted[2]


def test_a_number_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="no number `most_unroled`"):
        _ = policy(target()).most_unroled


def test_what_python_reads_is_read_in_a_file_of_ours_too() -> None:
    """`dplc rules test rules/policy.rw`, and of a copy of it."""
    ours = BUILT_IN / "policy.rw"
    assert not [f for f in check(load([ours]), {str(ours)}) if "never read" in f.what]
