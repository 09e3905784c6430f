"""Where the tensors of a call are, and getting those on the CPU to the GPU that a program runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ..capture.capture import modules_of


def gpu_of(where: Mapping[str, torch.device]) -> int | None:
    """The GPU that tensors lie on, by name; None if all of them are on the CPU. Raises DplcError for several."""
    found: dict[int, str] = {}
    for name, device in where.items():
        if device.type == "cuda":
            found.setdefault(device.index or 0, name)
    if len(found) > 1:
        said = " and ".join(f"`{name}` is on cuda:{index}" for index, name in list(found.items())[:2])
        raise DplcError(f"{said}: a program runs on one GPU", hint="move them to the same device")
    return next(iter(found), None)


def devices_of(function: Callable[..., Any], values: Iterable[Any]) -> dict[str, torch.device]:
    """Where example inputs and the weights of a function's modules are, by a name for messages."""
    leaves = torch.utils._pytree.tree_leaves(list(values))
    found = {f"input {place}": leaf.device for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    for root in modules_of(function).values():
        found |= {name: tensor.device for name, tensor in (*root.named_parameters(), *root.named_buffers())}
    return found


class Placing:
    """Moves what a program reads from the CPU to a GPU: inputs at every call, everything else once.

    What was moved is moved again when it is another tensor, or torch counted a change of it (a write through `.data` is
    not counted). kinds: of the program's arrays, as a capture has them.
    """

    def __init__(self, kinds: Mapping[str, str]):
        self.kinds = kinds
        self._moved: dict[tuple[str, torch.device], tuple[Any, int, Any]] = {}

    def place(self, tensors: Mapping[str, Any], device: torch.device) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The tensors, those on the CPU moved to `device`, and notes that say what was moved in this call."""
        placed = {name: self._placed(name, tensor, device) for name, tensor in tensors.items()}
        moved = [name for name in tensors if placed[name] is not tensors[name] and self._is_input(name)]
        return placed, (f"moved from the CPU to {device}: {listed(moved)}",) if moved else ()

    def _is_input(self, name: str) -> bool:
        return self.kinds.get(name, "input") == "input"

    def _placed(self, name: str, tensor: Any, device: torch.device) -> Any:
        if tensor.device.type != "cpu" or tensor.device.type == device.type:
            return tensor
        if self._is_input(name):
            return tensor.to(device)
        original, version, moved = self._moved.get((name, device), (None, 0, None))
        if original is not tensor or version != tensor._version:
            moved = tensor.detach().to(device)
            self._moved[name, device] = tensor, tensor._version, moved
        return moved


def listed(names: list[str], most: int = 5) -> str:
    """Names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more
