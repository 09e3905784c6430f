"""Options of both interfaces: rules and settings; what means nothing is an error, by name; what is not heeded is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dplc
from dplc.engine.run.calls import KINDS, SWITCHES
from dplc.engine.torch_backend import OptionWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
X = torch.randn(3, 4)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"target": "h20"}, "did you mean `h200`"),
    "device": ({"device": "cuba"}, "did you mean `cuda`"),
    "rule": ({"settings": {"blockify_flt": {"T": 1}}}, "did you mean `blockify_flat`"),
    "parameter": ({"settings": {"blockify_short": {"C": 1}}}, "its parameters are V, R, B"),
    "no name": ({"settings": {"blockify_short": {5: 1}}}, "has no parameter `5`"),
    "value": ({"settings": {"rows_per_block": {"R": 3}}}, "not in the domain"),
    "no parameters": ({"settings": {"xor_smem": 3}}, "it takes a dict"),
    "no rule": ({"settings": {3: {}}}, "it takes a dict"),
    "file": ({"rules": "nowhere/none.rw"}, "no such rule file: nowhere/none.rw"),
    **{name: ({name: "no"}, f"{name}='no' is a str") for name in SWITCHES},  # any word would be yes
}


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_an_error_and_never_eager(name: str) -> None:
    options, message = WRONG[name]
    with pytest.raises(dplc.DplcError, match=message):
        dplc.compile(double, (X,), **options)
    with pytest.raises(dplc.DplcError, match=message):
        torch.compile(double, backend="dplc", options=options)(X)


@pytest.mark.parametrize("wrong", [3, 2.5, b"x", (1,), object(), torch.ones(2)], ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_such_thing_is_told_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(dplc.DplcError, match=f"{name}=.* is a {type(wrong).__name__}\\n  help: it takes "):
        dplc.compile(double, (X,), **{name: wrong})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devise": "cpu"}, "there is no option `devise`(?s:.*)did you mean `device`?"),
        ({"dynamic": "cpu"}, "there is no option `dynamic`"),  # lengths are marked for dynamo
        ({"shares": True}, r"the option `shares` is not a dplc\.Shares"),
    ],
)
def test_an_option_that_torch_compile_does_not_take(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(double, backend="dplc", options=options)(X)


def test_what_is_not_heeded_is_said_by_name() -> None:
    with pytest.warns(OptionWarning, match="mode"):
        assert torch.equal(torch.compile(double, backend="dplc", mode="max-autotune")(X), X * 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "asked", [{"dynamic": False}, {"dynamic": True}, {"mode": "default"}, {"options": {"db": False}}]
)
def test_what_is_heeded_is_not_warned_of(asked: dict[str, Any]) -> None:
    assert torch.equal(torch.compile(double, backend="dplc", **asked)(X), X * 2)


RAGGED = [torch.ones(2), torch.ones(3)]


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (3, X, "a function or module is needed, not int"),
        (torch.sin, np.zeros(3), "is a numpy array"),
        (lambda x: 3, X, "returns an int, not a tensor"),
        (lambda x: x + torch.rand(3, generator=torch.Generator()), X, "custom_obj"),
        (torch.sin, X.to_sparse_csr(), "is of the layout torch.sparse_csr"),
        (torch.sin, torch.nested.nested_tensor(RAGGED, layout=torch.jagged), "is a jagged"),
        (torch.sin, torch.nested.nested_tensor(RAGGED), "is a nested tensor"),
        (torch.sin, torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "is of the dtype torch.qint8"),
        (lambda x: torch.func.vjp(torch.sin, x)[1](x), X, "torch.func.grad, vjp, jvp and what"),
        (lambda x: torch.func.linearize(torch.sin, x)[1](x), X, "does not trace this transform"),
    ],
)
def test_what_cannot_be_compiled(function: Any, given: Any, message: str) -> None:
    with pytest.raises(dplc.DplcError, match=message):
        dplc.compile(function, (given,))


RULE = "rule {} on tensor\nmatch\n    y = {}(x)\nrewrite\n    y = add(x, {})\n"


def test_own_rules_are_files_folders_or_read_once(tmp_path: Path) -> None:
    one, two = tmp_path / "one.rw", tmp_path / "two.rw"
    one.write_text(RULE.format("one", "sin", 3.0))
    two.write_text(RULE.format("two", "cos", 3.0))

    def assert_gives(rules: Any, expected: torch.Tensor) -> None:
        compiled = dplc.compile(lambda x: x.sin() + x.cos(), (X,), rules=rules)
        torch.testing.assert_close(compiled(X), expected, rtol=1e-5, atol=1e-5)

    for rules in (one, str(one)):
        assert_gives(rules, X + 3 + X.cos())
    for rules in ([str(one), two], tmp_path, dplc.Rules(one, two)):
        assert_gives(rules, X + 3 + X + 3)
    assert_gives(None, X.sin() + X.cos())
    read = dplc.Rules(one)
    one.write_text(RULE.format("one", "sin", 4.0))
    assert_gives(one, X + 4 + X.cos())  # a file that changed is read again
    one.unlink()
    assert_gives(read, X + 3 + X.cos())
    assert "one" in read and "two" not in read and f"{one}:1" in str(read)
    one.write_text(RULE.format("one", "sinn", 3.0))
    with pytest.raises(dplc.DplcError, match="unknown function `sinn`"):
        dplc.Rules(one)
