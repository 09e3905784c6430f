"""Capture of a `-c` text. The text is evaluated twice: once for real, once to be traced with the inputs handed in.

The second evaluation reuses these results of the first:

- a call that returns a module or a parameter, by its site and how often it ran: neither initialisation nor `.float()`
  is ever traced, and tensors of factories inside such a call are weights, not inputs;
- a statement that defines a class, so that classes keep their identity;
- a statement that mutates a weight (`nn.init.ones_(m.weight)`): it prepares the program and does not belong to it.

Everything else runs again, in the same order and in the same, emptied, scope.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...ir import node
from ...ir.diagnostic import DplcError, Source, Span, UsageError
from ...ir.expr import Size, Var
from ...ir.names import unused
from ...ir.schemas import DTYPES
from ...ir.sizes import AT_HINTS, Binding
from .capture import Capture, finish
from .convert import Conversion, convert
from .dynamic_shapes import Dim, Extent
from .export import Exported, FactoryResult, Record, Replay, explain, export, export_lock
from .places import SourcePlaces, characters
from .signature import Signature, tensors_of

# ---- Parse the text and turn every call `f(a)` into `__dplc__(site, f, a)`.


NAME = "-c"  # what errors call the text
DIM = "dim"  # `dim(s, 1..4096)`: an extent that is known at a call
_RANGE = re.compile(rf"(\b{DIM}\(\s*\w+\s*,\s*\d+)\.\.(?=\d)")
HOOK = "__dplc__"  # ends in two underscores, or Python would mangle it inside of a class

# These look at the frame that calls them, which must stay the text's own.
_FRAME_SENSITIVE = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec"))


@dataclass(frozen=True)
class ParsedText:
    """Code of the top-level statements before the last expression, and of that expression.

    Of each statement the tuple says whether it defines a class, which keeps its identity, so that it runs once.
    """

    source: Source
    statements: tuple[tuple[CodeType, bool], ...]
    result: CodeType
    result_span: Span

    def run(self, scope: dict[str, Any]) -> Any:
        for code, _ in self.statements:
            exec(code, scope)
        return eval(self.result, scope)


class _Instrument(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME_SENSITIVE:
            return node
        if isinstance(node.func, ast.Name) and node.func.id == DIM and node.args and isinstance(node.args[0], ast.Name):
            node.args[0] = ast.copy_location(ast.Constant(node.args[0].id), node.args[0])
        site, hook = ast.Constant(self.sites), ast.Name(HOOK, ast.Load())
        self.sites += 1
        call = ast.Call(hook, [site, node.func, *node.args], node.keywords)
        for new in (call, hook, site):
            ast.copy_location(new, node)
        return call


def parse(text: str) -> ParsedText:
    """Return the program of a text.

    Raises DplcError for a syntax error and if the last statement is not an expression.
    """
    source = Source(NAME, textwrap.dedent(text).strip("\n").rstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            # of the same length: positions do not change
            return _compile(source, ast.parse(_RANGE.sub(r"\1, ", source.text), NAME))
    except SyntaxError as error:
        raise DplcError(f"syntax error: {error.msg}", _syntax_span(source, error)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DplcError(f"the text cannot be parsed: {error or type(error).__name__}") from None


def _compile(source: Source, tree: ast.Module) -> ParsedText:
    if not tree.body:
        raise DplcError("the text is empty", hint="give an expression, such as `torch.relu(torch.randn(8))`")
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        raise DplcError("the last statement must be an expression: the result to compile", _span(source, last))
    span = _span(source, last)  # before the calls are rewritten
    _Instrument().visit(tree)
    statements = tuple(
        (_code(ast.Module([statement], []), "exec"), isinstance(statement, ast.ClassDef))
        for statement in tree.body[:-1]
    )
    return ParsedText(source, statements, _code(ast.Expression(last.value), "eval"), span)


def _code(tree: Any, mode: str) -> CodeType:
    return compile(tree, NAME, mode, dont_inherit=True)


def _span(source: Source, node: ast.stmt) -> Span:
    end_line = node.end_lineno or node.lineno
    end = characters(source.line(end_line), node.end_col_offset or 0)
    return Span(source, node.lineno, characters(source.line(node.lineno), node.col_offset), end_line, end)


def _syntax_span(source: Source, error: SyntaxError) -> Span:
    line = error.lineno or 1
    start = max((error.offset or 1) - 1, 0)
    same_line = error.end_lineno in (None, line)
    end = (error.end_offset or 0) - 1 if same_line else len(source.line(line))
    return Span(source, line, start, line, max(end, start + 1))


# ---- Skip large products if only the shapes of their results are needed.


MOST_COMPUTED = 1 << 27  # floating-point operations: a CPU needs milliseconds for them, in any dtype


class SkipLargeProducts(TorchDispatchMode):  # type: ignore[misc]  # torch says no types for it
    """Mode in which matmuls, convolutions and attention of more than MOST_COMPUTED operations return zeros.

    PyTorch's own table of operations says what counts. A branch of a text on such values (`if (x @ w).sum() > 0`) could
    go the wrong way; but the text is traced without any values afterwards, where such a branch is an error.
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
        return pytree.tree_map_only(
            torch.Tensor, lambda x: torch.empty_strided(x.size(), x.stride(), dtype=x.dtype).zero_(), result
        )


