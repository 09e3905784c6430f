"""The build cache has a bound: what was not used for longest goes, and nothing that the cache did not write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dplc.codegen import cache
from dplc.codegen.cache import cached


def build(product: Path) -> None:
    product.write_bytes(b"x" * 1000)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_built", 0)
    return tmp_path


def aged(entry: Path, days: float) -> Path:
    then = entry.stat().st_mtime - days * 86400
    os.utime(entry, (then, then))
    return entry


def test_the_least_recently_used_goes(root: Path) -> None:
    entries = [aged(cached("host", [str(n)], ".so", build), 10 - n) for n in range(10)]
    assert cached("host", ["0"], ".so", build) == entries[0]  # a hit counts as use
    mine = [root / "tuning.sqlite", root / "host" / "thesis.txt", entries[3].parent / "thesis.txt"]
    for path in mine:
        path.write_bytes(b"x" * 5000)
    assert cache.trim(root, 10_000) == 0
    assert cache.trim(root, 5_000) == 6
    assert [n for n, entry in enumerate(entries) if entry.exists()] == [0, 7, 8, 9]
    assert all(path.exists() for path in mine)


def test_what_is_in_use_stays(root: Path) -> None:
    entry = cached("host", ["a"], ".so", build)
    assert cache.trim(root, 1) == 0 and entry.exists()


def test_building_trims_now_and_then(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = aged(cached("host", ["old"], ".so", build), 3)
    monkeypatch.setenv("DPLC_CACHE_BYTES", "1500")
    monkeypatch.setattr(cache, "EVERY", 3)
    for n in range(3):
        cached("host", [str(n)], ".so", build)
    assert not old.exists()
