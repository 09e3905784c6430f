"""`torch.export` (not strict) of one function of flat tensors, with its errors as ours; its program as Torch IR."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import math
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType, MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._C._functorch import TransformType
from torch._functorch import predispatch
from torch.fx import config as fx_config
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.traceback import annotate, preserve_node_meta
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir import schemas
from ...ir.diagnostic import DplcError, Span, UsageError, did_you_mean
from ...ir.expr import Size, Var
from ...ir.functions import FUNCTIONS
from ...ir.names import unused, with_article
from ...ir.node import REQUIRED, Value
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, PARTS, op_name
from ...ir.torch import TorchGraph, TorchOp
from .decompositions import UNASKED, by_types, decompose, decomposed, table
from .dynamic_shapes import (
    Dynamic,
    GuardLocations,
    Symbols,
    check_asked,
    exported_shapes,
    sizes_of_factory,
    stand_ins,
)
from .fx_rewrites import as_tensors, constant_of, indexed, leaving_autocast, storages, switching_autocast
from .places import SourcePlaces, caller
from .signature import Fixed, Results, check_kind, mould, parts_of, tensors_of

# ---- Torch function modes: record what the factories of a `-c` text made, replay it, locate each call.


KEY = "dplc"  # under which FX nodes carry the number of their location

FACTORIES = frozenset((
    torch.arange, torch.bernoulli, torch.empty, torch.empty_strided, torch.eye, torch.full, torch.linspace,
    torch.logspace, torch.multinomial, torch.normal, torch.ones, torch.poisson, torch.rand, torch.rand_like,
    torch.randint, torch.randint_like, torch.randn, torch.randn_like, torch.randperm, torch.scalar_tensor, torch.tensor,
    torch.tril_indices, torch.triu_indices, torch.zeros,
))  # fmt: skip
# Random and in place: a factory too, whose value is written to an existing tensor.
FILLERS = frozenset((
    torch.Tensor.bernoulli_, torch.Tensor.cauchy_, torch.Tensor.exponential_, torch.Tensor.geometric_,
    torch.Tensor.log_normal_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.uniform_,
))  # fmt: skip
MAKERS = FACTORIES | FILLERS
# What PyTorch itself asks of every tensor: nothing is recorded, and no length is read.
QUERIES = frozenset(getattr(torch.Tensor, name).__get__ for name in (
    "device", "dtype", "is_leaf", "is_quantized", "is_sparse", "layout", "requires_grad",
)) | {torch.Tensor._is_view}  # fmt: skip
# What a length decides, and no draw: of a length that is known at a call they are computed, like any other op.
COUNTED = frozenset((torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros))


class FactoryResult(NamedTuple):
    """Tensor that a factory created.

    tensor: the very object; value: a copy, because the text may mutate the object. The index is that of its call's
    location.
    """

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
    """Phase one: record the tensors of factories, and whether a weight is mutated outside of a forward.

    inside: says whether a module's forward is running, where a factory is an op like any other. is_weight: says whether
    a tensor is a parameter or buffer of a module that the text created.
    """

    def __init__(self, places: SourcePlaces, inside: Callable[[], bool], is_weight: Callable[[Any], bool]):
        super().__init__()
        self.made: list[FactoryResult] = []
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
        elif function in MAKERS and isinstance(result, torch.Tensor) and not _initialises(caller()):
            place = self._places.here(caller())
            sizes = sizes_of_factory((*args, *kwargs.values()), result.shape)
            self.made.append(FactoryResult(function, result, result.detach().clone(), result._version, place, sizes))
        return result


class Annotate(TorchFunctionMode):  # type: ignore[misc]
    """Mode that marks the FX nodes of a torch call with its location. outermost: the code that starts the trace."""

    def __init__(self, places: SourcePlaces, outermost: CodeType):
        super().__init__()
        self.last: int | None = None  # location of the latest call: torch's own errors may not name it
        self._places, self._outermost = places, outermost
        self.guards: GuardLocations | None = None  # where lengths are known at a call

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in QUERIES:
            return function(*args, **(kwargs or {}))
        self.last = self._places.here(caller(), self._outermost)
        if any(level.key() != TransformType.Vmap for level in torch._C._functorch.get_interpreter_stack() or ()):
            what = "torch.func.grad, vjp, jvp and what is made of them are not supported here"
            hint = 'compile with torch.compile(.., backend="dplc"), or take gradients by torch.autograd.grad'
            raise DplcError(what, self._places.span(self.last), hint=hint)
        place = self.last
        if self.guards is not None:
            self.guards.note(args, None)
        given = args
        if function is torch.Tensor.__getitem__ and args[0].is_meta:
            args = (args[0], _with_values(args[1]))
        function = UNASKED.get(function, function)
        with nullcontext() if place is None else annotate({KEY: place}):
            result = function(*args, **(kwargs or {}))
        if self.guards is not None:
            self.guards.note(given, place)
        return result


class Replay(TorchFunctionMode):  # type: ignore[misc]
    """Phase two: a factory outside of a forward gives the next input of the graph."""

    def __init__(self, made: Sequence[FactoryResult], inputs: Iterable[Any], inside: Callable[[], bool]):
        super().__init__()
        self._left = list(zip(made, inputs, strict=True))[::-1]
        self._inside = inside

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside() or function not in MAKERS:
            return function(*args, **(kwargs or {}))
        made, tensor = self._left.pop() if self._left else (None, None)
        if made is None or made.function is not function:
            raise DplcError(f"`{function.__name__}` is not called as often when the text is traced as when it runs")
        lengths = any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves((args, kwargs)))
        if function in COUNTED and lengths:
            return function(*args, **(kwargs or {}))
        return args[0].copy_(tensor) if function in FILLERS else tensor


def _initialises(frame: FrameType | None) -> bool:
    """Return whether a module is being created: the result of a factory is a weight then."""
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _with_values(index: Any) -> Any:
    """Convert the lists of an index to tensors on the CPU: torch would create them on meta and lose their values."""
    if isinstance(index, tuple):
        return tuple(map(_with_values, index))
    return torch.tensor(index) if isinstance(index, list) and all(isinstance(n, int) for n in index) else index


# A functional spelling of these is the value itself: no reason to pay for functionalisation.
HARMLESS = frozenset(("aten::detach_",))


@dataclass(frozen=True)
class Exported:
    """Exported program with its inputs, outputs and weights.

    program: the exported graph, functional; its user inputs are the tensors in order. outputs: the nodes of the tensors
    it returns. results: as in Signature. labels: {name of a weight in the program: its kind, its name for people, the
    tensor}. strided: indices of the user inputs whose memory is read by strides. written: where ops were decomposed,
    the program without that. The remaining field holds the conditions on several lengths at once, with their spans.
    """

    program: Any
    labels: Mapping[str, tuple[str, str, Any]]
    results: Results
    outputs: tuple[Any, ...]
    strided: tuple[int, ...] = ()
    asked: tuple[tuple[Any, Span | None], ...] = ()
    written: Callable[[], Exported] | None = None


@dataclass
class _Returned:
    """Value that the traced function returned. It is an object, since export restores plain attributes of a module."""

    results: Results = (None, ())
    kind: str = ""


class Root(torch.nn.Module):  # type: ignore[misc]
    """Module that is exported: a function of flat tensors, and the modules it uses under names of our own."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str], weights: Mapping[str, Any]):
        super().__init__()
        self._function = [function]  # in a list, so that a module is not registered a second time
        self.labels = {f"tensors_{index}": name for index, name in enumerate(names)}  # as export calls them
        self.returned = _Returned()
        for index, (label, weight) in enumerate(weights.items()):
            self.labels[f"weight{index}"] = label
            setattr(self, f"weight{index}", weight)

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        result = self._function[0](*tensors)
        leaves, spec = pytree.tree_flatten(result)
        order = itertools.count()
        kinds = tuple(
            next(order) if isinstance(leaf, torch.Tensor) else mould(leaf, order) if tensors_of(leaf) else Fixed(leaf)
            for leaf in leaves
        )
        self.returned.results = spec, kinds
        self.returned.kind = type(result).__name__
        return tuple(tensor for leaf in leaves for tensor in tensors_of(leaf))

    def label(self, target: str) -> str:
        """Return the name for people of an input or weight: `weight0.layers.1.bias` is `linear_layers_1_bias`."""
        name, _, rest = target.partition(".")
        return "_".join(part for part in (self.labels.get(name, name), *rest.split(".")) if part)

    def check(self) -> None:
        """Raise DplcError unless the function returned tensors and fixed values."""
        _, leaves = self.returned.results
        if all(isinstance(leaf, Fixed) for leaf in leaves):
            raise DplcError(f"the function returns {with_article(self.returned.kind)}, not a tensor")
        symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
        if any(isinstance(leaf, Fixed) and isinstance(leaf.value, symbolic) for leaf in leaves):
            raise DplcError("the function returns a number that depends on the values of a tensor")


