"""The live page while it grows: before PyTorch is there, stage by stage, and what follows a compile."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import MOST, started
from msgspec import ValidationError, convert
from view_waiting import until

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with
from dplc.engine.rewrite.trace import Trace
from dplc.engine.view.live_program import BackgroundJobs, Ended, LiveProgram
from dplc.engine.view.records import access_counts, view_record
from dplc.engine.view.server import LivePage, News, PageServer, SearchRequest

TEXT = "nn.RMSNorm(2048)(torch.randn(32, 2048))"
START = "import sys; from dplc.engine.cli.app import main; main(sys.argv[1:])"
MODEL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 48,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip


class Watched(LivePage):
    """Keeps what was shown, in order."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        super().__init__(TEXT)

    def show(self, **parts: Any) -> News:
        self.seen.append(parts)
        return super().show(**parts)


@pytest.fixture
def live() -> Iterator[Callable[..., LiveProgram]]:
    made: list[LiveProgram] = []

    def begin(**options: Any) -> LiveProgram:
        made.append(LiveProgram(capture_text(TEXT), options.pop("shown", LivePage(TEXT)), [], (), target(), **options))
        return made[-1]

    yield begin
    for program in made:
        program.close()


def test_nothing_before_the_server_needs_torch() -> None:
    """What makes a page be there within a second: half of the time goes into importing torch."""
    text = "import sys, dplc.engine.cli.view; sys.exit('torch' in sys.modules or 'lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_a_reader_hears_only_of_parts_that_are_newer() -> None:
    shown = LivePage("a program")
    first = shown.show(columns=[1], stages=[])
    second = shown.report({"columns": [2], "stages": None}, why="started")
    assert (first.number, first.compiles, second.number, second.compiles) == (1, 0, 2, 1)
    assert shown.since(first.number)["data"] == {"columns": [2], "stages": None}
    assert shown.since(second.number)["data"] == {}
    assert shown.since(-1)["data"] == {"title": "a program", "columns": [2], "stages": None}
    assert shown.record == {"title": "a program", "columns": [2]}
    third = shown.show(effects={})
    assert third.why == "started" and third.compiles == 1
    assert shown.wait(2, 0.01) and not shown.wait(3, 0.01)


def test_every_text_is_shown_when_it_is_made_as_it_stands_in_the_end(live: Callable[..., LiveProgram]) -> None:
    shown = Watched()
    assert not live(shown=shown).compile("started").error
    last = {column["name"]: column["lines"] for column in shown.record["columns"]}
    grown = [parts["columns"] for parts in shown.seen if parts.keys() == {"columns"}]  # before the whole compile
    names = ["source", "torch", "tensor", "loop", "tile", "kernel"]
    assert [[column["name"] for column in columns] for columns in grown] == [names[:n] for n in range(2, 7)]
    assert all(column["lines"] == last[column["name"]] for columns in grown for column in columns)
    stages = [parts["stages"] for parts in shown.seen if parts.get("stages")]
    now = [one["text"] for told in stages for one in told if one["now"]]
    assert now == [
        "reading rules", "rules on Torch IR", "rules on Tensor IR", "fusion", "rules on Tile IR", "rules on Kernel IR",
        "printing CUDA", "linking lines",
    ]  # fmt: skip
    assert "stages" not in shown.record and all(one["ms"] for one in stages[-1] if one["text"] == "fusion")


def test_prices_follow_and_are_those_of_a_written_page(live: Callable[..., LiveProgram]) -> None:
    program = live()
    program.compile("started")
    whole = view_record(compiler_with(target(), trace=Trace()).compile(capture_text(TEXT)), TEXT, seconds=math.inf)
    until(lambda: program.shown.record["effects"].keys() == whole["effects"].keys())
    assert json.dumps(program.shown.record["effects"]) == json.dumps(whole["effects"])
    assert program.shown.record["trace"] == whole["trace"]
    registers = [after["registers"] for _, after in whole["effects"].values() if after]
    assert any(registers) and whole["kernels"][0]["predicted_registers"] == [count for count in registers if count][-1]


def test_what_checked_mode_counts_follows_and_is_that_of_a_written_page(live: Callable[..., LiveProgram]) -> None:
    shown = Watched()
    program = live(shown=shown, check=True)
    for why in ("started", "again"):
        program.compile(why)
        found = until(lambda: shown.record.get("counted"))
        assert found == access_counts(compiler_with(target()).compile(capture_text(TEXT)))
        assert found["lines"] and not found["findings"]
    assert sum(parts.get("counted") is not None for parts in shown.seen) == 2  # once for each compile


def test_a_search_goes_on_beside_the_page_and_begins_again_with_the_rules(live: Callable[..., LiveProgram]) -> None:
    shown = Watched()
    program = live(shown=shown, searches=SearchRequest(tries=12))
    program.compile("started")
    ended = until(lambda: (found := shown.record.get("tuning")) and not found["running"] and found)
    going = [parts["tuning"] for parts in shown.seen if parts.get("tuning")]
    assert going[0]["running"] and going[0]["tries"] == 1 and going[0]["default_us"] == ended["default_us"]
    assert ended["tries"] == ended["limit"] == ended["each"] == 12 and ended["tree"]["tried"] == 12
    assert [kernel["kernel"] for kernel in going[0]["kernels"]] == [kernel["kernel"] for kernel in ended["kernels"]]
    assert any(kernel["effects"] for kernel in ended["kernels"])
    number = shown.news.number
    program.compile("again")
    assert "tuning" not in shown.record or shown.record["tuning"]["running"]
    until(lambda: shown.record.get("tuning") and not shown.record["tuning"]["running"])
    program.search(SearchRequest(tries=100_000))
    until(lambda: shown.record["tuning"]["running"])
    program.search(SearchRequest())
    stopped = shown.record["tuning"]
    assert not stopped["running"] and stopped["tries"] < 100_000 and shown.news.number > number
    time.sleep(0.5)
    assert shown.record["tuning"] == stopped


