"""Reading, printing, checking and running visit each value of a graph, and each part of a rule, a bounded number of times."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from growing import GROWTH, MOST, calls_of

from dplc.engine.language.check import check
from dplc.engine.language.format import formatted
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.ir import tensor
from dplc.ir.diagnostic import Source
from dplc.ir.interp import tensor as meaning
from dplc.ir.text.parse import parse
from dplc.ir.text.tensor import print_graph, read_graph
from dplc.ir.verify import tensor as verifier

DEPTH = 16  # levels: twice as many are below the limit of nesting in a text
CACHED = 2000  # calls at most of what an equal text of an earlier test has cached


def text_of_graph(levels: int) -> str:
    """Return a graph whose every value reads the one before twice."""
    lines = [f"    v{n}[i:4] = maximum(v{n - 1}[i], negative(v{n - 1}[i]))" for n in range(1, levels)]
    return "\n".join(
        [f"graph g(v0: f32[i:4]) -> v{levels}: f32[4]:", *lines, f"    v{levels}[i:4] = exp(v{levels - 1}[i])", ""]
    )


def read(text: str) -> Any:
    return read_graph(parse(Source("g.ir", text))[0])  # type: ignore[arg-type]


def graph(levels: int) -> Any:
    return read(text_of_graph(levels))


def text_of_rule(levels: int) -> str:
    """Return a rule of nested values, whose every `let` reads the one before."""
    value = functools.reduce(lambda inner, _: f"exp({inner})", range(levels), "x")
    lets = "".join(f"let n{n} = n{n - 1} + 1\n" for n in range(1, levels))
    guard = f'let n0 = element_count(axes(x))\n{lets}require n{levels - 1} > 0 else "never"\n'
    return f"rule deep on tensor\nmatch\n    y = tanh({value})\n{guard}rewrite\n    y = {value}\n"


def rules(levels: int) -> RuleSet:
    return RuleSet([read_rules(Source("deep.rw", text_of_rule(levels)))])


# what is given for a number of levels, and what is done with it
OF: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "reading a graph": (text_of_graph, read),
    "printing a graph": (graph, print_graph),
    "checking a graph": (graph, verifier.check),
    "verifying a graph": (graph, verifier.verify),
    "running a graph": (graph, lambda given: meaning.run(given, {"v0": np.ones(4, np.float32)})),
    "values of a graph": (graph, tensor.terms),
    "inputs of a graph": (graph, tensor.inputs),
    "parsing a rule": (text_of_rule, lambda text: parse(Source("deep.rw", text))),
    "reading a rule": (text_of_rule, lambda text: read_rules(Source("deep.rw", text))),
    "printing a rule": (text_of_rule, lambda text: formatted(Source("deep.rw", text))),
    "checking a rule": (rules, lambda given: check(given, {"deep.rw"})),
}


@pytest.mark.parametrize("name", OF)
def test_twice_the_levels_of_a_text_take_at_most_thrice_the_calls(name: str) -> None:
    given, function = OF[name]
    function(given(2))
    calls = calls_of(functools.partial(function, given(DEPTH)), MOST)
    assert calls_of(functools.partial(function, given(2 * DEPTH)), MOST) <= GROWTH * calls + CACHED
