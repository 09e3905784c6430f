"""Settings of the site that other files hold: the version, and the repository where pyproject.toml names one."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def on_config(config: Any) -> Any:
    """Return the settings of mkdocs with the version in the name of the site."""
    config.site_name = f"dplc {runpy.run_path(str(ROOT / 'version.py'))['__version__']}"
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    config.repo_url = urls.get("Repository", "")
    return config
