"""The dtypes of the values of a rule: what its pattern implies, and what its template needs beyond that.

Operands of a function have one dtype by the laws of the IR, so a pattern says that some values share theirs. Where a
template brings values together that the pattern does not, the e-graph is asked; so no rule changes a dtype there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.diagnostic import InternalError


@dataclass(eq=False)
class Kind:
    """A dtype that is not known yet. asked: texts that give it; name: the dtype, where it is fixed; folded: the dtype
    whose elements a reduction adds up to one of this (16-bit floats give f32)."""

    same: Kind | None = None
    asked: list[str] = field(default_factory=list)
    name: str | None = None
    is_float: bool = False
    folded: Kind | None = None

    def root(self) -> Kind:
        kind = self
        while kind.same is not None:
            kind = kind.same
        return kind


class Dtypes:
    """Union-find over the dtypes in one rule."""

    def __init__(self) -> None:
        self.variables: dict[str, Kind] = {}
        self.needed: list[tuple[Kind, Kind]] = []
        self.floats: list[Kind] = []
        self.sums: dict[int, Kind] = {}
        self.asked: dict[str, str] = {}  # what a template asks, and the variable that holds the answer

    def fresh(self) -> Kind:
        return Kind()

    def fixed(self, name: str) -> Kind:
        return Kind(name=name)

    def of_number(self, text: str) -> Kind:
        """The dtype that stands beside a number in the pattern, as the variable `text`."""
        return Kind(asked=[text])

    def of_variable(self, name: str, like: Kind | None = None) -> Kind:
        """The dtype of a value that a variable stands for."""
        kind = self.variables.setdefault(name, Kind(asked=[f"(dtype v_{name})"]))
        return kind.root() if like is None else self.same(kind, like)

    def same(self, a: Kind, b: Kind) -> Kind:
        """Two dtypes are one: the pattern says so."""
        a, b = a.root(), b.root()
        if a is not b:
            b.same = a
            a.asked += b.asked
            a.name = a.name or b.name
            a.is_float |= b.is_float
            a.folded = a.folded or b.folded
        return a

    def reduced(self, kind: Kind) -> Kind:
        """The dtype that a reduction of such elements has."""
        root = kind.root()
        known = self.sums.get(id(root))
        if known is None:
            known = self.sums[id(root)] = Kind(is_float=root.is_float, folded=root)
        return known

    def floating(self, kind: Kind) -> None:
        """The pattern holds a function of floating point of it."""
        kind.root().is_float = True

    def must_float(self, kind: Kind) -> None:
        """The template does."""
        self.floats.append(kind)

    def require(self, a: Kind, b: Kind) -> Kind:
        """The template needs two dtypes to be one."""
        self.needed.append((a, b))
        return a

    def bound(self, kind: Kind) -> str:
        """A text that gives a dtype."""
        kind = kind.root()
        if kind.name is not None:
            return f'"{kind.name}"'
        if not kind.asked and kind.folded is not None:
            return f"(opmath {self.bound(kind.folded)})"
        if not kind.asked:
            raise InternalError("a number in a template meets nothing that the pattern binds")
        return kind.asked[0]

    def in_template(self, kind: Kind) -> str:
        """The same for a number in the template, where nothing can be asked: a variable of the query."""
        text = self.bound(kind)
        return self.asked.setdefault(text, f"d{len(self.asked)}") if text.startswith("(") else text

    def guards(self) -> list[str]:
        """What the e-graph has to be asked."""
        out = [f"(= {name} {text})" for text, name in self.asked.items()]
        for a, b in self.needed:
            left, right = a.root(), b.root()
            if left is not right and not (left.name is not None and left.name == right.name):
                out.append(f"(= {self.bound(left)} {self.bound(right)})")
        for kind in self.floats:
            root = kind.root()
            if not root.is_float and not (root.name or "").startswith(("f", "bf")):
                out.append(f"(floating {self.bound(root)})")
        return list(dict.fromkeys(out))
