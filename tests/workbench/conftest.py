"""A client of `dplc lsp` for the tests that ask for one; the tests skip themselves where its libraries are missing."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    from editor import client, server  # noqa: F401