def export(
    function: Callable[..., Any],
    tensors: Sequence[Any],
    names: Sequence[str],
    weights: Mapping[str, Any],
    places: SourcePlaces,
    may_change: bool = False,
    dynamic: Dynamic = MappingProxyType({}),
) -> Exported:
    """Trace `function(*tensors)`.

    names: what people call the tensors. weights: {label: module that the function uses}. may_change: whether the
    function may mutate its inputs. dynamic: the dimensions of the tensors that are sizes. Raises DplcError for
    everything that cannot be traced, at the span of the user's text that caused it.
    """
    root = Root(function, names, weights)
    for kind, held in (("parameter", root.named_parameters()), ("buffer", root.named_buffers())):
        for target, weight in held:
            check_kind(f"{kind} `{root.label(target)}`", weight, wrappers=True)
    annotate = Annotate(places, Root.forward.__code__)
    guards = annotate.guards = GuardLocations(places, dynamic, names) if dynamic else None
    with torch.no_grad(), _quiet(), preserve_node_meta(), by_types(), leaving_autocast():
        try:
            with annotate:
                shapes = exported_shapes(dynamic, names) if dynamic else None
                traced = tuple(stand_ins(tensors, names, dynamic))
                program: Any = torch.export.export(root, traced, strict=False, dynamic_shapes=shapes)
        except DplcError:
            raise
        except Exception as error:
            span = places.of_error(error)
            more = guards.refusal(str(error), span) if guards is not None else None
            raise more or explain(error, span or places.span(annotate.last)) from None
        root.check()
        strided = _strided(program)
        functional = _functional(program, root, places, may_change)
        own = None if functional is program else functools.partial(_undecomposed, program, root, bool(dynamic))
        made = _exported(functional, root, bool(dynamic))
    return replace(made, strided=strided, asked=tuple(guards.of_several()) if guards is not None else (), written=own)


