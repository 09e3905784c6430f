"""A compile with its trace, and its columns, of every program that a test asks for, each once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.rewrite.trace import Trace

Compile = Callable[[str], Compilation]


@functools.cache
def _compiled(text: str) -> Compilation:
    return compiler_with(target(), trace=Trace()).compile(capture_text(text))


@pytest.fixture
def compiled() -> Compile:
    """Compiles a `-c` text by the rules in their order."""
    return _compiled
