"""Where a model's configuration comes from: a JSON file, a folder with a `config.json`, or an id of the hub.

An id is looked up in the hub's cache on this machine, then among the configurations that come with dplc, then at the
hub itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...ir.diagnostic import DplcError

CONFIG = "config.json"
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
_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelSource:
    """A model as it was asked for. name: for people; config: its configuration, as the hub's JSON has it; a `-c` text
    has none."""

    name: str
    config: dict[str, Any]

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])


def find(path_or_id: str, tell: Callable[[str], None] = lambda line: None) -> ModelSource:
    """The model's configuration. Nothing of it is executed. tell: receives where that of an id comes from.

    Raises DplcError for a path that is not there, a file that is not a model configuration, an id that the hub does
    not give.
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
    """The configuration that comes with dplc for a model of this name or a variant of it (`..-Instruct`); else None."""
    asked = name.lower()
    shipped = [path for path in SHIPPED.glob("*.json") if asked.startswith(path.stem)]
    if not shipped:
        return None
    path = max(shipped, key=lambda path: len(path.stem))
    return f"the configuration of {path.stem} comes with dplc: give {_shown(path)}"


def _shown(path: Path) -> Path:
    """A path as seen from the current folder, if it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def is_id(path_or_id: str) -> bool:
    """Whether a text reads like an id of the hub, OWNER/NAME."""
    return bool(_ID.fullmatch(path_or_id)) and not path_or_id.endswith(".json")


def folder_of(path_or_id: str) -> Path | None:
    """The folder with a model's other files; None for an id that is not in the hub's cache on this machine."""
    path = Path(path_or_id)
    if path.is_dir():
        return path
    found = path if path.is_file() else _cached(path_or_id) if is_id(path_or_id) else None
    return None if found is None else found.parent


def is_model(path_or_id: str) -> bool:
    """Whether a path or id is rather a model's than something else's (a suite, an artefact)."""
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
        raise DplcError(f"{path} is no configuration of a model: it has no `model_type`")
    for field, most in LARGEST.items():
        value = config.get(field)  # a list has one for each part of the model
        numbers = value if isinstance(value, list) else () if value is None else (value,)
        if not all(isinstance(number, int) and 0 < number <= most for number in numbers):
            raise DplcError(f"{path}: `{field}` is {str(value)[:40]}; 1 to {most} are possible")
    return ModelSource(name, config)


def _of_id(name: str, tell: Callable[[str], None]) -> Path:
    """The configuration of an id. Raises DplcError for one that is nowhere."""
    if (cached := _cached(name)) is not None:
        tell(f"the configuration of {name} is from the hub's cache on this machine")
        return cached
    if name in SHIPPED_IDS:
        shipped = SHIPPED / f"{SHIPPED_IDS[name]}.json"
        tell(f"the configuration of {name} comes with dplc: {_shown(shipped)}")
        return shipped
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise DplcError("models of the hub need huggingface-hub", hint="pip install 'dplc[hub]'") from None
    try:
        with quiet():
            reach_hub()
            return Path(hf_hub_download(name, CONFIG, etag_timeout=5))
    except Exception as error:  # no network, no such model, no permission: many classes, one sentence
        lines = str(error).strip().splitlines() or [type(error).__name__]
        shipped_as = _hint_of_shipped(name.split("/")[1])
        hint = shipped_as or "give a configuration file (`config.json`) or a folder that has one"
        raise DplcError(f"cannot get `{name}` from the hub", notes=(lines[0],), hint=hint) from None


def _cached(name: str) -> Path | None:
    """The configuration of an id in the hub's cache on this machine, if it is there."""
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
    """Raises OSError where there is no way to the hub: its own library would try for half a minute."""
    from huggingface_hub import constants

    socket.create_connection((urlsplit(constants.ENDPOINT).hostname or "", 443), timeout=5).close()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The hub's libraries remark on what they do; what is wrong comes as an exception."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
