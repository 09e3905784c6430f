"""Locations of torch calls in the user's text: the line and columns that Python keeps for every instruction.

The text after `-c`, functions and modules all have a code object, so one mechanism serves the three.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import torch

from ...ir.diagnostic import Source, Span

_OURS = Path(__file__).parents[2]
_FOLDERS = (Path(torch.__file__).parent, *(_OURS / name for name in ("engine", "codegen", "ir")))
_LIBRARIES = tuple(str(folder) + os.sep for folder in _FOLDERS)
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")  # below Python's own, yet not of it


class SourcePlaces:
    """Numbered locations seen so far: an FX node carries the number, since it can carry no frame."""

    def __init__(self, *sources: Source):
        """Number locations of texts. sources: texts that are not files, under the file name of their code objects."""
        self._sources: dict[str, Source | None] = {source.name: source for source in sources}
        self._seen: list[tuple[CodeType, int]] = []
        self._numbers: dict[tuple[CodeType, int], int] = {}

    def here(self, frame: FrameType | None, outermost: CodeType | None = None) -> int | None:
        """Return the number of the user's innermost location among the callers of `frame`, below `outermost`."""
        sources = self._sources
        while frame is not None and frame.f_code is not outermost:
            code = frame.f_code
            if code.co_filename not in sources:
                self._source(code)
            if sources[code.co_filename] is not None:  # queried for dozens of frames for every call of torch
                key = (code, frame.f_lasti)
                if key not in self._numbers:
                    self._numbers[key] = len(self._seen)
                    self._seen.append(key)
                return self._numbers[key]
            frame = frame.f_back
        return None

    def span(self, number: int | None) -> Span | None:
        return None if number is None else self._span(*self._seen[number])

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
            if self._source(traceback.tb_frame.f_code) is not None:
                found = traceback
            traceback = traceback.tb_next
        return None if found is None else self._span(found.tb_frame.f_code, found.tb_lasti)

    def _source(self, code: CodeType) -> Source | None:
        """Return the text of a code object, None if it is torch's, Python's, ours or unknown."""
        name = code.co_filename
        if name not in self._sources:
            lines = [] if is_library(name) else linecache.getlines(name)
            shown = name.removeprefix(str(Path.cwd()) + os.sep)  # relative if it is below the current directory
            self._sources[name] = Source(shown, "".join(lines)) if lines else None
        return self._sources[name]

    def _span(self, code: CodeType, instruction: int) -> Span | None:
        source = self._source(code)
        if source is None:
            return None
        line, end_line, column, end_column = next(islice(code.co_positions(), instruction // 2, None))
        if line is None:
            return None
        end_line = end_line or line
        start = characters(source.line(line), column or 0)
        end = characters(source.line(end_line), end_column) if end_column is not None else len(source.line(line))
        return Span(source, line, start, end_line, end)


def is_library(name: str) -> bool:
    """Return whether a file is torch's, ours or Python's. Other installed files may be the user's model."""
    return name.startswith(_LIBRARIES) or (name.startswith(_PYTHON) and not any(part in name for part in _INSTALLED))


def characters(line: str, offset: int) -> int:
    """Convert a column from bytes of UTF-8, as Python counts it, to characters, as a span does."""
    return len(line.encode()[:offset].decode(errors="ignore"))


def caller() -> FrameType | None:
    """Return the frame that called the function which calls this."""
    return sys._getframe(2)
