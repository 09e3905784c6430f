"""Products of whose results only the shapes are wanted: a text that is compiled, not run, need not be computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

MOST_COMPUTED = 1 << 27  # floating-point operations: a CPU needs milliseconds for them, in any dtype


class ProductsLeftOut(TorchDispatchMode):  # type: ignore[misc]  # torch says no types for it
    """Within it, matmuls, convolutions and attention of more than MOST_COMPUTED operations give zeros.

    PyTorch's own table of operations says what counts. What a text asks of such values (`if (x @ w).sum() > 0`) could
    go another way than it would; but it is traced without any values afterwards, where asking is an error.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        count = flop_registry.get(func._overloadpacket)
        if count is None:
            return func(*args, **given)
        shapes, named = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, given))
        result = func(*shapes, **named)
        if count(*args, **given, out_val=result) <= MOST_COMPUTED:
            return func(*args, **given)
        return pytree.tree_map_only(torch.Tensor, _zeros, result)


def _zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype).zero_()
