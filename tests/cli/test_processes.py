"""Commands on a machine: a torch that is broken, start-up, pipes, Ctrl-C, bytes under any hash seed, files that are written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from command_line import Command
from drawing import some
from forked import MOST, started

from dplc.engine.cli import doctor, output
from dplc.engine.cli.app import main
from dplc.engine.cli.output import write_file, writing
from dplc.ir.diagnostic import DplcError

DPLC = str(Path(sys.executable).with_name("dplc"))
MODULE = sys.executable, "-m", "dplc"
REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = str(REPOSITORY / "examples" / "models" / "tinyllama-1.1b.json"), "--layers", "1"


def ran(*command: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process that ends with this code printed."""
    env = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == code, done.stderr
    return done


# ---- dplc doctor, and every other command where torch is missing or broken, and where extras are

BROKEN = "raise OSError('libtorch_global_deps.so: cannot open shared object file')"
MISSING = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"


def paths(folder: Path, text: str) -> str:
    """A PYTHONPATH where `import torch` runs this text."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def test_doctor_survives_a_torch_that_is_not_well(tmp_path: Path) -> None:
    done = ran(*MODULE, "doctor", "--json", code=1, PYTHONPATH=paths(tmp_path, BROKEN))
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert not done.stderr
    assert found["torch"]["state"] == "broken" and "libtorch_global_deps.so" in found["torch"]["detail"]
    assert "torch cannot be imported" in found["GPU"]["detail"] and found["rules"]["state"] == "ok"


@pytest.mark.parametrize(("text", "said"), [(BROKEN, "torch cannot be imported"), (MISSING, "torch is not installed")])
def test_other_commands_say_so_plainly(tmp_path: Path, text: str, said: str) -> None:
    done = ran(*MODULE, "compile", "-c", "torch.randn(3).relu()", code=1, PYTHONPATH=paths(tmp_path, text))
    assert done.stderr.startswith(f"error: {said}") and "internal error" not in done.stderr


def test_doctor_names_missing_extras_and_whatever_goes_wrong(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = doctor.importlib.metadata
    monkeypatch.setattr(metadata, "version", mock.Mock(side_effect=metadata.PackageNotFoundError("it")))
    checks = ("_python", "_host_compiler", "_emulator", "_device_compiler", "_gpu", "_rules", "_cache")
    for name in checks:
        monkeypatch.setattr(doctor, name, mock.Mock(side_effect=RuntimeError("something\nelse")))
    done = dplc("doctor", code=1)
    for name, _, extra, _ in doctor.OPTIONAL:
        done.shows(name, "missing", f"pip install 'dplc[{extra}]'")
    assert done.out.count(" broken   RuntimeError: something\n") == len(checks)
    assert "else" not in done.out


# ---- start-up

LIGHT = """
import json, sys
from dplc.engine.cli.app import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as stop:
        print(words, stop.code, "torch" in sys.modules)
"""
WRONG = (
    "compile", "run", "fuse", "rewrite", "compile -c x --target h20", "run -c x --blocks all",
    "compile -c x --layers 2", "frobnicate",
)  # fmt: skip


def test_a_wrong_command_line_is_told_at_once() -> None:
    """Without torch, which takes seconds to import."""
    lines = [line.split() for line in WRONG]
    done = ran(sys.executable, "-c", LIGHT, json.dumps(lines))
    assert done.stdout.splitlines() == [f"{words} 2 False" for words in lines], done.stderr


def test_shells_can_complete() -> None:
    done = ran(DPLC, _DPLC_COMPLETE="complete_bash", COMP_WORDS="dplc comp", COMP_CWORD="1")
    assert done.stdout.split() == ["compile"], done.stderr


def test_accept_of_a_rule_that_asks_facts_needs_nothing_imported_before(tmp_path: Path) -> None:
    folder = REPOSITORY / "rules" / "tile" / "rows"
    file, further = (tmp_path / name for name in ("column_reduce.rw", "column_reduce.examples.rw"))
    further.write_text((folder / further.name).read_text())
    refusals = tmp_path / "refusals" / further.name
    refusals.parent.mkdir()
    refusals.write_text((REPOSITORY / "rules" / "refusals" / "tile" / "rows" / further.name).read_text())
    right = (folder / file.name).read_text()
    wrong = right.replace("Combine(acc, add, over=[w1])", "Combine(acc, add, over=[j])")
    file.write_text(wrong)
    assert wrong != right and "1 examples rewritten" in ran(DPLC, "rules", "test", "--accept", str(file)).stderr
    assert file.read_text().replace("over=(w1)", "over=[w1]") == right  # it is written as in a dump


# ---- pipes and interrupts


def test_a_pipe_that_closes_early_is_no_error() -> None:
    for command in ("rules list --json", "rules show unary", "--help"):
        with subprocess.Popen(
            [DPLC, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None and run.stderr is not None
            run.stdout.close()
            assert (run.stderr.read(), run.wait()) == ("", 0)


def test_standard_input(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("torch.relu(torch.randn(3))"))
    assert dplc("compile -c - --ir torch").out.startswith("## level: torch\n")


def test_ctrl_c(tmp_path: Path) -> None:
    """SIGINT is ignored in what runs in the background: it gets its meaning back in the child."""
    text, log = "import time\nprint('up', flush=True)\ntime.sleep(3600)\ntorch.randn(3)", tmp_path / "log"

    def run() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main(["run", "-c", text])

    process = started(log, run)
    while process.is_alive() and (not log.exists() or log.read_text() != "up\n"):
        time.sleep(0.02)
    os.kill(process.pid or 0, signal.SIGINT)
    process.join(MOST)
    assert (process.exitcode, log.read_text()) == (130, "up\ninterrupted\n")


@pytest.mark.slow
def test_an_interrupted_compile_of_a_model_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    environment = os.environ | {"DPLC_CACHE_DIR": str(tmp_path / "cache")}  # so that assembling takes its time
    command = [DPLC, "compile", *MODEL, "-o", str(folder / "made")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as run:
        while run.poll() is None and not list(folder.iterdir()):
            time.sleep(0.01)
        assert [path.name for path in folder.iterdir()] != ["made"]
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err, list(folder.iterdir())) == (130, "interrupted\n", [])


# ---- the same bytes under any hash seed

EXPRESSIONS = (
    "nn.RMSNorm(2048)(torch.randn(32, 2048))",
    "torch.softmax(torch.randn(64, 512), -1)",
    "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))",
    "nn.LayerNorm(33)(torch.randn(7, 33))",
    "F.scaled_dot_product_attention(torch.randn(2, 17, 8), torch.randn(2, 17, 8), torch.randn(2, 17, 8), is_causal=True)",
    "nn.Linear(96, 80)(F.gelu(nn.Linear(64, 96)(torch.randn(50, 64))))",
    "torch.cat([torch.randn(5, 3), torch.randn(5, 4).flip(1)], 1).cumsum(1)",
    "(lambda x, g, u, d: (F.silu(x @ g) * (x @ u)) @ d)(torch.randn(5, 24), torch.randn(24, 40), torch.randn(24, 40), torch.randn(40, 24))",
)
COMPILE_ALL = """
import sys
from dplc.codegen.target import target
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.capture.capture import capture_text
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import toolchain
for text in sys.argv[1:]:
    compilation = compiler_with(target(), trace=Trace()).compile(capture_text(text))
    for stage in ("torch", "tensor", "loop", "tile", "kernel", "cuda"):
        print(compilation.ir(stage))
    print(compilation.trace.render(2, ["each"]))
