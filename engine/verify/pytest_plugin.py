"""Rules of your own under pytest.

As items: `pytest --dplc-check my_rules.rw` makes one test of every rule. As a fixture:

    def test_my_rules(check_rules):
        check_rules("my_rules.rw", examples=100)

A failure prints the program on which the rule is wrong. Loaded by pytest through the entry point `dplc`; heavy modules
are imported when something is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .outcome import RuleVerdict


class RuleFailure(AssertionError):
    """A rule that is wrong, or that no subject reaches."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--dplc-check`, `--dplc-examples N`, `--dplc-seed N` and `--dplc-allow-thin`."""
    group = parser.getgroup("dplc")
    group.addoption("--dplc-check", action="store_true", help="Collect .rw files: check every rule in them by meaning.")
    group.addoption("--dplc-examples", type=int, default=40, help="Subjects drawn for each rule.")
    group.addoption("--dplc-seed", type=int, default=0, help="Decides what is drawn.")
    group.addoption("--dplc-allow-thin", action="store_true", help="Accept rules that few programs reach.")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect rule files, if `--dplc-check` is given."""
    if file_path.suffix == ".rw" and parent.config.getoption("--dplc-check"):
        return RuleFileCollector.from_parent(parent, path=file_path)
    return None


def _rules_of(path: Path) -> Iterator[tuple[Any, list[Any]]]:
    """Load a file on top of the built-in rules. Yield the rules of each device, and those of them in the file."""
    from ..language.check import rules_in_force
    from ..language.rule import load

    return rules_in_force(load([path]), {str(path)})


class RuleFileCollector(pytest.File):
    """A `.rw` file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for every rule of the file."""
        for rules, own in _rules_of(self.path):
            for rule in own:
                device = f" for {rule.device.text}" if rule.device else ""
                yield RuleItem.from_parent(self, name=f"{rule.name}{device}", rules=rules, rule=rule)


class RuleItem(pytest.Item):
    """The check of one rule."""

    def __init__(self, *, rules: Any, rule: Any, **known: Any):
        super().__init__(**known)
        self.rules, self.rule = rules, rule
        self.funcargs: dict[str, Any] = {}  # other plugins look for the fixtures of an item: it has none

    def runtest(self) -> None:
        """Check the rule. Raises RuleFailure."""
        _check(self.config, [(self.rules, [self.rule])], self.path)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the counterexample alone, without a traceback."""
        if isinstance(excinfo.value, RuleFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the rule."""
        return self.path, self.rule.span.line - 1, f"rule {self.name}"


@pytest.fixture
def check_rules(request: pytest.FixtureRequest) -> Callable[..., list[RuleVerdict]]:
    """Return a function `(file, rule=None, examples=40, seed=0)` that checks the rules of a file, or one of them."""

    def check(file: str | Path, rule: str | None = None, examples: int | None = None, seed: int | None = None) -> Any:
        chosen = [(rules, [one for one in own if rule in (None, one.name)]) for rules, own in _rules_of(Path(file))]
        if not any(own for _, own in chosen):
            raise RuleFailure(f"{file} has no rule to check")
        return _check(request.config, chosen, Path(file), examples, seed)

    return check


def _check(
    config: pytest.Config, chosen: list[tuple[Any, list[Any]]], path: Path, examples: int | None = None,
    seed: int | None = None,
) -> list[RuleVerdict]:  # fmt: skip
    from ...ir.diagnostic import DplcError
    from ..language.check import require
    from .outcome import counterexample_text
    from .run import ALL, CheckOptions, check_rules, failed

    def option(name: str, given: Any = None) -> Any:
        return config.getoption(f"--dplc-{name}") if given is None else given

    try:
        require(chosen[0][0], {str(path)})
    except DplcError as broken:
        raise RuleFailure(broken.render()) from None
    options = CheckOptions(option("examples", examples), option("seed", seed))
    verdicts = [verdict for rules, own in chosen for verdict in check_rules(rules, own, options)]
    problems = []
    for verdict in failed(verdicts, ALL if option("allow-thin") else ()):
        if verdict.wrong is None:
            few = f"only {verdict.reached} distinct subjects reach" if verdict.reached else "no subject reaches"
            problems.append(f"{verdict.location}: {few} rule `{verdict.rule}`")
        else:
            lines = (*counterexample_text(verdict).splitlines(), *verdict.wrong.details)
            shown = "".join(f"\n    {line}" for line in lines)
            problems.append(f"{verdict.location}: rule `{verdict.rule}` is wrong: {verdict.wrong.problem}{shown}")
    if problems:
        again = f"again: dplc check {path} --examples {options.examples} --seed {options.seed}"
        raise RuleFailure("\n\n".join([*problems, again]))
    return verdicts
