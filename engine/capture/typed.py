"""Whether a Torch IR program written by hand is valid: torch says what ops give, on tensors without memory."""

from __future__ import annotations

from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.interp.torch import applied
from ...ir.program import TensorType
from ...ir.schemas import DTYPES
from ...ir.text.torch import print_torch_op
from ...ir.torch import TorchGraph


def check_types(graph: TorchGraph, name: str) -> None:
    """Raises DplcError for the first op that torch refuses, or whose result is of another type than the text says.

    name: of the file, for messages.
    """
    import torch

    values = {param.name: _empty(TensorType(param.dtype, param.shape)) for param in graph.ins}
    for op in graph.body:
        where = f"{name}: `{print_torch_op(op)}`"
        try:
            with torch.no_grad():
                made = applied(op, values)
        except NotImplementedError:  # torch's own: the shape depends on values (`nonzero`), and here there are none
            # to compare with, so the text is believed
            made = tuple(map(_empty, op.types)) if len(op.types) > 1 else _empty(op.types[0])
        except DplcError as error:
            raise DplcError(f"{where}: {error.what}") from None
        except Exception as error:  # of torch's many classes
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DplcError(f"{where}: torch refuses it", notes=(why,)) from None
        found = made if isinstance(made, tuple | list) else (made,)
        for declared, given in zip(op.types, found, strict=False):
            if (getattr(torch, DTYPES[declared.dtype]), declared.shape) != (given.dtype, tuple(given.shape)):
                shown = f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"
                raise DplcError(f"{where}: torch gives {shown}")
        if len(op.types) != len(found):
            raise DplcError(f"{where}: torch gives {len(found)} tensors")
        values[op.dst] = made


def _empty(kind: TensorType) -> Any:
    """A tensor of a type, without memory. Raises DplcError for one that is larger than any memory."""
    import torch

    try:
        return torch.empty(kind.shape, dtype=getattr(torch, DTYPES[kind.dtype]), device="meta")
    except (RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise DplcError(f"there is no tensor {kind.dtype}{list(kind.shape)}", notes=(why,)) from None
