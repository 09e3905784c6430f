"""dplc: PyTorch to CUDA, every optimisation a rule in a text file.

The face is lazy (PEP 562): importing dplc imports neither torch nor lark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .engine.api import Compiled, Rules, compile
    from .engine.capture.dynamic_shapes import Dim
    from .engine.models.artefact import Model, compile_model, load_model
    from .engine.torch_backend import Shares
    from .engine.verify.run import programs_of
    from .ir.diagnostic import DplcError

__all__ = [
    "Compiled",
    "Dim",
    "DplcError",
    "Model",
    "Rules",
    "Shares",
    "__version__",
    "compile",
    "compile_model",
    "load_model",
    "programs_of",
]

_HOME = {
    **dict.fromkeys(("compile", "Rules", "Compiled"), "engine.api"),
    **dict.fromkeys(("compile_model", "load_model", "Model"), "engine.models.artefact"),
    "Dim": "engine.capture.dynamic_shapes",
    "Shares": "engine.torch_backend",
    "DplcError": "ir.diagnostic",
    "programs_of": "engine.verify.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dplc' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
