"""Whatever stands in a rule file, the answer is rules or a `DplcError`: never a traceback, never a long wait."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import pytest
from broken_rules import HOIST, LINEAR, RING
from counting import at_most_calls
from drawing import draws
from hypothesis import HealthCheck, given, settings, strategies as st

from dplc.engine.language.check import check
from dplc.engine.language.format import format_file, format_rule
from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import BUILT_IN, RuleSet, read_rules
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text import syntax as s
from dplc.ir.text.parse import parse
from dplc.ir.text.syntax import walk

SEEDS = [RING, LINEAR, HOIST, *(path.read_text() for path in sorted(BUILT_IN.rglob("*.rw")))]
TOKEN = re.compile(r"\w+|\n[ ]*|\s+|\.\.|:=|=>|<-|->|//|[^\w\s]")
WORDS = sorted(
    {token for seed in SEEDS[:6] for token in TOKEN.findall(seed)}
    | {
        "drop",
        "_",
        "inf",
        "pick",
        "override",
        "99",
        '"',
        "é",
        "split",
        "within",
        "let",
        "for",
        "guards",
    }
)


def survives(text: str) -> None:
    try:
        rules = RuleSet([read_rules(Source("mutant.rw", text))])
        for finding in check(rules):
            assert finding.span is not None
            assert finding.render().startswith("mutant.rw:")
        for rule in rules.rules.values():
            format_rule(rule)
        pipelines(rules)
    except DplcError as error:
        assert error.render()


@settings(max_examples=draws(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changed_tokens(data: st.DataObject) -> None:
    tokens = TOKEN.findall(data.draw(st.sampled_from(SEEDS)))
    if len(tokens) > 400:  # a window of a long file
        start = data.draw(st.integers(0, len(tokens) - 400))
        tokens = tokens[start : start + 400]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(tokens) - 1))
        kind = data.draw(st.sampled_from(("drop", "put", "insert", "swap")))
        if kind == "drop" and len(tokens) > 1:
            del tokens[place]
        elif kind == "swap":
            other = data.draw(st.integers(0, len(tokens) - 1))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        else:
            tokens[place : place + (kind == "put")] = [data.draw(st.sampled_from(WORDS))]
    survives("".join(tokens))


@settings(max_examples=draws(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changed_characters(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SEEDS))[:1500]
    place = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 3))
    survives(text[:place] + data.draw(st.text(max_size=4)) + text[place + length :])


def expressions(node: Any) -> list[s.Syntax]:
    """The expressions and items below a node that could stand in each other's places."""
    kinds = (
        s.NameOf,
        s.Number,
        s.Text,
        s.Apply,
        s.Subscript,
        s.Member,
        s.Operation,
        s.Group,
        s.Run,
        s.Choice,
        s.AxisItem,
    )
    return [found for found in walk(node) if isinstance(found, kinds)]


def exchanged(node: Any, old: s.Syntax, new: s.Syntax) -> Any:
    if node is old:
        return new
    if isinstance(node, tuple):
        return tuple(exchanged(item, old, new) for item in node)
    if not isinstance(node, s.Syntax):
        return node
    changes = {f.name: exchanged(getattr(node, f.name), old, new) for f in dataclasses.fields(node) if f.name != "span"}
    return dataclasses.replace(node, **changes)


parsed = functools.cache(lambda: [parse(Source("seed.rw", seed)) for seed in SEEDS[:8]])
all_expressions = functools.cache(lambda: [found for declarations in parsed() for found in expressions(declarations)])


@settings(max_examples=draws(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_exchanged_expressions(data: st.DataObject) -> None:
    """Text that mostly parses, and means nothing: what the checks themselves must bear."""
    declarations = data.draw(st.sampled_from(parsed()))
    rule = data.draw(st.sampled_from([d for d in declarations if isinstance(d, s.Rule)] or list(declarations)))
    for _ in range(data.draw(st.integers(1, 3))):
        places = expressions(rule)
        if places:
            rule = exchanged(rule, data.draw(st.sampled_from(places)), data.draw(st.sampled_from(all_expressions())))
    survives(format_file((rule,)))


def rule_with(expression: str) -> str:
    return f'rule deep on tile\nmatch\n    xs..\nrequire {expression} else "x"\nrewrite\n    xs..\n'


@pytest.mark.parametrize(
    "text",
    [
        rule_with("(" * 5000 + "1" + ")" * 5000),
        rule_with("not " * 5000 + "a"),
        rule_with("-" * 5000 + "1"),
        rule_with("1 + " * 5000 + "1"),
        rule_with("a if b else " * 5000 + "c"),
        rule_with("a" + ".b" * 5000),
        rule_with("a" + "[0]" * 5000),
        rule_with("f(" * 39 + ")" * 39),
        rule_with("[" * 39 + "]" * 39),
        rule_with("1 + " * 198 + "1"),
        rule_with("not " * 198 + "a"),
        rule_with("a if b else " * 98 + "c"),
        "rule deep on tile\nmatch\n" + "".join(f"{' ' * n}if a:\n" for n in range(1, 900)) + " " * 900 + "pass\n",
        "rule deep on tile\nmatch\n"
        + "".join(f"{' ' * n}if a:\n" for n in range(1, 36))
        + " " * 36
        + "pass\nrewrite\n    pass\n",
        "#" * 10_000_000,
        "rule r on tile\n" * 700_000,
        "\x00\x01\x02",
        "é" * 1000,
        "rule r on tile\nmatch\n\tSync()\n  Sync()\nrewrite\n    pass\n",
        "",
        "\n\n\n",
    ],
    ids=lambda text: re.sub(r"\W+", " ", text[-60:-40]) or "blank",
)
def test_extremes_are_answered_at_once(text: str) -> None:
    with at_most_calls(5_000_000):
        survives(text)
