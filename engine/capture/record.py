"""The torch function modes of a capture: what the factories of a `-c` text made, and where every torch call stands.

The text is evaluated twice, once for real and once to be traced. What `randn`, `arange`, `tensor`, ... returned the
first time are the inputs of the program, in that order, however they were called: through an alias, `map`, a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch._C._functorch import TransformType
from torch.fx.traceback import annotate
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from .asked_where import GuardPlaces
from .places import SourcePlaces, caller
from .sizes import sizes_of_factory
from .untraced import UNASKED

KEY = "dplc"  # under which FX nodes carry the number of their place

FACTORIES = frozenset((
    torch.arange, torch.bernoulli, torch.empty, torch.empty_strided, torch.eye, torch.full, torch.linspace,
    torch.logspace, torch.multinomial, torch.normal, torch.ones, torch.poisson, torch.rand, torch.rand_like,
    torch.randint, torch.randint_like, torch.randn, torch.randn_like, torch.randperm, torch.scalar_tensor, torch.tensor,
    torch.tril_indices, torch.triu_indices, torch.zeros,
))  # fmt: skip
# Random and in place: a factory too, whose value lands in a tensor that is already there.
FILLERS = frozenset((
    torch.Tensor.bernoulli_, torch.Tensor.cauchy_, torch.Tensor.exponential_, torch.Tensor.geometric_,
    torch.Tensor.log_normal_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.uniform_,
))  # fmt: skip
# What a length decides, and no draw: of a length that is known at a call they are computed, like any other op.
COUNTED = frozenset((torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros))


class Made(NamedTuple):
    """What a factory made. tensor: the very object; value: a copy, because the text may change the object in place."""

    function: Callable[..., Any]
    tensor: Any
    value: Any
    version: int
    place: int | None
    sizes: dict[int, Size]

    @property
    def unchanged(self) -> bool:
        return bool(self.tensor._version == self.version)


class Record(TorchFunctionMode):  # type: ignore[misc]
    """Phase one: notes what the factories make, and whether a weight is changed in place outside of a forward.

    inside: says whether a module's forward is running, where a factory is an op like any other.
    is_weight: says whether a tensor is a parameter or buffer of a module that the text made.
    """

    def __init__(self, places: SourcePlaces, inside: Callable[[], bool], is_weight: Callable[[Any], bool]):
        super().__init__()
        self.made: list[Made] = []
        self.changed_weight = False
        self._places, self._inside, self._is_weight = places, inside, is_weight

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._inside():
            return function(*args, **kwargs)
        tensors = _tensors((args, kwargs))
        versions = [tensor._version for tensor in tensors]
        result = function(*args, **kwargs)
        changed = [t for t, version in zip(tensors, versions, strict=True) if t._version != version]
        if getattr(function, "__name__", "") == "__set__":  # `weight.data = value`
            changed += tensors[:1]
        if any(map(self._is_weight, changed)):
            self.changed_weight = True
        elif _makes(function) and isinstance(result, torch.Tensor) and not _initialises(caller()):
            place = self._places.here(caller())
            sizes = sizes_of_factory((*args, *kwargs.values()), result.shape)
            self.made.append(Made(function, result, result.detach().clone(), result._version, place, sizes))
        return result


class Annotate(TorchFunctionMode):  # type: ignore[misc]
    """Marks the FX nodes that a torch call gives with the call's place. outermost: the code that starts the trace."""

    def __init__(self, places: SourcePlaces, outermost: CodeType):
        super().__init__()
        self.last: int | None = None  # where the latest call stands: an error of torch's own may not say
        self._places, self._outermost = places, outermost
        self.guards: GuardPlaces | None = None  # where lengths are known at a call

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.last = self._places.here(caller(), self._outermost)
        if any(level.key() != TransformType.Vmap for level in torch._C._functorch.get_interpreter_stack() or ()):
            what = "torch.func.grad, vjp, jvp and what is made of them are not supported here"
            hint = 'compile with torch.compile(.., backend="dplc"), or take gradients by torch.autograd.grad'
            raise DplcError(what, self._places.span(self.last), hint=hint)
        if self.guards is not None:
            return self._watched(self.guards, function, args, kwargs)
        return self._marked(function, args, kwargs)

    def _watched(self, guards: GuardPlaces, function: Any, args: Any, kwargs: Any) -> Any:
        place = self.last
        guards.note(args, None)
        result = self._marked(function, args, kwargs)
        guards.note(args, place)
        return result

    def _marked(self, function: Any, args: Any, kwargs: Any) -> Any:
        if function is torch.Tensor.__getitem__ and args[0].is_meta:
            args = (args[0], _with_values(args[1]))
        function = UNASKED.get(function, function)
        if self.last is None:
            return function(*args, **(kwargs or {}))
        with annotate({KEY: self.last}):
            return function(*args, **(kwargs or {}))


class Replay(TorchFunctionMode):  # type: ignore[misc]
    """Phase two: a factory outside of a forward gives the next input of the graph."""

    def __init__(self, made: Sequence[Made], inputs: Iterable[Any], inside: Callable[[], bool]):
        super().__init__()
        self._left = list(zip(made, inputs, strict=True))[::-1]
        self._inside = inside

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside() or not _makes(function):
            return function(*args, **(kwargs or {}))
        made, tensor = self._left.pop() if self._left else (None, None)
        if made is None or made.function is not function:
            raise DplcError(f"`{function.__name__}` is not called as often when the text is traced as when it runs")
        if function in COUNTED and _lengths((args, kwargs)):
            return function(*args, **(kwargs or {}))
        return args[0].copy_(tensor) if function in FILLERS else tensor


def _initialises(frame: FrameType | None) -> bool:
    """Whether a module is being made: what a factory gives then is a weight."""
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


def _makes(function: Any) -> bool:
    return function in FACTORIES or function in FILLERS


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _lengths(value: Any) -> bool:
    return any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves(value))


def _with_values(index: Any) -> Any:
    """An index whose lists are tensors on the CPU: torch would make them on meta, where their values are lost."""
    if isinstance(index, tuple):
        return tuple(map(_with_values, index))
    return torch.tensor(index) if isinstance(index, list) and all(isinstance(n, int) for n in index) else index
