"""Names in use, and new ones: `k_o`, `i_r`, `p1`. The same program and hint give the same name."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ....ir import names
from ....ir.expr import Var
from ....ir.node import names_in
from ...language.evaluate import CONSTANTS, RESERVED
from ...language.facts import fact
from ...language.questions import Environment
from .site import Site

NAMES = "@names"


def names_at(site: Site) -> frozenset[str]:
    """The names in use around a site: its kernel's, or on a module all kernels'."""
    if site.kernel is not None:
        return names_in(site.kernel)
    return frozenset().union(*map(names_in, site.program))


def unused(hint: str, used: Container[str]) -> str:
    """A new name that is no word of a rule either."""
    return names.unused(hint, used, RESERVED, CONSTANTS)


class Names:
    """The names that one rewrite may no longer choose."""

    def __init__(self, site: Site, env: Environment):
        self.site, self.bound = site, [value.name for value in env.values() if value.__class__ is Var]
        self.used: set[str] | None = None  # computed when the first name is asked for

    def fresh(self, hint: str) -> Var:
        if self.used is None:
            self.used = {*names_at(self.site), *self.bound}
        name = unused(hint, self.used)
        self.used.add(name)
        return Var(name)


@fact("fresh(any, text?) -> name", levels="module loop tile kernel")
def fresh(site: Site, base: Any, suffix: Any = None) -> Var:
    """A name that is not in use: `fresh("t")` is `t`, `fresh(k, "o")` is `k_o`."""
    hint = _text(base) if suffix is None else f"{_text(base)}_{_text(suffix)}"
    return Var(unused(hint, names_at(site)))


def _text(value: Any) -> str:
    return value.name if value.__class__ is Var else str(value)
