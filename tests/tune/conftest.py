"""A store for the tests of this folder."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that is not there yet."""
    return tmp_path / "t.sqlite"
