"""What became of the parameters that the user set: a value that no rule took is always reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import UsageError
from ..language.domains import admits, shown
from ..language.rule import PREFER, RuleSet
from .seen import show
from .statements.driver import LEVELS
from .trace import Skip, Trace
from .why_not import Refusal

Settings = Mapping[str, Mapping[str, Any]]  # rule -> parameter -> value
Tell = Callable[[str], None]


class SettingWarning(UserWarning):
    """A parameter was set of a rule that does not fire."""


@dataclass(frozen=True)
class Unheard:
    """A rule with a parameter that was set, and that fired nowhere. reason: of its nearest refusal, if one is known."""

    rule: str
    setting: str
    reason: Refusal | None

    @property
    def text(self) -> str:
        return f"{self.setting}: {self._said}"

    @property
    def line(self) -> str:
        """The same in the options of the command line."""
        preferred = f"{self.rule}.{PREFER}="
        return f"--prefer {self.rule}: {self._said}" if self.setting.startswith(preferred) else f"--set {self.text}"

    @property
    def _said(self) -> str:
        said = self.reason.render() if self.reason is not None else "another rule of its pass fired instead"
        return f"rule `{self.rule}` fires nowhere in this program: {said}"


def check_settings(settings: Settings, rules: RuleSet) -> None:
    """Raises UsageError for a value outside of a domain that is the same for all programs."""
    for name, values in settings.items():
        rule = rules.rules.get(name)
        for parameter, value in values.items() if rule is not None else ():
            known = any(p.name == parameter for p in rule.parameters)  # type: ignore[union-attr]
            if known and not admits(rule, parameter, value):  # type: ignore[arg-type]
                what = f"{name}.{parameter}={show(value)}: the value is not in the domain of `{parameter}`"
                notes = (f"the domain is {shown(rule, parameter)}", f"the rule is at {rule.location}")  # type: ignore[arg-type,union-attr]
                raise UsageError(what, notes=notes)


def unheard(trace: Trace, settings: Settings, rules: RuleSet) -> tuple[Unheard, ...]:
    """The rules on loop nests and schedules whose parameters were set and that did not fire.

    Of rules on values nothing is said: what is set there is how much they may cost.
    """
    fired = {event.rule for event in trace.firings}
    found = []
    for name, values in settings.items():
        if values and name not in fired and rules.rule(name).level in LEVELS:
            setting = ", ".join(f"{name}.{parameter}={show(value)}" for parameter, value in values.items())
            found.append(Unheard(name, setting, _nearest(trace.skips, name)))
    return tuple(found)


def _nearest(skips: Iterable[Skip], rule: str) -> Refusal | None:
    reasons = [skip.reason for skip in skips if skip.rule == rule and isinstance(skip.reason, Refusal)]
    return max(reasons, key=lambda reason: reason.depth, default=None)


def tell_unheard(found: Sequence[Unheard], tell: Tell | None = None) -> None:
    """Report settings without effect; by default as a Python warning.

    Raises UsageError for a value that is in the domain of its parameter nowhere in the program.
    """
    for each in found:
        if each.reason is not None and each.reason.outside:
            raise UsageError(each.text)
        if tell is not None:
            tell(each.line)
        else:
            warnings.warn(f"dplc: {each.text}", SettingWarning, stacklevel=3)


def unheard_by_all(found: Sequence[Sequence[Unheard]]) -> tuple[Unheard, ...]:
    """What none of several programs heard."""
    rules = [{each.rule for each in one} for one in found]
    return tuple(each for each in (found[0] if found else ()) if all(each.rule in one for one in rules))
