"""Sources of a model: its configuration (a JSON file, a folder, an id of the hub), its module and its weights.

An id is looked up in the hub's cache on this machine, then among the configurations that come with dplc, then at the
hub itself. Nothing of a model is executed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import torch
from msgspec import Meta
from torch import Tensor

from ...codegen.arrays import check_room, torch_dtype, torch_dtype_name
from ...ir.diagnostic import DplcError, did_you_mean, first_line, raise_all
from ...ir.dtypes import DtypeName
from ...ir.node import immutable
from ..capture.export import quiet_logs
from ..capture.signature import Tensors
from ..store.store import FrozenRecord

if TYPE_CHECKING:
    from safetensors import safe_open
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.core_model_loading import WeightTransform

# ---- Weights by name: from safetensors files, or random. Only requested tensors are read, and nothing is executed.


INDEX = "model.safetensors.index.json"
SHOWN = 5  # mistakes listed one by one
LONGEST = 200  # characters of the name of a file


Line = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00-\x1f]*\Z")]
Elements = Annotated[int, Meta(ge=0, le=2**48)]
Names = Annotated[tuple[Line, ...], Meta(min_length=1)]
Pieces = tuple[tuple[Names, ...], ...]


class WeightRequest(FrozenRecord):
    """A weight that a program takes. names: what a file may call it; dtype, by our name; shape as torch has it.

    pieces: what files may have in its stead, the matrices of experts: those of a row are stacked, and the stacks are
    joined along dimension 1. Each has the names that a file may call it.
    """

    names: Names
    dtype: DtypeName
    shape: Annotated[tuple[Elements, ...], Meta(max_length=64)]
    pieces: Pieces = ()


Requests = Mapping[str, WeightRequest]  # by keys of the caller, such as the buffers of a program
Tell = Callable[[str, int, int], None]  # receives progress: what is being done, how much of it is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def load(folder: Path, wanted: Requests, tell: Tell = silent) -> Tensors:
    """Return {key of `wanted`: tensor} from a folder (or one file) of safetensors, converted to the wanted dtypes.

    Raises DplcError for a path without weights, files that cannot be read, and for missing tensors and other shapes:
    all of them at once.
    """
    made: dict[str, Tensor] = {}
    with _readers(folder, wanted) as readers:
        for key, read in readers.items():
            tell("loading weights", len(made), len(wanted))
            made[key] = read().to(torch_dtype(wanted[key].dtype))
    tell("loading weights", len(made), len(wanted))
    return made


def check(folder: Path, wanted: Requests) -> None:
    """Raise the errors of `load`, from the headers of the files alone."""
    with _readers(folder, wanted):
        pass


@contextlib.contextmanager
def _readers(folder: Path, wanted: Requests) -> Iterator[dict[str, Callable[[], Tensor]]]:
    """Yield {key of `wanted`: function that reads its tensor}, everything found and of the right shape.

    An index says what is where if a folder has one, else every file is looked into.
    """
    if (folder / INDEX).is_file():
        index = _index(folder / INDEX)
        paths = sorted({*index.values()})
    else:
        index, paths = {}, [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
        if not paths:
            why = "no *.safetensors are there" if folder.is_dir() else "there is no such folder"
            raise DplcError(f"--weights {folder}: {why}")
    readers: dict[str, Callable[[], Tensor]] = {}
    mistakes: list[DplcError] = []
    with contextlib.ExitStack() as stack:
        opened = {path: stack.enter_context(_open(path)) for path in paths}
        held = {(name, path): file for path, file in opened.items() for name in list(file.keys())}
        files = index or dict(held.keys())
        for key, want in wanted.items():
            try:
                readers[key] = _reader(want, files, held)
            except DplcError as error:
                mistakes.append(error)
        if len(mistakes) > SHOWN:
            mistakes[SHOWN:] = [DplcError(f"{len(mistakes) - SHOWN} more weights are missing or wrong")]
        raise_all(mistakes)
        yield readers


def _reader(
    want: WeightRequest, files: Mapping[str, Path], held: Mapping[tuple[str, Path], safe_open]
) -> Callable[[], Tensor]:
    """Return a function that reads a weight, whole or of pieces. Raises DplcError if it is missing or does not fit.

    files: {name of a tensor: its file}; held: {(name, file that has it): the opened file}.
    """

    def known(names: Iterable[str]) -> str | None:
        return next((name for name in names if name in files), None)

    whole = known(want.names)
    rows: list[list[Any]] = [[known(names) for names in row] for row in want.pieces] if whole is None else [[whole]]
    names = [name for row in rows for name in row]
    if not names or None in names:
        hint = did_you_mean(want.names[0], files)
        raise DplcError(f"the weights have no tensor `{want.names[0]}`", hint=hint)
    for name in names:
        if (name, files[name]) not in held:
            raise DplcError(f"the index says that `{name}` is in {files[name].name}, which has no such tensor")

    def made(read: Callable[[Any, str], Tensor]) -> Tensor:
        parts = [[read(held[name, files[name]], name) for name in row] for row in rows]
        return parts[0][0] if whole is not None else torch.cat([torch.stack(row) for row in parts], 1)

    try:
        shape = made(lambda file, name: torch.empty(file.get_slice(name).get_shape(), device="meta")).shape
    except (RuntimeError, IndexError, TypeError):  # of torch, for pieces that make no tensor
        raise DplcError(f"weights `{names[0]}` .. `{names[-1]}` have shapes that do not fit each other") from None
    if shape != want.shape:
        what = f"weight `{names[0]}` is" if len(names) == 1 else f"`{names[0]}` .. `{names[-1]}` make"
        what += f" {list(shape)} in {files[names[0]].name}; the model needs {list(want.shape)}"
        raise DplcError(what)
    return lambda: made(lambda file, name: file.get_tensor(name))


def make(wanted: Requests, seed: int = 0, device: str = "cpu", scale: float = 0.05) -> dict[str, Tensor]:
    """Return random weights, the same for the same seed and device.

    Vectors are near 1 (norms stay norms), the rest is normal with `scale`. Raises DplcError for more than fits in
    memory.
    """
    if device == "cpu":
        check_room(sum(4 * math.prod(want.shape) for want in wanted.values()), "the weights")
    generator = torch.Generator(device).manual_seed(seed)
    made = {}
    for key, want in wanted.items():
        value = torch.randn(want.shape, generator=generator, device=device) * scale
        made[key] = (value + 1 if len(want.shape) == 1 else value).to(torch_dtype(want.dtype))
    return made


def _index(path: Path) -> dict[str, Path]:
    try:
        shards = json.loads(path.read_bytes())["weight_map"]
        files = {str(name): str(file) for name, file in shards.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DplcError(f"{path} is not an index of weights", notes=(f"{type(error).__name__}: {error}",)) from None
    missing = [
        name
        for name in sorted({*files.values()})
        if name != Path(name).name or len(name) > LONGEST or not (path.parent / name).is_file()
    ]
    if missing:
        shown = ", ".join(name[:LONGEST] for name in missing[:SHOWN])
        raise DplcError(f"{path} names files that are not there beside it: {shown}")
    return {name: path.parent / file for name, file in files.items()}


def _open(path: Path) -> safe_open:
    with explained("weights need safetensors", INSTALL):
        from safetensors import safe_open
    with explained(f"cannot read the weights in {path}"):
        return safe_open(path, framework="pt")


CONFIG = "config.json"
INSTALL = "pip install 'dplc[hub]'"
# Beyond these a configuration is damaged, and building its modules would not end.
LARGEST = {
    "num_hidden_layers": 10_000, "hidden_size": 1 << 24, "intermediate_size": 1 << 24, "vocab_size": 1 << 28,
    "num_attention_heads": 1 << 16, "num_key_value_heads": 1 << 16,
}  # fmt: skip
SHIPPED = Path(__file__).resolve().parents[2] / "examples" / "models"  # configurations that come with dplc
SHIPPED_IDS = {
    "Qwen/Qwen2.5-7B": "qwen2.5-7b",
    "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": "tinyllama-1.1b",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
}
_ID = re.compile(r"[\w.-]+/[\w.-]+(?<!\.json)")


@immutable
class ModelSource:
    """Name and configuration of a model.

    name: for people; config: its configuration, as the hub's JSON has it; a `-c` text has none.
    """

    name: str
    config: dict[str, Any]

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])


def find(path_or_id: str, tell: Callable[[str], None] = lambda line: None) -> ModelSource:
    """Return the model's configuration. Nothing of it is executed. tell: receives the source of an id.

    Raises DplcError for a missing path, a file that is not a model configuration, an id that the hub does not give.
    """
    path = Path(path_or_id)
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise DplcError(f"the folder {path} has no {CONFIG}", hint="a folder of the hub's layout is expected")
        return _read(path / CONFIG, path.resolve().name)
    if path.is_file():
        return _read(path, path.stem)
    if is_id(path_or_id):
        return _read(_of_id(path_or_id, tell), path_or_id.split("/")[1])
    shipped = _hint_of_shipped(path.name.removesuffix(".json"))
    raise DplcError(
        f"there is no model `{path_or_id}`: neither a file, nor a folder, nor an id of the hub (OWNER/NAME)",
        hint=shipped or "a configuration is what `config.json` is in a folder of the hub",
    )


def _hint_of_shipped(name: str) -> str | None:
    """Return a hint at the configuration that comes with dplc for this name or a variant (`..-Instruct`); else None."""
    shipped = [path for path in SHIPPED.glob("*.json") if name.lower().startswith(path.stem)]
    path = max(shipped, key=lambda path: len(path.stem), default=None)
    return None if path is None else f"the configuration of {path.stem} comes with dplc: give {_shown(path)}"


def _shown(path: Path) -> Path:
    """Return a path as seen from the current folder, if it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def is_id(path_or_id: str) -> bool:
    """Return whether a text has the form of an id of the hub, OWNER/NAME."""
    return bool(_ID.fullmatch(path_or_id))