def _undecomposed(program: Any, root: Root, sized: bool) -> Exported:
    """Return the program of the user's own ops, functional. Raises DplcError if PyTorch cannot convert it."""
    if any(map(_mutable, _nodes(program))):
        with torch.no_grad(), _quiet(), preserve_node_meta(), by_types():
            try:
                program = decompose(program, {})
            except Exception as error:
                raise explain(error, None) from None
    return _exported(program, root, sized)


def _exported(program: Any, root: Root, sized: bool) -> Exported:
    """Return the program where numbers that tensors hold, or that are computed from lengths, stay tensors."""
    made = as_tensors(indexed(program)) if sized else indexed(program)
    return Exported(made, _labels(made, root), root.returned.results, _outputs(made))


_ELSEWHERE = 'compile with torch.compile(.., backend="dplc")'
# Errors of Python and torch, by their class and text, and what they mean for the user.
_KNOWN: tuple[tuple[str, str, str | None], ...] = (
    (
        r"data-dependent|^\w*DataDependent",
        "a Python value depends on the values of a tensor, which are not known when the program is compiled",
        "branch with torch.where; compute sizes from shapes",
    ),
    (
        "is mutated in the forward method",
        "the function changes a tensor of its closure in place",
        "change a copy: `.clone()`",
    ),
    ("^SystemExit:", "the program exits", None),
    (
        "not tracked with proxy|cast NotImplemented to Tensor",
        "torch.export does not trace this tensor subclass: it nests others, or is not a parameter of a module",
        _ELSEWHERE,
    ),
    (
        r"as_strided\(\) is non-compositional",
        "a view by as_strided of another view is changed in place",
        "take the view by slices",
    ),
    (
        r"^\w+: We found a fake tensor",
        "torch.export does not trace this transform of torch.func, or this nesting of transforms",
        _ELSEWHERE,
    ),
    (
        "^UncapturedHigherOrderOpError:",
        "torch's control flow operators (cond, while_loop, ..) are not supported",
        None,
    ),
    ("nbacked symbol", "a shape depends on the values of a tensor", "compute sizes from shapes"),
)


