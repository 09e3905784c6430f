"""Work that follows a compile on a live page, in its own thread: predicted effects of every firing, then searches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...codegen.build import BuildError
from ...ir.diagnostic import DplcError
from ..capture.capture import Capture
from ..compiler import Compilation, CompileOptions, values_of
from ..explore.candidates import Fusing, exploration
from ..rewrite.trace import Event
from ..ruleset import Toolchain
from ..tune.predicting import PredictingEvaluator
from ..tune.running import Budget, SearchProgress
from ..tune.search import Tried
from ..tune.search_log import SearchLog
from ..tune.tuning import SearchOptions
from ..tune.tuning_program import tune_program
from .effects import Effects
from .live_page import LivePage, SearchRequest
from .record import access_counts, measured_registers
from .search_records import egraph_record, tuning_record, tuning_so_far

PATIENCE = 0.5  # seconds that a compile waits for a step to end
EVERY = 0.4  # seconds between two updates of the page


class Ended(Exception):
    """Raised in a job whose results are no longer needed."""


class Turns:
    """A cancellable thread of steps that pauses while a compile runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._resting = self._over = self._idle = False

    def start(self, work: Callable[[], None]) -> None:
        """Start `work` in a daemon thread."""
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            self.turn()
            work()
        except Ended:
            pass
        finally:
            with self._changed:
                self._idle = self._over = True
                self._changed.notify_all()

    def turn(self) -> None:
        """Wait between two steps until no compile runs. Raises Ended after `end`."""
        with self._changed:
            while self._resting and not self._over:
                self._idle = True
                self._changed.notify_all()
                self._changed.wait()
            self._idle = False
            if self._over:
                raise Ended

    def do(self, step: Callable[[], object]) -> None:
        """Run a step that must not run after `end`. Raises Ended."""
        with self._changed:
            if self._over:
                raise Ended
            step()

    def rest(self) -> None:
        """Pause the steps. Waits at most PATIENCE seconds for the running step."""
        with self._changed:
            self._resting = True
            self._changed.wait_for(lambda: self._idle, PATIENCE)

    def go_on(self) -> None:
        """Resume the steps."""
        with self._changed:
            self._resting = False
            self._changed.notify_all()

    def end(self) -> None:
        """Let no further step begin."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


@dataclass
class BackgroundJobs:
    """Predict the effects of one compile and search from it. check: also count its accesses in checked mode."""

    captured: Capture
    made: Compilation
    tools: Toolchain
    shown: LivePage
    search: SearchRequest
    check: bool = False
    turns: Turns = field(default_factory=Turns)

    def __post_init__(self) -> None:
        self._updated = 0.0

    def start(self) -> None:
        """Start the thread."""
        self.turns.start(self._work)

    def _work(self) -> None:
        self._predict_effects()
        self._assemble()
        if self.check and "counted" not in self.shown.record:
            self._count()
        if self.search.tries:
            self._show(tuning=self._tune())
        if self.search.explore:
            self._show(egraph=self._explore())

    def _show(self, **parts: Any) -> None:
        self.turns.do(lambda: self.shown.show(**parts))

    def _predict_effects(self) -> None:
        """Predict each firing, and show the effects so far every EVERY seconds."""
        events: list[Event] = [] if self.made.trace is None else self.made.trace.events
        pricing = Effects(self.tools, self.made.target, tiles=self.made.tile)
        found: dict[str, Any] = {}
        self._updated = time.monotonic()
        for number, effect in pricing.of_all(events):
            self.turns.turn()
            found[str(number)] = effect
            if self._due():
                self._show(effects=dict(found))
        self._show(effects=found)

    def _due(self) -> bool:
        now = time.monotonic()
        due = now - self._updated > EVERY
        if due:
            self._updated = now
        return due

    def _assemble(self) -> None:
        """Show the registers that the assembler gives each kernel, one kernel after the other."""
        kernels = [dict(kernel) for kernel in self.shown.record["kernels"]]
        for number, found in enumerate(measured_registers(self.made)):
            self.turns.turn()
            kernels[number] = kernels[number] | {"assembled": found}
            self._show(kernels=list(kernels))

    def _count(self) -> None:
        """Run the captured inputs on the emulator. Without a C++ compiler, lines get no counts."""
        self.turns.turn()
        with contextlib.suppress(BuildError):
            self._show(counted=access_counts(self.made))

    # ---- searches
    def _tune(self) -> dict[str, Any]:
        log, began, each = SearchLog(), time.monotonic(), {"each": self.search.tries}

        def report(run: SearchProgress, tried: Tried) -> None:
            self.turns.turn()
            log.heard(run, tried)
            if run.tries == 1 or self._due():
                self._show(tuning=tuning_so_far(run, log, time.monotonic() - began) | each)

        options = SearchOptions(budget=Budget(self.search.tries), check=False, predict=True)
        try:
            values = values_of(self.captured, CompileOptions(self.tools, self.made.target))
            fusing = Fusing(values, self.tools, self.made.target, 1)
            return tuning_record(tune_program(fusing, PredictingEvaluator(), options, None, report), log) | each
        except DplcError as error:
            return {"error": error.render()}

    def _explore(self) -> dict[str, Any]:
        try:
            values = values_of(self.captured, CompileOptions(self.tools, self.made.target))
            made = exploration(values, self.tools, self.made.target)
            return egraph_record(made, made.explained(made.candidates()))
        except DplcError as error:
            return {"error": error.render()}
