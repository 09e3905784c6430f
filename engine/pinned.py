"""What became of the parameters that somebody set: a value that no rule took is never passed over in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..ir.diagnostic import UsageError
from .match.driver import LEVELS
from .match.trace import Skip, Trace
from .match.whynot import Refusal, show
from .rw.domains import admits, shown
from .rw.rule import RuleSet
from .toolchain import Settings

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
        said = self.reason.render() if self.reason is not None else "another rule of its pass fired instead"
        return f"{self.setting}: rule `{self.rule}` fires nowhere in this program: {said}"


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
    """Say what was set for nothing; by default as a Python warning.

    Raises UsageError for a value that is in the domain of its parameter nowhere in the program.
    """
    for each in found:
        if each.reason is not None and each.reason.outside:
            raise UsageError(each.text)
        if tell is not None:
            tell(each.text)
        else:
            warnings.warn(f"dplc: {each.text}", SettingWarning, stacklevel=3)


def unheard_by_all(found: Sequence[Sequence[Unheard]]) -> tuple[Unheard, ...]:
    """What none of several programs heard."""
    rules = [{each.rule for each in one} for one in found]
    return tuple(each for each in (found[0] if found else ()) if all(each.rule in one for one in rules))
