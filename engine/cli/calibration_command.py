"""calibrate, model and model fit."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import msgspec

from ...codegen.launch import DeviceError
from ...codegen.target import Target, devices, load_device
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, UsageError
from ..api import target_for
from ..bench.packed import PackResults, read_results
from ..cost.validate import Agreement, MeasuredVariant, agreement, point
from ..store.entry import Measurement
from ..tune.calibrate import FITTED, Sizes, calibrate, device_file
from ..tune.fitting import CONSTANTS, fit, fit_points
from ..tune.measure import WORKER, Build, WorkerProcess, cubin
from .output_file import DEVICE, write_file
from .show import print_json, progress, write


def calibrate_device(
    target: str | None, out: Path | None, as_json: bool, process: WorkerProcess | None = None, build: Build = cubin,
    sizes: Sizes | None = None,
) -> None:  # fmt: skip
    """`dplc calibrate`. Raises DeviceError without a GPU."""
    base = target_for("cuda", target)
    worker = process or WorkerProcess(WORKER)
    try:
        with tempfile.TemporaryDirectory(prefix="dplc-calibrate-") as folder, progress("measuring"):
            fitted, gpu = calibrate(base, worker, Path(folder), build, sizes)
    except DeviceError as error:
        raise DeviceError(f"cannot calibrate: {error.what}") from None
    finally:
        worker.kill()
    text = device_file(fitted, base.name)
    if out is not None:
        write_file(out, text, DEVICE)
    if as_json:
        values = {name: {"measured": getattr(fitted, name), "published": getattr(base, name)} for name in FITTED}
        print_json({"gpu": gpu, "base": base.name, "constants": values})
    elif out is None:
        write(text)
    else:
        for name in FITTED:
            write(f"{name}: {getattr(fitted, name):.4g} measured on {gpu}, {getattr(base, name):.4g} published\n")


def validate_model(file: Path, target: str | None, as_json: bool) -> None:
    """`dplc model --validate`"""
    machine = find_target(target) if target else None
    measured = _read(file)
    devices_known = {load_device(name).name: load_device(name) for name in devices()}
    points = [_point(one, machine or devices_known.get(one.device), file) for one in measured]
    rows = agreement(points)
    if as_json:
        print_json({"file": str(file), "rows": [dataclasses.asdict(row) for row in rows]})
        return
    about = sorted({f"{one.device}, {one.about}" if one.about else one.device for one in measured})
    write(f"{len(points)} measurements ({'; '.join(about)}), {len(rows) - 1} kernels\n")
    write("\n".join(_line(row) for row in rows) + "\n")
    write("tau: of the model's order against the measured one; loss: the model's favourite over the fastest\n")


def fit_model(file: Path, target: str | None, out: Path | None, as_json: bool) -> None:
    """`dplc model fit`. Raises DplcError where too little was measured."""
    results = read_results(file)
    base = find_target(target) if target else _device_of(results, file)
    with progress("fitting"):
        found = fit(fit_points(results), base)
    machine = dataclasses.replace(found.target, name=results.gpu)
    text = device_file(machine, base.name, CONSTANTS, "Fitted by `dplc model fit`")
    if out is not None:
        write_file(out, text, DEVICE)
    if as_json:
        values = {name: {"fitted": getattr(machine, name), "published": getattr(base, name)} for name in CONSTANTS}
        rows = [{"points": points, "constants": which, **dataclasses.asdict(row)} for points, which, row in found.rows]
        print_json({"gpu": results.gpu, "base": base.name, "constants": values, "rows": rows})
        return
    for points, which, row in found.rows:
        write(f"{points:10} {which:20} {_line(row)[17:]}\n")
    for name in CONSTANTS:
        write(f"{name:24} {getattr(base, name):10.4g} published {getattr(machine, name):10.4g} fitted\n")


def _device_of(results: PackResults, file: Path) -> Target:
    """The device file of the GPU that measured."""
    known = [load_device(name) for name in devices()]
    found = [one for one in known if results.gpu == one.name or results.gpu.startswith(f"{one.name} ")]
    if not found:
        raise UsageError(f"{file}: no device file is for `{results.gpu}`", hint="--target says which one to start from")
    return found[0]


def _point(one: Measurement, machine: Target | None, file: Path) -> MeasuredVariant:
    if machine is None:
        hint = "--target says which; `dplc calibrate` writes a file for it"
        raise UsageError(f"{file}: no device file is for `{one.device}`", hint=hint)
    try:
        return point(one.kernel, one.seconds, one.launches, machine)
    except DplcError as error:
        raise DplcError(f"{file}, kernel {one.kernel}: {error.what}", hint=error.hint) from None


def _line(row: Agreement) -> str:
    tau = "    -" if row.tau is None else f"{row.tau:5.2f}"
    numbers = f"error {row.error:6.1%}  predicted/measured {row.ratio:5.2f}  loss {row.loss:5.2f}x"
    return f"{row.kernel[:16]:16} {row.variants:5} variants  tau {tau}  {numbers}"


def _read(file: Path) -> list[Measurement]:
    """The measurements of a file. Raises UsageError and, for a line that is wrong, DplcError."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    out = []
    for number, line in enumerate(lines, 1):
        try:
            out.append(msgspec.json.decode(line, type=Measurement))
        except msgspec.MsgspecError as error:
            hint = "`dplc db export --attempts` writes such a file"
            raise DplcError(f"{file}:{number}: {error}", hint=hint) from None
        if not out[-1].seconds > 0 or not out[-1].launches:
            raise DplcError(f"{file}:{number}: a measurement takes time, and has launches")
    if not out:
        raise DplcError(f"{file} holds no measurement")
    return out
