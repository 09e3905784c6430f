"""What a page asks for, from its JSON: switches, or one error."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.engine.view.wishes import switches_of
from dplc.ir.diagnostic import DplcError


def test_switches() -> None:
    assert switches_of({}) == switches_of({"without": [], "settings": []})
    assert switches_of({"without": ["one"]}) != switches_of({}) != switches_of({"settings": ["one.N=2"]})


@pytest.mark.parametrize("wanted", [[], None, "without", {"without": "a"}, {"without": [1]}, {"settings": ["a" * 400]}])
def test_anything_else_is_told(wanted: Any) -> None:
    with pytest.raises(DplcError, match="a change is"):
        switches_of(wanted)