def explain(error: BaseException, span: Span | None) -> DplcError:
    """Return one clear error for an error of Python or torch while the user's program ran or was traced."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    said = f"{type(error).__name__}: {str(error).strip()}"
    for pattern, what, hint in _KNOWN:
        if re.search(pattern, said):
            return DplcError(what, span, hint=hint)
    if text.startswith("aten.") and hasattr(error, "func"):  # torch cannot trace the op: its name is all it says
        return DplcError(f"torch op '{_aten(error.func)}' is not supported", span)
    text = text.replace("'FakeTensor'", "'Tensor'")  # the class of a tensor that is traced
    hint = None
    if isinstance(error, NameError) and error.name:
        hint = did_you_mean(error.name, ("torch", "nn", "F", "math"))
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        hint = did_you_mean(error.name, dir(error.obj))
    named = isinstance(error, (NameError, AttributeError, RuntimeError)) and text
    return DplcError(text if named else f"{type(error).__name__}: {text}".rstrip(": "), span, hint=hint)


@contextlib.contextmanager
def quiet_logs(level: int) -> Iterator[None]:
    """Silence the logs of libraries up to a level."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch, which prints the graph and warns when a trace fails; our one error says it better.

    Nodes carry our locations, so torch formats no stack for each; it writes the Python of a graph when that is called.
    """
    quiet = mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True)
    with quiet_logs(logging.ERROR), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), quiet:
        warnings.simplefilter("ignore")
        with _use_lazy_graph_module(True):
            yield


def _functional(program: Any, root: Root, places: SourcePlaces, may_change: bool) -> Any:
    """Return the program without mutating ops, and without those that PyTorch decomposes into others.

    Ops that the table of decompositions does not name (rms_norm, linear, sdpa) stay unchanged.
    """
    nodes = list(_nodes(program))
    changes = [node for node in nodes if _mutable(node)]
    # under autocast, around the capture or in a region of the program, PyTorch adds its casts
    regions = (node for node in nodes if node.target is torch.ops.higher_order.wrap_with_autocast)
    casts = torch._C._is_any_autocast_enabled() or any(node.args[2] for node in regions)
    wrapped = any(map(is_traceable_wrapper_subclass, program.state_dict.values()))
    of_vmap = (getattr(node.target, "__module__", "") == predispatch.__name__ for node in nodes)
    again = casts or wrapped or any(of_vmap)
    formulas = table() if changes or again or decomposed(node.target for node in nodes) else {}
    if not formulas:
        return program
    if casts:
        switching_autocast(program.graph_module)
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        functional = decompose(program, formulas)
    except DplcError as error:
        raise DplcError(error.what, places.of_error(error), hint=error.hint) from None
    except AssertionError:  # torch's own, of what it cannot make functional
        if not changes:
            raise
        what = f"torch op '{_aten(changes[0].target)}' works in place, which is not supported here"
        raise DplcError(what, place(changes[0], places), hint="change a copy: `.clone()`") from None
    except Exception as error:
        raise explain(error, places.of_error(error) or next((place(node, places) for node in changes), None)) from None
    finally:  # an error within a `vmap` does not remove its levels
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    for output in functional.graph_signature.output_specs:
        of_input = output.kind.name == "USER_INPUT_MUTATION"
        if output.kind.name != "USER_OUTPUT" and not (of_input and may_change):
            # an op whose schema says nothing of it may change its statistics
            change = next(
                (node for node in changes if _changed(program, node) == output.target), next(iter(changes), None)
            )
            name = root.label(output.target)
            hint = "change a copy: `.clone()`"
            if output.kind.name == "BUFFER_MUTATION":
                hint = "a module that keeps statistics in training does not in evaluation: call `.eval()` on it"
            where = None if change is None else place(change, places)
            raise DplcError(f"the function changes `{name}` in place", where, hint=hint)
    return functional


def _nodes(program: Any) -> Iterator[Any]:
    """Yield all nodes, those of regions such as `with torch.enable_grad()` included."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def _strided(program: Any) -> tuple[int, ...]:
    """Return the user inputs, in order, that share memory with a tensor that is read by strides."""
    nodes = list(_nodes(program))
    read = {x for node in nodes if "as_strided" in str(node.target) for x in storages(node.args[0])}
    if not read:
        return ()
    kinds = [spec.kind.name for spec in program.graph_signature.input_specs]
    given = [node for node in nodes if node.op == "placeholder"]
    user = [node for node, kind in zip(given, kinds, strict=False) if kind == "USER_INPUT"]
    return tuple(place for place, node in enumerate(user) if read & storages(node))


