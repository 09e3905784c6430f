"""A program that is compiled again whenever its rules change: the other half of a live page."""

from __future__ import annotations

import difflib
import functools
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.text.print import print_program
from ..capture.capture import Capture
from ..compiler import Compilation, CompileOptions, Stopwatch, compile_captured
from ..rewrite.seen import show
from ..rewrite.trace import Firing, Trace
from ..ruleset import Toolchain
from .kept_page import KeptPage, same_compile
from .last_viewed import remember
from .live_page import LivePage, News
from .live_rules import LiveRules
from .provenance import Column, source_and_torch
from .record import column_record, compile_record
from .stages import Stages
from .wishes import SearchWish, Switches

if TYPE_CHECKING:
    from .beside import Beside

MOST = 64  # values of a parameter that are offered


class LiveProgram(LiveRules):
    """A captured program under rules that change. paths, settings, shown, exact: as of `LiveRules`; search: what is
    searched beside each compile; check: it is run in checked mode beside each compile, too; kept: where its page is
    kept, which is shown already if it is there."""

    def __init__(
        self, captured: Capture, title: str, paths: Sequence[Path], settings: Sequence[str], target: Target,
        *, shown: LivePage | None = None, stages: Stages | None = None, exact: bool = False,
        search: SearchWish | None = None, check: bool = False, kept: KeptPage | None = None,
    ) -> None:  # fmt: skip
        super().__init__(title, paths, settings, target, shown, exact)
        self.captured = captured
        self._stages = stages or Stages(self.shown)
        self._search, self._check, self._kept = search or SearchWish(), check, kept
        self._key = ""  # of the page that is compiled; none where its reader changed what it is compiled with
        self._beside: Beside | None = None
        self._last: Compilation | None = None
        self._tools: Toolchain | None = None

    # ---- compiling
    def compile(self, why: str, switches: Switches | None = None) -> News:
        with self._busy:
            wanted = self.switches if switches is None else switches
            beside = self._beside
            if beside is not None:
                beside.turns.rest()
            start = time.perf_counter()
            self._seen = self.files()
            shown = {} if self._last is not None else self.shown.record  # what was kept of it, if it is whole
            try:
                key = "" if self._kept is None or wanted != Switches() else self._kept.key()
                made, tools = self._compiled(wanted)
            except DplcError as error:
                news = self.shown.tell({"stages": None}, error=error.render(), why=why)
                if beside is not None:
                    beside.turns.go_on()
                return news
            self.switches = wanted
            parts = compile_record(made, tools, self.title)
            parts["switches"] = {"without": sorted(wanted.without), "settings": list(wanted.settings)}
            before = _cuda_of(shown) if self._last is None else self._last.cuda
            diff = "" if before is None else cuda_diff(before, made.cuda)
            self._last, self._tools, self._key = made, tools, key
            remember(self.title, made.trace.events if made.trace is not None else ())
            if beside is not None:
                beside.turns.end()
            known = same_compile(shown, parts)
            told = {name: parts[name] for name in ("timings", "switches")} if known else parts
            cleared = dict.fromkeys(("tuning", "egraph", "counted", "stages", "kept"))
            took = (time.perf_counter() - start) * 1e3
            news = self.shown.tell(told | cleared, diff=diff, ms=took, why=why)
            self._begin_beside(known)
            return news

    def _compiled(self, switches: Switches) -> tuple[Compilation, Toolchain]:
        if self._last is not None:
            tools = self.tools(switches)
            return compile_captured(self.captured, CompileOptions(tools, self.target, Trace())), tools
        stages = self._stages  # nobody has seen it yet: every text is shown when it is made
        stages.begin("rules")
        tools = self.tools(switches)
        growing = Growing(self.shown, self.captured)
        watch = Stopwatch(lambda name, number, count: stages.begin(name), growing.add)
        made = compile_captured(self.captured, CompileOptions(tools, self.target, Trace()), watch=watch)
        stages.begin("links")
        return made, tools

    def _begin_beside(self, known: bool = False) -> None:
        """known: the page says already what the model says of this compile."""
        from .beside import Beside  # searches are many modules: the page is there first

        assert self._last is not None and self._tools is not None
        key, kept = self._key, self._kept
        keep = None if kept is None or not key else functools.partial(kept.keep, key)
        self._beside = Beside(
            self.captured, self._last, self._tools, self.shown, self._search, self._check, known, keep
        )
        self._beside.start()

    def search(self, wanted: SearchWish) -> None:
        """SearchWish beside this compile and those to come, instead of what was searched so far."""
        with self._busy:
            self._search = wanted
            if self._beside is None:
                return
            self._beside.turns.end()
            if wanted == SearchWish():
                found = self.shown.record.get("tuning")
                self.shown.show(tuning=None if found is None else {**found, "running": False})
            else:
                self._begin_beside()

    def close(self) -> None:
        if self._beside is not None:
            self._beside.turns.end()

    # ---- parameters
    def parameters(self, rule: str) -> list[dict[str, Any]]:
        """The parameters of a rule where it first fired: each with its value there and the others of its domain; of a
        rule of fusion, which decides at no site, with its value alone."""
        made, tools = self._last, self._tools
        if made is None or tools is None or made.trace is None:
            return []
        firings = [event for event in made.trace.firings if event.rule == rule]
        chosen = next((event for event in firings if event.parameters), None)
        if chosen is not None:
            return [_values(chosen, name, tools, made.target) for name in chosen.parameters]
        bound = firings[0].record()["bound"] if firings else {}
        names = (parameter.name for parameter in tools.rules.rule(rule).parameters) if firings else ()
        return [{"name": name, "now": bound[name], "values": []} for name in names if name in bound]


class Growing:
    """The columns of a compile that goes on: each is shown when its stage is done, its links when all are."""

    def __init__(self, shown: LivePage, captured: Capture) -> None:
        self._shown, self._captured = shown, captured
        self._columns: list[Column] = []
        self._whole = "kernels" in shown.record  # it was kept: nothing of it goes before all that is new is there

    def add(self, stage: str, units: Any) -> None:
        """What a stage made."""
        if self._whole:
            return
        if stage == "torch":
            self._columns += source_and_torch(replace(self._captured, graph=units))
        else:
            lines = print_program(units, stage).splitlines()
            self._columns.append(Column(stage, lines, [()] * len(lines), [()] * len(lines)))
        self._shown.show(columns=[column_record(column) for column in self._columns])


def _values(fired: Firing, name: str, tools: Toolchain, target: Target) -> dict[str, Any]:
    others = {key: value for key, value in fired.parameters.items() if key != name}
    sites = tools.engine.sites(fired.rule, fired.before, target, others, search=True)
    found: list[str] = []
    if not isinstance(fired.parameters[name], Iterable):
        values = {match.env[name] for match in itertools.islice(sites, MOST) if name in match.env}
        plain = [value for value in values if isinstance(value, int)]
        found = [show(value) for value in sorted(plain)]
    return {"name": name, "now": show(fired.parameters[name]), "values": found}


def _cuda_of(record: Mapping[str, Any]) -> str | None:
    """The CUDA of a record that is whole."""
    return "\n".join(record["columns"][-1]["lines"]) if "kernels" in record else None


def cuda_diff(before: str, after: str) -> str:
    """The lines in which two CUDA texts differ; nothing where they are one."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=3)
    return "\n".join(itertools.islice(lines, 2, None))