@export_lock()
def capture_text(
    text: str, seed: int = 0, dtype: str | None = None, values: bool = True,
    sizes: Binding = AT_HINTS,
) -> Capture:  # fmt: skip
    """Return the program of the last expression of a text. In scope: torch, nn, F, math, and `dim(s, 1..4096)`.

    seed: for torch.manual_seed, right before the text is evaluated. dtype: of the floats for which the text names none,
    by our name; torch's default if left out. Modules are in evaluation mode from the start. values: whether the program
    will be run: `reference` is then the result of the evaluation; without, large products of the last expression are
    not computed. sizes: the lengths that the sizes of `dim` have in the evaluation; by default their hints. Raises
    DplcError with a caret in the text.
    """
    program = parse(text)
    places = SourcePlaces(program.source)
    evaluation = Evaluation(program, places, sizes)
    with _isolated():
        torch.manual_seed(seed)
        if dtype is not None:
            torch.set_default_dtype(getattr(torch, DTYPES[dtype]))
        result = evaluation.first(contextlib.nullcontext() if values else SkipLargeProducts())
        reference = [tensor.detach() for leaf in pytree.tree_leaves(result) for tensor in tensors_of(leaf)]
        if not reference:
            raise DplcError(f"the expression gives {type(result).__name__}, not a tensor", program.result_span)
        captured = _traced(evaluation, places, reference, program.result_span)
        return captured if values else replace(captured, reference=None)


def _traced(evaluation: Evaluation, places: SourcePlaces, reference: list[Any], span: Span) -> Capture:
    """Return the second evaluation. Its inputs are the tensors of factories, then the parameters outside of modules."""
    made, weights = evaluation.made, evaluation.weights()
    modules = {label: weight for label, weight in weights.items() if isinstance(weight, torch.nn.Module)}
    loose = {label: weight for label, weight in weights.items() if label not in modules}
    values = [*(item.value for item in made), *(weight.detach() for weight in loose.values())]
    names = (*evaluation.input_names(), *loose)

    again, dynamic = partial(evaluation.again, tuple(loose.values())), evaluation.dynamic()
    exported = export(again, values, names, modules, places, may_change=True, dynamic=dynamic)
    if len(reference) != len(exported.outputs):
        raise DplcError("the text does not give the same when it is evaluated twice", span)

    def converted(exported: Exported) -> Conversion:
        return _identified(convert(exported, names, places, dynamic), made)

    conversion = converted(exported)
    conversion.kinds.update(dict.fromkeys(conversion.inputs[len(made) :], "parameter"))
    for name, item in zip(conversion.inputs, made, strict=False):
        place = places.span(item.place)
        if place is not None:
            conversion.spans[name] = place

    given = dict(zip(conversion.inputs, values, strict=True))
    written = exported.written

    def own() -> Conversion | None:
        return None if written is None else converted(written())

    captured = finish(conversion, given, Signature(((), ()), exported.results), False, own, reference)
    _, spec = pytree.tree_flatten((captured.inputs, {}))
    return replace(captured, signature=replace(captured.signature, arguments=(spec, captured.inputs)))


