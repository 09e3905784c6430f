"""A program that is compiled again whenever its rules change: the other half of a live page.

It runs the user's Python never: what was captured at the start stays. Rule files are data, and settings are read by the
rules' own parser.
"""

from __future__ import annotations

import difflib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, Source, UsageError
from ..capture.capture import Capture
from ..compiler import Compilation, compile_captured
from ..language.rule import RuleSet, read_rules
from ..rewrite.seen import show
from ..rewrite.trace import Firing, Trace
from ..ruleset import Toolchain, read_settings, toolchain
from .last_viewed import remember
from .record import view_record

SECONDS = 0.3  # for the model's word on firings, where somebody waits for the page
MOST = 64  # values of a parameter that are offered


@dataclass(frozen=True)
class Switches:
    """What the reader of the page changed. without: rules that are off; settings: `RULE.PARAM=VALUE`, as of `--set`."""

    without: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()


@dataclass
class LiveCompile:
    """A compile that the page shows. error: why there is no newer one; diff: of CUDA, to the one before."""

    number: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    diff: str = ""
    milliseconds: float = 0.0
    why: str = ""


class LiveProgram:
    """A captured program under rules that change. paths: of rule files and folders; settings: as of `--set`."""

    def __init__(
        self, captured: Capture, title: str, paths: Sequence[Path], settings: Sequence[str], target: Target
    ) -> None:
        self.captured, self.title, self.paths, self.target = captured, title, tuple(paths), target
        self.given = tuple(settings)
        self.switches = Switches()
        self.changed = threading.Condition()
        self.shown = LiveCompile()
        self._busy = threading.Lock()
        self._last: Compilation | None = None
        self._tools: Toolchain | None = None
        self._seen = self.files()  # as they were when they were last compiled

    # ---- compiling
    def tools(self, switches: Switches) -> Toolchain:
        """The rules as their files are now, less those that are off, with the settings of the reader."""
        rules = toolchain(self.paths).rules
        unknown = sorted(switches.without - rules.rules.keys())
        if unknown:
            raise rules.missing(unknown[0])
        if switches.without:
            text = "".join(f"without {name}\n" for name in sorted(switches.without))
            rules = RuleSet((*rules.files, read_rules(Source("switches of dplc view", text))))
        settings = read_settings((*self.given, *switches.settings), rules)
        return toolchain(rules, settings)

    def compile(self, why: str, switches: Switches | None = None) -> LiveCompile:
        """Compile again, and tell who waits. What cannot be compiled leaves the page as it was, with the reason."""
        with self._busy:
            wanted = self.switches if switches is None else switches
            start = time.perf_counter()
            self._seen = self.files()
            try:
                made, tools = self._compiled(wanted)
            except DplcError as error:
                shown = LiveCompile(self.shown.number + 1, self.shown.record, error.render(), "", 0.0, why)
            else:
                self.switches = wanted
                record = view_record(made, tools, self.title, SECONDS)
                record["switches"] = {"without": sorted(wanted.without), "settings": list(wanted.settings)}
                diff = "" if self._last is None else cuda_diff(self._last.cuda, made.cuda)
                self._last, self._tools = made, tools
                remember(self.title, made.trace.events if made.trace is not None else ())
                shown = LiveCompile(self.shown.number + 1, record, "", diff, (time.perf_counter() - start) * 1e3, why)
            with self.changed:
                self.shown = shown
                self.changed.notify_all()
            return shown

    def _compiled(self, switches: Switches) -> tuple[Compilation, Toolchain]:
        tools = self.tools(switches)
        return compile_captured(self.captured, tools, tools.on(self.target), Trace()), tools

    def after(self, number: int, seconds: float) -> LiveCompile | None:
        """What is shown once it is newer than a number; None if nothing is for so many seconds."""
        with self.changed:
            self.changed.wait_for(lambda: self.shown.number > number, seconds)
            return self.shown if self.shown.number > number else None

    # ---- parameters
    def parameters(self, rule: str) -> list[dict[str, Any]]:
        """The parameters of a rule where it first fired: each with its value there and the others of its domain."""
        made, tools = self._last, self._tools
        if made is None or tools is None or made.trace is None:
            return []
        fired = next((event for event in made.trace.firings if event.rule == rule and event.parameters), None)
        return [] if fired is None else [_values(fired, name, tools, made.target) for name in fired.parameters]

    # ---- files
    def files(self) -> dict[Path, tuple[int, int]]:
        """What tells whether a rule file changed: its time and its size."""
        found = {}
        for given in self.paths:
            for path in given.rglob("*.rw") if given.is_dir() else (given,):
                try:
                    status = path.stat()
                except OSError:
                    continue
                found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def watch(self, stop: threading.Event, every: float = 0.1, tell: Callable[[str], None] = lambda text: None) -> None:
        """Compile again whenever a rule file changes, until told to stop."""
        while not stop.wait(every):
            now, known = self.files(), self._seen
            if now != known:
                names = sorted(path.name for path in {*now, *known} if now.get(path) != known.get(path))
                shown = self.compile(f"{', '.join(names)} changed")
                tell(shown.error or f"{shown.why}: compiled in {shown.milliseconds:.0f} ms")


def _values(fired: Firing, name: str, tools: Toolchain, target: Target) -> dict[str, Any]:
    others = {key: value for key, value in fired.parameters.items() if key != name}
    sites = tools.engine.sites(fired.rule, fired.before, target, others, search=True)
    found: list[str] = []
    if not isinstance(fired.parameters[name], Iterable):
        values = {match.env[name] for match in itertools.islice(sites, MOST) if name in match.env}
        plain = [value for value in values if isinstance(value, int)]
        found = [show(value) for value in sorted(plain)]
    return {"name": name, "now": show(fired.parameters[name]), "values": found}


def cuda_diff(before: str, after: str) -> str:
    """The lines in which two CUDA texts differ; nothing where they are one."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=3)
    return "\n".join(itertools.islice(lines, 2, None))


def switches_of(wanted: Any) -> Switches:
    """Switches from JSON: {"without": [names], "settings": [texts]}. Raises UsageError for anything else."""
    names, settings = (wanted.get(key, []) if isinstance(wanted, dict) else None for key in ("without", "settings"))
    for found in (names, settings):
        if not isinstance(found, list) or not all(isinstance(text, str) and len(text) < 400 for text in found):
            raise UsageError('a change is {"without": [rules], "settings": ["RULE.PARAM=VALUE"]}')
    assert names is not None and settings is not None
    return Switches(frozenset(names), tuple(settings))
