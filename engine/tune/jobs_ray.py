"""Jobs on a Ray cluster, where one machine is outgrown: `--executor ray`, with the optional dependency `dplc[ray]`.

The cluster is that of $RAY_ADDRESS, or one that is started here and ends with this process. Jobs bring their rule files
as paths, so these must be there on every machine; what is found comes back with the outcome and is stored here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...ir.diagnostic import UsageError
from .job import Job, JobOutcome, run_named


def on_ray(jobs: Sequence[Job], name: str, count: int) -> Iterator[tuple[Job, JobOutcome]]:
    """Outcomes as they come. count: jobs at a time; 0: as many as the cluster takes. Raises UsageError without Ray."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UsageError(
            "--executor ray needs Ray, which is not installed here", hint="pip install 'dplc[ray]'"
        ) from None
    mine = not ray.is_initialized()
    if mine:
        ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    try:
        yield from _carried_out(ray, jobs, name, count or len(jobs))
    finally:
        if mine:
            ray.shutdown()


def _carried_out(ray: Any, jobs: Sequence[Job], name: str, count: int) -> Iterator[tuple[Job, JobOutcome]]:
    remote = ray.remote(max_retries=0)(run_named)
    waiting = list(reversed(jobs))
    running: dict[Any, Job] = {}
    while waiting or running:
        while waiting and len(running) < count:
            job = waiting.pop()
            away = msgspec.structs.replace(job, db=None)
            running[remote.remote(name, msgspec.msgpack.encode(away))] = job
        (ready,), _ = ray.wait(list(running), num_returns=1)
        job = running.pop(ready)
        try:
            yield job, msgspec.msgpack.decode(ray.get(ready), type=JobOutcome)
        except ray.exceptions.RayError as error:
            yield job, JobOutcome(failed=f"Ray: {type(error).__name__}")
