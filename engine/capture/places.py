"""Locations of torch calls in the user's text: the line and columns that Python keeps for every instruction.

The text after `-c`, functions and modules all have a code object, so one mechanism serves the three.
"""

from __future__ import annotations

import functools
import linecache
import os
import sysconfig
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import torch

from ...ir.diagnostic import Source, Span

_OURS = Path(__file__).parents[2]
_FOLDERS = (Path(torch.__file__).parent, *(_OURS / name for name in ("engine", "codegen", "ir")))
_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)
_PYTHON = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}  # below Python's own, yet not of it


class _Sources(dict[str, Source | None]):
    """Texts by the file name of their code objects: None for one that is torch's, Python's, ours or unknown."""

    def __missing__(self, name: str) -> Source | None:
        lines = [] if is_library(name) else linecache.getlines(name)
        shown = name.removeprefix(str(Path.cwd()) + os.sep)  # relative if it is below the current directory
        self[name] = source = Source(shown, "".join(lines)) if lines else None
        return source


class SourcePlaces:
    """Locations in the user's texts."""

    def __init__(self, *sources: Source):
        """Locate in texts that are not files, under the file name of their code objects, and in files."""
        self._sources = _Sources({source.name: source for source in sources})
        self._span = functools.cache(self._located)

    def here(self, frame: FrameType | None, outermost: CodeType | None = None) -> Span | None:
        """Return the user's innermost location among the callers of `frame`, below `outermost`."""
        while frame is not None and frame.f_code is not outermost:
            if self._sources[frame.f_code.co_filename] is not None:
                return self._span(frame.f_code, frame.f_lasti)
            frame = frame.f_back
        return None

    def line(self, ending: str, line: int) -> Span | None:
        """Return a line of a text that was seen, by the end of its name."""
        found = next((source for name, source in self._sources.items() if source and name.endswith(ending)), None)
        if found is None:
            return None
        text = found.line(line)
        return Span(found, line, len(text) - len(text.lstrip()), line, len(text.rstrip()))

    def of_error(self, error: BaseException) -> Span | None:
        """Return the innermost span of the user's text that the error passed through, None if there is none."""
        found, traceback = None, error.__traceback__
        while traceback is not None:
            found = self._span(traceback.tb_frame.f_code, traceback.tb_lasti) or found
            traceback = traceback.tb_next
        return found

    def _located(self, code: CodeType, instruction: int) -> Span | None:
        if (source := self._sources[code.co_filename]) is None:
            return None
        line, end_line, start, end = next(islice(code.co_positions(), instruction // 2, None))
        return None if line is None else span_in(source, line, end_line or line, start or 0, end)


def span_in(source: Source, line: int, end_line: int, start: int, end: int | None) -> Span:
    """Return a span of a text by columns in bytes of UTF-8, as Python counts them; no end is that of the line."""
    first, last = source.line(line).encode()[:start], source.line(end_line).encode()[:end]
    return Span(source, line, len(first.decode(errors="ignore")), end_line, len(last.decode(errors="ignore")))


def is_library(name: str) -> bool:
    """Return whether a file is torch's, ours or Python's. Other installed files may be the user's model."""
    return name.startswith(_LIBRARIES) or (name.startswith(_PYTHON) and _INSTALLED.isdisjoint(Path(name).parts))
