"""Scripts run in the process of the tests: what they import is imported once, and their kernels are built quickly."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path
from unittest import mock


def printed_by(path: Path, *arguments: str) -> str:
    """Run a script as `python PATH ARGUMENTS` would and return what it prints. Fails where it ends with an error."""
    code, out = ended_by(path, *arguments)
    assert not code, code
    return out


def ended_by(path: Path, *arguments: str) -> tuple[int | str | None, str]:
    """Return what a script ends with, and what it prints."""
    code: int | str | None = 0
    out, known = io.StringIO(), set(sys.modules)
    command = mock.patch.multiple(sys, argv=[str(path), *arguments], path=[str(path.parent), *sys.path])
    try:
        with command, contextlib.redirect_stdout(out):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    finally:
        for name in set(sys.modules) - known:  # another folder may have a module of this name
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == path.parent:
                del sys.modules[name]
    return code, out.getvalue()
