"""`dplc calibrate` and `dplc model fit`."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from ...codegen.launch import DeviceError
from ...codegen.target import Target, devices, load_device
from ...codegen.target import target as find_target
from ...ir.diagnostic import UsageError
from ..api import target_for
from ..bench.packed import PackResults, read_results
from ..cost.predict import Agreement
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


def _line(row: Agreement) -> str:
    tau = "    -" if row.tau is None else f"{row.tau:5.2f}"
    numbers = f"error {row.error:6.1%}  predicted/measured {row.ratio:5.2f}  loss {row.loss:5.2f}x"
    return f"{row.kernel[:16]:16} {row.variants:5} variants  tau {tau}  {numbers}"