def _mutable(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable and schema.name not in HARMLESS


def _changed(program: Any, node: Any) -> str | None:
    """Return the input or weight whose memory a node changes, through views of it."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return next((s.target or s.arg.name for s in program.graph_signature.input_specs if s.arg.name == node.name), None)


def _labels(program: Any, root: Root) -> dict[str, tuple[str, str, Any]]:
    kinds = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant"}
    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name in kinds:
            tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
            kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else kinds[spec.kind.name]
            check_kind("a tensor outside of the arguments", tensor)
            label = "constant" if spec.kind.name == "CONSTANT_TENSOR" else root.label(spec.target)
            found[spec.arg.name] = kind, label, tensor
        elif spec.kind.name != "USER_INPUT":
            raise DplcError(f"an input of the kind {spec.kind.name.lower()} is not supported")
    return found


def _outputs(program: Any) -> tuple[Any, ...]:
    """Return the nodes of the user outputs, in order, without the mutated inputs that precede them."""
    nodes = next(node for node in program.graph.nodes if node.op == "output").args[0]
    specs = program.graph_signature.output_specs
    return tuple(node for node, spec in zip(nodes, specs, strict=True) if spec.kind.name == "USER_OUTPUT")


def place(node: Any, places: SourcePlaces) -> Span | None:
    """Return the span of the user's call that produced a node, or else of a call that reads it."""
    for candidate in (node, *node.users):
        span = places.span((candidate.meta.get("custom") or {}).get(KEY))
        if span is not None:
            return span
    return None


# ---- One capture or compile at a time in a process: torch.export keeps its state in globals.


_TURN = threading.RLock()


@contextmanager
def export_lock() -> Iterator[None]:
    """Hold the lock of captures and compiles: other threads that capture or compile wait."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    with _TURN, getattr(dynamo, "compile_lock", None) or nullcontext():
        yield


# ---- Conversion of an exported program to Torch IR, by the ATen schemas instead of a table of ops.
#
# The schemas give op names, fields and defaults. Statements are those that an output needs. A statement names the
# fields of its overload that differ from their defaults, and those without a default (`ir/schemas.py` says how the
# overload is read off them).

_NAMES = {getattr(torch, name): short for short, name in DTYPES.items() if hasattr(torch, name)}

# Words of the text syntax: a value of this name would not read back.
_WORDS = """
    BLOCK THREAD REG VEC serial reduce free SYNC ASYNC TMA kernel graph none true false inf nan match let where
    prefer pick rewrite example gives because on in by for if else each inside with load pass and or not rule
"""
_RESERVED = frozenset((*FUNCTIONS, *DTYPES, *_WORDS.split()))


# What PyTorch calls a conjugate or a sign that is taken when it is read, and a conjugate that is taken at once.
_CONJUGATES = {"_conj": "conj", "_conj_physical": "conj_physical", "_neg_view": "neg"}


class RandomNumbers(DplcError):
    """An op draws numbers."""


class Names:
    """Unique names that do not clash with words of the syntax: `mul`, `mul_1`, `mul_2`."""

    def __init__(self) -> None:
        self._used = set(_RESERVED)
        self._tried: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        base = f"x{base}" if base[0].isdigit() else base
        name = unused(base, self._used, between="_", tried=self._tried)
        self._used.add(name)
        return name


@dataclass
class Conversion:
    """Torch IR with its origin.

    inputs: the name of every user input in order, used or not. complexes: inputs that are given as the pairs of complex
    numbers; complex_outs: indices of such outputs.
    """

    graph: TorchGraph
    inputs: tuple[str, ...]
    spans: dict[str, Span | str]
    tensors: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    complexes: tuple[str, ...] = ()
    complex_outs: frozenset[int] = frozenset()


def dtype_name(dtype: Any) -> str:
    """Return `f32` for torch.float32; torch's own name for a dtype that Torch IR has no name for."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def convert(
    exported: Exported, input_names: tuple[str, ...], places: SourcePlaces, dynamic: Dynamic = MappingProxyType({})
) -> Conversion:
    """Return the Torch IR of an exported program.

    input_names: preferred names of the user inputs, in order; dynamic: their dimensions that are sizes. Raises
    DplcError for an op that Torch IR cannot express: random, sized by the values of a tensor, or not an ATen op.
    """
    return _Converter(exported, input_names, places, dynamic).run()


