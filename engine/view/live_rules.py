"""Rules under a live page: which files they are of, what its reader turned off or set, and when they changed.

What is compiled with them says who comes from here. It runs the user's Python never: what was captured at the start
stays. Rule files are data, and settings are read by the rules' own parser.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import Source
from ..language.rule import RuleSet, read_rules
from ..ruleset import Toolchain, exactly, read_settings, toolchain
from .live_page import LivePage, News
from .wishes import SearchWish, Switches


class LiveRules(ABC):
    """paths: of rule files and folders; settings: as of `--set`; exact: no @approx rule fires; shown: what the page
    shows; switches: what its reader changed."""

    def __init__(
        self, title: str, paths: Sequence[Path], settings: Sequence[str], target: Target, shown: LivePage | None,
        exact: bool,
    ) -> None:  # fmt: skip
        self.title, self.paths, self.target = title, tuple(paths), target
        self.given, self.exact = tuple(settings), exact
        self.switches = Switches()
        self.shown = shown or LivePage(title)
        self._busy = threading.Lock()
        self._seen = self.files()  # as they were when they were last compiled

    @abstractmethod
    def compile(self, why: str, switches: Switches | None = None) -> News:
        """Compile again, and tell who waits. What cannot be compiled leaves the page as it was, with the reason."""

    def search(self, wanted: SearchWish) -> None:  # noqa: B027  (of a program alone)
        """Search beside the compiles to come."""

    def parameters(self, rule: str) -> list[dict[str, Any]]:
        """The parameters of a rule where it first fired, where there is one such place."""
        return []

    def close(self) -> None:  # noqa: B027  (of what goes on beside compiles)
        """Nothing goes on any more."""

    # ---- rules
    def tools(self, switches: Switches) -> Toolchain:
        """The rules as their files are now, less those that are off, with the settings of the reader."""
        rules = toolchain(self.paths).rules
        unknown = sorted(switches.without - rules.rules.keys())
        if unknown:
            raise rules.missing(unknown[0])
        if switches.without:
            text = "".join(f"without {name}\n" for name in sorted(switches.without))
            rules = RuleSet((*rules.files, read_rules(Source("switches of dplc view", text))))
        rules = exactly(rules) if self.exact else rules
        settings = read_settings((*self.given, *switches.settings), rules)
        return toolchain(rules, settings).at(self.target)

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
                news = self.compile(f"{', '.join(names)} changed")
                tell(news.error or f"{news.why}: compiled in {news.ms:.0f} ms")
