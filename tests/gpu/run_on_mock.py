"""Runs scenarios in a process that finds the mock driver before any other libcuda.

    python run_on_mock.py MODULE.SCENARIO...

Prints a JSON object: the traceback of each scenario, "" where it went well.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
sys.setdlopenflags(os.RTLD_LAZY)  # the mock has only the part of the driver that is used


def outcome(scenario: str) -> str:
    from dplc.codegen.launch import close_all

    module, name = scenario.split(".")
    try:
        getattr(importlib.import_module(module), name)()
    except Exception:
        return traceback.format_exc()
    finally:
        gc.collect()
        close_all()  # every scenario begins with GPUs that hold nothing
        gc.freeze()  # what torch.compile leaves is looked at no more
    return ""


if __name__ == "__main__":
    from quick_builds import build_quickly

    build_quickly()
    for module in {scenario.split(".")[0] for scenario in sys.argv[1:]}:
        importlib.import_module(module)
    gc.freeze()  # what is imported stays: no scenario looks at it again
    print(json.dumps({scenario: outcome(scenario) for scenario in sys.argv[1:]}))
