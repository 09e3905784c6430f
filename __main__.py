"""Run `python -m dplc`."""

from .engine.cli.app import main

main()
