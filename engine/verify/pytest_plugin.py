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
        collected: pytest.Collector = RuleFileCollector.from_parent(parent, path=file_path)
        return collected
    return None


class RuleFileCollector(pytest.File):
    """A `.rw` file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for every rule of the file."""
        from ..language.rule import load

        rules = load([self.path])
        for rule in rules.rules.values():
            if rule.span.source.name == str(self.path):
                yield RuleItem.from_parent(self, name=rule.name, rules=rules)


class RuleItem(pytest.Item):
    """The check of one rule."""

    def __init__(self, *, rules: Any, **known: Any):
        super().__init__(**known)
        self.rules = rules
        self.funcargs: dict[str, Any] = {}  # other plugins look for the fixtures of an item: it has none

    def runtest(self) -> None:
        """Check the rule. Raises RuleFailure."""
        options = self.config.getoption("--dplc-examples"), self.config.getoption("--dplc-seed")
        _check(self.config, self.rules, [self.rules.rule(self.name)], self.path, *options)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the counterexample alone, without a traceback."""
        if isinstance(excinfo.value, RuleFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the rule."""
        return self.path, self.rules.rule(self.name).span.line - 1, f"rule {self.name}"


@pytest.fixture
def check_rules(request: pytest.FixtureRequest) -> Callable[..., list[RuleVerdict]]:
    """Return a function `(file, rule=None, examples=40, seed=0)` that checks the rules of a file, or one of them."""

    def check(file: str | Path, rule: str | None = None, examples: int | None = None, seed: int | None = None) -> Any:
        from ..language.rule import load

        config = request.config
        rules = load([Path(file)])
        chosen = [r for r in rules.rules.values() if r.span.source.name == str(Path(file)) and rule in (None, r.name)]
        if not chosen:
            raise RuleFailure(f"{file} has no rule to check")
        drawn = config.getoption("--dplc-examples") if examples is None else examples
        seeded = config.getoption("--dplc-seed") if seed is None else seed
        return _check(config, rules, chosen, Path(file), drawn, seeded)

    return check


def _check(
    config: pytest.Config, rules: Any, chosen: list[Any], path: Path, examples: int, seed: int
) -> list[RuleVerdict]:
    from ...ir.diagnostic import DplcError
    from ..language.check import require
    from .outcome import counterexample_text
    from .run import ALL, CheckOptions, check_rules, failed

    try:
        require(rules, {rule.span.source.name for rule in chosen})
    except DplcError as broken:
        raise RuleFailure(broken.render()) from None
    thin = ALL if config.getoption("--dplc-allow-thin") else ()
    verdicts = check_rules(rules, chosen, CheckOptions(examples=examples, seed=seed))
    problems = []
    for verdict in failed(verdicts, thin):
        if verdict.wrong is None:
            few = f"only {verdict.reached} distinct subjects reach" if verdict.reached else "no subject reaches"
            problems.append(f"{verdict.location}: {few} rule `{verdict.rule}`")
            continue
        lines = counterexample_text(verdict).splitlines()
        shown = "\n".join(f"    {line}" for line in (*lines, *verdict.wrong.details))
        problems.append(f"{verdict.location}: rule `{verdict.rule}` is wrong: {verdict.wrong.problem}\n{shown}")
    if problems:
        again = f"again: dplc check {path} --examples {examples} --seed {seed}"
        raise RuleFailure("\n\n".join([*problems, again]))
    return verdicts
