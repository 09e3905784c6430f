"""`dplc calibrate` and `dplc model`: the options. The work is in calibration_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError

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
    fit: Annotated[
        list[str] | None,
        typer.Argument(metavar="[fit RESULTS]", help="Fit a device file's constants to what `bench --unpack` wrote."),
    ] = None,
    validate: Annotated[
        Path | None, typer.Option("--validate", metavar="FILE", help="Measurements, from `dplc db export --attempts`.")
    ] = None,
    target: Target = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="Of fit: write a device file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the model's predictions with measurements, or fit its constants to them."""
    from . import calibration_command

    if fit is None:
        if validate is None or out is not None:
            raise UsageError(
                "model needs --validate FILE, or fit RESULTS", hint="dplc model fit results.json --out mine.toml"
            )
        return calibration_command.validate_model(validate, target, as_json)
    if len(fit) != 2 or fit[0] != "fit" or validate is not None:
        raise UsageError("the model is fitted to one file of results", hint="dplc model fit results.json")
    return calibration_command.fit_model(Path(fit[1]), target, out, as_json)
