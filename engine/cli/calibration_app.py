"""`dplc calibrate` and `dplc model`: the options. The work is in calibration_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Device, architecture or device file (default: what is here)."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def calibrate_options(
    target: Target = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="Write a device file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the constants of the model on the GPU that is here; `--target FILE.toml` uses them."""
    from . import calibration_command

    calibration_command.calibrate_device(target, out, as_json)


def model_options(
    validate: Annotated[
        Path, typer.Option("--validate", metavar="FILE", help="Measurements, from `dplc db export --attempts`.")
    ],
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Hold the model's predictions against measurements: rank correlation and error."""
    from . import calibration_command

    calibration_command.validate_model(validate, target, as_json)
