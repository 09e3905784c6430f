"""`dplc view` without -o: a page that the server sends at once, and fills while PyTorch loads and the program compiles.

Imports here are light. While the browser starts, the command reads the rules. It imports PyTorch, which takes longer,
after the browser has requested the page.
"""

from __future__ import annotations

import contextlib
import threading
import time
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.diagnostic import DplcError
from ..view.live_page import LivePage, News, Progress, SearchRequest
from ..view.page import page
from ..view.server import PageServer
from .options import Flags
from .show import print_note
from .subjects import Subject

if TYPE_CHECKING:
    from ..capture.capture import Capture
    from ..view.live_program import LiveProgram

FIRST_LOOK = 1.0  # seconds that the browser has to request the page before torch's import takes the processor
LAST_LOOK = 2.0  # seconds that an open page has to receive the final error


def serve_page(flags: Flags, port: int, browse: bool, search: SearchRequest, check: bool, subject: Subject) -> None:
    """Serve the page on this machine until Ctrl-C, and compile again when a rule file changes.

    search, check: searches and checked mode that follow each compile. subject: an expression or a model.
    Raises DplcError if the program cannot be captured, or cannot be compiled and no rule file could change that.
    """
    shown = LivePage(subject.name)
    progress = Progress(shown)
    page(shown.record, live=True)  # imports the template engine while the processor is idle
    with _served(shown, port) as server:
        print_note(f"{server.url}\n  for this machine only; Ctrl-C ends it")
        began = time.monotonic()
        if browse:
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        _read_ahead(progress)
        if browse:
            server.seen.wait(max(0.0, began + FIRST_LOOK - time.monotonic()))
        with contextlib.suppress(KeyboardInterrupt):
            _follow(flags, server, progress, search, check, subject)


@contextlib.contextmanager
def _served(shown: LivePage, port: int) -> Iterator[PageServer]:
    """Run the server in its own thread."""
    try:
        server = PageServer(shown, port)
    except OSError as error:
        raise DplcError(f"--port {port}: {error.strerror}", hint="leave it out to take a free one") from None
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.close()


def _read_ahead(progress: Progress) -> None:
    """Read the built-in rules and import most of the compiler, without PyTorch."""
    progress.begin("rules")
    from ...codegen import cuda  # noqa: F401
    from ..kernels import kernels  # noqa: F401
    from ..rewrite.torch_rules.lower import compile_rules
    from ..ruleset import toolchain

    compile_rules(toolchain().torch)


def _follow(
    flags: Flags, server: PageServer, progress: Progress, search: SearchRequest, check: bool, subject: Subject
) -> None:
    """Capture and compile, then compile again whenever a rule file changes."""
    shown = server.shown
    progress.begin("pytorch")
    try:
        import torch.export._trace  # noqa: F401

        program = _program(flags, shown, progress, search, check, subject)
    except DplcError as error:
        _tell_the_end(server, shown.tell({"stages": None}, error=error.render(), why="started"))
        raise
    server.program = program
    news = program.compile("started")
    if news.error and not program.paths:
        _tell_the_end(server, news)
        raise DplcError(news.error.removeprefix("error: "))
    if news.error:
        print_note(news.error)
    program.watch(threading.Event(), report=print_note)


def _program(
    flags: Flags, shown: LivePage, progress: Progress, search: SearchRequest, check: bool, subject: Subject
) -> LiveProgram:
    """Capture the program. Raises DplcError if that fails."""
    from ..api import choose_device, target_for
    from ..view.live_program import LiveProgram
    from .compiling import tools_for

    progress.begin("rules")
    machine = target_for(choose_device(None), flags.target)
    if not (flags.rules and all(path.exists() for path in flags.rules)):
        tools_for(flags)  # an error here is not in a file that the user could change
    progress.begin("capture")
    return LiveProgram(
        _captured(flags, subject), subject.name, tuple(flags.rules or ()), flags.pinned, machine, shown=shown,
        progress=progress, exact=flags.exact, search=search, check=check,
    )  # fmt: skip


def _captured(flags: Flags, subject: Subject) -> Capture:
    """Capture the expression, or a model without its weights."""
    if subject.kind == "text":
        from .compiling import captured_text

        return captured_text(flags)[0]
    from .model_commands import captured_model

    return captured_model(subject.name, flags)


def _tell_the_end(server: PageServer, news: News) -> None:
    """Wait until an open page has received the last news, at most LAST_LOOK seconds."""
    end = time.monotonic() + LAST_LOOK
    while server.seen.is_set() and server.heard < news.number and time.monotonic() < end:
        time.sleep(0.02)
