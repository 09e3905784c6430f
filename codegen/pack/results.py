"""What is to be done with a pack, what came of it, and the file that is written after every case."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...ir.diagnostic import DplcError
from .contents import OpenPack, PackedCase

FORMAT = "dplc results 1"
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer
START = 8.0  # seconds until a worker has imported torch, as expected


@dataclass(frozen=True)
class PackItem:
    """Something to do with a case: measure it, time torch.compile (compile), or run one of TOOLS on it."""

    do: str
    case: PackedCase

    @property
    def seconds(self) -> float:
        """Return the expected seconds."""
        if self.do in TOOLS:
            return 3.0
        case, run = self.case, self.case.predicted_us * 1e-6
        flush = 80e-6
        timing = 0.035 + min(60 * (run + flush), 0.4) + 60 * run
        made = case.nbytes / 20e9  # inputs drawn, widened, compared
        if self.do == "compile":
            return 1.2 + 0.2 * len(case.program.kernels) + timing + made
        return 0.08 + 6 * made + 10 * run + (1 if case.candidate is not None else 2.5) * timing


@dataclass(frozen=True)
class PackGroup:
    """Items that one process works on. first: whether they belong to what must be measured first."""

    name: str
    items: tuple[PackItem, ...]
    first: bool

    @property
    def seconds(self) -> float:
        start = 0.0 if self.items[0].do in TOOLS else START
        return start + sum(item.seconds for item in self.items)


@dataclass
class ResultsFile:
    """What is known so far, and the file that it is written to."""

    pack: OpenPack
    path: Path
    device: dict[str, Any] = field(default_factory=dict)
    cases: dict[int, dict[str, Any]] = field(default_factory=dict)
    sanitizer: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    left: int = 0
    began: float = field(default_factory=time.monotonic)

    def note(self, item: PackItem, found: dict[str, Any], clocks: dict[str, float]) -> None:
        """Take down what came of an item, and write everything."""
        if item.do in TOOLS:
            self.sanitizer.append({"tool": item.do, "suite": item.case.suite, "name": item.case.name, **found})
        else:
            self.cases.setdefault(item.case.number, {}).update(found)
            if clocks and item.do == "measure":
                self.cases[item.case.number]["clocks"] = clocks
        self.write()

    def check(self) -> None:
        """Raises DplcError where a file is that is not of results, or where none can be written."""
        try:
            start = self.path.read_bytes()[:100].lstrip(b"{\n ") if self.path.exists() else None
            if start is not None and not start.startswith(b'"format": "dplc results'):
                raise DplcError(f"{self.path} is there and holds no results", hint="-o names another file")
            self.write()
        except OSError as error:
            raise DplcError(f"cannot write {self.path}: {error.strerror}") from None

    def write(self) -> None:
        """Replace the file: it is whole at any time."""
        kept = ("suite", "name", "dtype", "rules", "same", "candidate", "predicted_us", "least_us", "launches", "texts")
        listed, by_name = [], dict[tuple[str, str], dict[str, Any]]()
        for case in self.pack.cases:
            found = self.cases.get(case.number) or (by_name.get((case.suite, case.same)) if case.same else None)
            if found is not None:
                if case.candidate is None:
                    by_name.setdefault((case.suite, case.name), found)
                listed.append({**{name: case.about[name] for name in kept}, **found})
        head = {name: value for name, value in self.pack.about.items() if name != "cases"}
        whole = {
            "format": FORMAT, "pack": head, "device": self.device, "seconds": round(time.monotonic() - self.began, 1),
            "left": self.left, "faults": self.faults, "sanitizer": self.sanitizer, "cases": listed,
        }  # fmt: skip
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_text(json.dumps(whole))
        partial.replace(self.path)
