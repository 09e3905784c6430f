"""What needs processes of their own: start-up time, pipes, Ctrl-C, and bytes that do not depend on the hash seed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from drawing import some
from forked import MOST, started
from small_configs import SMALL

from dplc.engine.cli.app import main

DPLC = str(Path(sys.executable).with_name("dplc"))
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


def test_accept_of_a_rule_that_asks_facts_needs_nothing_imported_before(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[2] / "rules" / "tile" / "rows"
    for name in ("column_reduce.rw", "column_reduce.examples.rw"):
        (tmp_path / name).write_text((folder / name).read_text())
    file = tmp_path / "column_reduce.rw"
    right = file.read_text()
    file.write_text(right.replace("Combine(acc, add, over=[w1])", "Combine(acc, add, over=[j])"))
    assert file.read_text() != right
    done = subprocess.run([DPLC, "rules", "test", "--accept", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "1 examples rewritten" in done.stderr
    assert file.read_text().replace("over=(w1)", "over=[w1]") == right  # it is written as in a dump


def test_the_same_bytes_under_any_hash_seed() -> None:
    """This process has a seed of its own, and one that it starts has another."""
    chosen = some(EXPRESSIONS, 2)
    with subprocess.Popen(
        [sys.executable, "-c", COMPILE_ALL, *chosen], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONHASHSEED": "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "0"},
    ) as run:  # fmt: skip
        here = io.StringIO()
        with mock.patch.object(sys, "argv", ["-c", *chosen]), contextlib.redirect_stdout(here):
            exec(COMPILE_ALL, {})
        out, err = run.communicate()
    assert run.returncode == 0, err
    assert out.count("__global__") >= len(chosen)
    assert out == here.getvalue()


def test_a_pipe_that_closes_early_is_no_error() -> None:
    for command in (("rules", "list", "--json"), ("rules", "show", "unary"), ("--help",)):
        run = subprocess.Popen([DPLC, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == ""
        assert run.wait() == 0


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


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("torch.relu(torch.randn(3))"))
    with pytest.raises(SystemExit) as stop:
        main(["compile", "-c", "-", "--ir", "torch"])
    assert not stop.value.code
    assert capsys.readouterr().out.startswith("## level: torch\n")


def test_python_dash_m() -> None:
    done = subprocess.run([sys.executable, "-m", "dplc", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dplc ")


MODEL = {"model_type": "qwen2", **SMALL}


@pytest.mark.slow
def test_an_interrupted_compile_of_a_model_leaves_nothing(tmp_path: Path) -> None:
    config, folder = tmp_path / "tiny.json", tmp_path / "out"
    config.write_text(json.dumps(MODEL))
    folder.mkdir()
    environment = {**os.environ, "DPLC_CACHE_DIR": str(tmp_path / "cache")}  # so that assembling takes its time
    with subprocess.Popen(
        [DPLC, "compile", str(config), "-o", str(folder / "made")], stderr=subprocess.PIPE, text=True, env=environment
    ) as run:
        while run.poll() is None and not list(folder.iterdir()):
            time.sleep(0.01)
        assert [path.name for path in folder.iterdir()] != ["made"]
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (130, "interrupted\n")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_an_artefact_has_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(MODEL))
    found = []
    for seed in ("0", "4242"):
        command = [DPLC, "compile", str(config), "--no-cubins", "-o", str(tmp_path / seed)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
        files = sorted(path for path in (tmp_path / seed).rglob("*") if path.is_file() and path.name != "figures.json")
        found.append({str(path.relative_to(tmp_path / seed)): path.read_bytes() for path in files})
    assert len(found[0]) > 15 and found[0] == found[1]


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
    command = [sys.executable, "-c", LIGHT, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{words} 2 False" for words in lines], done.stderr


def test_shells_can_complete() -> None:
    asked = {**os.environ, "_DPLC_COMPLETE": "complete_bash", "COMP_WORDS": "dplc comp", "COMP_CWORD": "1"}
    done = subprocess.run([DPLC], capture_output=True, text=True, env=asked, check=False)
    assert done.stdout.split() == ["compile"], done.stderr
