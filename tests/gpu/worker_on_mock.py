"""The process that measures, on the mock driver: its memory is the host's, and only a part of the driver is there."""

from __future__ import annotations

import os
import sys

sys.setdlopenflags(os.RTLD_LAZY)

if __name__ == "__main__":
    from dplc.engine.tune.measure_worker import main

    main("cpu")
