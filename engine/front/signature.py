"""How a captured function is called and what it returns: nested Python values outside, flat tensors inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils import _pytree as pytree

from ...ir.diagnostic import DplcError


@dataclass(frozen=True)
class Fixed:
    """A leaf that is no tensor. It was part of what was captured, so it cannot change."""

    value: Any


@dataclass(frozen=True)
class Signature:
    """arguments: the structure of (args, kwargs) and per leaf the input's name or its fixed value.
    results: the structure of what is returned and per leaf the index of the output or its fixed value."""

    arguments: tuple[Any, tuple[str | Fixed, ...]]
    results: tuple[Any, tuple[int | Fixed, ...]]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """{input name: tensor} of a call. Raises DplcError for another structure or another fixed value."""
        spec, expected = self.arguments
        leaves, found = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
        if found != spec:
            raise DplcError(
                "the arguments are not structured as those the function was captured with",
                notes=(f"captured: {pytree.treespec_pprint(spec)}", f"given: {pytree.treespec_pprint(found)}"),
            )
        bound = {}
        for leaf, name in zip(leaves, expected, strict=True):
            if isinstance(name, str):
                bound[name] = leaf
            elif not (leaf is name.value or leaf == name.value):
                raise DplcError(
                    f"an argument was {name.value!r} when the function was captured and is {leaf!r} now",
                    hint="only tensors may differ between calls: compile again",
                )
        return bound

    def pack(self, outputs: Sequence[Any]) -> Any:
        """What the function returns, given the outputs of the graph in order."""
        spec, leaves = self.results
        values = [leaf.value if isinstance(leaf, Fixed) else outputs[leaf] for leaf in leaves]
        return pytree.tree_unflatten(values, spec)
