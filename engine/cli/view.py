"""`dplc view`: show a compile as a page, in a file or served live."""

from __future__ import annotations

import contextlib
import threading
import time
import webbrowser
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.diagnostic import DplcError
from ..view.server import LivePage, News, PageServer, page
from .options import Flags
from .output import PAGE, bars, print_note, print_remark, write_file

if TYPE_CHECKING:
    from ..view.live_program import LiveProgram


def view(flags: Flags) -> None:
    """Run `dplc view`."""
    if flags.out is not None:
        write_file(flags.out, page(record_of(flags)), PAGE)
        print_remark(f"written to {flags.out}: it opens in any browser, nothing is loaded from elsewhere")
    else:
        serve_page(flags)


def record_of(flags: Flags) -> dict[str, object]:
    """Return the record of an expression or a model, compiled with its trace."""
    from ..view.live_program import BackgroundJobs
    from ..view.records import view_record
    from .programs import compile_text

    traced, kind, name = replace(flags, verbose=2), flags.subject.kind, flags.subject.name
    if kind == "text":
        compilation = compile_text(traced)
    else:
        from .models import compiled_model

        with bars() as tell:
            compilation = compiled_model(traced, tell).compilation
    shown = LivePage(name)
    with bars("linking lines, assembling and exploring"):
        shown.show(**view_record(compilation, name))
        BackgroundJobs(compilation, shown, flags.explore and kind == "text", flags.check).measure_and_explore()
    return shown.record


# ---- the live page: imports are light until the browser has requested it, for PyTorch takes long


REQUEST_GRACE = 0.5  # seconds that the server waits for the browser's first request before it imports torch
LAST_LOOK = 2.0  # seconds that the server waits for an open page to read the final error


def serve_page(flags: Flags) -> None:
    """Serve the page of an expression or a model until Ctrl-C, and compile again when a rule file changes.

    The server ends with the process. Raises DplcError if the program cannot be captured, and SystemExit if it cannot be
    compiled and no rule file could change that.
    """
    shown = LivePage(flags.subject.name)
    page(shown.record, live=True)  # imports the template engine while the processor is idle
    try:
        server = PageServer(shown, flags.port)
    except OSError as error:
        raise DplcError(f"--port {flags.port}: {error.strerror}", hint="leave it out to take a free one") from None
    shown.begin("rules")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print_note(f"{server.url}\n  for this machine only; Ctrl-C ends it")
    if flags.browse:
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    _read_ahead()
    if flags.browse:
        server.seen.wait(REQUEST_GRACE)
    with contextlib.suppress(KeyboardInterrupt):
        _follow(flags, server)


def _read_ahead() -> None:
    """Read the built-in rules and import most of the compiler, without PyTorch."""
    from ...codegen import cuda  # noqa: F401
    from ..kernels import kernels  # noqa: F401
    from ..rewrite.torch_rules.lower import compile_rules
    from ..ruleset import toolchain

    compile_rules(toolchain().torch)


def _follow(flags: Flags, server: PageServer) -> None:
    """Capture and compile, then compile again whenever a rule file changes."""
    server.shown.begin("pytorch")
    try:
        import torch.export._trace  # noqa: F401

        program = _program(flags, server.shown)
    except DplcError as error:
        _await_the_end(server, server.shown.report({"stages": None}, error=error.render(), why="started"))
        raise
    server.program = program
    news = program.compile("started")
    if news.error:
        print_note(news.error)
        if not program.paths:
            _await_the_end(server, news)
            raise SystemExit(1)
    program.watch(threading.Event(), report=print_note)


def _program(flags: Flags, shown: LivePage) -> LiveProgram:
    """Capture the expression, or a model without its weights. Raises DplcError if that fails."""
    from ..api import choose_device, target_for
    from ..view.live_program import LiveProgram
    from .programs import captured_text, compiler_for

    shown.begin("rules")
    machine = target_for(choose_device(None), flags.target)
    if not (flags.rules and all(path.exists() for path in flags.rules)):
        compiler_for(flags)  # an error here is not in a file that the user could change
    shown.begin("capture")
    if flags.subject.kind == "text":
        captured = captured_text(flags)
    else:
        from .models import captured_model

        captured = captured_model(flags)[1].captured
    return LiveProgram(
        captured, shown, flags.rules, flags.pinned, machine, flags.exact, flags.tf32,
        flags.explore, flags.check,
    )  # fmt: skip


def _await_the_end(server: PageServer, news: News) -> None:
    """Wait until an open page has received the last news, at most LAST_LOOK seconds."""
    end = time.monotonic() + LAST_LOOK
    while server.seen.is_set() and server.received < news.number and time.monotonic() < end:
        time.sleep(0.02)
