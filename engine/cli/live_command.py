"""`dplc view` without a file: a page that is served at once, and filled while PyTorch loads and the program compiles.

What is imported here is light. While the browser starts, the rules and what else needs no PyTorch are read; PyTorch
itself, which takes longer than all of that, once the browser has asked for the page.
"""

from __future__ import annotations

import contextlib
import threading
import time
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.diagnostic import DplcError
from ..view.kept_page import KeptPage
from ..view.live_page import LivePage, News
from ..view.page import page
from ..view.server import PageServer
from ..view.stages import Stages
from ..view.wishes import SearchWish
from .options import Flags
from .show import print_note
from .subjects import Subject

if TYPE_CHECKING:
    from ..capture.capture import Capture
    from ..view.live_rules import LiveRules

FIRST_LOOK = 1.0  # seconds that the browser has for asking for the page, before torch's import takes the processor
LAST_LOOK = 2.0  # seconds that a page has for hearing why there will be nothing


def serve_page(flags: Flags, port: int, browse: bool, search: SearchWish, check: bool, subject: Subject) -> None:
    """The page on this machine, compiled again when a rule file changes, until Ctrl-C. search: what is searched beside;
    check: checked mode runs beside, too. subject: an expression, a model or a suite.

    Raises DplcError where the program cannot be captured, or cannot be compiled and no rule file might mend it.
    """
    shown = LivePage(subject.name)
    kept = _kept(flags) if subject.kind == "text" else None
    shown.show(**({} if kept is None else kept.found()))
    stages = Stages(shown)
    page(shown.record, live=True)  # imports what renders it, while nothing else takes the processor
    with _served(shown, port) as server:
        print_note(f"{server.url}\n  for this machine only; Ctrl-C ends it")
        began = time.monotonic()
        if browse:
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        _read_ahead(stages)
        if browse:
            server.seen.wait(max(0.0, began + FIRST_LOOK - time.monotonic()))
        with contextlib.suppress(KeyboardInterrupt):
            _follow(flags, server, stages, search, check, subject, kept)


def _kept(flags: Flags) -> KeptPage:
    """Where the page of an expression is kept."""
    said = (flags.text, flags.target, flags.dtype, flags.seed, flags.pinned, flags.exact, flags.prefer)
    return KeptPage(map(repr, said), flags.rules or ())


@contextlib.contextmanager
def _served(shown: LivePage, port: int) -> Iterator[PageServer]:
    """A server that answers in a thread of its own."""
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


def _read_ahead(stages: Stages) -> None:
    """Our own rules, which every program needs, and most of what compiles one. None of it imports PyTorch."""
    stages.begin("rules")
    from ...codegen import cuda  # noqa: F401
    from ..kernels import kernels  # noqa: F401
    from ..rewrite.torch_rules.lower import compile_rules
    from ..ruleset import toolchain

    compile_rules(toolchain().torch)


def _follow(
    flags: Flags, server: PageServer, stages: Stages, search: SearchWish, check: bool, subject: Subject,
    kept: KeptPage | None,
) -> None:  # fmt: skip
    """Capture, compile, and compile again."""
    shown = server.shown
    stages.begin("pytorch")
    try:
        import torch.export._trace  # noqa: F401

        program = _program(flags, shown, stages, search, check, subject, kept)
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
    program.watch(threading.Event(), tell=print_note)


def _program(
    flags: Flags, shown: LivePage, stages: Stages, search: SearchWish, check: bool, subject: Subject,
    kept: KeptPage | None,
) -> LiveRules:  # fmt: skip
    """What is compiled whenever rules change. Raises DplcError for what cannot be captured."""
    from ..api import choose_device, target_for
    from .compiling import tools_for

    stages.begin("rules")
    machine = target_for(choose_device(None), flags.target)
    if not (flags.rules and all(path.exists() for path in flags.rules)):
        tools_for(flags)  # nothing that is saved could mend what is wrong here
    stages.begin("capture")
    given = tuple(flags.rules or ()), flags.pinned, machine
    if subject.kind == "suite":
        from ..view.live_suite import LiveSuite

        return LiveSuite(subject.path, *given, shown=shown, exact=flags.exact)
    from ..view.session import LiveProgram

    return LiveProgram(
        _captured(flags, subject), subject.name, *given, shown=shown, stages=stages, exact=flags.exact,
        search=search, check=check, kept=kept,
    )  # fmt: skip


def _captured(flags: Flags, subject: Subject) -> Capture:
    """The expression, or a model without its weights."""
    if subject.kind == "text":
        from .compiling import captured_text

        return captured_text(flags)[0]
    from .model_commands import captured_model

    return captured_model(subject.name, flags)


def _tell_the_end(server: PageServer, news: News) -> None:
    """Wait until a page that is open has heard the last news."""
    end = time.monotonic() + LAST_LOOK
    while server.seen.is_set() and server.heard < news.number and time.monotonic() < end:
        time.sleep(0.02)