class _Converter:
    def __init__(self, exported: Exported, input_names: tuple[str, ...], places: SourcePlaces, dynamic: Dynamic):
        self.exported, self.places, self.dynamic = exported, places, dynamic
        self.symbols = Symbols()
        self.names, self.wishes = Names(), list(input_names)[::-1]
        for name in {size.name for own in dynamic.values() for size in own.values()}:
            if self.names.fresh(name) != name:
                raise UsageError(f"`{name}` is a word of the IRs: a size needs another name")
        self.values: dict[Any, Value] = {}  # FX node -> Var, or the tuple of Vars of a region
        self.params: dict[str, Param] = {}
        self.shared: dict[int, Var] = {}  # one input for a weight that goes by several names
        self.body: list[TorchOp] = []
        self.inputs: list[str] = []
        self.tensors: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.complexes: dict[str, str] = {}
        self.spans: dict[str, Span | str] = {}

    def run(self) -> Conversion:
        graph_module = self.exported.program.graph_module
        nodes = list(graph_module.graph.nodes)
        user = (n for n in nodes if n.op == "placeholder" and n.name not in self.exported.labels)
        for node, name in zip(user, self.wishes[::-1], strict=False):
            for place_, size in self.dynamic.get(name, {}).items():
                self.symbols.learn(node.meta["val"].shape[place_], size)
        check_asked(self.symbols, self.exported.asked)
        # user inputs choose their names first, then weights
        for weight in (False, True):
            for node in nodes:
                if node.op == "placeholder" and (node.name in self.exported.labels) is weight:
                    self.placeholder(node)
        self.region(graph_module, nodes, _needed(nodes, self.exported.outputs))
        return self.finish()

    def placeholder(self, node: Any) -> None:
        kind, wish, tensor = self.exported.labels.get(node.name) or ("input", self.wishes.pop(), None)
        if tensor is not None and id(tensor) in self.shared:
            self.values[node] = self.shared[id(tensor)]
            return
        name = self.names.fresh(wish)
        self.values[node] = Var(name)
        given = self.type_of(node.meta["val"])
        self.kinds[name] = kind
        if given.dtype in PARTS:
            self.params[name] = Param(name, PARTS[given.dtype], (*given.shape, 2))
            self.values[node] = self.added(name, "ViewAsComplex", given)
            self.complexes[name] = given.dtype
        else:
            self.params[name] = Param(name, given.dtype, given.shape)
        if kind == "input":
            self.inputs.append(name)
        else:
            self.shared[id(tensor)] = self.values[node]
            self.tensors[name] = tensor if name not in self.complexes else parts_of(tensor)

    def added(self, source: str, op: str, kind: TensorType) -> Var:
        """Add a statement that has no counterpart in the program: complex numbers pass as the pairs of their parts."""
        name = self.names.fresh(source)
        self.body.append(TorchOp(name, op, (("self", Var(source)),), (kind,)))
        return Var(name)

    def region(self, module: Any, nodes: list[Any], needed: set[Any]) -> None:
        for node in nodes:
            if node in needed and node.op == "call_function":
                self.call(module, node)

    def call(self, module: Any, node: Any) -> None:
        target = node.target
        number = node.meta.get("val")
        if isinstance(number, torch.SymInt) or (isinstance(number, torch.SymFloat) and not _of_tensors(node)):
            return  # read where it is used
        if isinstance(target, torch._ops.OpOverload):
            self.statement(node)
        elif getattr(target, "__name__", "") == "getitem" and target.__module__ == "_operator":
            self.getitem(node)
        elif isinstance(target, torch._ops.HigherOrderOperator) and self.inlined(module, node):
            return
        else:
            raise DplcError(f"{_aten(target)} is not supported", self.where(node))

    def inlined(self, module: Any, node: Any) -> bool:
        """Inline a region that only sets the gradient mode or the state of autocast; return whether the node is one.

        The casts of a region that switches autocast on are explicit ops by then.
        """
        name, args = node.target.name(), node.args
        if name == "wrap_with_set_grad_enabled":
            body, operands = args[1], args[2:]
        elif name == "wrap_with_autocast":
            body, operands = args[4], args[5:]
        else:
            return False
        inner = getattr(module, body.target)
        nodes = list(inner.graph.nodes)
        for placeholder, operand in zip((n for n in nodes if n.op == "placeholder"), operands, strict=True):
            self.values[placeholder] = self.values[operand]
        outputs = next(n for n in nodes if n.op == "output").args[0]
        self.region(inner, nodes, _needed(nodes, outputs))
        self.values[node] = tuple(self.values[output] for output in outputs)
        return True

    def getitem(self, node: Any) -> None:
        source = self.values[node.args[0]]
        if isinstance(source, tuple):
            self.values[node] = source[node.args[1]]
        else:
            self.emit(node, "Getitem", (("self", source), ("index", node.args[1])))

    def statement(self, node: Any) -> None:
        schema = node.target._schema
        namespace, name = schema.name.split("::")
        fields = self.fields(node, schema)
        if torch.Tag.nondeterministic_seeded in node.target.tags and not _quenched(fields):
            raise self.random(name, fields, node)
        if schema.name in HARMLESS:
            name = name.rstrip("_")
        elif schema.is_mutable:
            raise DplcError(f"torch op '{name}' works in place, which is not supported here", self.where(node))
        name = _CONJUGATES.get(name, name)
        op = op_name(name)
        if namespace != "aten" or op not in schemas.names() or schemas.aten_name(op) != name:
            raise DplcError(f"torch op '{name}' is not supported", self.where(node))
        args = tuple((key, value) for key, (value, default) in fields.items() if not _same(value, default))
        self.emit(node, op, _bound(op, args, node))

    def random(self, name: str, fields: dict[str, tuple[Value, Value]], node: Any) -> DplcError:
        """Return the error for an op that draws random numbers (with its module if no line is known)."""
        span = self.where(node)
        notes = () if span is not None else (f"in {_module_path(node)}",)
        if any(key in fields for key in (*_TRAINING, "dropout_p")):
            hint = "call `.eval()` on the module, or pass training=False"
            return RandomNumbers(f"`{name}` in training mode draws random numbers", span, notes, hint)
        hint = "make random tensors outside and pass them in"
        return RandomNumbers(f"torch op '{name}' draws random numbers", span, notes, hint)

    def fields(self, node: Any, schema: Any) -> dict[str, tuple[Value, Value]]:
        """Return {field: (value, default)} in schema order, without those of device and memory layout."""
        found = {}
        for index, argument in enumerate(schema.arguments):
            if argument.name in schemas.PLACEMENT:
                continue
            default = self.value(argument.default_value, node) if argument.has_default_value() else REQUIRED
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, REQUIRED)
            value = default if given is REQUIRED else self.value(given, node)
            if "List[" in str(argument.type) and not isinstance(value, tuple) and value is not None:
                value = (value,)
            found[argument.name] = value, default
        return found

    def value(self, given: Any, node: Any) -> Value:
        if isinstance(given, torch.fx.Node):
            if given in self.values:
                return self.values[given]
            if isinstance(given.meta.get("val"), torch.SymInt) and self.symbols.knows(given.meta["val"]):
                return self.symbols.extent(given.meta["val"])
            if isinstance(given.meta.get("val"), torch.SymFloat):
                if (number := constant_of(given.meta["val"])) is not None:
                    return number
                what = f"torch op '{_aten(node.target)}' takes a float made of a length"
                raise DplcError(
                    what, self.where(node), hint="compute with a tensor instead; or leave the length out of dynamic="
                )
        elif isinstance(given, (list, tuple)):
            return tuple(self.value(item, node) for item in given)
        elif isinstance(given, torch.dtype):
            return Var(dtype_name(given))
        elif given is None or isinstance(given, (bool, int, float, str)):
            return given
        elif isinstance(given, complex):
            raise DplcError("complex numbers are not supported", self.where(node))
        raise DplcError(f"torch op '{_aten(node.target)}' depends on the values of a tensor", self.where(node))

    def emit(self, node: Any, op: str, args: Value) -> None:
        types = self.types(node)
        name = self.names.fresh(_aten(node.target))
        self.values[node] = Var(name)
        self.spans[name] = self.where(node) or _module_path(node)
        self.body.append(TorchOp(name, op, args, types))

    def types(self, node: Any) -> tuple[TensorType, ...]:
        given = node.meta.get("val")
        tensors = given if isinstance(given, (list, tuple)) else (given,)
        if any(isinstance(tensor, torch.Tensor) for tensor in tensors):  # a result that was not requested is empty
            tensors = [torch.empty(0, device="meta") if tensor is None else tensor for tensor in tensors]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise DplcError(f"torch op '{_aten(node.target)}' gives no tensor", self.where(node))
        if not all(self.symbols.knows(n) for tensor in tensors for n in tensor.shape):
            raise DplcError(
                f"torch op '{_aten(node.target)}' gives a shape that depends on the values of a tensor",
                self.where(node),
            )
        return tuple(map(self.type_of, tensors))

    def type_of(self, tensor: Any) -> TensorType:
        return TensorType(dtype_name(tensor.dtype), tuple(map(self.symbols.extent, tensor.shape)))

    def where(self, node: Any) -> Span | None:
        return place(node, self.places)

    def finish(self) -> Conversion:
        types = {statement.dst: statement.types[0] for statement in self.body}
        outs, complex_outs = list[Param](), set[int]()
        for output in self.exported.outputs:
            name = self.values[output].name
            if name in self.params:
                outs.append(self.params[name])
                continue
            kind = types[name]
            if kind.dtype in PARTS and 0 not in kind.shape:
                kind = TensorType(PARTS[kind.dtype], (*kind.shape, 2))
                name = self.added(name, "ViewAsReal", kind).name
                complex_outs.add(len(outs))
            outs.append(Param(name, kind.dtype, kind.shape))
        graph = TorchGraph("main", tuple(self.params.values()), tuple(outs), tuple(self.body))
        complexes = tuple(self.complexes)
        return Conversion(
            graph, tuple(self.inputs), self.spans, self.tensors, self.kinds, complexes, frozenset(complex_outs)
        )


