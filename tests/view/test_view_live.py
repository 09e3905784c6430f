"""The live page: how it grows, what recompiles and what follows a compile, who gets an answer, and the command."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import MOST, started
from msgspec import ValidationError, convert
from small_configs import SMALL
from view_programs import EXPONENTIALS, RMSNORM, compiled, record_of, served, until

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.app import main
from dplc.engine.explore.saturate import available
from dplc.engine.view.live_program import BackgroundJobs, LiveProgram
from dplc.engine.view.records import access_counts
from dplc.engine.view.server import LivePage, News, PageServer, Switches

START = "import sys; from dplc.engine.cli.app import main; main(sys.argv[1:])"
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SMALL}


class Watched(LivePage):
    """Keeps what was shown, in order."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.seen: list[dict[str, Any]] = []

    def show(self, **parts: Any) -> News:
        self.seen.append(parts)
        return super().show(**parts)


Live = Callable[..., LiveProgram]


@pytest.fixture
def live() -> Iterator[Live]:
    """Compiles a text for a page, which keeps what it showed."""
    with contextlib.ExitStack() as ends:

        def begin(text: str = RMSNORM, **options: Any) -> LiveProgram:
            program = LiveProgram(capture_text(text), Watched(text), [], (), target(), **options)
            ends.callback(program.close)
            assert not program.compile("started").error
            return program

        yield begin


def fired(record: dict[str, Any]) -> set[str]:
    """The rules that fired."""
    return {event["rule"] for event in record["trace"] if event["event"] == "fired"}


# ---- A page that grows.


def test_nothing_before_the_server_needs_torch() -> None:
    """What makes a page be there within a second: half of the time goes into importing torch."""
    text = "import sys, dplc.engine.cli.view; sys.exit('torch' in sys.modules or 'lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_a_reader_hears_only_of_parts_that_are_newer() -> None:
    shown = LivePage("a program")
    assert shown.show(columns=[1], stages=[]) == News(1)
    assert shown.report({"columns": [2], "stages": None}, why="started") == News(2, 1, why="started")
    assert shown.since(1)["data"] == {"columns": [2], "stages": None}
    assert shown.since(2) == {**vars(shown.news), "data": {}}
    assert shown.since(-1)["data"] == {"title": "a program", "columns": [2], "stages": None}
    assert shown.record == {"title": "a program", "columns": [2]}
    assert shown.show(effects={}) == News(3, 1, why="started")
    assert shown.wait(2, 0.01) and not shown.wait(3, 0.01)


def test_every_text_is_shown_when_it_is_made_as_it_stands_in_the_end(live: Live) -> None:
    shown = live().shown
    texts = [(column["name"], column["lines"]) for column in shown.record["columns"]]
    grown = [parts["columns"] for parts in shown.seen if parts.keys() == {"columns"}]  # before the whole compile
    shown_then = [[(column["name"], column["lines"]) for column in columns] for columns in grown]
    assert shown_then == [texts[:count] for count in range(2, 7)]
    stages = [one for parts in shown.seen for one in parts.get("stages") or ()]
    assert [one["text"] for one in stages if one["now"]] == [
        "reading rules", "rules on Torch IR", "rules on Tensor IR", "fusion", "rules on Tile IR", "rules on Kernel IR",
        "printing CUDA", "linking lines",
    ]  # fmt: skip
    assert "stages" not in shown.record and any(one["ms"] for one in stages if one["text"] == "fusion")


# ---- What follows a compile.


def test_prices_follow_and_are_those_of_a_written_page(live: Live) -> None:
    shown = live().shown
    whole = record_of(RMSNORM)
    until(lambda: shown.record["effects"].keys() == whole["effects"].keys())
    for part in ("effects", "trace"):
        assert json.dumps(shown.record[part]) == json.dumps(whole[part])


def test_what_checked_mode_counts_follows_and_is_that_of_a_written_page(live: Live) -> None:
    program = live(check=True)
    for count in (1, 2):  # once for each compile
        found = until(lambda: program.shown.record.get("counted"))
        assert found == access_counts(compiled(RMSNORM)) and found["lines"] and not found["findings"]
        assert sum(parts.get("counted") is not None for parts in program.shown.seen) == count
        program.compile("again")


