"""Models and suites on a live page: what is compiled again when a rule file is saved."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.ruleset import toolchain
from dplc.engine.view.live_suite import LiveSuite
from dplc.engine.view.suite_map import SuiteMap, suite_record
from dplc.engine.view.wishes import Switches

START = "import sys; from dplc.engine.cli.app import main; main(sys.argv[1:])"
SUITE = {
    "about": "two cases",
    "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
    "cases": [
        {"name": "small", "operation": "sum", "sizes": {"rows": 32, "in": 64, "out": 48}},
        {"name": "large", "operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}},
    ],
}
MODEL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 48,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("dplc.engine.view.suite_map.SECONDS", None)  # all is priced, however busy the machine is
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    return tmp_path / "suite.json"


def settled(live: LiveSuite, heat: Any, seconds: float = 60) -> None:
    """Wait until a map is shown."""
    end = time.monotonic() + seconds
    while json.dumps(live.shown.record["heat"]) != json.dumps(heat):
        assert time.monotonic() < end, "the map never came to be what a written page has"
        time.sleep(0.05)


def test_a_suite_is_mapped_again_when_its_rules_change(suite: Path) -> None:
    mine = suite.with_name("my.rw")
    mine.write_text("# nothing yet\n")
    live = LiveSuite(suite, [mine], (), target())
    try:
        news = live.compile("started")
        assert not news.error and news.compiles == 1 and "stages" not in live.shown.record
        settled(live, suite_record(suite, toolchain(), target())["heat"])
        before = [case["us"] for case in live.shown.record["heat"]["cases"]]
        mine.write_text("without stage_inputs\n")
        live.compile("my.rw changed")
        settled(live, suite_record(suite, toolchain([mine]), target())["heat"])
        assert [case["us"] for case in live.shown.record["heat"]["cases"]] != before
        mine.write_text("rule broken\n")
        assert "my.rw:1" in live.compile("my.rw changed").error
        assert [case["us"] for case in live.shown.record["heat"]["cases"]] != before  # the page stays as it was
    finally:
        live.close()


def test_a_rule_of_a_suite_is_switched_off(suite: Path) -> None:
    live = LiveSuite(suite, [], (), target())
    try:
        live.compile("started")
        assert live.shown.record["rules"]["stage_inputs"]["fired"] > 0
        assert live.parameters("stage_inputs") == []
        before = sum(case["us"] for case in live.shown.record["heat"]["cases"])
        live.compile("changed on the page", Switches(frozenset(("stage_inputs",))))
        assert "stage_inputs" not in live.shown.record["rules"]
        assert sum(case["us"] for case in live.shown.record["heat"]["cases"]) > before
        assert live.shown.record["switches"] == {"without": ["stage_inputs"], "settings": []}
    finally:
        live.close()


def test_a_case_that_came_to_the_same_is_not_priced_again(suite: Path) -> None:
    found = SuiteMap(suite)
    for priced in (2, 0):
        found.compile(toolchain(), target())
        assert len(list(found.price(toolchain(), target()))) == priced


def listen(url: str, until: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first news of which something is true."""
    number = 0
    while True:
        with urllib.request.urlopen(f"{url.replace('/?', '/news?')}&since={number}", timeout=60) as answer:
            news = json.loads(answer.read())
        if news and until(news):
            return dict(news)
        number = news["number"] if news else number


@pytest.mark.parametrize("subject", ["model", "suite", "expression"])
def test_the_command_follows_a_rule_file(suite: Path, subject: str) -> None:
    (suite.parent / "tiny").mkdir()
    (suite.parent / "tiny" / "config.json").write_text(json.dumps(MODEL))
    mine = suite.with_name("my.rw")
    mine.write_text("# nothing yet\n")
    given = [str(suite)] if subject == "suite" else [str(suite.parent / "tiny"), "--layers", "1", "--seq-len", "4"]
    given = ["-c", "torch.relu(torch.randn(8))"] if subject == "expression" else given
    command = [sys.executable, "-c", START, "view", *given, "--no-browse", "--rules", str(mine)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    part = "heat" if subject == "suite" else "kernels"
    try:
        url = process.stderr.readline().strip()
        first = listen(url, lambda news: news["compiles"] == 1)
        assert not first["error"] and part in first["data"]
        mine.write_text("override number most_unrolled = 1\n")
        again = listen(url, lambda news: news["compiles"] == 2)
        assert again["why"] == "my.rw changed" and not again["error"] and part in again["data"]
    finally:
        process.terminate()  # an interrupt is ignored by what a shell runs in the background
    assert "Traceback" not in process.stderr.read() and process.wait(60) == -signal.SIGTERM
