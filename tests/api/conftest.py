"""What tests of `torch.compile(.., backend="dplc")` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dplc.engine import torch_backend


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What `dynamic=` was at every compile."""
    asked: list[Any] = []
    plain = torch_backend.compile_function

    def counting(*args: Any, **options: Any) -> Any:
        asked.append(options.get("dynamic"))
        return plain(*args, **options)

    monkeypatch.setattr(torch_backend, "compile_function", counting)
    yield asked
