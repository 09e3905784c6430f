"""Stand-ins for a search: functions that other processes can find by name."""

from __future__ import annotations

import os
import time
from typing import Any

from dplc.engine.tune.tuning import Job, JobOutcome
from dplc.ir.diagnostic import DplcError


def tune_one(job: Job) -> JobOutcome:
    """Says in which process it ran; fails, breaks or dies as the job's options say."""
    options: Any = job.options
    fate = options.get(job.names[0], "")
    if fate == "fails":
        raise DplcError("no schedule is legal")
    if fate == "breaks":
        raise ZeroDivisionError("a defect")
    if fate == "dies":
        os._exit(9)
    time.sleep(float(options.get("seconds", 0.0)))
    return JobOutcome(line=f"{os.getpid()} kernel {job.kernel.name} {job.db}")