@dataclass
class _Kept:
    """Result of a call that ran once.

    counts: how often every site had run by its end, from which the second evaluation continues.
    """

    value: Any
    counts: dict[int, int]


class Evaluation:
    """Both evaluations of a text, and what the second keeps of the first."""

    def __init__(self, program: ParsedText, places: SourcePlaces, sizes: Binding):
        self.made: list[FactoryResult] = []
        self._dims: dict[str, tuple[Dim, Extent]] = {}
        self._sizes = sizes
        self._program, self._places = program, places
        self._scope: dict[str, Any] = {}
        self._calls: dict[tuple[int, int], _Kept] = {}
        self._statements: dict[int, _Kept] = {}  # by index; the value is what it bound
        self._counts: dict[int, int] = {}
        self._depth = 0  # of running forwards
        self._known: set[int] = set()  # modules that were put in evaluation mode
        self._record: Record | None = None
        self._names: dict[str, Any] = {}
        self._replaced: dict[int, Any] = {}  # loose parameters by identity, when traced

    def first(self, last: contextlib.AbstractContextManager[Any]) -> Any:
        """Evaluate for real, the last expression within `last`. Returns its value."""

        def is_weight(tensor: Any) -> bool:
            weights = (weight for kept in self._calls.values() for weight in _weights(kept.value))
            return any(weight.untyped_storage()._cdata == tensor.untyped_storage()._cdata for weight in weights)

        record = self._record = Record(self._places, self._inside, is_weight)
        self.made = record.made
        self._reset()
        try:
            with torch.no_grad(), self._watching(record), record:
                for index, (code, once) in enumerate(self._program.statements):
                    before, mark = dict(self._scope), len(self.made)
                    record.changed_weight = False
                    exec(code, self._scope)
                    if once or record.changed_weight:
                        bound = {k: v for k, v in self._scope.items() if k not in before or before[k] is not v}
                        self._statements[index] = _Kept(bound, dict(self._counts))
                        del self.made[mark:]
                with last:
                    result = eval(self._program.result, self._scope)
        except DplcError as error:
            error.span = error.span or self._places.of_error(error)
            raise
        except (Exception, SystemExit) as error:
            explained = explain(error, self._places.of_error(error))
            lengths = (f"`{dim.name}` is {int(extent)} here, of {dim.range}" for dim, extent in self._dims.values())
            explained.notes = (*explained.notes, *lengths)
            raise explained from None
        finally:
            self._record = None
        self._names = {name: value for name, value in self._scope.items() if not name.startswith("__")}
        return result

    def again(self, loose: tuple[Any, ...], *inputs: Any) -> Any:
        """Evaluate with the inputs of the graph instead of the tensors of factories and of the loose parameters."""
        self._reset()
        self._replaced = {id(weight): tensor for weight, tensor in zip(loose, inputs[len(self.made) :], strict=True)}
        try:
            with Replay(self.made, inputs[: len(self.made)], self._inside), contextlib.redirect_stdout(io.StringIO()):
                for index, (code, _) in enumerate(self._program.statements):
                    kept = self._statements.get(index)
                    if kept is None:
                        exec(code, self._scope)
                    else:
                        self._scope.update(kept.value)
                        self._counts = dict(kept.counts)
                return eval(self._program.result, self._scope)
        finally:
            self._scope.clear()

    def call(self, site: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return `function(*args, **kwargs)`; every call in the text comes through here."""
        if function is torch.compile and args:
            return args[0]  # the same function, and no reason to wait for its compilation
        if function is map:
            return (self.call(site, args[0], *items) for items in zip(*args[1:], strict=False))
        key = (site, self._counts.get(site, 0))
        self._counts[site] = key[1] + 1
        if self._record is None and key in self._calls:
            kept = self._calls[key]
            self._counts = dict(kept.counts)
            return self._replaced.get(id(kept.value), kept.value)
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        forward = isinstance(owner, torch.nn.Module) and name == "forward"
        if forward or isinstance(function, torch.nn.Module):
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
        mark = len(self.made)
        result = function(*args, **kwargs)
        if isinstance(result, (torch.nn.Module, torch.nn.Parameter)):
            self._keep(key, result, mark)
        return result

    def _keep(self, key: tuple[int, int], result: Any, mark: int) -> None:
        if self._record is None:
            raise DplcError(f"{type(result).__name__} is only made when the text is traced, not when it runs")
        self._calls[key] = _Kept(result, dict(self._counts))
        del self.made[mark:]
        if isinstance(result, torch.nn.Module) and id(result) not in self._known:
            self._known.update(id(module) for module in result.modules())
            result.eval()

    @contextlib.contextmanager
    def _watching(self, record: Record) -> Iterator[None]:
        """Notice when an existing module gets another parameter, buffer or child."""

        def registered(module: Any, name: str, value: Any) -> None:
            if id(module) in self._known:
                record.changed_weight = True

        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_parameter_registration_hook(registered),
            hooks.register_module_buffer_registration_hook(registered),
            hooks.register_module_module_registration_hook(registered),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def weights(self) -> dict[str, Any]:
        """Return {label: module or parameter} of the text, by its variable, without those inside another."""
        made = {id(kept.value): kept.value for kept in self._calls.values()}
        inner: set[int] = set()
        for value in made.values():
            if isinstance(value, torch.nn.Module):
                inner.update(id(part) for part in (*value.modules(), *value.parameters()) if part is not value)
        variables = {id(value): name for name, value in reversed(self._names.items())}
        labelled: dict[str, Any] = {}
        for key, value in made.items():
            if key not in inner:
                wish = variables.get(key, type(value).__name__.lower())
                labelled[unused(wish, labelled, between="_")] = value
        return labelled

    def input_names(self) -> tuple[str, ...]:
        """Return a preferred name per input: the variable that holds it, else a letter."""
        variables = {id(value): name for name, value in reversed(self._names.items())}
        letters = iter([letter for letter in "xyzuvwabcdefghijklmnopqrst" if letter not in self._names])
        return tuple(variables.get(id(made.tensor)) or next(letters, "x") for made in self.made)

    def dynamic(self) -> dict[str, dict[int, Size]]:
        """Return the dimensions of the inputs that are sizes, by the names of the inputs."""
        return {name: item.sizes for name, item in zip(self.input_names(), self.made, strict=True) if item.sizes}

    def dim(self, name: str, low: int, high: int, by: int = 1, hint: int | None = None) -> Extent:
        """Return the extent of `dim(s, 1..4096)` in a text.

        Raises UsageError for an invalid range, and for a second range of the name.
        """
        dim = Dim(name, low, high, by, hint)
        known, extent = self._dims.setdefault(name, (dim, Extent(self._sizes.get(name, dim.size().hint), dim.size())))
        if known != dim:
            raise UsageError(f"`{name}` is declared twice: {known.range} and {dim.range}")
        if not dim.admits(int(extent)):
            raise UsageError(f"`{name}` is {int(extent)}, which is not in {dim.range}")
        return extent

    def _reset(self) -> None:
        self._counts, self._depth = {}, 0
        scope = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math, "__name__": "__main__"}
        self._scope.clear()
        self._scope.update(scope, **{HOOK: self.call, DIM: self.dim})

    def _inside(self) -> bool:
        return self._depth > 0


def _weights(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    else:
        yield value


def _identified(conversion: Conversion, made: list[FactoryResult]) -> Conversion:
    """Replace constants that are tensors of inputs, which the text kept somewhere, by these inputs."""
    inputs = {id(item.tensor): name for item, name in zip(made, conversion.inputs, strict=False) if item.unchanged}
    renamed = {name: inputs[id(tensor)] for name, tensor in conversion.tensors.items() if id(tensor) in inputs}
    if not renamed:
        return conversion

    def rename(value: Any) -> Any:
        if isinstance(value, Var):
            return Var(renamed.get(value.name, value.name))
        return tuple(map(rename, value)) if isinstance(value, tuple) else value

    graph = conversion.graph
    body = tuple(node.replace(statement, args=rename(statement.args)) for statement in graph.body)
    outs = tuple(node.replace(out, name=renamed.get(out.name, out.name)) for out in graph.outs)
    return replace(conversion, graph=node.replace(graph, body=body, outs=outs))


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Undo afterwards what a text may change: the seed, the random state and the default dtype."""
    dtype = torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)