def folder_of(path_or_id: str) -> Path | None:
    """Return the folder with a model's other files; None for an id that is not in the hub's cache on this machine."""
    path = Path(path_or_id)
    if path.is_dir():
        return path
    found = path if path.is_file() else _cached(path_or_id) if is_id(path_or_id) else None
    return found and found.parent


def is_model(path_or_id: str) -> bool:
    """Return whether a path or id is a model's and not of another kind (a suite, an artefact)."""
    path = Path(path_or_id)
    if path.is_dir():
        return (path / CONFIG).is_file()
    if path.is_file():
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and "model_type" in found
    return is_id(path_or_id)


def _read(path: Path, name: str) -> ModelSource:
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise DplcError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DplcError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise DplcError(f"{path} is not a configuration of a model: it has no `model_type`")
    for field, most in LARGEST.items():
        value = config.get(field)  # a list has one for each part of the model
        numbers = value if isinstance(value, list) else () if value is None else (value,)
        if not all(isinstance(number, int) and 0 < number <= most for number in numbers):
            raise DplcError(f"{path}: `{field}` is {str(value)[:40]}; 1 to {most} are possible")
    return ModelSource(name, config)


def _of_id(name: str, tell: Callable[[str], None]) -> Path:
    """Return the configuration of an id. Raises DplcError if it is not found."""
    if (cached := _cached(name)) is not None:
        tell(f"the configuration of {name} is from the hub's cache on this machine")
        return cached
    if name in SHIPPED_IDS:
        shipped = SHIPPED / f"{SHIPPED_IDS[name]}.json"
        tell(f"the configuration of {name} comes with dplc: {_shown(shipped)}")
        return shipped
    with explained("models of the hub need huggingface-hub", INSTALL):
        from huggingface_hub import hf_hub_download
    hint = _hint_of_shipped(name.split("/")[1]) or "give a configuration file (`config.json`) or a folder that has one"
    with explained(f"cannot get `{name}` from the hub", hint):  # no network, no such model, no permission
        reach_hub()
        return Path(hf_hub_download(name, CONFIG, etag_timeout=5))


