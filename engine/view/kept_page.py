"""The whole page of a text, kept for the next time that it is viewed: it is shown while PyTorch loads.

A page is found again by everything that decided it: the text and the options, the rule files as they are, our own code
and rules, Python, PyTorch and the GPUs that are here. It is compiled again all the same, and corrected where it is
not the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...codegen.cache import cached, digest, entry_of, is_ours
from ...codegen.compiler import BuildError

KIND = "pages"
OURS = ("codegen", "engine", "ir", "rules")  # folders of the package that decide what a page says
ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "dplc", "title", "target", "timings", "launches", "kernels", "columns", "trace", "effects", "fusion", "rules",
    "schedules",
)  # fmt: skip
DECIDED = ("target", "launches", "columns", "trace", "fusion", "schedules")  # all else of a compile follows from these


class KeptPage:
    """What is kept of a program. said: what names it, its text and options; paths: of rule files and folders."""

    def __init__(self, said: Iterable[str], paths: Sequence[Path]) -> None:
        self._said = (*said, *_surroundings())
        self._paths = tuple(paths)

    def key(self) -> str:
        """What the page is found by, with the rule files as they are now; empty where one cannot be read."""
        try:
            texts = [part for path in _rule_files(self._paths) for part in (str(path), path.read_bytes())]
        except OSError:
            return ""
        return digest((*self._said, *texts))

    def found(self) -> dict[str, Any]:
        """The parts of the page, with the seconds since 1970 at which it was compiled as `kept`; else nothing."""
        key = self.key()
        try:
            file = entry_of(KIND, (key,), ".json")
            if not key or not is_ours(file):
                return {}
            read = json.loads(file.read_text(encoding="utf-8"))
            return {name: read[name] for name in (*PARTS, "kept")}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    def keep(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep the parts of a page in the place of what was kept. Where nothing can be written, nothing is."""
        parts = {name: record[name] for name in PARTS} | {"kept": time.time()}
        with contextlib.suppress(OSError, BuildError):
            entry_of(KIND, (key,), ".json").unlink(missing_ok=True)
            cached(KIND, (key,), ".json", lambda path: _write(path, parts))


def same_compile(record: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    """Whether a record that was kept is of what was compiled now."""
    return all(name in record and json.loads(json.dumps(made[name])) == record[name] for name in DECIDED)


def _write(path: Path, parts: Any) -> None:
    path.write_text(json.dumps(parts, separators=(",", ":")), encoding="utf-8")


def _rule_files(paths: Sequence[Path]) -> Iterator[Path]:
    for given in paths:
        yield from sorted(given.rglob("*.rw")) if given.is_dir() else (given,)


def _surroundings() -> Iterator[str]:
    """All else that a compile depends on."""
    yield sys.version
    with contextlib.suppress(PackageNotFoundError):
        yield version("torch")
    yield platform.platform()
    yield from sorted(str(device) for device in Path("/dev").glob("nvidia[0-9]*"))
    yield from (f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("CUDA_", "DPLC_")))
    for folder in OURS:
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".rw", ".lark", ".toml", ".json"):
                status = path.stat()
                yield f"{path} {status.st_mtime_ns} {status.st_size}"
