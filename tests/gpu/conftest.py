"""Fixtures of the tests that run the real PyCUDA."""

from __future__ import annotations

from pathlib import Path

import pytest
from mock_driver import build_driver


@pytest.fixture(scope="session")
def driver() -> Path:
    """The folder of the mock libcuda.so.1, built once into the cache."""
    return build_driver()
