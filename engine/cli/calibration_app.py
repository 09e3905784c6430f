"""`dplc calibrate` and `dplc model`: the options. The work is in calibration_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .subjects import Commands

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


model_app = Commands(help="The cost model.", no_args_is_help=True)


@model_app.command("fit")
def fit_options(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results of `dplc bench --unpack`.")],
    target: Target = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="Write a device file.")] = None,
    as_json: Json = False,
) -> None:
    """Fit the constants of a device file to results of `dplc bench --unpack`."""
    from . import calibration_command

    calibration_command.fit_model(results, target, out, as_json)
