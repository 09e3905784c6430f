"""Fixtures for all tests: a quiet torch, bounded Hypothesis, one cache of kernels for the run."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import logging
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Command, Done
from drawing import draws, some
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

sys.path.insert(0, str(Path(__file__).parent / "endtoend"))

# Constants of our modules are not values to draw: reading them takes seconds, and any edit would change all draws.
providers._get_local_constants = lambda: providers._local_constants

# Machines differ: a deadline would test the machine. The seed is fixed, so that a red test is red again.
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=draws(25), suppress_health_check=[HealthCheck.too_slow]
)
# What only asks whether a test fails (`make mutants`) needs no small example.
settings.register_profile("unshrunk", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`dplc("run -c 'torch.ones(3) * 2'", code=1)`: a line as in a shell, further arguments as they are, and the exit code.

    The command runs in `tmp_path` and in this process: a process of its own costs a second and a half of `import torch`.
    """
    from dplc.engine.cli.app import main

    monkeypatch.chdir(tmp_path)

    def call(line: str, *arguments: object, code: int = 0) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([*shlex.split(line), *map(str, arguments)])
        done = Done(*capsys.readouterr())
        assert (stop.value.code or 0) == code, done.out + done.err
        assert ("Traceback" in done.err) == ("--traceback" in line)
        return done

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tuning store that is not there yet."""
    return tmp_path / "t.sqlite"


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Nothing that torch.compile remembers of other tests, and the same random numbers."""
    import torch

    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every compile, and what it made."""
    from dplc.engine import torch_backend

    every: list[dict[str, Any]] = []
    plain = torch_backend.compile_function

    def noting(*args: Any, **options: Any) -> Any:
        every.append(options)
        made = plain(*args, **options)
        options["made"] = made
        return made

    monkeypatch.setattr(torch_backend, "compile_function", noting)
    return every


@pytest.fixture(autouse=True, scope="session")
def _convolutions_in_f32() -> None:
    """Set torch so that results are as near to float64 as f32 is: `test_tf32` has the settings that torch begins with."""
    import torch

    # torch's own samples, which some tests import, forbid every process to change these settings
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True, scope="session")
def _explore_without_a_clock() -> None:
    """Stop the clock of exploration: what it finds depends on counts alone, however busy the machine is."""
    from dplc.engine.explore import saturate, solution

    stopped = SimpleNamespace(perf_counter=lambda: 0.0)
    solution.time = saturate.time = stopped  # type: ignore[assignment]


@pytest.fixture(scope="session")
def captured_models() -> dict[Any, Any]:
    return {}


@pytest.fixture
def captured_once(captured_models: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture each model once for all tests that ask for this: what a configuration means does not change."""
    from dplc.engine.cli import models
    from dplc.engine.models import compiling

    capture = compiling.capture_results

    def kept(model: Any, length: Any, batch: Any = 1) -> Any:
        parameter = next(model.parameters())
        key = (type(model), model.config.to_json_string(False), parameter.dtype, parameter.device, length, batch)
        if key not in captured_models:
            captured_models[key] = capture(model, length, batch)
        return captured_models[key]

    monkeypatch.setattr(compiling, "capture_results", kept)
    monkeypatch.setattr(models, "capture_results", kept)


GARBAGE = 100_000  # objects made and not yet freed since the last collection, also within a test
COLLECTIONS = itertools.count(1)
ALL = 32  # one collection of so many looks at all objects, also at those that survived the last ones
GROWTH = 128 * 2**20  # bytes more than after the last such look, and there is another
STATM = Path("/proc/self/statm")  # how much memory the process has; only some systems have the file
resident = [0]  # bytes after the last look at all objects
trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone


def pytest_configure(config: pytest.Config) -> None:
    # Python's own thresholds take a fifth of the time of tests. With these a long test frees its own garbage, and
    # `pytest_runtest_teardown` collects between tests.
    gc.set_threshold(GARBAGE, 10, 10)
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # tests run side by side; torch's own threads would fight over the cores
    # with these glibc returns freed tensors to the system, and a worker stays under 2 GB; workers start after this line
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**20))
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # pytest adds a handler to each logger before each test, and torch writes its whole trace for any handler
    logging.getLogger("torch.__trace").addHandler = lambda hdlr: None  # type: ignore[method-assign]
    os.environ.setdefault("DPLC_NO_DB", "1")  # what somebody tuned on this machine is not a part of a test
    os.environ.setdefault("DPLC_STRICT", "1")  # a failure of exploration is a failure of the test: nothing hides it
    import typer.main

    typer.main.get_command = functools.cache(typer.main.get_command)  # each call of `main` would build all commands
    from quick_builds import build_quickly

    build_quickly()

    from dplc.ir.text import parse

    lark, _ = parse._parser()
    lark.parse = functools.lru_cache(maxsize=64)(lark.parse)  # tests of one artefact read the same kernels again


def pytest_collection_finish() -> None:
    """Everything that is imported stays: the collector need not look at it again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Collect garbage between tests, and only where there is much. What is left then stays, until all is looked at again.

    Tensors are few objects and many bytes: the memory of the process says how much they are.
    """
    grown = STATM.exists() and memory() > resident[0] + GROWTH
    made, collections, _ = gc.get_count()
    if grown or collections or made > GARBAGE // 2:
        if every := grown or next(COLLECTIONS) % ALL == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if every and trim:
            trim(0)  # glibc keeps freed memory between blocks that are in use
        if grown:
            resident[0] = memory()


def memory() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def pytest_sessionfinish() -> None:
    """Leave the rest to the end of the process."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep `few` cases of each test that is marked `sampled(few)`, spread evenly; more with a larger budget."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for found in cases.values():
        mark = found[0].get_closest_marker("sampled")
        kept.update(found if mark is None else some(found, *mark.args))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many broken rules were caught, and by whom: what a test notes with `record_property("mutant", who)`."""
    who = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == "mutant"
    ]
    if who:
        ways = ", ".join(f"{count} by {way}" for way, count in Counter(who).most_common())
        caught = sum(way != "nobody" for way in who)
        terminalreporter.write_line(f"broken rules and kernels: {caught} of {len(who)} caught: {ways}")
