"""The laws that a proof may use: what a condition of a rule, a fact or a function says about values.

A test compares each law with the interpreter, or with the implementation of the fact. A proof lists its laws by name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from ...ir.dtypes import toml_table
from ...ir.functions import ARITHMETIC, FUNCTIONS
from ..language import core as s
from .normal_form import Form

Values = Mapping[str, s.ValueTerm]
ASSUMED = (
    "arithmetic on real numbers, in any order of sums; no axis is empty; no value on the way is infinite or NaN, but a "
    "maximum that the rule compares with -inf may be -inf"
)
# {law: its statement, and the conditions and lets that it reads}
LAWS: dict[str, list[str]] = toml_table(__package__, "laws")
ABOUT_AXES = ("axes", "image_axes", "disjoint", "rest", "folded_below")  # in use as soon as they are read


def _read(form: str, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the names in a text of a form."""
    pattern = re.sub(r"\b[ABVW]\b", lambda _: r"(\w+|source_axes\(\w+\))", re.escape(form))
    if found := re.fullmatch(pattern, text):
        yield found.groups()


class Assumptions:
    """What the conditions and lets of a rule say.

    read: by law, the names in what it reads. regions: the ways in which an axis may be in several of the named lists of
    axes, by their names. A list of axes is the union of the regions with its name. used: the laws that were used.
    computed: the lets as text, by name.
    """

    def __init__(self, conditions: Iterable[str], lets: Mapping[str, str], left: Values, right: Values):
        self.left, self.computed = left, lets
        plain = [re.sub(r"\[(\w+)\]", r"\1", text) for text in (*conditions, *lets.values())]
        self.read: dict[str, list[Form]] = {
            law: [names for text in plain for form in forms for names in _read(form, text)]
            for law, (_, *forms) in LAWS.items()
        }
        self.used = {law for law in ABOUT_AXES if self.read[law]}
        self.first = dict(self.read["first_along"])
        self._rest = {name: names for name, *names in self.read["rest"]}
        self._fixed = [*self.read["axes"], *self.read["image_axes"]]
        both = (*left.values(), *right.values())
        folded = {axis.name for term in s.terms(both, s.ValueTerm) for axis in getattr(term, "over", ())}
        lists = folded - self._rest.keys()
        lists.update(*self._rest.values(), *(names[::2] for names in self.read["folded_below"]))
        lists |= {source_axes(term.map) for term in s.terms(both, s.MappedTerm) if term.map not in self.first}
        some = (some for n in range(1, len(lists) + 1) for some in itertools.combinations(sorted(lists), n))
        self.regions = ["&".join(names) for names in some if self._may_share(names)]

    def _may_share(self, names: tuple[str, ...]) -> bool:
        """Return whether an axis may be in these lists, and in no other."""
        apart = any(one in names and other in names for one, other in self.read["disjoint"])
        outside = any(part in names and whole not in names for part, _, whole in self.read["folded_below"])
        return not apart and not outside

    def regions_of(self, axes: str) -> list[str]:
        """Return the regions of a list of axes."""
        if axes in self._rest:
            whole, part = map(self.regions_of, self._rest[axes])
            return [region for region in whole if region not in part]
        return [region for region in self.regions if axes in region.split("&")]

    def varies(self, name: str) -> list[str]:
        """Return the regions that an unknown value, or an index map, may vary along."""
        fixed = [axes for axes, fixed in self._fixed if fixed == name]
        return [region for region in self.regions if not any(region in self.regions_of(axes) for axes in fixed)]

    def exact(self, cast: str, operand: str) -> bool:
        """Return whether a cast of a named value changes nothing, by a law that is in use from here on."""
        for x, y in self.read["same_dtype"]:
            if x == operand and getattr(self.left.get(y), "fn", "") == cast:
                self.used.add("same_dtype")
                return True
        for x, y in self.read["widened"]:
            summand: Form = getattr(self.left.get(y), "x", None)
            terms = summand.operands if kind_of(summand) == ARITHMETIC else (summand,)
            if cast == "f32" and {x, operand} <= {getattr(term, "name", "") for term in terms}:
                self.used.add("widened")
                return True
        return False


def kind_of(term: Form) -> str:
    """Return the kind of the function of a term, "" for other terms."""
    return getattr(FUNCTIONS.get(getattr(term, "fn", "")), "kind", "")


def source_axes(index_map: str) -> str:
    """Return the name of the list of axes that an index map replaces."""
    return f"source_axes({index_map})"
