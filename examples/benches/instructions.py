"""Instructions of a warm compile, here and in other trees: a ratio that other work on the machine does not change.

    python examples/benches/instructions.py [OTHER_TREE ..]     # each with an environment of its own in .venv

`perf stat` counts those of user code in whole processes: one of 10 compiles and one of 110, of which the difference is
100 compiles. Strings are hashed alike in all processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FEW, MANY = 10, 110
CASES = ("RMSNorm", "softmax", "relu(matmul(x + bias, w))", "Linear", "attention")
COMPILES = """
import gc, sys
sys.path.insert(0, "examples/benches")
import compile_times
captured = next(case for case in compile_times.CASES if case.name == sys.argv[1]).capture()
compile_times.compiled([captured] * 5, 0)
gc.collect()
gc.freeze()  # what was loaded is not collected again before each compile
compile_times.compiled([captured] * int(sys.argv[2]), 0)
"""


def counted(tree: Path, case: str, compiles: int) -> int:
    """Instructions of a process that compiles a case so often. Raises CalledProcessError where perf may not count."""
    python = tree / ".venv" / "bin" / "python"
    command = ["perf", "stat", "-x,", "-e", "instructions:u", str(python), "-c", COMPILES, case, str(compiles)]
    done = subprocess.run(
        command, cwd=tree, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    return int(next(line for line in done.stderr.splitlines() if "instructions" in line).split(",")[0])


def main() -> int:
    if shutil.which("perf") is None:
        print("error: perf, which counts instructions, is not here", file=sys.stderr)
        return 1
    here = Path(__file__).resolve().parents[2]
    trees = [here, *(Path(name).resolve() for name in sys.argv[1:])]
    print("millions of instructions of a warm compile, measured: " + ", ".join(map(str, trees)))
    for case in CASES:
        each = [(counted(tree, case, MANY) - counted(tree, case, FEW)) / (MANY - FEW) / 1e6 for tree in trees]
        ratios = "".join(f"   {each[0] / other:.3f} of it" for other in each[1:])
        print(f"{case:26} " + " ".join(f"{count:8.1f}" for count in each) + ratios, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
