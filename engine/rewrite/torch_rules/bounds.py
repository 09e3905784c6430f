"""Places that ops write to: what torch raises an error for, looked at before a program runs where that costs little.

Such an op compares places, and one that is not there would be left out in silence (what reads at a place checks it).
A torch rule says which values are places, `place(ids[k], 0, n)`. That changes no value and no kernel. On the emulator
the places that are computed from integer inputs alone are calculated beforehand; on a GPU that would mean to wait for
it, so nothing is looked at there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....ir.diagnostic import DplcError, Span
from ....ir.dtypes import FLOATS
from ....ir.interp import tensor as meaning
from ....ir.substitute import with_sizes
from ....ir.tensor import Elementwise, Fold, Input, Output, Reduce, TensorGraph, Term, axes, dtype, postorder


@dataclass(frozen=True)
class Bound:
    """The values of a term are places of low..end-1, says the rule of an op, which the user wrote at span.

    low, end: numbers, or expressions of sizes.
    """

    term: Term
    low: Any
    end: Any
    op: str
    span: Span | None = None

    @property
    def knowable(self) -> bool:
        """Whether it is made of integer inputs, element by element: reductions would be calculated twice."""
        below = postorder((self.term,))
        reads = [term for term in below if isinstance(term, Input)]
        whole = all(dtype(term) not in FLOATS for term in below)
        return bool(reads) and whole and not any(isinstance(term, (Reduce, Fold)) for term in below)


def check_places(bounds: Iterable[Bound], tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raises DplcError for the first place among these inputs' that is out of range, where sizes are these numbers."""
    for bound in bounds:
        place, low, end = with_sizes((bound.term, bound.low, bound.end), sizes)
        inputs = {term.name: term for term in postorder((place,)) if isinstance(term, Input)}
        if not inputs.keys() <= tensors.keys():
            continue  # an input of exploration's, whose values it made
        arrays = {name: tensors[name].detach().cpu().numpy() for name in inputs}
        stored = Elementwise("copy", (place,))
        graph = TensorGraph("places", tuple(inputs.values()), (Output("place", axes(stored), stored),), ())
        (places,) = meaning.run(graph, arrays)
        outside = places[(places < low) | (places >= end)]
        if outside.size:
            what = f"place {int(outside.flat[0])} is out of range: `{bound.op}` takes {low} to {end - 1} here"
            raise DplcError(what, bound.span, (f"it is computed from {', '.join(f'`{name}`' for name in inputs)}",))
