"""Options that mean nothing are errors, by name; what is not heeded is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dplc
from dplc.engine.run.calls import KINDS
from dplc.engine.torch_backend import OptionWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
X = torch.ones(3, 4)
WRONG = {
    "target": ({"target": "h20"}, "did you mean `h200`"),
    "device": ({"device": "cuba"}, "did you mean `cuda`"),
    "rule": ({"settings": {"blockify_flt": {"T": 1}}}, "did you mean `blockify_flat`"),
    "parameter": ({"settings": {"blockify_short": {"C": 1}}}, "its parameters are V, B"),
    "no name": ({"settings": {"blockify_short": {5: 1}}}, "has no parameter `5`"),
    "value": ({"settings": {"rows_per_block": {"R": 3}}}, "not in the domain"),
    "file": ({"rules": "nowhere/none.rw"}, "no such rule file: nowhere/none.rw"),
}


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_an_error_and_never_eager(name: str) -> None:
    options, message = WRONG[name]
    with pytest.raises(dplc.DplcError, match=message):
        dplc.compile(double, (X,), **options)  # type: ignore[arg-type]
    with pytest.raises(dplc.DplcError, match=message):
        torch.compile(double, backend="dplc", options=options)(X)


@pytest.mark.parametrize("wrong", [3, 2.5, b"x", (1,), object(), torch.ones(2)], ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_such_thing_is_told_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(dplc.DplcError, match=f"{name}=.* is a {type(wrong).__name__}\\n  help: it takes "):
        dplc.compile(double, (X,), **{name: wrong})


@pytest.mark.parametrize("name", ["explore", "exact", "trace"])
def test_words_are_no_switches(name: str) -> None:
    """Any word would be yes; under torch.compile, too, and never eager."""
    with pytest.raises(dplc.DplcError, match=f"{name}='no' is a str"):
        torch.compile(double, backend="dplc", options={name: "no"})(X)


def test_settings_are_of_rules() -> None:
    for wrong in ({"xor_smem": 3}, {3: {}}):
        with pytest.raises(dplc.DplcError, match="it takes a dict"):
            dplc.compile(double, (X,), settings=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("devise", "did you mean `device`?"), ("dynamic", "")],  # lengths are marked for dynamo
)
def test_an_unknown_option(name: str, hint: str) -> None:
    with pytest.raises(dplc.DplcError, match=f"there is no option `{name}`") as caught:
        torch.compile(double, backend="dplc", options={name: "cpu"})(X)
    assert hint in str(caught.value)


def test_what_is_not_heeded_is_said_by_name() -> None:
    with pytest.warns(OptionWarning, match="mode"):
        assert torch.equal(torch.compile(double, backend="dplc", mode="max-autotune")(X), X * 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "asked", [{}, {"dynamic": False}, {"dynamic": True}, {"mode": "default"}, {"options": {"db": False}}]
)
def test_what_is_heeded_is_not_warned_of(asked: dict[str, Any]) -> None:
    assert torch.equal(torch.compile(double, backend="dplc", **asked)(X), X * 2)
