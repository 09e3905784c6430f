"""Capture: functions and modules -> Torch IR with everything that is known about where it came from.

`capture` traces a function or a module on example arguments, `capture_text` (text.py) a `-c` text.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir import node, schemas
from ...ir.diagnostic import DplcError, Span
from ...ir.dtypes import DTYPES
from ...ir.expr import Var, free_names
from ...ir.interp.torch import applied
from ...ir.names import unused
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES as TORCH_DTYPES
from ...ir.schemas import PARTS
from ...ir.sizes import has_sizes
from ...ir.substitute import substitute
from ...ir.text.torch import print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language.rule import Policy, built_in_policy
from ..language.rule_files import collections_paused
from .convert import Conversion, convert, dtype_name
from .dynamic_shapes import declared
from .export import export, export_lock
from .places import SourcePlaces
from .signature import Fixed, Pairs, Signature, check_kind, parts_of, tensors_of

# ---- Find the modules that a function uses: itself, its closure, globals, defaults, and their members.


def modules_of(function: Any) -> dict[str, Any]:
    """Return {label: module} for the modules that a function or module uses, without those inside of another one.

    A module is labelled by the variable that holds it; the module that is captured itself has the label "". A module
    that is not found is not lost: its weights are constants of the trace.
    """
    if isinstance(function, torch.nn.Module):
        return {"": function}
    found: dict[int, tuple[str, Any]] = {}
    for label, module in _reachable(function, "", set()):
        found.setdefault(id(module), (label, module))
    inner = {id(child) for _, module in found.values() for child in module.modules() if child is not module}
    labelled: dict[str, Any] = {}
    for key, (label, module) in found.items():
        if key not in inner:
            labelled[unused(label, labelled, between="_")] = module
    return labelled


def plain_parts(tensor: Any) -> tuple[Any, ...]:
    """Return the tensors in a wrapper subclass, in the order in which torch.export lists them; a plain tensor alone."""
    if not is_traceable_wrapper_subclass(tensor):
        return (tensor,)
    names, _ = tensor.__tensor_flatten__()
    return tuple(part for name in names for part in plain_parts(getattr(tensor, name)))


def _reachable(value: Any, label: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        yield label or type(value).__name__.lower(), value
    elif isinstance(value, MethodType):
        yield from _reachable(value.__self__, label, seen)
        yield from _reachable(value.__func__, label, seen)
    elif isinstance(value, partial):
        for item in (value.func, value.args, value.keywords):
            yield from _reachable(item, label, seen)
    elif isinstance(value, FunctionType):
        for name, item in _variables(value):
            yield from _reachable(item, name, seen)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _reachable(item, name if isinstance(name, str) else label, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _reachable(item, label, seen)


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function reads: closure, defaults, globals. Only names that its code mentions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _global_names(function.__code__):
        found = function.__globals__.get(name)  # torch's own functions hold no modules of the user
        if isinstance(found, torch.nn.Module) or not str(getattr(found, "__module__", "")).startswith("torch."):
            yield name, found


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


@dataclass(frozen=True)
class Capture:
    """Captured program with its tensors.

    graph: the computation. tensors: {input name: tensor} for every input of the graph, with the declared shape and
    dtype. kinds: {input name: input, parameter, buffer or constant}. spans: {value name: the span of the user's text
    that requested it, or the path of its module if no line of the user's text did}. inputs: the user inputs in calling
    order. signature: how to call the function and what it returns. reference: torch's own results, one tensor per
    output of the graph (texts only, else None). folds: whether loading may compute with weights; else they stay as
    their files hold them. strides: {input: its strides}, for inputs whose memory is read by strides. written: the
    program of the user's own ops and its tensors, if some of them were decomposed; it returns None if Torch IR cannot
    express them.
    """

    graph: TorchGraph
    tensors: Mapping[str, Any]
    kinds: Mapping[str, str]
    spans: Mapping[str, Span | str]
    inputs: tuple[str, ...]
    signature: Signature
    reference: tuple[Any, ...] | None = None
    folds: bool = True
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    written: Callable[[], tuple[TorchGraph, Mapping[str, Any]] | None] = field(default=lambda: None, compare=False)


@export_lock()
@collections_paused()
def capture(
    function: Callable[..., Any], example_args: Any, kwargs: Mapping[str, Any] | None = None, dynamic: Any = None
) -> Capture:
    """Return the program of `function(*example_args, **kwargs)`, for arguments of these shapes and dtypes.

    function: a function, or a module, in the mode (training or evaluation) that it is in. example_args: a tuple of
    arguments, nested as needed; tensors in it are inputs, everything else is fixed. dynamic: the dimensions that are
    known at a call (`sizes.declared`). Raises DplcError if it cannot be compiled.
    """
    if not callable(function):
        raise DplcError(f"a function or module is needed, not {type(function).__name__}")
    args = tuple(example_args) if isinstance(example_args, (tuple, list)) else (example_args,)
    leaves, spec = pytree.tree_flatten((args, dict(kwargs or {})))
    names = _argument_names(function, args, dict(kwargs or {}))
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor):
            check_kind(f"argument `{name}`", leaf)
        if type(leaf).__module__ == "numpy":
            raise DplcError(f"argument `{name}` is a numpy array", hint="pass torch.from_numpy(..)")
        if not isinstance(leaf, torch.Tensor) and tensors_of(leaf):
            what = f"argument `{name}` is a {type(leaf).__name__}, which holds tensors"
            raise DplcError(what, hint="tensors come alone or in tuples, lists and dicts")

    def call(*tensors: Any) -> Any:
        filled = list(leaves)
        for index, tensor in zip(positions, tensors, strict=True):
            filled[index] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
        return function(*inner_args, **inner_kwargs)

    places, weights = SourcePlaces(), modules_of(function)
    # detached: a capture holds values, not how they came about
    tensors = [leaves[index].detach() for index in positions]
    input_names = tuple(names[index] for index in positions)
    sized = declared(dynamic, input_names, tensors) if dynamic else {}
    exported = export(call, tensors, input_names, weights, places, dynamic=sized)
    converted = partial(convert, input_names=input_names, places=places, dynamic=sized)
    conversion = converted(exported)
    given = dict(zip(conversion.inputs, tensors, strict=True))
    by_position = dict(zip(positions, conversion.inputs, strict=True))
    given_as = {name: Pairs(name) if name in conversion.complexes else name for name in conversion.inputs}
    arguments = tuple(
        given_as[by_position[index]] if index in by_position else Fixed(leaf) for index, leaf in enumerate(leaves)
    )
    signature = Signature((spec, arguments), exported.results)
    written = exported.written

    def own() -> Conversion | None:
        return None if written is None else converted(written())

    result = finish(conversion, given, signature, True, own)
    strided = {conversion.inputs[place]: tensors[place].stride() for place in exported.strided}
    return replace(result, strides=strided) if strided else result


def finish(
    conversion: Conversion,
    given: Mapping[str, Any],
    signature: Signature,
    keep_inputs: bool,
    own: Callable[[], Conversion | None],
    reference: Sequence[Any] | None = None,
) -> Capture:
    """Return the capture of a conversion, without unread weights.

    Unread inputs are left out unless `keep_inputs` holds. The graph omits outputs without elements: the signature holds
    them. own: returns the conversion of the user's own ops, None if none was decomposed.
    """
    graph = _of_full_outputs(conversion.graph)
    if reference is not None:
        outs = zip(reference, conversion.graph.outs, strict=True)
        reference = [tensor for tensor, out in outs if 0 not in out.shape]
    used = {out.name for out in graph.outs}.union(*(free_names(statement.args) for statement in graph.body))
    kept = [p for p in graph.ins if p.name in used or (keep_inputs and conversion.kinds[p.name] == "input")]
    tensors = _tensors(conversion, given)
    result = Capture(
        TorchGraph(graph.name, tuple(kept), graph.outs, graph.body),
        {param.name: tensors[param.name] for param in kept},
        {param.name: conversion.kinds[param.name] for param in kept},
        conversion.spans,
        tuple(param.name for param in kept if conversion.kinds[param.name] == "input"),
        signature.of_outputs(conversion.graph.outs, conversion.complex_outs),
        None if reference is None else tuple(parts_of(t) if t.is_complex() else t for t in reference),
        written=functools.cache(partial(_written, own, given)),
    )
    check_dtypes(result)
    return result


def _of_full_outputs(graph: TorchGraph) -> TorchGraph:
    return node.replace(graph, outs=tuple(out for out in graph.outs if 0 not in out.shape))


def _tensors(conversion: Conversion, given: Mapping[str, Any]) -> dict[str, Any]:
    return {**conversion.tensors, **given, **{x: parts_of(given[x]) for x in conversion.complexes if x in given}}


def _written(
    own: Callable[[], Conversion | None], given: Mapping[str, Any]
) -> tuple[TorchGraph, Mapping[str, Any]] | None:
    """Return the program of the user's own ops, and its tensors; None if it is the captured one, or not expressible."""
    try:
        conversion = own()
    except DplcError:
        return None
    return None if conversion is None else (_of_full_outputs(conversion.graph), _tensors(conversion, given))


def check_dtypes(captured: Capture) -> None:
    """Raise DplcError for a dtype that cannot be compiled, except in computations of constants: those fold."""
    reached = set()
    for param in captured.graph.ins:
        reached.add(param.name)
        if param.dtype not in DTYPES:
            what = f"{captured.kinds[param.name]} `{param.name}` is {param.dtype}, which is not supported"
            reader = next((s.dst for s in captured.graph.body if param.name in free_names(s.args)), "")
            raise _at(captured, (param.name, reader), what, (), _hint(param.dtype))
    for statement in captured.graph.body:
        if reached.isdisjoint(free_names(statement.args)):
            continue
        reached.add(statement.dst)
        bad = next(
            (kind.dtype for kind in statement.types if kind.dtype not in DTYPES and kind.dtype not in PARTS), None
        )
        if bad is not None:
            what = f"torch op '{schemas.aten_name(statement.op)}' gives {bad}, which is not supported"
            raise _at(captured, (statement.dst,), what, (), _hint(bad))


def _at(captured: Capture, names: Sequence[str], what: str, notes: Sequence[str], hint: str | None = None) -> DplcError:
    """Return an error at the first of the values whose span is known."""
    place = next((captured.spans[name] for name in names if name in captured.spans), None)
    if isinstance(place, str):
        return DplcError(what, None, (f"in {place}", *notes), hint)
    return DplcError(what, place, notes, hint)


def _hint(dtype: str) -> str:
    return "use .float()" if dtype.startswith("f") else "use .float(), .int(), .long() or .bool()"


def _argument_names(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return a name per leaf: the parameter's, with the path to the leaf inside of it (`batch_ids`, `xs_0`)."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    paths: Any = pytree.tree_flatten_with_path((args, kwargs))[0]
    names = []
    for path, _ in paths:
        keys = [getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path[1:]]
        if path[0].idx == 0:
            first, rest = keys[0], keys[1:]
            keys = [named[first], *rest] if first < len(named) else [variadic, first - len(named), *rest]
        names.append("_".join(map(str, keys)))
    return names


# ---- Check a Torch IR program that was written by hand.


def check_types(graph: TorchGraph, name: str) -> None:
    """Raise DplcError for the first op that torch refuses, or whose result is not of the type in the text.

    name: of the file, for messages.
    """
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
        for kind, given in zip(op.types, found, strict=False):
            if (getattr(torch, TORCH_DTYPES[kind.dtype]), kind.shape) != (given.dtype, tuple(given.shape)):
                shown = f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"
                raise DplcError(f"{where}: torch gives {shown}")
        if len(op.types) != len(found):
            raise DplcError(f"{where}: torch gives {len(found)} tensors")
        values[op.dst] = made


def _empty(kind: TensorType) -> Any:
    """Return a tensor of a type, without memory. Raises DplcError for one that is larger than any memory."""
    try:
        return torch.empty(kind.shape, dtype=getattr(torch, TORCH_DTYPES[kind.dtype]), device="meta")
    except (RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise DplcError(f"there is no tensor {kind.dtype}{list(kind.shape)}", notes=(why,)) from None


# ---- Constant folding: torch computes values that depend on no input, on the CPU, when the program is compiled.
#
# Attention-mask arithmetic, position ids, causal masks: a model uses dozens of small ops to compute one tensor of known
# values. A result that something else reads becomes an input of the kind "constant". A tensor without elements depends
# on nothing: it is a constant whatever its operands are, and its consumers fold too (the sum of nothing).


def bits(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's elements in their order, as numpy holds them.

    PyTorch calls a tensor of one element contiguous whatever its stride is (`x[::2]` of two elements), and then does
    not read it under a narrower dtype: the function sets the stride explicitly.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()


def fold(captured: Capture, numbers: Policy | None = None) -> Capture:
    """Return the capture with every value folded that depends on no input, parameter or buffer.

    Folding covers tensors of up to `largest_constant` elements. A constant of the capture (a tensor written out in a
    function, or of its closure) counts as known. The tensors of the constants are in `tensors`. Raises DplcError for a
    dtype that cannot be compiled and did not fold away.
    """
    largest = (numbers or built_in_policy()).largest_constant
    graph = captured.graph
    given = {name: captured.tensors[name] for name, kind in captured.kinds.items() if kind == "constant"}
    known = {name: tensor.detach().cpu() for name, tensor in given.items() if tensor.device.type != "meta"}
    known |= {param.name: _nothing(param.dtype, param.shape) for param in graph.ins if _without_elements(param)}
    rest = []
    with torch.no_grad():
        for statement in graph.body:
            if len(statement.types) == 1 and _without_elements(statement.types[0]):
                known[statement.dst] = _nothing(statement.types[0].dtype, statement.types[0].shape)
            elif (
                free_names(statement.args) - TORCH_DTYPES.keys() <= known.keys()
                and not has_sizes(
                    (statement.args, statement.types)
                )  # a tensor of every size: a rule says it as a formula
                and (statement.op == "Getitem" or all(math.prod(kind.shape) <= largest for kind in statement.types))
            ):
                try:
                    result = applied(statement, known)
                except Exception as error:
                    raise DplcError(f"the constant `{statement.dst}` cannot be computed: {error}") from None
                known[statement.dst] = result.cpu() if isinstance(result, torch.Tensor) else result
            else:
                rest.append(statement)
    outs = {out.name for out in graph.outs}
    read = set().union(*(free_names(statement.args) for statement in rest))
    first, same = dict[Any, str](), dict[str, Any]()  # constants of equal bits: layers compute views of the same values
    for name in (name for name in known if name in read and name not in outs):
        content = (known[name].dtype, tuple(known[name].shape), bits(known[name]).tobytes())
        if (other := first.setdefault(content, name)) != name:
            same[name] = Var(other)
    known = {name: value for name, value in known.items() if name not in same}
    rest = [
        statement if same.keys().isdisjoint(free_names(statement.args)) else substitute(statement, same)
        for statement in rest
    ]
    read = outs.union(*(free_names(statement.args) for statement in rest))
    types = {statement.dst: statement.types[0] for statement in graph.body}
    made = {name: value.contiguous() for name, value in known.items() if name in read and name in types}
    kept = tuple(param for param in graph.ins if param.name in read or captured.kinds[param.name] == "input")
    pairs = [name for name in made if types[name].dtype in PARTS]
    opened = [TorchOp(name, "ViewAsComplex", (("self", Var(_pairs(name))),), (types[name],)) for name in pairs]
    made = {_pairs(name) if name in pairs else name: x for name, x in made.items()}
    made |= {_pairs(name): parts_of(made[_pairs(name)]) for name in pairs}
    ins = kept + tuple(Param(name, dtype_name(x.dtype), tuple(x.shape)) for name, x in made.items())
    kinds = {param.name: captured.kinds.get(param.name, "constant") for param in ins}
    tensors = captured.tensors  # which may be drawn when one is read
    if made or kinds.keys() != tensors.keys():
        given = {**tensors, **made}
        tensors = {name: given[name] for name in kinds}
    program = TorchGraph(graph.name, ins, graph.outs, (*opened, *rest))
    folded = replace(captured, graph=program, tensors=tensors, kinds=kinds)
    check_dtypes(folded)
    return folded


def _pairs(name: str) -> str:
    """Return the name of the pairs of a constant of complex numbers."""
    return f"{name}_pairs"


def _without_elements(kind: Any) -> bool:
    """Return whether an input or a result has no elements at a fixed shape.

    Rules handle one of every size: a tensor of numbers has one shape.
    """
    return 0 in kind.shape and not has_sizes(kind.shape)


def _nothing(dtype: str, shape: tuple[Any, ...]) -> Any:
    return torch.empty(tuple(map(int, shape)), dtype=getattr(torch, TORCH_DTYPES.get(dtype, dtype)))
