"""What is declared for one device: texts of the target in rules, and numbers, facts and rules that are overridden."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.codegen.target import devices, load_device, target
from dplc.engine.kernels.examples import read_subject
from dplc.engine.language.check import check, lint_rule, load_facts, require
from dplc.engine.language.rule import RuleSet, load, policy, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

load_facts()
LOOP = """\
kernel f(a: f32[16]) -> b: f32[16]:
    for i in 0..16 free:
        x = load a[i]
        b[i] = x
"""
RULE = """\
rule unroll on loop
match
    for i in 0..N free:
        body..
require {guard} else "another device"
rewrite
    for i in 0..N free unroll={times}:
        body..
"""
OF_NAMES = (  # a guard, and the devices on which it holds
    ('target.name == "NVIDIA H200"', {"h200"}),
    ('target.name != "NVIDIA H200"', {*devices()} - {"h200"}),
    ('target.arch == "sm_89"', {"rtx4090"}),
    ('"sm_90a" == target.arch', {"h100", "h200"}),
    ('target.arch in ("sm_89", "sm_90a")', {"rtx4090", "h100", "h200"}),
    ('target.name not in ["NVIDIA H100", "NVIDIA H200"]', {*devices()} - {"h100", "h200"}),
    ('(2 if target.name == "NVIDIA H200" else 4) == 2', {"h200"}),
    ('size([n for n in ("NVIDIA H200", "NVIDIA H100") if n == target.name]) == 1', {"h100", "h200"}),
)


def rules(*texts: str) -> RuleSet:
    return RuleSet([read_rules(Source(f"{n}.rw", text)) for n, text in enumerate(texts)])


def fires(found: RuleSet, device: str) -> bool:
    machine = load_device(device)
    return not Engine(found.on(machine)).why_not("unroll", read_subject(parse(Source("f", LOOP))), machine)


@pytest.mark.parametrize(("guard", "on"), OF_NAMES)
def test_a_text_of_the_target_tells_devices_apart(guard: str, on: set[str]) -> None:
    found = rules(RULE.format(guard=guard, times=2))
    assert {device for device in devices() if fires(found, device)} == on


@pytest.mark.parametrize("guard", ['i == "k"', 'i != "k"', '"k" == i', 'size([n for n in [i] if n == "k"]) == 0'])
def test_a_text_compared_with_a_name_is_an_error(guard: str) -> None:
    found = rules(RULE.format(guard=guard, times=2))
    with pytest.raises(DplcError, match="never equal"):
        require(found, {"0.rw"})
        fires(found, "h200")


def test_a_text_has_no_order() -> None:
    told = check(rules(RULE.format(guard='target.arch < "sm_90"', times=2)), {"0.rw"})
    assert any("`<` works on numbers" in one.what for one in told)


NUMBER = 'number many_copies = 4 because "few"\n'
FACT = "fact copies_of(n: int) -> int = many_copies*n\nfact copies_here(n: int) -> int = copies_of(n) + 1\n"
GUARD = RULE.format(guard="copies_here(1) > 8", times=2)


@pytest.mark.parametrize(
    "override",
    [
        "override number many_copies = 9 for h200\n",
        "override fact copies_of(n: int) -> int = 9 for h200\n",
        "override " + RULE.format(guard="true", times=4).replace("on loop", "on loop for h200"),
    ],
)
def test_an_override_for_one_device_is_in_force_there_only(override: str) -> None:
    before = rules(NUMBER + FACT + GUARD)
    assert not before.devices
    found = before.extended(read_rules(Source("1.rw", override)))
    assert {device for device in devices() if fires(found, device)} == {"h200"}
    assert found.on(target("h100")) is found and found.on(target("h200")).digest != found.digest
    assert found.on(target("h200")).on(target("h100")).rules.keys() == found.rules.keys()


def test_an_override_for_one_device_reaches_python(tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("override number most_unrolled = 5 for h200\n")
    tools = toolchain([tmp_path / "mine.rw"])
    assert [policy(tools.on(target(name))).most_unrolled for name in ("h100", "h200", "a100")] == [32, 5, 32]
    assert tools.at(target("a100")) is tools and tools.at(target("h200")).rules.numbers["most_unrolled"].value == 5


@pytest.mark.parametrize(
    ("text", "place", "what", "hint"),
    [
        ("override number many_copies = 9 for h20\n", "1.rw:1:37", "there is no device `h20`", "did you mean `h200`?"),
        ("override number many_copies = 9 for sm_90\n", "1.rw:1:37", "there is no device `sm_90`", "`a100`"),
        ("override fact copies_of(n: int) -> int = 9 for h2000\n", "1.rw:1:48", "no device `h2000`", "`h200`"),
        ("override " + GUARD.replace("on loop", "on loop for h201"), "1.rw:1:34", "no device `h201`", "`h200`"),
        ('number my_copies = 9 for h200 because "x"\n', "1.rw:1:26", "other devices would have none", "override"),
        ("fact my_copies(n: int) -> int = n for h200\n", "1.rw:1:39", "other devices would have none", "override"),
        (GUARD.replace("unroll on loop", "mine on loop for h200"), "1.rw:1:23", "other devices would", "override"),
        ("override fact copies_off(n: int) -> int = 9\n", "1.rw:1:15", "there is no fact `copies_off`", "copies_of"),
        ("override fact copies_of(n: num) -> int = 9\n", "1.rw:1:15", "would not fit", "copies_of(n: int) -> int"),
        ("override fact copies_of(n: int) -> int = copies_of(n)\n", "1.rw:1:42", "asks itself", ""),
    ],
)
def test_what_an_override_for_one_device_may_not_say(text: str, place: str, what: str, hint: str) -> None:
    with pytest.raises(DplcError) as raised:
        rules(NUMBER + FACT + GUARD, text)
    message = raised.value.render()
    assert message.startswith(place) and what in message and hint in message and "^" in message, message


def test_what_is_wrong_for_one_device_is_found_for_all(tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("override number tile_sides = (64,) for h200\n")
    with pytest.raises(DplcError, match="tile_sides"):
        toolchain([tmp_path / "mine.rw"])


def test_a_rule_on_torch_cannot_ask_for_the_device() -> None:
    text = (
        'rule mine on torch\nmatch\n    y = Relu(x)\nrequire target.sm > 80 else "x"\nrewrite\n    y[is..] = x[is..]\n'
    )
    told = [one.render() for one in check(rules(text), {"0.rw"})]
    assert any("0.rw:4:9: error: " in one and "unbound variable `target`" in one for one in told)


@pytest.mark.parametrize(
    "guard", ['target.name == "NVIDIA H20"', '"sm_90" != target.arch', 'target.arch in ("sm_89", "sm_9")']
)
def test_a_device_that_nobody_knows_is_told_by_lint(guard: str) -> None:
    found = rules(RULE.format(guard=guard, times=2))
    (told,) = lint_rule(found.rules["unroll"], found)
    assert "no device has the " in told.what and "did you mean" in told.render() and told.span is not None
    known = rules(RULE.format(guard='target.name == "NVIDIA H200" or target.arch in ("sm_89", "sm_90a")', times=2))
    assert lint_rule(known.rules["unroll"], known) == []


def test_the_library_has_one_policy_for_all_devices() -> None:
    assert load().devices == ()
