"""`dplc generate`: the options. The work is in generate_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DatabaseFile, Exact, FloatDtype, Json, Layers, NoDatabase, RuleFiles, Settings, TargetName
from .subjects import flags_of


def generate(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="MODEL", help="A configuration, its folder, or an id of the hub.")],
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Text to continue.")] = None,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="NUMBERS", help="Prompt as token ids, without a tokenizer.")
    ] = None,
    count: Annotated[
        int, typer.Option("--max-new-tokens", min=1, metavar="N", help="Maximum number of tokens to generate.")
    ] = 32,
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=2, metavar="L", help="Maximum length of prompt and text (default: their sum)."
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk", min=1, metavar="N", help="Process the prompt in chunks of N tokens, which saves memory."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", metavar="DIR", help="Safetensors (default: random weights by --seed).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random weights.")] = 0,
    dtype: FloatDtype = None,
    layers: Layers = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda or emulator (default: cuda if there is a GPU)."),
    ] = None,
    target: TargetName = None,
    as_json: Json = False,
    rules: RuleFiles = None,
    settings: Settings = None,
    db: DatabaseFile = None,
    no_db: NoDatabase = False,
    exact: Exact = False,
) -> None:
    """Continue a prompt with a model, greedily, one token at a time with a cache of keys and values."""
    from . import generate_command as command

    room = command.Room(count, maximum, chunk)
    command.generate(subject, command.Prompt(prompt, ids), flags_of(ctx), room, weights, device)