"""


def test_a_compile_prints_the_same_under_any_hash_seed() -> None:
    """This process has a seed of its own, and one that it starts has another."""
    chosen, here = some(EXPRESSIONS, 2), io.StringIO()
    seed = "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "0"
    with subprocess.Popen(
        [sys.executable, "-c", COMPILE_ALL, *chosen], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONHASHSEED": seed},
    ) as run:  # fmt: skip
        with mock.patch.object(sys, "argv", ["-c", *chosen]), contextlib.redirect_stdout(here):
            exec(COMPILE_ALL, {})
        out, err = run.communicate()
    assert out == here.getvalue() and out.count("__global__") >= len(chosen), err


@pytest.mark.slow
def test_an_artefact_has_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    found = []
    for seed in ("0", "4242"):
        folder = tmp_path / seed
        ran(DPLC, "compile", *MODEL, "--no-cubins", "-o", str(folder), PYTHONHASHSEED=seed)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        manifest = json.loads(files.pop("dplc-artefact.json"))
        del files["figures.json"], manifest["files"]["figures.json"]  # which say how long it took
        found.append((manifest, files))
    assert len(found[0][1]) > 15 and found[0] == found[1]


# ---- files that commands write: a file of the user is never replaced, and none is left incomplete

OURS = re.compile(rb"by dplc")


def test_file_of_the_same_make_is_replaced_through_links(tmp_path: Path) -> None:
    """The folder is created with the first one."""
    path, link = tmp_path / "new" / "page", tmp_path / "link"
    write_file(path, "by dplc 1", OURS)
    path.chmod(0o640)
    link.symlink_to(path)
    write_file(link, "by dplc 2", OURS)
    assert link.is_symlink() and path.read_text() == "by dplc 2" and path.stat().st_mode & 0o777 == 0o640
    assert [*path.parent.iterdir()] == [path]
    write_file(Path("/dev/null"), "anything", OURS)


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "thesis.html"
    path.write_text("<html>years</html>")
    for written, said in (
        (path, r"thesis.html is there, and dplc did not write it: it is not overwritten"),
        (path / "inside", "cannot write"),
        (tmp_path, "cannot write"),
    ):
        with pytest.raises(DplcError, match=said):
            write_file(written, "<html>", OURS)
    assert path.read_text() == "<html>years</html>"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_of_a_half_remains(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "page"
    write_file(path, "by dplc 1", OURS)
    with pytest.raises((DplcError, KeyboardInterrupt)), writing(path, OURS) as file:
        file.write(b"half")
        raise error
    assert path.read_text() == "by dplc 1" and [*tmp_path.iterdir()] == [path]


def test_makes_know_what_dplc_writes() -> None:
    arrays = io.BytesIO()
    np.savez(arrays, out0=np.zeros(3))
    assert output.ARRAYS.search(arrays.getvalue()) and not output.ARRAYS.search(b"PK\x03\x04" + b"x" * 60)
    for make, text in (
        (output.DEVICE, b"# Fitted by `dplc model fit` on X: "),
        (output.COUNTEREXAMPLE, b"## level: tile\n# rule split: wrong\n# from its pattern\n"),
        (output.TABLE, b"# s\n\nMade by `dplc bench x` on 2026 (m). Do not edit: run it again.\n"),
        (output.PAGE, (REPOSITORY / "engine" / "view" / "page" / "page.html").read_bytes()),
    ):
        assert make.search(text)
