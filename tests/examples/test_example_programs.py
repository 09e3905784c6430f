"""Every example runs, every rule of ours for users passes its tests and fires, and the README's commands work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from scripts import ended_by, printed_by

import dplc
from dplc.engine.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
TINY = {  # in the place of a model with a billion weights
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 2048,
}  # fmt: skip
RULES = sorted((ROOT / "examples" / "rules").glob("*.rw"))


def test_demo() -> None:
    out = printed_by(ROOT / "examples/demo.py", "nn.RMSNorm(64)(torch.randn(8, 64))")
    for part in ("## level: torch", "## level: tile", "t:001_tileify", "__global__", "max|error| against float64"):
        assert part in out


def test_demo_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = ended_by(ROOT / "examples/demo.py", "torch.rando(3)")
    said = capsys.readouterr().err
    assert code == 1
    assert "did you mean" in said
    assert "Traceback" not in said


def test_the_bench_of_compile_times() -> None:
    record = json.loads(
        printed_by(
            ROOT / "examples/benches/compile_times.py", "--json", "--runs", "1", "--warm-up", "0", "--no-process"
        )
    )
    assert [row["name"] for row in record["rows"]] == [
        "RMSNorm",
        "softmax",
        "relu(matmul(x + bias, w))",
        "Linear",
        "attention",
    ]
    assert all(row["milliseconds"] > 0 for row in record["rows"])


def test_the_bench_of_rewrites() -> None:
    record = json.loads(printed_by(ROOT / "examples/benches/rewrites.py", "--json", "--runs", "2"))
    assert record["rows"][0]["firings"] == 1000


@pytest.mark.slow
def test_the_bench_of_the_emulator(tmp_path: Path) -> None:
    """On a copy with small kernels, which are compared with float64 in checked mode, too."""
    text = (ROOT / "examples/benches/emulator.py").read_text()
    assert text.count("2048") == 5
    (bench := tmp_path / "bench.py").write_text(text.replace("2048", "256").replace("rows=rows", "rows=16"))
    rows = json.loads(printed_by(bench, "--json", "--runs", "1"))
    assert [row["name"] for row in rows[:4]] == ["RMSNorm, fast", "matmul, fast", "RMSNorm, checked", "matmul, checked"]
    assert all(row["best"] > 0 for row in rows)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_rule_for_users_is_ten_lines_and_passes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = path.read_text().split("\nexample")[0]
    assert len(rule.splitlines()) <= 10
    with pytest.raises(SystemExit) as stop:
        main(["rules", "test", str(path)])
    assert stop.value.code == 0
    assert " 0 failed, 0 errors, 0 warnings" in capsys.readouterr().out


def test_the_rule_for_users_fires_and_changes_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    text = "x = torch.randn(64, 512)\ntorch.exp(x) * torch.exp(-x * x)"
    rules = str(ROOT / "examples" / "rules")
    with pytest.raises(SystemExit):
        main(["rewrite", "--trace", "-c", text, "--rules", rules])
    out = capsys.readouterr().out
    assert ">>> a:product_of_exponentials\n" in out
    assert "\n-mul_1[i, j] = multiply(exp_1, exp_2)\n" in out

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) * torch.exp(-x * x)

    x = torch.randn(64, 512)
    without, with_rule = (dplc.compile(f, (x,), rules=given, device="emulator") for given in (None, rules))
    assert without.cuda.count("exp2_approx(") == 2 * with_rule.cuda.count("exp2_approx(") > 0
    torch.testing.assert_close(with_rule(x), f(x), rtol=1e-5, atol=1e-6)


def commands() -> list[str]:
    """The dplc lines of the shell blocks of the READMEs."""
    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/guides/commands.md", "examples/README.md")]
    blocks = [block for text in texts for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    return [line for block in blocks for line in block.splitlines() if line.startswith("dplc ")]


@pytest.mark.parametrize("line", commands())
@pytest.mark.sampled(5)
def test_a_command_of_a_readme(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "lsp":
        words.append("--help")  # it answers an editor until that goes: tests/workbench talks to it
    if words[0] == "view":  # without a file it serves until one stops it: tests/view asks the server
        words += ["-o", str(tmp_path / "page.html")]
    expression = "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16))"
    given = {
        "...": expression,
        "my_rules.rw": str(tmp_path / "new.rw" if words[:2] == ["rules", "new"] else RULES[0]),
        "site": str(tmp_path / "site"),
        "examples/models/tinyllama-1.1b.json": str(tmp_path / "tiny.json"),
    }
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    words = [given.get(word, word) for word in words]
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert printed.out or len(list(tmp_path.iterdir())) > 1


def test_the_readme_has_commands() -> None:
    assert len(commands()) >= 10


def test_the_schedule_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    (listing,) = re.findall(r"^```\n(kernel .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (line,) = (line for line in commands() if "softmax" in line and line.split("#")[0].rstrip().endswith("--ir tile"))
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line, comments=True)[1:])
    assert stop.value.code == 0
    assert listing in capsys.readouterr().out


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (script := tmp_path / "readme.py").write_text(block)
    assert "## level: tile" in printed_by(script)


def test_one_kernel_for_every_length() -> None:
    lines = printed_by(ROOT / "examples/dynamic/lengths.py").splitlines()
    assert len(lines) == 4 and all(float(re.search(r"error (\S+),", line)[1]) < 1e-5 for line in lines)  # type: ignore[index]
