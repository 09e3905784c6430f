"""The oracle as a fixture."""

from __future__ import annotations

from collections.abc import Callable

import lowering_oracle
import pytest

from dplc.codegen.kernel import CudaKernel


@pytest.fixture
def check() -> Callable[..., list[CudaKernel]]:
    """See `lowering_oracle.check`."""
    return lowering_oracle.check
