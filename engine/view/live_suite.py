"""A suite whose map is made again whenever the rules change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..ruleset import Toolchain
from .live_page import LivePage, News
from .live_rules import LiveRules
from .suite_map import SuiteMap
from .turns import Turns
from .wishes import Switches

EVERY = 2.0  # seconds between two looks at what was priced
STEP = 4  # cases between two words on how far it is


class LiveSuite(LiveRules):
    """path: of the suite; the rest as of `LiveRules`."""

    def __init__(
        self, path: Path, paths: Sequence[Path], settings: Sequence[str], target: Target, *,
        shown: LivePage | None = None, exact: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(path.name, paths, settings, target, shown, exact)
        self._map = SuiteMap(path)
        self._pricing: Turns | None = None

    def compile(self, why: str, switches: Switches | None = None) -> News:
        with self._busy:
            wanted = self.switches if switches is None else switches
            start = time.perf_counter()
            self._seen = self.files()
            self.close()
            try:
                tools = self.tools(wanted)
                self._map.compile(tools, self.target, self._tell)
            except DplcError as error:
                return self.shown.tell({"stages": None}, error=error.render(), why=why)
            self.switches = wanted
            switched = {"without": sorted(wanted.without), "settings": list(wanted.settings)}
            parts = self._parts(tools) | {"switches": switched, "stages": None}
            news = self.shown.tell(parts, ms=(time.perf_counter() - start) * 1e3, why=why)
            turns = self._pricing = Turns()
            turns.start(lambda: self._price(turns, tools))
            return news

    def close(self) -> None:
        if self._pricing is not None:
            self._pricing.end()

    def _price(self, turns: Turns, tools: Toolchain) -> None:
        """What rules gained, which takes longer than compiling: the map is shown again now and then."""
        told = time.monotonic()
        for _ in self._map.price(tools, self.target):
            turns.turn()
            if time.monotonic() - told > EVERY:
                turns.do(lambda: self.shown.show(heat=self._parts(tools)["heat"]))
                told = time.monotonic()
        turns.do(lambda: self.shown.show(heat=self._parts(tools)["heat"]))

    def _parts(self, tools: Toolchain) -> dict[str, Any]:
        record = self._map.record(tools, self.target)
        return record | {"rules": _rules(record["heat"]["rules"], tools)}

    def _tell(self, case: str, number: int, count: int) -> None:
        if number % STEP == 0:
            text = f"case {number + 1} of {count}: {case}"
            self.shown.show(stages=[{"text": text, "ms": None, "now": True}])


def _rules(fired: Sequence[dict[str, Any]], tools: Toolchain) -> dict[str, Any]:
    """What the page says of each rule, for its switch. A parameter has no one value in a suite."""
    found = {}
    for one in fired:
        rule = tools.rules.rules[one["name"]]
        found[rule.name] = {
            "location": rule.location, "docs": " ".join(rule.docs).strip(), "level": rule.level, "pass": rule.file,
            "parameters": [], "fired": sum(count for count, _ in one["cells"].values()),
        }  # fmt: skip
    return found