@pytest.mark.skipif(not available(), reason="egglog is not installed: pip install 'dplc[explore]'")
def test_the_e_graph_follows_a_request_and_each_later_compile(live: Live) -> None:
    program = live()
    with served(program.shown, program) as server:
        assert "egraph" not in program.shown.record
        assert ask(server, EXPLORE, "{}", JSON)[0] == 200
        first = until(lambda: program.shown.record.get("egraph"))
        program.compile("again")
        again = until(lambda: program.shown.record.get("egraph"))
        assert first["candidates"] and again["candidates"] and again is not first


def test_jobs_wait_for_a_compile_and_end_when_they_are_obsolete() -> None:
    compiling, shown = threading.Lock(), Watched("")
    jobs = BackgroundJobs(compiled(RMSNORM), shown, False, False, compiling)
    thread = threading.Thread(target=jobs.run, daemon=True)
    with compiling:
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive() and not shown.seen
        jobs.obsolete = True
    thread.join()
    assert not shown.seen


# ---- Rules that are off, and parameters that are set.


def test_parameters_have_the_values_of_their_site(live: Live) -> None:
    program = live()
    widths = [str(2**n) for n in range(1, 11)]
    assert program.parameters("cooperative_reduce") == [{"name": "T", "now": "256", "values": widths}]
    assert program.parameters("no_such_rule") == []
    fusion = [
        {"name": name, "now": now, "values": []} for name, now in (("MOST", "32"), ("PLACES", "32"), ("INDEX", "256"))
    ]
    assert program.parameters("inline") == fusion
    for rule, name, value in (("cooperative_reduce", "T", "64"), ("inline", "MOST", "16")):
        shown = program.compile("changed", Switches(settings=(f"{rule}.{name}={value}",)))
        assert not shown.error and program.parameters(rule)[0]["now"] == value


@pytest.mark.parametrize(
    "wanted",
    [
        *(None, "without", {"without": "tileify"}, {"without": ["x" * 400]}),
        *({"settings": {"a": 1}}, {"settings": [1]}, {"settings": ["a" * 400]}),
    ],
)
def test_what_is_no_change_is_refused(wanted: Any) -> None:
    with pytest.raises(ValidationError):
        convert(wanted, Switches)


# ---- Who gets an answer.

OWN, CHANGE, EXPLORE = "/?token={token}", "/change?token={token}", "/explore?token={token}"
JSON = {"Content-Type": "application/json"}


def ask(server: PageServer, path: str, body: str | None = None, headers: Any = ()) -> tuple[int, str]:
    values = {"token": server.token, "port": server.server_port}
    filled = {name: value.format(**values) for name, value in dict(headers).items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path.format(**values), body, filled)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_pages_stand_side_by_side() -> None:
    """Who names no port gets one that is free."""
    with PageServer(LivePage("one")) as one, PageServer(LivePage("another")) as another:
        assert one.server_port != another.server_port and min(one.server_port, another.server_port) > 1023


def test_who_has_the_token_gets_the_page_and_nobody_else(capfd: pytest.CaptureFixture[str]) -> None:
    refused: list[tuple[int, *tuple[Any, ...]]] = [
        (403, "/"),
        (403, "/?token="),
        (403, "/?token=wrong"),
        (403, OWN, None, {"Host": "evil.example"}),
        (403, OWN, None, {"Host": "evil.example:{port}"}),
        (403, OWN, None, {"Origin": "http://evil.example"}),
        (403, OWN, None, {"Origin": "null"}),
        (403, OWN, None, {"Sec-Fetch-Site": "cross-site"}),
        (403, "/news?since=0"),
        (403, "/parameters?rule=tileify"),
        (403, "/change", "{{}}", JSON),
        (404, "/../../etc/passwd?token={token}"),
        (404, "/news?token={token}", "{}", JSON),
        (503, "/parameters?token={token}"),  # there is no program yet
        (503, EXPLORE, "{}", JSON),
        (503, CHANGE, "{}", JSON),
        (415, CHANGE, "{}"),
        (413, CHANGE, "x" * 70000, JSON),
        (400, "/parameters?token={token}&since=soon"),
    ]
    with served(LivePage("nothing yet")) as server:
        assert server.server_address[0] == "127.0.0.1"
        for status, *request in refused:
            phrase = HTTPStatus(status).phrase
            assert ask(server, *request) == (status, f"{phrase}\n"), request
        assert not server.seen.is_set()
        status, text = ask(server, OWN)
        assert status == 200 and "nothing yet" in text and "connect-src &#39;self&#39;" in text
        assert server.seen.wait(10)
    assert capfd.readouterr().err == ""


