"""`torch.export` (not strict) of one function of flat tensors, with its errors as ours; its program as Torch IR."""

from __future__ import annotations

import io
import itertools
import logging
import math
import operator
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field
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
from .decompositions import UNASKED, by_types, decompose, table
from .dynamic_shapes import (
    Asked,
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

# What a length decides, and no draw: of a length that is known at a call they are computed, like any other op.
COUNTED = frozenset((torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros))
# Random and in place: a factory too, whose value is written to an existing tensor.
FILLERS = frozenset((
    torch.Tensor.bernoulli_, torch.Tensor.cauchy_, torch.Tensor.exponential_, torch.Tensor.geometric_,
    torch.Tensor.log_normal_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.uniform_,
))  # fmt: skip
FACTORIES = COUNTED | FILLERS | {
    torch.bernoulli, torch.empty, torch.empty_strided, torch.logspace, torch.multinomial, torch.normal, torch.poisson,
    torch.rand, torch.rand_like, torch.randint, torch.randint_like, torch.randn, torch.randn_like, torch.randperm,
    torch.scalar_tensor, torch.tensor, torch.tril_indices, torch.triu_indices,
}  # fmt: skip
# What PyTorch itself asks of every tensor: nothing is recorded, and no length is read.
QUERIES = frozenset(getattr(torch.Tensor, name).__get__ for name in (
    "device", "dtype", "is_leaf", "is_quantized", "is_sparse", "layout", "requires_grad",
)) | {torch.Tensor._is_view}  # fmt: skip


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
        before = [(x, x._version) for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        result = function(*args, **kwargs)
        changed = [tensor for tensor, version in before if tensor._version != version]
        if getattr(function, "__name__", "") == "__set__":  # `weight.data = value`
            changed += [tensor for tensor, _ in before[:1]]
        if any(map(self._is_weight, changed)):
            self.changed_weight = True
        elif function in FACTORIES and isinstance(result, torch.Tensor) and not _initialises(caller()):
            place = self._places.here(caller())
            sizes = sizes_of_factory((*args, *kwargs.values()), result.shape)
            self.made.append(FactoryResult(function, result, result.detach().clone(), result._version, place, sizes))
        return result


class Annotate(TorchFunctionMode):  # type: ignore[misc]
    """Mode that marks the FX nodes of a torch call with its location.

    outermost: the code that starts the trace. note: receives the arguments of each call twice: before it without a
    location, after it with its own.
    """

    def __init__(self, places: SourcePlaces, outermost: CodeType, note: Callable[[Any, int | None], None]):
        super().__init__()
        self.last: int | None = None  # location of the latest call: torch's own errors may not name it
        self._places, self._outermost, self._note = places, outermost, note

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in QUERIES:
            return function(*args, **(kwargs or {}))
        self.last = place = self._places.here(caller(), self._outermost)
        if any(level.key() != TransformType.Vmap for level in torch._C._functorch.get_interpreter_stack() or ()):
            what = "torch.func.grad, vjp, jvp and what is made of them are not supported here"
            hint = 'compile with torch.compile(.., backend="dplc"), or take gradients by torch.autograd.grad'
            raise DplcError(what, self._places.span(place), hint=hint)
        self._note(args, None)
        given = args
        if function is torch.Tensor.__getitem__ and args[0].is_meta:
            given = args[0], _with_values(args[1])
        with nullcontext() if place is None else annotate({KEY: place}):
            result = UNASKED.get(function, function)(*given, **(kwargs or {}))
        self._note(args, place)
        return result


class Replay(TorchFunctionMode):  # type: ignore[misc]
    """Phase two: a factory outside of a forward gives the next input of the graph."""

    def __init__(self, made: Sequence[FactoryResult], inputs: Iterable[Any], inside: Callable[[], bool]):
        super().__init__()
        self._left = zip(made, inputs, strict=True)
        self._inside = inside

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside() or function not in FACTORIES:
            return function(*args, **(kwargs or {}))
        made, tensor = next(self._left, (None, None))
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


def _with_values(index: Any) -> Any:
    """Convert the lists of an index to tensors on the CPU: torch would create them on meta and lose their values."""
    if isinstance(index, tuple):
        return tuple(map(_with_values, index))
    return torch.tensor(index) if isinstance(index, list) and all(isinstance(n, int) for n in index) else index


# A functional spelling of it is the value itself: no reason to pay for functionalisation.
HARMLESS = "aten::detach_"


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
    asked: Sequence[Asked] = ()
    written: Callable[[], Exported] | None = None


class Root(torch.nn.Module):  # type: ignore[misc]
    """Module that is exported: a function of flat tensors, and the modules it uses under names of our own."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str], weights: Mapping[str, Any]):
        super().__init__()
        self._function = function
        self._labels = {f"tensors_{index}": name for index, name in enumerate(names)}  # as export calls them
        for index, (label, weight) in enumerate(weights.items()):
            self._labels[f"weight{index}"] = label
            setattr(self, f"weight{index}", weight)

    def forward(self, *tensors: Any) -> Any:
        return self._function(*tensors)

    def label(self, target: str) -> str:
        """Return the name for people of an input or weight: `weight0.layers.1.bias` is `linear_layers_1_bias`."""
        name, *rest = target.split(".")
        return "_".join(filter(None, (self._labels.get(name, name), *rest)))


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
    results: Results = (None, ())  # no attributes of the module, since export restores those
    kind = ""

    def flat(*inputs: Any) -> tuple[Any, ...]:
        nonlocal results, kind
        result, order = function(*inputs), itertools.count()
        leaves, spec = pytree.tree_flatten(result)
        kinds = (
            next(order) if isinstance(leaf, torch.Tensor) else mould(leaf, order) if tensors_of(leaf) else Fixed(leaf)
            for leaf in leaves
        )
        results, kind = (spec, tuple(kinds)), type(result).__name__
        return tuple(tensor for leaf in leaves for tensor in tensors_of(leaf))

    def exported(program: Any, **more: Any) -> Exported:
        """Keep numbers as tensors where tensors hold them, or where they are computed from lengths."""
        indexed(program)
        if dynamic:
            as_tensors(program)
        outputs = program.graph.output_node().args[0][-len(program.graph_signature.user_outputs) :]
        return Exported(program, _labels(program, root), results, tuple(outputs), **more)

    def written() -> Exported:
        """Return the program of the user's own ops, functional. Raises DplcError if PyTorch cannot convert it."""
        own = program
        if any(map(_mutable, _nodes(program))):
            with _tracing():
                try:
                    own = decompose(program, {})
                except Exception as error:
                    raise explain(error, None) from None
        return exported(own)

    root = Root(flat, names, weights)
    for word, held in (("parameter", root.named_parameters()), ("buffer", root.named_buffers())):
        for target, weight in held:
            check_kind(f"{word} `{root.label(target)}`", weight, wrappers=True)
    guards = GuardLocations(places, dynamic, names)
    marks = Annotate(places, Root.forward.__code__, guards.note if dynamic else lambda *_: None)
    with _tracing():
        try:
            with marks:
                shapes = exported_shapes(dynamic, names) if dynamic else None
                traced = tuple(stand_ins(tensors, names, dynamic))
                program: Any = torch.export.export(root, traced, strict=False, dynamic_shapes=shapes)
        except DplcError:
            raise
        except Exception as error:
            span = places.of_error(error)
            raise guards.refusal(str(error), span) or explain(error, span or places.span(marks.last)) from None
        fixed = [leaf for leaf in results[1] if isinstance(leaf, Fixed)]
        if len(fixed) == len(results[1]):
            raise DplcError(f"the function returns {with_article(kind)}, not a tensor")
        if any(isinstance(leaf.value, (torch.SymInt, torch.SymFloat, torch.SymBool)) for leaf in fixed):
            raise DplcError("the function returns a number that depends on the values of a tensor")
        strided = _strided(program)
        functional = _functional(program, root, places, may_change)
        own = None if functional is program else written
        return exported(functional, strided=strided, asked=guards.of_several(), written=own)


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
    said = f"{type(error).__name__}: {str(error).strip()}"
    text = next(iter(str(error).strip().splitlines()), "")
    for pattern, what, hint in _KNOWN:
        if re.search(pattern, said):
            return DplcError(what, span, hint=hint)
    if text.startswith("aten.") and hasattr(error, "func"):  # torch cannot trace the op: its name is all it says
        return DplcError(f"torch op '{_aten(error.func)}' is not supported", span)
    text = text.replace("'FakeTensor'", "'Tensor'")  # the class of a tensor that is traced
    hint = None
    if isinstance(error, NameError) and error.name:
        hint = did_you_mean(error.name, ("torch", "nn", "F", "math"))
    elif isinstance(error, AttributeError) and error.name and error.obj is not None:
        hint = did_you_mean(error.name, dir(error.obj))
    named = isinstance(error, (NameError, AttributeError, RuntimeError)) and text
    return DplcError(text if named else f"{type(error).__name__}: {text}".rstrip(": "), span, hint=hint)


@contextmanager
def quiet_logs(level: int) -> Iterator[None]:
    """Silence the logs of libraries up to a level."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _tracing() -> Iterator[None]:
    """Trace values alone, and silence torch, which prints the graph and warns when a trace fails.

    Our one error says it better. Nodes carry our locations, so torch formats no stack for each; it writes the Python of
    a graph when that is called.
    """
    quiet = mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True)
    with (
        quiet_logs(logging.ERROR), warnings.catch_warnings(), redirect_stderr(io.StringIO()), quiet,
        torch.no_grad(), preserve_node_meta(), by_types(), leaving_autocast(), _use_lazy_graph_module(True),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        yield


def _functional(program: Any, root: Root, places: SourcePlaces, may_change: bool) -> Any:
    """Return the program without mutating ops, and without those that PyTorch decomposes into others.

    Ops that the table of decompositions does not name (rms_norm, linear, sdpa) stay unchanged.
    """
    nodes, formulas = list(_nodes(program)), table()
    changes = [node for node in nodes if _mutable(node)]
    # under autocast, around the capture or in a region of the program, PyTorch adds its casts
    region = torch.ops.higher_order.wrap_with_autocast
    casts = torch._C._is_any_autocast_enabled() or any(node.target is region and node.args[2] for node in nodes)
    of_vmap = any(getattr(node.target, "__module__", "") == predispatch.__name__ for node in nodes)
    wrapped = any(map(is_traceable_wrapper_subclass, program.state_dict.values()))
    if not (changes or casts or of_vmap or wrapped or any(node.target in formulas for node in nodes)):
        return program
    if casts:
        switching_autocast(program.graph_module)
    first = place(changes[0], places) if changes else None
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        functional = decompose(program, formulas)
    except DplcError as error:
        raise DplcError(error.what, places.of_error(error), hint=error.hint) from None
    except Exception as error:
        if changes and isinstance(error, AssertionError):  # torch's own, of what it cannot make functional
            what = f"torch op '{_aten(changes[0].target)}' works in place, which is not supported here"
            raise DplcError(what, first, hint="change a copy: `.clone()`") from None
        raise explain(error, places.of_error(error) or first) from None
    finally:  # an error within a `vmap` does not remove its levels
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    for output in functional.graph_signature.output_specs:
        if output.kind.name == "USER_OUTPUT" or (output.kind.name == "USER_INPUT_MUTATION" and may_change):
            continue
        hint = "change a copy: `.clone()`"
        if output.kind.name == "BUFFER_MUTATION":
            hint = "a module that keeps statistics in training does not in evaluation: call `.eval()` on it"
        # an op whose schema says nothing of it may change its statistics
        spans = {_changed(program, node): place(node, places) for node in reversed(changes)}
        what = f"the function changes `{root.label(output.target)}` in place"
        raise DplcError(what, spans.get(output.target, first), hint=hint)
    return functional


def _nodes(program: Any) -> Iterator[Any]:
    """Yield all nodes, those of regions such as `with torch.enable_grad()` included."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def _strided(program: Any) -> tuple[int, ...]:
    """Return the user inputs, in order, that share memory with a tensor that is read by strides."""
    read = {x for node in _nodes(program) if "as_strided" in str(node.target) for x in storages(node.args[0])}
    names = program.graph_signature.user_inputs
    user = (node for node in program.graph.find_nodes(op="placeholder") if node.name in names)
    return tuple(index for index, node in enumerate(user) if read & storages(node))


def _mutable(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name != HARMLESS


def _changed(program: Any, node: Any) -> str | None:
    """Return the input or weight whose memory a node changes, through views of it."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return next((s.target or s.arg.name for s in program.graph_signature.input_specs if s.arg.name == node.name), None)


def _labels(program: Any, root: Root) -> dict[str, tuple[str, str, Any]]:
    found = {}
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name.lower().removesuffix("_tensor")
        if kind in ("parameter", "buffer", "constant"):
            tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
            check_kind("a tensor outside of the arguments", tensor)
            label = kind if kind == "constant" else root.label(spec.target)
            found[spec.arg.name] = "parameter" if isinstance(tensor, torch.nn.Parameter) else kind, label, tensor
        elif kind != "user_input":
            raise DplcError(f"an input of the kind {kind} is not supported")
    return found


def place(node: Any, places: SourcePlaces) -> Span | None:
    """Return the span of the user's call that produced a node, or else of a call that reads it."""
    spans = (places.span((one.meta.get("custom") or {}).get(KEY)) for one in (node, *node.users))
    return next((span for span in spans if span is not None), None)


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
# Regions that only set the gradient mode or the state of autocast, and the place of the body among their arguments.
_REGIONS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}


Fields = dict[str, tuple[Value, Value]]  # {field of an op: (value, default)}


class RandomNumbers(DplcError):
    """An op draws numbers."""


@dataclass
class Conversion:
    """Torch IR with its origin.

    inputs: the name of every user input in order, used or not. complexes: inputs that are given as the pairs of complex
    numbers; complex_outs: indices of such outputs.
    """

    graph: TorchGraph
    inputs: tuple[str, ...] = ()
    spans: dict[str, Span | str] = field(default_factory=dict)
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
    making = _Converter(places)
    for name in dict.fromkeys(size.name for own in dynamic.values() for size in own.values()):
        if making.fresh(name) != name:
            raise UsageError(f"`{name}` is a word of the IRs: a size needs another name")
    module = exported.program.graph_module
    given = module.graph.find_nodes(op="placeholder")
    inputs = list(zip((node for node in given if node.name not in exported.labels), input_names, strict=True))
    for node, name in inputs:
        for index, size in dynamic.get(name, {}).items():
            making.symbols.learn(node.meta["val"].shape[index], size)
    check_asked(making.symbols, exported.asked)
    for node, name in inputs:  # they choose their names before weights do
        making.placeholder(node, "input", name)
    weights: dict[int, Value] = {}  # one input for a weight that goes by several names
    for node in given:
        if node.name in exported.labels:
            kind, label, tensor = exported.labels[node.name]
            if id(tensor) not in weights:
                weights[id(tensor)] = making.placeholder(node, kind, label, tensor)
            making.values[node] = weights[id(tensor)]
    making.region(module, exported.outputs)
    return making.finish(exported.outputs)


class _Converter:
    """Conversion that is being made. values: {FX node: Var, or the tuple of Vars of a region}."""

    def __init__(self, places: SourcePlaces):
        self.places, self.symbols, self.made = places, Symbols(), Conversion(TorchGraph("main", (), (), ()))
        self.values: dict[Any, Any] = {}
        self.params: dict[str, Param] = {}  # every value by its name; of an op with several results the first
        self.body: list[TorchOp] = []
        self._used, self._tried = set(_RESERVED), dict[str, int]()

    def fresh(self, wish: str) -> str:
        """Return a unique name that does not clash with words of the syntax: `mul`, `mul_1`, `mul_2`."""
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        name = unused(f"x{base}" if base[0].isdigit() else base, self._used, between="_", tried=self._tried)
        self._used.add(name)
        return name

    def placeholder(self, node: Any, kind: str, wish: str, tensor: Any = None) -> Var:
        """Add an input. Complex numbers are given as the pairs of their parts. tensor: of a weight."""
        name, given = self.fresh(wish), self.type_of(node.meta["val"])
        self.made.kinds[name], value = kind, Var(name)
        self.params[name] = Param(name, given.dtype, given.shape)
        if given.dtype in PARTS:
            self.params[name] = Param(name, PARTS[given.dtype], (*given.shape, 2))
            value = Var(self.add(name, "ViewAsComplex", (("self", value),), (given,)))
            self.made.complexes += (name,)
        if tensor is not None:
            self.made.tensors[name] = parts_of(tensor) if given.dtype in PARTS else tensor
        self.values[node] = value
        return value

    def add(self, wish: str, op: str, args: Value, types: tuple[TensorType, ...]) -> str:
        """Add a statement and return its name."""
        name = self.fresh(wish)
        self.body.append(TorchOp(name, op, args, types))
        self.params[name] = Param(name, types[0].dtype, types[0].shape)
        return name

    def region(self, module: Any, outputs: Iterable[Any]) -> None:
        """Add what the outputs need. The graph is functional, so the other nodes do nothing."""
        needed = set(outputs)
        for node in reversed(module.graph.nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        for node in module.graph.nodes:
            if node in needed and node.op == "call_function":
                self.call(module, node)

    def call(self, module: Any, node: Any) -> None:
        target, number = node.target, node.meta.get("val")
        of_tensors = any(isinstance(read.meta.get("val"), torch.Tensor) for read in node.all_input_nodes)
        if isinstance(number, torch.SymInt) or (isinstance(number, torch.SymFloat) and not of_tensors):
            return  # read where it is used
        if isinstance(target, torch._ops.OpOverload):
            self.statement(node)
        elif target is operator.getitem:
            source, index = node.args
            if isinstance(self.values[source], tuple):
                self.values[node] = self.values[source][index]
            else:
                self.emit(node, "Getitem", (("self", self.values[source]), ("index", index)))
        elif isinstance(target, torch._ops.HigherOrderOperator) and target.name() in _REGIONS:
            # the casts of a region that switches autocast on are explicit ops by now
            body, *operands = node.args[_REGIONS[target.name()] :]
            inner = getattr(module, body.target)
            for given, operand in zip(inner.graph.find_nodes(op="placeholder"), operands, strict=True):
                self.values[given] = self.values[operand]
            outputs = inner.graph.output_node().args[0]
            self.region(inner, outputs)
            self.values[node] = tuple(map(self.values.__getitem__, outputs))
        else:
            raise DplcError(f"{_aten(target)} is not supported", place(node, self.places))

    def statement(self, node: Any) -> None:
        schema, span = node.target._schema, place(node, self.places)
        namespace, name = schema.name.split("::")
        fields = self.fields(node, schema)
        if torch.Tag.nondeterministic_seeded in node.target.tags and not _quenched(fields):
            hint, what = "make random tensors outside and pass them in", f"torch op '{name}' draws random numbers"
            if not fields.keys().isdisjoint((*_TRAINING, "dropout_p")):
                hint = "call `.eval()` on the module, or pass training=False"
                what = f"`{name}` in training mode draws random numbers"
            raise RandomNumbers(what, span, () if span is not None else (f"in {_module_path(node)}",), hint)
        if schema.name == HARMLESS:
            name = name.rstrip("_")
        elif schema.is_mutable:
            raise DplcError(f"torch op '{name}' works in place, which is not supported here", span)
        name = _CONJUGATES.get(name, name)
        op = op_name(name)
        if namespace != "aten" or op not in schemas.names() or schemas.aten_name(op) != name:
            raise DplcError(f"torch op '{name}' is not supported", span)
        args = tuple((key, value) for key, (value, default) in fields.items() if not _same(value, default))
        self.emit(node, op, _bound(op, args, node))

    def fields(self, node: Any, schema: Any) -> Fields:
        """Return the fields in schema order, without those of device and memory layout."""
        found: Fields = {}
        given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
        for argument in schema.arguments:
            name = argument.name
            if name not in schemas.PLACEMENT:
                default = self.value(argument.default_value, node) if argument.has_default_value() else REQUIRED
                value = self.value(given[name], node) if name in given else default
                if "List[" in str(argument.type) and not isinstance(value, tuple) and value is not None:
                    value = (value,)
                found[name] = value, default
        return found

    def value(self, given: Any, node: Any) -> Value:
        if isinstance(given, (list, tuple)):
            return tuple(self.value(item, node) for item in given)
        if given is None or isinstance(given, (bool, int, float, str)):
            return given
        if isinstance(given, torch.dtype):
            return Var(dtype_name(given))
        if given in self.values:
            return self.values[given]
        what, hint = f"torch op '{_aten(node.target)}' depends on the values of a tensor", None
        number = given.meta.get("val") if isinstance(given, torch.fx.Node) else None
        if isinstance(number, torch.SymInt) and self.symbols.knows(number):
            return self.symbols.extent(number)
        if isinstance(number, torch.SymFloat):
            if (constant := constant_of(number)) is not None:
                return constant
            what = f"torch op '{_aten(node.target)}' takes a float made of a length"
            hint = "compute with a tensor instead; or leave the length out of dynamic="
        elif isinstance(given, complex):
            what = "complex numbers are not supported"
        raise DplcError(what, place(node, self.places), hint=hint)

    def emit(self, node: Any, op: str, args: Value) -> None:
        """Add the statement of a node."""
        given, span = node.meta.get("val"), place(node, self.places)
        tensors = given if isinstance(given, (list, tuple)) else (given,)
        if any(isinstance(tensor, torch.Tensor) for tensor in tensors):  # a result that was not requested is empty
            tensors = [torch.empty(0, device="meta") if tensor is None else tensor for tensor in tensors]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise DplcError(f"torch op '{_aten(node.target)}' gives no tensor", span)
        if not all(self.symbols.knows(n) for tensor in tensors for n in tensor.shape):
            what = f"torch op '{_aten(node.target)}' gives a shape that depends on the values of a tensor"
            raise DplcError(what, span)
        name = self.add(_aten(node.target), op, args, tuple(map(self.type_of, tensors)))
        self.values[node], self.made.spans[name] = Var(name), span or _module_path(node)

    def type_of(self, tensor: Any) -> TensorType:
        return TensorType(dtype_name(tensor.dtype), tuple(map(self.symbols.extent, tensor.shape)))

    def finish(self, outputs: Iterable[Any]) -> Conversion:
        outs = []
        for index, output in enumerate(outputs):
            out = self.params[self.values[output].name]
            if out.dtype in PARTS and 0 not in out.shape:
                parts = TensorType(PARTS[out.dtype], (*out.shape, 2))
                out = self.params[self.add(out.name, "ViewAsReal", (("self", Var(out.name)),), (parts,))]
                self.made.complex_outs |= {index}
            outs.append(out)
        kinds = self.made.kinds
        self.made.inputs = tuple(name for name, kind in kinds.items() if kind == "input")
        self.made.graph = TorchGraph("main", tuple(map(self.params.__getitem__, kinds)), tuple(outs), tuple(self.body))
        return self.made


_END = 2**63 - 1  # the end of a slice that is left open, as torch writes it


def _aten(target: Any) -> str:
    """Return the name of an op as users know it."""
    return str(getattr(target, "_opname", getattr(target, "__name__", target))).strip("_")


def _same(value: Value, default: Value) -> bool:
    """Return whether a field is at its default: 1.0 is 1, but True is not, and -0.0 is not 0.0."""
    if value == _END and default is None:
        return True

    def kind(x: Value) -> Any:
        return (isinstance(x, bool), math.copysign(1, x)) if isinstance(x, (int, float)) else x.__class__

    return kind(value) == kind(default) and bool(value == default)


_TRAINING = ("train", "training")  # the fields that say whether a module trains


def _quenched(fields: Fields) -> bool:
    """Return whether a random op draws nothing: dropout outside of training or of rate 0, attention without dropout."""
    rates = ("dropout_p", "p") if any(name in fields for name in _TRAINING) else ("dropout_p",)
    return any(name in fields and fields[name][0] == 0 for name in (*_TRAINING, *rates))


# Defaults that mean something of the input's dtype. They are bound to it here, since float64 would read them otherwise.
_BOUND = {"RmsNorm": {"eps": "eps"}, "NanToNum": {"posinf": "max", "neginf": "min"}}


def _bound(op: str, args: Value, node: Any) -> Value:
    dtype = getattr(node.meta["val"], "dtype", torch.bool)
    if op not in _BOUND or not dtype.is_floating_point:
        return args
    limits = {name: getattr(torch.finfo(dtype), limit) for name, limit in _BOUND[op].items()} | dict(args)
    return tuple((name, limits[name]) for name in schemas.fields(op) if name in limits)


def _module_path(node: Any) -> str:
    """Return the module that a node belongs to, for an op without a line of the user's text."""
    stack = (node.meta.get("nn_module_stack") or {}).values()
    path, kind = [("", "the function"), *(entry for entry in stack if entry[0])][-1]  # that of `Root` has no path
    path, kind = path.partition(".")[2], getattr(kind, "__name__", kind).rpartition(".")[2]
    return f"{path} ({kind})" if path else kind
