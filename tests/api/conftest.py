"""What tests of `torch.compile(.., backend="dplc")` share."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.engine import torch_backend


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every compile, and what it made."""
    every: list[dict[str, Any]] = []
    plain = torch_backend.compile_function

    def noting(*args: Any, **options: Any) -> Any:
        every.append(options)
        made = plain(*args, **options)
        options["made"] = made
        return made

    monkeypatch.setattr(torch_backend, "compile_function", noting)
    return every
