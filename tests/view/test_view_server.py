"""The live page: who gets an answer, what recompiles, and what an error leaves."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import ValidationError, convert
from view_programs import EXPONENTIALS, RULE
from view_waiting import until

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.view.live_program import LiveProgram
from dplc.engine.view.server import LivePage, News, PageServer, Switches
from dplc.ir.diagnostic import DplcError, UsageError


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LiveProgram]:
    file = tmp_path / "my.rw"
    file.write_text("# no rule yet\n")
    made = LiveProgram(capture_text(EXPONENTIALS), LivePage(EXPONENTIALS), [file], (), target())
    made.compile("started")
    yield made
    made.close()


@pytest.fixture
def server(program: LiveProgram) -> Iterator[PageServer]:
    made = PageServer(program.shown)
    made.program = program
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_pages_stand_side_by_side() -> None:
    """Who names no port gets one that is free."""
    servers = [PageServer(LivePage("nothing yet")) for _ in range(2)]
    ports = {server.server_port for server in servers}
    for server in servers:
        server.server_close()
    assert len(ports) == 2 and min(ports) > 1023


def ask(server: PageServer, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_answers_who_has_the_token(server: PageServer) -> None:
    status, text = ask(server, f"/?token={server.token}")
    assert status == 200 and "connect-src &#39;self&#39;" in text
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?token=", {}),
        ("/?token=wrong", {}),
        ("/?token={token}", {"Host": "evil.example"}),
        ("/?token={token}", {"Host": "evil.example:{port}"}),
        ("/?token={token}", {"Origin": "http://evil.example"}),
        ("/?token={token}", {"Origin": "null"}),
        ("/?token={token}", {"Sec_Fetch_Site": "cross-site"}),
        ("/news?since=0", {}),
        ("/parameters?rule=tileify", {}),
    ],
)
@pytest.mark.sampled(5)
def test_nobody_else_gets_an_answer(server: PageServer, path: str, headers: dict[str, str]) -> None:
    values = {"token": server.token, "port": str(server.server_port)}
    filled = {name: value.format(**values) for name, value in headers.items()}
    status, text = ask(server, path.format(**values), **filled)
    assert (status, text) == (403, "Forbidden\n")


def test_other_paths_and_other_bodies_are_refused(server: PageServer) -> None:
    token = f"?token={server.token}"
    kind = {"Content_Type": "application/json"}
    assert ask(server, f"/../../etc/passwd{token}")[0] == 404
    assert ask(server, f"/change{token}")[0] == 404
    assert ask(server, "/change", "POST", "{}", **kind)[0] == 403
    assert ask(server, f"/change{token}", "POST", "{}")[0] == 415
    assert ask(server, f"/change{token}", "POST", "[" * 9000, **kind)[0] == 400
    assert ask(server, f"/change{token}", "POST", '{"without": "all"}', **kind)[0] == 400
    assert ask(server, f"/change{token}", "POST", "x" * 70000, **kind)[0] == 413
    assert (
        ask(server, f"/change{token}", "POST", '{"without": [], "settings": ["a.b=__import__(1)"]}', **kind)[0] == 200
    )
    assert "there is no rule `a`" in server.shown.news.error


def test_a_wrong_query_is_refused_and_an_error_of_ours_is_told(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token = f"?token={server.token}"
    assert ask(server, f"/parameters{token}&since=soon")[0] == 400
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(LiveProgram, "parameters", lambda *_: 1 // 0)
    assert ask(server, f"/parameters{token}&rule=inline") == (500, "Internal Server Error\n")
    said: list[str] = []

    def printed() -> bool:
        said.append(capfd.readouterr().err)
        return "ZeroDivisionError" in "".join(said)

    until(printed)


def test_a_rule_that_is_off_does_not_fire(server: PageServer) -> None:
    wanted = json.dumps({"without": ["blockify_flat"], "settings": []})
    assert "blockify_flat" in {event["rule"] for event in fired(server.shown.record)}
    status, text = ask(server, f"/change?token={server.token}", "POST", wanted, Content_Type="application/json")
    found = json.loads(text)
    assert status == 200 and not found["error"] and found["diff"]
    assert "blockify_flat" not in {event["rule"] for event in fired(server.shown.record)}
    assert found["data"]["switches"] == {"without": ["blockify_flat"], "settings": []}


def fired(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in record["trace"] if event["event"] == "fired"]


def told(program: LiveProgram, compiles: int) -> News:
    """The news once so many compiles were told."""
    while (news := program.shown.news).compiles < compiles:
        assert program.shown.wait(news.number, 60)
    return news


def test_a_rule_file_that_changes_compiles_again(program: LiveProgram) -> None:
    stop = threading.Event()
    watcher = threading.Thread(target=program.watch, args=(stop, print))
    watcher.start()
    try:
        (file,) = program.paths
        file.write_text(RULE)
        shown = told(program, 2)
        assert not shown.error and "my.rw changed" in shown.why
        assert "product_of_exponentials" in {event["rule"] for event in fired(program.shown.record)}
        assert "-" in {line[:1] for line in shown.diff.splitlines()}
        file.write_text(RULE.replace("multiply(exp(a)", "multiply(exp(a"))
        assert "my.rw:" in told(program, 3).error
        assert "product_of_exponentials" in {event["rule"] for event in fired(program.shown.record)}
    finally:
        stop.set()
        watcher.join()


def test_parameters_have_the_values_of_their_site(tmp_path: Path) -> None:
    captured = capture_text("nn.RMSNorm(2048)(torch.randn(32, 2048))")
    program = LiveProgram(captured, LivePage("rmsnorm"), [], (), target())
    program.compile("started")
    (width,) = program.parameters("cooperative_reduce")
    assert width["name"] == "T" and width["now"] in width["values"] and len(width["values"]) > 2
    assert all(value.isdigit() for value in width["values"])
    other = next(value for value in width["values"] if value != width["now"])
    shown = program.compile("changed", Switches(settings=(f"cooperative_reduce.T={other}",)))
    assert not shown.error and shown.diff
    assert program.parameters("cooperative_reduce")[0]["now"] == other
    assert program.parameters("no_such_rule") == []
    assert program.parameters("inline") == [
        {"name": "MOST", "now": "32", "values": []}, {"name": "PLACES", "now": "32", "values": []}
    ]  # fmt: skip
    shown = program.compile("changed", Switches(settings=("inline.MOST=16",)))
    assert not shown.error and program.parameters("inline")[0]["now"] == "16"


def test_what_cannot_be_compiled_leaves_the_switches_as_they_were(program: LiveProgram) -> None:
    shown = program.compile("changed", Switches(frozenset({"no_such_rule"})))
    assert "no_such_rule" in shown.error
    assert program.switches == Switches()
    with pytest.raises(DplcError):
        program.compiler(Switches(settings=("tileify",)))
    with pytest.raises(UsageError):
        program.compiler(Switches(settings=("tileify.X=1",)))


@pytest.mark.parametrize("wanted", [
    None, [], {"without": "vector_reduce"}, {"without": None}, {"settings": [1]}, {"settings": {"a": 1}}, {"without": ["x" * 400]},
    "without", {"without": [1]}, {"settings": ["a" * 400]},
])  # fmt: skip
def test_what_is_no_change_of_rules(wanted: Any) -> None:
    with pytest.raises(ValidationError):
        convert(wanted, Switches)


def test_a_change_of_rules_may_say_either_or_both() -> None:
    assert convert({}, Switches) == Switches() and convert({"without": ["a"]}, Switches) == Switches(frozenset({"a"}))
    assert convert({"settings": ["a.B=1"], "without": []}, Switches) == Switches(settings=("a.B=1",))
