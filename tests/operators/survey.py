"""How many of PyTorch's operator samples are right, refused, wrong, and how many crash.

    python tests/operators/survey.py --only conv pool --each 1000 --records survey.jsonl

Every pair of an operator and a dtype is a line of the records; a run that was stopped goes on from there. `--first 1400` leaves out the
pairs before that one, `--share 0.1` takes a tenth of them, by lot, `--seed 7` another tenth and other samples. At the end stands a table by dtype, of as many samples as were run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from operator_samples import CRASHED, INVALID, REFUSED, RIGHT, WRONG, Sample, Verdict, judge, lot, operators
from torch.testing._internal.opinfo.core import OpInfo

SECONDS = 60.0  # of CPU that a sample may take


class Hang(BaseException):
    """The time is up. No Exception: nobody may catch it by mistake."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def verdict(sample: Sample) -> Verdict:
    try:
        with limited():
            return judge(sample)
    except Hang:
        return Verdict(CRASHED, f"no answer after {SECONDS} seconds of CPU")


def survey(op: OpInfo, dtype: torch.dtype, each: int, seed: int = 0) -> dict[str, Any]:
    """What becomes of the samples of a pair, the first by lot."""
    torch.manual_seed(0)
    drawn = [
        Sample(op.formatted_name, dtype, place, op.op, (sample.input, *sample.args), dict(sample.kwargs))
        for place, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False))
    ]
    verdicts = {
        sample.name: verdict(sample) for sample in sorted(drawn, key=lambda sample: lot(sample.name, seed))[:each]
    }
    faults = {name: f"{v.word}: {v.why}" for name, v in verdicts.items() if v.word in (WRONG, CRASHED)}
    return {"samples": len(drawn), "counts": Counter(v.word for v in verdicts.values()), "faults": faults}


def table(by_dtype: dict[str, Counter[str]]) -> str:
    """Of each dtype the shares of samples, of those that PyTorch itself takes."""
    lines = ["| dtype | samples | right | refused | wrong | crashed |", "|---|--:|--:|--:|--:|--:|"]
    for dtype, counts in by_dtype.items():
        count = sum(counts.values()) - counts[INVALID]
        shares = (f"{counts[word] / count:.1%}" for word in (RIGHT, REFUSED, WRONG, CRASHED)) if count else ()
        lines.append(f"| {dtype} | {count:,} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="operators whose name holds one of these")
    parser.add_argument("--each", type=int, default=24, help="samples of an operator with a dtype")
    parser.add_argument("--first", type=int, default=0, help="the place of the first pair, of all that there are")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the pairs, by lot")
    parser.add_argument("--seed", type=int, default=0, help="another number draws other pairs and samples")
    parser.add_argument("--records", type=Path, required=True, help="a file of JSON lines that grows")
    options = parser.parse_args()
    lines = options.records.read_text().splitlines() if options.records.exists() else []
    done = {(record["pair"], record["each"], record.get("seed", 0)): record for record in map(json.loads, lines)}
    total: Counter[str] = Counter()
    by_dtype: dict[str, Counter[str]] = {}
    faults = 0
    for op, dtype in list(operators(options.share, options.seed))[options.first :]:
        pair = f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}"
        if not any(word in pair for word in options.only):
            continue
        record = done.get((pair, options.each, options.seed))
        if record is None:
            found = survey(op, dtype, options.each, options.seed)
            record = {"pair": pair, "each": options.each, "seed": options.seed, **found}
            with options.records.open("a") as file:
                file.write(json.dumps(record) + "\n")
        total += Counter(record["counts"])
        by_dtype.setdefault(str(dtype).removeprefix("torch."), Counter()).update(record["counts"])
        faults += len(record["faults"])
        for name, why in record["faults"].items():
            print(f"{name}: {why}", flush=True)
    print(table(by_dtype))
    said = ", ".join(f"{n} {word}" for word, n in sorted(total.items()))
    print(f"{sum(total.values())} samples: {said}")
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main())
