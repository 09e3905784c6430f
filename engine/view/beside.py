"""What follows a compile on a live page, in a thread of its own: the model's word on every firing, then searches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...codegen.build import BuildError
from ...ir.diagnostic import DplcError
from ..capture.capture import Capture
from ..compiler import Compilation, CompileOptions, values_of
from ..explore.exploring import exploration
from ..explore.ways import Fusing
from ..rewrite.trace import Event
from ..ruleset import Toolchain
from ..tune.predicting import PredictingEvaluator
from ..tune.running import Budget, SearchProgress
from ..tune.search import Tried
from ..tune.search_log import SearchLog
from ..tune.tuning import SearchOptions
from ..tune.tuning_program import tune_program
from .counted import counted
from .effects import Effects
from .live_page import LivePage
from .registers import measured_registers
from .searched import egraph_record, tuning_record, tuning_so_far
from .turns import Turns
from .wishes import SearchWish

EVERY = 0.4  # seconds between two looks at what goes on


@dataclass
class Beside:
    """Prices and searches of one compile. check: what checked mode counts, too, once for each compile;
    known: the page says already what the model says of it; keep: takes the page when it does."""

    captured: Capture
    made: Compilation
    tools: Toolchain
    shown: LivePage
    search: SearchWish
    check: bool = False
    known: bool = False
    keep: Callable[[dict[str, Any]], None] | None = None
    turns: Turns = field(default_factory=Turns)

    def __post_init__(self) -> None:
        self._told = 0.0

    def start(self) -> None:
        """Begin."""
        self.turns.start(self._work)

    def _work(self) -> None:
        if not self.known:
            self._price()
            self._assemble()
            self._keep()
        if self.check and "counted" not in self.shown.record:
            self._count()
        if self.search.tries:
            self._show(tuning=self._tuned())
        if self.search.explore:
            self._show(egraph=self._explored())

    def _show(self, **parts: Any) -> None:
        self.turns.do(lambda: self.shown.show(**parts))

    def _keep(self) -> None:
        keep = self.keep
        if keep is not None:
            self.turns.do(lambda: keep(self.shown.record))

    def _price(self) -> None:
        """Every firing, those before told while the rest is looked at."""
        events: list[Event] = [] if self.made.trace is None else self.made.trace.events
        pricing = Effects(self.tools, self.made.target, tiles=self.made.tile)
        found: dict[str, Any] = {}
        self._told = time.monotonic()
        for number, effect in pricing.of_all(events):
            self.turns.turn()
            found[str(number)] = effect
            if self._due():
                self._show(effects=dict(found))
        self._show(effects=found)

    def _due(self) -> bool:
        now = time.monotonic()
        due = now - self._told > EVERY
        if due:
            self._told = now
        return due

    def _assemble(self) -> None:
        """The registers that kernels really take, each when it is known."""
        kernels = [dict(kernel) for kernel in self.shown.record["kernels"]]
        for number, found in enumerate(measured_registers(self.made)):
            self.turns.turn()
            kernels[number] = kernels[number] | {"assembled": found}
            self._show(kernels=list(kernels))

    def _count(self) -> None:
        """Runs it on the emulator, on what was captured. Without a compiler for that the lines stay as they are."""
        self.turns.turn()
        with contextlib.suppress(BuildError):
            self._show(counted=counted(self.made))

    # ---- searches
    def _tuned(self) -> dict[str, Any]:
        log, began, each = SearchLog(), time.monotonic(), {"each": self.search.tries}

        def heard(run: SearchProgress, tried: Tried) -> None:
            self.turns.turn()
            log.heard(run, tried)
            if run.tries == 1 or self._due():
                self._show(tuning=tuning_so_far(run, log, time.monotonic() - began) | each)

        options = SearchOptions(budget=Budget(self.search.tries), check=False, predict=True)
        try:
            values = values_of(self.captured, CompileOptions(self.tools, self.made.target))
            fusing = Fusing(values, self.tools, self.made.target, 1)
            return tuning_record(tune_program(fusing, PredictingEvaluator(), options, None, heard), log) | each
        except DplcError as error:
            return {"error": error.render()}

    def _explored(self) -> dict[str, Any]:
        try:
            values = values_of(self.captured, CompileOptions(self.tools, self.made.target))
            made = exploration(values, self.tools, self.made.target)
            return egraph_record(made, made.explained(made.candidates()))
        except DplcError as error:
            return {"error": error.render()}
