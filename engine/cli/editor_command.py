"""`dplc lsp`: the language server, where its library is installed."""

from __future__ import annotations

from ...ir.diagnostic import UsageError


def serve() -> None:
    """Answer an editor until it ends. Raises UsageError without pygls."""
    try:
        from ..workbench.server import server
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("the language server needs pygls", hint="pip install 'dplc[lsp]'") from None
    server().start_io()
