"""What a process held in memory, as an artefact records it."""

from __future__ import annotations

import sys

import pytest

from dplc.engine.models.compiling import peak_rss


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who counts in KiB, and where to look it up, is Linux")
def test_the_peak_is_in_bytes() -> None:
    import resource

    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak_rss()
    assert least << 10 <= peak <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    grown = bytearray(64 << 20)
    grown[:: 1 << 12] = b"x" * len(grown[:: 1 << 12])
    assert peak_rss() >= peak
