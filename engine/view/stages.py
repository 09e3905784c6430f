"""How far a page is that nobody has seen whole yet: stages with what each took, the rest still to come."""

from __future__ import annotations

import time

from .live_page import LivePage

STAGES = {
    "rules": "reading rules", "pytorch": "loading PyTorch", "capture": "capturing", "torch": "rules on Torch IR",
    "tensor": "rules on Tensor IR", "fusion": "fusion", "tile": "rules on Tile IR", "kernel": "rules on Kernel IR",
    "cuda": "printing CUDA", "links": "linking lines",
}  # fmt: skip


class Stages:
    """Tells of each stage when it begins. The part `stages` holds of each its text, milliseconds (None before it is
    done) and whether it goes on now."""

    def __init__(self, shown: LivePage) -> None:
        self._shown, self._began = shown, 0.0
        self._took: dict[str, float] = {}
        self._now = ""
        self._tell()

    def begin(self, name: str) -> None:
        """The stage before is done, this one begins."""
        if self._now:
            took = (time.perf_counter() - self._began) * 1e3
            self._took[self._now] = self._took.get(self._now, 0.0) + took
        self._now, self._began = name, time.perf_counter()
        self._tell()

    def _tell(self) -> None:
        told = [{"text": text, "ms": self._took.get(name), "now": name == self._now} for name, text in STAGES.items()]
        self._shown.show(stages=told)