def _of_tensors(node: Any) -> bool:
    """Return whether a call reads a tensor: its numbers are not lengths then."""
    return any(isinstance(read.meta.get("val"), torch.Tensor) for read in node.all_input_nodes)


_END = 2**63 - 1  # the end of a slice that is left open, as torch writes it


def _needed(nodes: list[Any], outputs: Any) -> set[Any]:
    """Return the nodes that the outputs need. The graph is functional, so the others do nothing."""
    needed = {output for output in outputs if isinstance(output, torch.fx.Node)}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _aten(target: Any) -> str:
    """Return the name of an op as users know it."""
    schema = getattr(target, "_schema", None)
    name = schema.name.split("::")[1] if schema else str(getattr(target, "__name__", target))
    return name.strip("_")


def _same(value: Value, default: Value) -> bool:
    """Return whether a field is at its default: 1.0 is 1, but True is not, and -0.0 is not 0.0."""
    if value == _END and default is None:
        return True
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return value == default and math.copysign(1, value) == math.copysign(1, default)
    return value.__class__ is default.__class__ and bool(value == default)


_TRAINING = ("train", "training")  # the fields that say whether a module trains


def _quenched(fields: dict[str, tuple[Value, Value]]) -> bool:
    """Return whether a random op draws nothing: dropout outside of training or of rate 0, attention without dropout."""
    rates = ("dropout_p", "p") if any(name in fields for name in _TRAINING) else ("dropout_p",)
    return any(name in fields and fields[name][0] == 0 for name in (*_TRAINING, *rates))


# Defaults that mean something of the input's dtype. They are bound to it here, since float64 would read them otherwise.
_BOUND = {"RmsNorm": {"eps": "eps"}, "NanToNum": {"posinf": "max", "neginf": "min"}}


def _bound(op: str, args: Value, node: Any) -> Value:
    wanted, dtype = _BOUND.get(op), getattr(node.meta["val"], "dtype", torch.bool)
    if wanted is None or not dtype.is_floating_point:
        return args
    info, given = torch.finfo(dtype), dict(args)
    given.update({name: getattr(info, limit) for name, limit in wanted.items() if name not in given})
    return tuple((name, given[name]) for name in schemas.fields(op) if name in given)


def _module_path(node: Any) -> str:
    """Return the module that a node belongs to, for an op without a line of the user's text."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "the function")
    kind = kind if isinstance(kind, str) else kind.__name__
    path = path.partition(".")[2]
    if kind == f"{Root.__module__}.{Root.__qualname__}":
        return "the function"
    return f"{path} ({kind.rpartition('.')[2]})" if path else kind.rpartition(".")[2]
