"""The options that several commands share, and those of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...codegen.target import target

Expression = Annotated[
    str | None,
    typer.Option(
        "-c",
        metavar="EXPR",
        help="Python text: statements, then an expression over torch, nn, F, math. `-` reads standard input.",
    ),
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE_OR_DIR", help="Your .rw files, in addition to the built-in rules."),
]


def _known_target(name: str | None) -> str | None:
    """Refuses what is not a target before anything heavy is imported."""
    if name is not None:
        target(name)
    return name


TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="sm_NN",
        callback=_known_target,
        help="Architecture or device to compile for (default: the GPU present, else sm_80).",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cuda, cuda:N, emulator or reference (default: a GPU if any)."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of torch for the expression.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="-v lists the rules that fired, -vv prints a diff for each.")
]
WhyNot = Annotated[
    list[str] | None,
    typer.Option("--why-not", metavar="RULE|each", help="Print why a rule did not match, or why each did not."),
]
Weights = Annotated[
    Path | None, typer.Option("--weights", metavar="DIR", help="Safetensors of a model (default: symbolic weights).")
]
Layers = Annotated[int | None, typer.Option("--layers", min=1, help="Number of leading blocks of the model.")]
Length = Annotated[int, typer.Option("--seq-len", metavar="TOKENS", help="Sequence length of the model.")]
Lengths = Annotated[
    str,
    typer.Option("--seq-len", metavar="TOKENS", help="Sequence length of the model, or a range A..B."),
]
Batch = Annotated[str, typer.Option("--batch", metavar="N", help="Batch size of the model, or a range A..B.")]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="N[,N..]",
        help="Upper ends of the shape buckets of a range, or none.",
    ),
]
FloatDtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="DTYPE", help="Dtype of the model, or of `-c` tensors without a dtype."),
]
Explored = Annotated[
    bool, typer.Option("--explore", help="Search algebra and fusion together, and use the best candidate.")
]
Profile = Annotated[
    bool,
    typer.Option("--profile", help="Show utilisation, occupancy and bottleneck of each kernel."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="RULE.PARAM=VALUE", help="Pin a rule's parameter.")
]
Preferred = Annotated[
    list[str] | None,
    typer.Option("--prefer", metavar="RULE", help="Apply this rule wherever it is legal, profitable or not."),
]

Exact = Annotated[bool, typer.Option("--exact", help="Disable rules that reorder floating-point operations (@approx).")]

Checked = Annotated[
    bool, typer.Option("--check", help="Run in the emulator's checked mode: races, bounds, waits; access costs.")
]
Blocks = Annotated[
    str | None,
    typer.Option("--blocks", metavar="LIST", help="Blocks to check: first,last,ragged (default), all, or numbers."),
]
Benched = Annotated[bool, typer.Option("--bench", help="Show a table of kernels: predicted, and measured on a GPU.")]
Arrays = Annotated[Path | None, typer.Option("--out", metavar="FILE.npz", help="Save the outputs as out0, out1, ...")]
Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table as a page.")]
DatabaseFile = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="The tuning store (default: in the user's cache directory)."),
]
NoDatabase = Annotated[bool, typer.Option("--no-db", help="Ignore tuned schedules.")]

Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=N[,N..]",
        help="Value of a symbolic dimension. `run` and `bench` take several.",
    ),
]

Model = Annotated[
    str | None,
    typer.Argument(metavar="[MODEL]", help="A model: configuration, its folder, or an id of the hub. Or FILE.ir."),
]
Artefact = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="An artefact of `dplc compile -o DIR`, or FILE.ir.")
]
ArtefactFolder = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Write an artefact for `dplc run DIR`."),
]
Cubins = Annotated[
    bool, typer.Option("--cubins/--no-cubins", help="Also assemble the kernels, which needs NVRTC or nvcc.")
]
TrustedEdits = Annotated[
    bool,
    typer.Option(
        "--trust-edited-cuda",
        help="Accept edited CUDA, which the emulator compiles and runs here.",
    ),
]
Tokens = Annotated[
    str | None, typer.Option("--ids", metavar="NUMBERS", help="Input tokens of the model (default: random, by --seed).")
]


@dataclass(frozen=True)
class Flags:
    """What the options that commands share say, as it was typed.

    text: of `-c`; seed: of what is drawn; dtype: of floats that the text leaves open, or of a model; length,
    layers, batch: of a model; sizes: of what has some; rows: of its length; row: the part of it
    that is tuned; exact: without the rules that are @approx.
    """

    text: str = ""
    seed: int = 0
    dtype: str | None = None
    rules: Sequence[Path] | None = None
    settings: Sequence[str] | None = None
    prefer: Sequence[str] | None = None
    target: str | None = None
    verbose: int = 0
    why_not: Sequence[str] | None = None
    as_json: bool = False
    db: Path | None = None
    no_db: bool = False
    explore: bool = False
    length: int | str = 1
    layers: int | None = None
    sizes: Sequence[str] | None = None
    exact: bool = False
    batch: str = "1"
    rows: str | None = None
    row: Sequence[str] | None = None

    @property
    def pinned(self) -> list[str]:
        """The settings of `--set`, and what `--prefer` is short for."""
        return [*(self.settings or ()), *(f"{rule}.prefer=false" for rule in self.prefer or ())]