def test_an_error_of_ours_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def printed() -> bool:
        said.append(capfd.readouterr().err)
        return "ZeroDivisionError" in "".join(said)

    with served(LivePage(""), SimpleNamespace(parameters=lambda rule: 1 // 0)) as server:
        assert ask(server, "/parameters?token={token}&rule=inline") == (500, "Internal Server Error\n")
        until(printed)


def test_a_rule_that_is_off_does_not_fire_and_a_wrong_change_leaves_all_as_it_was(live: Live) -> None:
    program = live(EXPONENTIALS)
    off = {"without": ["blockify_flat"], "settings": []}
    assert "blockify_flat" in fired(program.shown.record)
    with served(program.shown, program) as server:
        status, text = ask(server, CHANGE, json.dumps(off), JSON)
        found = json.loads(text)
        assert status == 200 and not found["error"] and found["diff"] and found["data"]["switches"] == off
        assert ask(server, CHANGE)[0] == 404  # only what is posted changes anything
        for body in ('{"deep": ' + "[" * 9000, '{"without": 1}', "{"):
            assert ask(server, CHANGE, body, JSON) == (400, "Bad Request\n")
        for wrong, error in (
            ({"settings": ["a.b=__import__(1)"]}, "there is no rule `a`"),
            ({"settings": ["tileify"]}, "tileify"),
            ({"settings": ["tileify.X=1"]}, "tileify"),
            ({"without": ["no_such_rule"]}, "no_such_rule"),
        ):
            status, text = ask(server, CHANGE, json.dumps(wrong), JSON)
            assert status == 200 and error in json.loads(text)["error"]
    assert program.switches == Switches(frozenset({"blockify_flat"}))
    assert "blockify_flat" not in fired(program.shown.record)


# ---- The command, in a process of its own.


def listen(url: str, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The news for which something is true, with all parts that came on the way."""
    number, parts = 0, dict[str, Any]()
    while True:
        with urllib.request.urlopen(url.replace("/?", "/news?") + f"&since={number}", timeout=120) as answer:
            news = json.loads(answer.read())
        if news is None:  # nothing changed while the server waited
            continue
        number, parts = news["number"], parts | news["data"]
        if wanted(news):
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
def serving(log: Path, *words: str) -> Iterator[Callable[[int], dict[str, Any]]]:
    """The news of a compile that a command serves, by its number. The process ends without a word."""

    def serve() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        main(["view", "--no-browse", *words])

    process = started(log, serve)
    until(lambda: not process.is_alive() or (log.exists() and "\n" in log.read_text()))
    try:
        yield lambda number: listen(log.read_text().splitlines()[0], lambda news: news["compiles"] == number)
    finally:
        process.terminate()
        process.join(MOST)
    assert "Traceback" not in log.read_text() and process.exitcode == -signal.SIGTERM


def test_a_rule_file_is_waited_for_and_followed(tmp_path: Path) -> None:
    rule = "## A sine.\nrule sine on tensor\nmatch\n    y = cos(x)\n{}rewrite\n    y = {}(x)\n"
    (file := tmp_path / "my.rw").write_text(rule.format("require dtype(x) == f32\n", "sin"))
    with serving(tmp_path / "log", "-c", "torch.randn(64).cos()", "--rules", str(file)) as news:
        wrong = news(1)
        assert "my.rw:5:23: error: a `require` without its reason" in wrong["error"] and "trace" not in wrong["data"]
        file.write_text(rule.format("", "sin"))
        mended = news(2)
        assert (mended["error"], mended["why"]) == ("", "my.rw changed") and "sine" in fired(mended["data"])
        file.write_text(rule.format("", "tanh"))
        assert "-" in {line[:1] for line in news(3)["diff"].splitlines()}
        file.write_text(rule.format("", "tanh("))
        broken = news(4)
        assert "my.rw:" in broken["error"] and "sine" in fired(broken["data"])


def test_the_command_for_a_model_follows_a_rule_file(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(MODEL))
    (file := tmp_path / "my.rw").write_text("# nothing yet\n")
    given = [str(tmp_path / "tiny"), "--layers", "1", "--seq-len", "4", "--rules", str(file)]
    with serving(tmp_path / "log", *given) as news:
        first = news(1)
        assert not first["error"] and "kernels" in first["data"]
        file.write_text("override number most_unrolled = 1\n")
        again = news(2)
        assert again["why"] == "my.rw changed" and not again["error"]