def test_a_step_waits_for_a_compile_and_ends_with_its_subject(live: Callable[..., LiveProgram]) -> None:
    program, steps, ended = live(), [0], threading.Event()
    program.compile("started")
    compiling = program._compiling
    assert program._jobs is not None
    jobs = BackgroundJobs(program._jobs.made, program.shown, SearchRequest(), False, compiling)

    def work() -> None:
        try:
            while True:
                jobs.step()
                steps[0] += 1
                time.sleep(0.001)
        except Ended:
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    until(lambda: steps[0] > 3)
    with compiling:
        before = steps[0]
        time.sleep(0.1)
        assert steps[0] == before
    until(lambda: steps[0] > before)
    jobs.obsolete = True
    assert ended.wait(10)
    with pytest.raises(Ended):
        jobs.step(effects={"0": []})
    assert program.shown.record["effects"] != {"0": []}


def test_jobs_go_on_after_an_error_of_ours(live: Callable[..., LiveProgram], monkeypatch: pytest.MonkeyPatch) -> None:
    program = live(searches=SearchRequest(tries=100_000))
    program.compile("started")
    until(lambda: program.shown.record.get("tuning"))
    monkeypatch.setattr(LiveProgram, "compiler", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        program.compile("again")
    tries = program.shown.record["tuning"]["tries"]
    until(lambda: program.shown.record["tuning"]["tries"] > tries)


@pytest.mark.parametrize(
    "wanted", [[], {"tries": "3"}, {"tries": -1}, {"tries": True}, {"tries": 10**9}, {"explore": 1}]
)
def test_a_search_that_is_none_is_refused(wanted: Any) -> None:
    with pytest.raises(ValidationError):
        convert(wanted, SearchRequest)
    assert convert({"tries": 3, "explore": True}, SearchRequest) == SearchRequest(3, True)


def test_a_server_without_a_program_serves_the_page_and_changes_nothing() -> None:
    server = PageServer(LivePage("nothing yet"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert "nothing yet" in answer.read().decode()
        assert server.seen.wait(10)
        for path, body in (("parameters", None), ("change", b"{}"), ("search", b"{}")):
            asked = server.url.replace("/?", f"/{path}?")
            request = urllib.request.Request(asked, body, {"Content-Type": "application/json"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            assert refused.value.code == 503
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def listen(url: str, until: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The news for which something is true, with all parts that came on the way."""
    number, parts = 0, dict[str, Any]()
    while True:
        with urllib.request.urlopen(url.replace("/?", "/news?") + f"&since={number}", timeout=120) as answer:
            news = json.loads(answer.read())
        number, parts = news["number"], parts | news["data"]
        if until(news):
            return {**news, "data": parts}


def test_a_program_that_cannot_be_captured_ends_the_command_and_the_page_hears_why() -> None:
    command = [sys.executable, "-c", START, "view", "--no-browse", "-c", "torch.randn(4) + undefined_name"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = process.stderr.readline().strip()
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert "loading PyTorch" in answer.read().decode()
    assert "undefined_name" in listen(url, lambda news: news["compiles"])["error"]
    said = process.stderr.read()
    assert process.wait(60) == 1 and "undefined_name" in said and "Traceback" not in said


@contextlib.contextmanager
def serving(log: Path, *words: str) -> Iterator[str]:
    """The address that a command serves in a process of its own, which ends without a word."""

    def serve() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        main([*words])

    process = started(log, serve)
    while process.is_alive() and (not log.exists() or "\n" not in log.read_text()):
        time.sleep(0.02)
    try:
        yield log.read_text().splitlines()[0]
    finally:
        process.terminate()
        process.join(MOST)
    assert "Traceback" not in log.read_text() and process.exitcode == -signal.SIGTERM


def test_a_rule_file_that_is_wrong_at_the_start_is_waited_for(tmp_path: Path) -> None:
    rule = "## A sine.\nrule sine on tensor\nmatch\n    y = cos(x)\n{}rewrite\n    y = sin(x)\n"
    (tmp_path / "my.rw").write_text(rule.format("require dtype(x) == f32\n"))
    given = ["view", "--no-browse", "-c", "torch.randn(64).cos()", "--rules", str(tmp_path / "my.rw")]
    with serving(tmp_path / "log", *given) as url:
        first = listen(url, lambda news: news["compiles"] == 1)
        assert "my.rw:5:23: error: a `require` without its reason" in first["error"] and "trace" not in first["data"]
        (tmp_path / "my.rw").write_text(rule.format(""))
        mended = listen(url, lambda news: news["compiles"] == 2)
        assert not mended["error"] and mended["why"] == "my.rw changed"
        assert "sine" in {event["rule"] for event in mended["data"]["trace"] if event["event"] == "fired"}


def test_the_command_for_a_model_follows_a_rule_file(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(MODEL))
    mine = tmp_path / "my.rw"
    mine.write_text("# nothing yet\n")
    given = [str(tmp_path / "tiny"), "--layers", "1", "--seq-len", "4"]
    with serving(tmp_path / "log", "view", *given, "--no-browse", "--rules", str(mine)) as url:
        first = listen(url, lambda news: news["compiles"] == 1)
        assert not first["error"] and "kernels" in first["data"]
        mine.write_text("override number most_unrolled = 1\n")
        again = listen(url, lambda news: news["compiles"] == 2)
        assert again["why"] == "my.rw changed" and not again["error"]
