"""Families of kernels on the mock driver; run_on_mock.py runs them."""

from __future__ import annotations

from families import CASES, check
from on_mock_driver import MockedExecutor

from dplc.codegen.target import target

H200 = target("h200")


def checked(*names: str) -> None:
    found = {name: check(name, H200, MockedExecutor(), "cpu") for name in names}
    assert not any(found.values()), found


def some_families() -> None:
    checked("elementwise.f32", "matmul_split_k.f32", "softmax.bf16", "attention_causal.f32")


def every_family() -> None:
    """For hand and for slow tests."""
    checked(*CASES)