def _cached(name: str) -> Path | None:
    """Return the configuration of an id in the hub's cache on this machine, if it is there."""
    try:
        from huggingface_hub import constants, try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(name, CONFIG, cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError:  # no id of the hub has such a name
        return None
    return Path(found) if isinstance(found, str) else None


def reach_hub() -> None:
    """Raise OSError if the hub cannot be reached: its own library would try for half a minute."""
    from huggingface_hub import constants

    socket.create_connection((urlsplit(constants.ENDPOINT).hostname or "", 443), timeout=5).close()


@contextlib.contextmanager
def explained(what: str, hint: str | None = None) -> Iterator[None]:
    """Silence libraries. An error of theirs, of many classes, becomes one sentence with its first line as a note."""
    try:
        with quiet_logs(logging.WARNING):
            yield
    except Exception as error:
        raise DplcError(what, notes=(first_line(error),), hint=hint) from None


# ---- Build the module of a configuration with its parameters on the meta device.


# Fields that are not part of the model: transformers uses scaled_dot_product_attention if an architecture has it.
_SAID_ELSEWHERE = frozenset(("model_type", "auto_map", "_attn_implementation", "attn_implementation"))


def build(source: ModelSource, dtype: str = "f32", layers: int | None = None) -> PreTrainedModel:
    """Return the model of a configuration, in evaluation mode, on the meta device.

    Its class is the one that the configuration names, else the causal language model of its architecture, else the
    model without a head. dtype: of its parameters, one of COMPUTING_FLOATS. layers: how many of its blocks to keep,
    None for all. Raises DplcError for an architecture that is unknown, and for a configuration that it does not accept.
    """
    config = _configuration(source, layers)
    made = _class(source, config)
    with explained(f"the configuration of {source.name} does not make a model"), torch.device("meta"):
        model = made._from_config(config, dtype=torch_dtype(dtype))
    model.eval().requires_grad_(False)
    _derive_buffers(model)
    return model


def weights_of(model: PreTrainedModel) -> dict[int, WeightRequest]:
    """Return {id of a parameter or persistent buffer: what files have of it}.

    Tied ones have several names, and so have those that transformers renames when it loads a file. Pieces are a matrix
    for each expert, by transformers' own table of conversions; there are none for a weight without a conversion, or
    with another way to compute it.
    """
    table = [(type(step).__name__, step) for step in _conversions(model)]
    back = [step.reverse_transform() for kind, step in reversed(table) if kind == "WeightRenaming"]
    converters = [step for kind, step in table if kind == "WeightConverter" and len(step.target_patterns) == 1]

    def renamed(name: str, step: WeightTransform) -> str:
        return str(step.rename_source_key(name)[0])

    def older(name: str) -> Iterator[str]:
        """Yield other names of a weight, by one or several renamings."""
        ways = (*(renamed(name, step) for step in back), functools.reduce(renamed, back, name))
        return (before for before in ways if before != name)

    def pieces(name: str, tensor: Tensor) -> Pieces:
        for step in converters:
            ways = [(type(way).__name__, getattr(way, "dim", None)) for way in step.operations]
            (end,), sources = step.target_patterns, step.source_patterns
            if name.endswith(end) and ways == STACKED[: 1 + (len(sources) > 1)]:
                before = name.removesuffix(end)
                rows = [[before + source.replace("*", str(n)) for n in range(len(tensor))] for source in sources]
                return tuple(tuple((piece, *older(piece)) for piece in row) for row in rows)
        return ()

    found: dict[int, WeightRequest] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        before = found[id(tensor)].names if id(tensor) in found else ()
        names, dtype = (*before, name, *older(name)), torch_dtype_name(tensor)
        found[id(tensor)] = WeightRequest(names, dtype, tuple(tensor.shape), pieces(names[0], tensor))  # type: ignore[arg-type]
    return found


STACKED = [("MergeModulelist", 0), ("Concatenate", 1)]  # the one way that `load` knows, or the first step alone


def _conversions(model: PreTrainedModel) -> list[WeightTransform]:
    """Return transformers' table for a model: how files call its weights, and what they hold instead."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping

        return list(get_model_conversion_mapping(model, add_legacy=False))
    except (ImportError, AttributeError, TypeError, ValueError):  # another version of transformers
        return []


def _configuration(source: ModelSource, layers: int | None) -> PretrainedConfig:
    """Return the configuration object of transformers."""
    with explained("models need transformers", INSTALL):
        from transformers import CONFIG_MAPPING, AutoConfig
    kind = source.model_type
    if kind not in CONFIG_MAPPING:
        hint = did_you_mean(kind, CONFIG_MAPPING.keys())
        raise DplcError(f"{source.name}: `{kind}` is not an architecture that transformers knows", hint=hint)
    given = {key: value for key, value in source.config.items() if key not in _SAID_ELSEWHERE}
    if layers is not None:
        present, kinds = source.config.get("num_hidden_layers"), source.config.get("layer_types")
        if not isinstance(present, int):
            raise DplcError(f"the configuration of {source.name} does not say how many layers there are")
        if not 1 <= layers <= present:
            raise DplcError(f"--layers {layers}: {source.name} has {present} layers")
        given |= {"num_hidden_layers": layers} | ({"layer_types": kinds[:layers]} if isinstance(kinds, list) else {})
    try:
        with quiet_logs(logging.WARNING):
            config = AutoConfig.for_model(kind, **given)
    except Exception as error:
        text = " ".join(str(error).split())
        raise DplcError(f"the configuration of {source.name} is wrong", notes=(text,)) from None
    return config


def _class(source: ModelSource, config: PretrainedConfig) -> type[PreTrainedModel]:
    """Return the class of a model, out of transformers' own tables: no name of a configuration is looked up elsewhere.

    Raises DplcError for an architecture without a model in these.
    """
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto import modeling_auto

    tables = [t for name, t in vars(modeling_auto).items() if re.fullmatch("MODEL.*_MAPPING", name)]
    possible = {made.__name__: made for table in tables for made in _classes(table, type(config))}
    named = source.config.get("architectures")
    for name in named if isinstance(named, list) else ():
        if name in possible:
            return possible[name]
    usual = [] if getattr(config, "is_encoder_decoder", False) else [AutoModelForCausalLM]
    for auto in (*usual, AutoModel):
        if found := _classes(auto._model_mapping, type(config)):
            return found[0]
    raise DplcError(f"{source.name}: transformers has no model of the architecture `{source.model_type}`")


def _classes(table: Mapping[type, Any], config: type) -> tuple[type[PreTrainedModel], ...]:
    """Return the model classes that a table lists for a class of configurations."""
    if config not in table:
        return ()
    found = table[config]
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def _derive_buffers(model: PreTrainedModel) -> None:
    """Give buffers that no weight file holds their values by the configuration, as `from_pretrained` does."""
    kept = model.state_dict(keep_vars=True).keys()
    for path, module in model.named_modules():
        own = dict(module.named_buffers(recurse=False))
        if not any(f"{path}.{name}" not in kept for name in own):
            continue
        for name, buffer in own.items():
            module._buffers[name] = torch.full_like(buffer, _unset(buffer.dtype), device="cpu")
        model._init_weights(module)
        for name, buffer in own.items():
            values = module._buffers[name]
            if buffer.dtype is not torch.bool and (values.isnan() | (values == _unset(values.dtype))).any():
                raise DplcError(f"the values of the buffer `{path}.{name}` are not known from the configuration")


def _unset(dtype: torch.dtype) -> float | int | bool:
    """Return the value that marks unwritten elements: a configuration never gives it."""
    if dtype is torch.bool:
        return False
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).min
