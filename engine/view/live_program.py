"""A program that is compiled again whenever its rule files or the switches of its reader change.

The user's Python runs once, at capture. Rule files are data, and the rules' own parser reads settings.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ...codegen.compiler import BuildError
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, Source
from ...ir.text.programs import print_program
from ..capture.signature import Capture
from ..compiler import Compilation, Compiler, Stopwatch, compiler_with
from ..language.rule import read_rules
from ..rewrite.trace import Firing, Trace, difference, show
from ..ruleset import all_rule_files, toolchain
from .provenance import Column, column_records, source_and_torch
from .records import (
    access_counts,
    compile_record,
    egraph_record,
    measured_registers,
    predicted_effects,
)
from .server import LivePage, News, Record, Switches

MOST = 64  # values of a parameter that the page offers


@dataclass
class LiveProgram:
    """A captured program under rules that change.

    paths: rule files and folders of the user; settings: `RULE.PARAM=VALUE`, as `--set` takes them; exact: exclude
    @approx rules. explore: also explore the fusion of each compile; check: also run each compile in checked mode.
    """

    captured: Capture
    shown: LivePage
    paths: Sequence[Path]
    settings: Sequence[str]
    target: Target
    exact: bool = False
    tf32: str = "auto"
    explore: bool = False
    check: bool = False
    switches = Switches()
    _jobs: BackgroundJobs | None = None

    def __post_init__(self) -> None:
        self._compiling = threading.Lock()
        self._seen = self.files()  # state of the rule files at the last compile

    # ---- compiling
    def compile(self, why: str, switches: Switches | None = None) -> News:
        """Compile again and report it. A failed compile leaves the page unchanged, and the news hold the error."""
        with self._compiling:
            wanted = switches or self.switches
            start = time.perf_counter()
            self._seen = self.files()
            try:
                made = self._compiled(wanted)
            except DplcError as error:
                return self.shown.report({"stages": None}, error=error.render(), why=why)
            parts = compile_record(made, self.shown.record["title"])
            parts["switches"] = msgspec.to_builtins(wanted, order="sorted")
            parts |= dict.fromkeys(("egraph", "counted", "stages"))
            diff = "" if self._jobs is None else "\n".join(difference(self._jobs.made.cuda, made.cuda, 3))
            self.switches = wanted
            self._start_jobs(made)
            return self.shown.report(parts, diff=diff, ms=(time.perf_counter() - start) * 1e3, why=why)

    def _compiled(self, switches: Switches) -> Compilation:
        if self._jobs is not None:
            return self.compiler(switches).compile(self.captured)
        shown = list[Column]()  # the page shows each text of the first compile when it exists
        self.shown.begin("rules")
        compiler = self.compiler(switches)

        def add(stage: str, units: Any) -> None:
            """Show the result of a stage, without its links."""
            if stage == "torch":
                shown.extend(source_and_torch(replace(self.captured, graph=units)))
            else:
                shown.append(Column(stage, print_program(units, stage).splitlines()))
            self.shown.show(columns=column_records(shown))

        made = compiler.compile(self.captured, watch=Stopwatch(self.shown.begin, add))
        self.shown.begin("links")
        return made

    def _start_jobs(self, made: Compilation) -> None:
        """Replace the background jobs by those of a compile."""
        self.close()
        self._jobs = BackgroundJobs(made, self.shown, self.explore, self.check, self._compiling)
        threading.Thread(target=self._jobs.run, daemon=True).start()

    def explore_fusion(self) -> None:
        """Explore the fusion of the program, and do so after each further compile."""
        with self._compiling:
            self.explore = True
            if self._jobs is not None:
                self._start_jobs(self._jobs.made)

    def close(self) -> None:
        """End the background jobs."""
        if self._jobs is not None:
            self._jobs.obsolete = True

    # ---- parameters
    def parameters(self, rule: str) -> list[Record]:
        """Return the parameters of a rule at its first firing: the value, and the other values of the domain.

        A fusion rule decides at no single site. It has a value alone.
        """
        if self._jobs is None:
            return []
        made = self._jobs.made
        firings = [event for event in made.events if isinstance(event, Firing) and event.rule == rule]
        if not firings:
            return []
        fired = max(firings, key=lambda event: bool(event.parameters))
        known, tools, target = {**fired.bound, **fired.parameters}, made.compiler.tools, made.target

        def values(name: str) -> list[str]:
            """Return the values with which the rule may fire at the site, none if the firing decided without it."""
            if name not in fired.parameters:
                return []
            others = {key: value for key, value in fired.parameters.items() if key != name}
            sites = tools.engine.sites(rule, fired.before, target, others, search=True)
            bound = (match.env.get(name) for match in itertools.islice(sites, MOST))
            return [*map(show, sorted({value for value in bound if isinstance(value, int)}))]

        return [
            {"name": one.name, "now": show(known[one.name]), "values": values(one.name)}
            for one in tools.rules.rule(rule).parameters
            if one.name in known
        ]

    # ---- rules and their files
    def compiler(self, switches: Switches) -> Compiler:
        """Return a compiler with a trace: it reads the rule files, without the rules that are off, and the settings."""
        rules = toolchain(self.paths).rules
        text = "".join(f"without {rules.rule(name).name}\n" for name in sorted(switches.without))
        if text:
            rules = rules.extended(read_rules(Source("switches of dplc view", text)))
        return compiler_with(self.target, rules, (*self.settings, *switches.settings), self.exact, Trace(), self.tf32)

    def files(self) -> set[tuple[Path, int, int]]:
        """Return each rule file with its modification time and size."""
        found = set()
        for path in all_rule_files(self.paths):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.add((path, status.st_mtime_ns, status.st_size))
        return found

    def watch(self, stop: threading.Event, report: Callable[[str], None]) -> None:
        """Compile again whenever a rule file changes, until `stop` is set."""
        while not stop.wait(LOOK):
            if changed := {path for path, *_ in self.files() ^ self._seen}:
                news = self.compile(f"{', '.join(sorted(path.name for path in changed))} changed")
                report(news.error or f"{news.why}: compiled in {news.ms:.0f} ms")


# ---- background jobs


LOOK = 0.1  # seconds between two looks at the rule files
EVERY = 0.4  # seconds between two updates of the page


class Ended(Exception):
    """Exception that cancels a job after its results became obsolete."""


@dataclass
class BackgroundJobs:
    """Predict the effects of one compile. explore: explore its fusion, too; check: count its accesses in checked mode.

    compiling: locked while the program is compiled again. obsolete: a later compile has replaced these jobs.
    """

    made: Compilation
    shown: LivePage
    explore: bool
    check: bool
    compiling: threading.Lock = field(default_factory=threading.Lock)
    obsolete: bool = False
    updated: float = 0.0

    def step(self, **parts: object) -> None:
        """Wait between two steps until no compile runs, then show parts. Raises Ended if the jobs are obsolete."""
        with self.compiling:
            if self.obsolete:
                raise Ended
            if parts:
                self.shown.show(**parts)

    def run(self) -> None:
        """Predict each firing, and show the effects so far every EVERY seconds. Then measure and explore."""
        found: Record = {}
        with contextlib.suppress(Ended):
            for number, effect in predicted_effects(self.made):
                found[str(number)] = effect
                self.step(**({"effects": dict(found)} if self._due() else {}))
            self.step(effects=found)
            self.measure_and_explore()

    def measure_and_explore(self) -> None:
        """Assemble the kernels, count accesses, and explore. Without a C++ compiler, lines get no counts."""
        kernels = list(self.shown.record["kernels"])
        for number, found in measured_registers(self.made):
            kernels[number] = kernels[number] | {"assembled": found}
            self.step(kernels=list(kernels))
        if self.check and "counted" not in self.shown.record:
            with contextlib.suppress(BuildError):
                self.step(counted=access_counts(self.made))
        if self.explore:
            self.step(egraph=self._explored())

    def _due(self) -> bool:
        if due := time.monotonic() - self.updated > EVERY:
            self.updated = time.monotonic()
        return due

    def _explored(self) -> Record:
        try:
            return egraph_record(self.made.compiler.untraced.values(self.made.captured))
        except DplcError as error:
            return {"error": error.render()}
