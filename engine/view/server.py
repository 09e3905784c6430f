"""The page of a compile, and the server that keeps it live on this machine.

Nothing here imports PyTorch, so that the page opens before PyTorch is loaded. The server starts before the first
compile, and the page polls for each new part. It listens on 127.0.0.1 alone. Every request must name this server as its
host (against DNS rebinding), carry the token of the URL, and come from the page's own origin.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import secrets
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...ir.diagnostic import DplcError

Record = dict[str, Any]  # data of a page, which becomes JSON
MOST_TRIES = 100_000
STAGES = {
    "rules": "reading rules", "pytorch": "loading PyTorch", "capture": "capturing", "torch": "rules on Torch IR",
    "tensor": "rules on Tensor IR", "fusion": "fusion", "tile": "rules on Tile IR", "kernel": "rules on Kernel IR",
    "cuda": "printing CUDA", "links": "linking lines",
}  # fmt: skip


@dataclass(frozen=True)
class News:
    """Newest change of a live page.

    number: number of the change, from 1. compiles: number of compiles so far. error: why no newer compile exists. diff:
    difference of the CUDA text to the preceding compile. ms: duration of the compile. why: its cause.
    """

    number: int = 0
    compiles: int = 0
    error: str = ""
    diff: str = ""
    ms: float = 0.0
    why: str = ""


class LivePage:
    """Parts of a record and the newest change. Compiles and searches write it, requests read it."""

    def __init__(self, title: str) -> None:
        self._changed = threading.Condition()
        self._parts: Record = {"title": title}
        self._numbers = {"title": 0}
        self.news = News()
        self._stage, self._began = "", 0.0  # no stage runs before the first
        self._took: dict[str, float] = {}

    @property
    def record(self) -> Record:
        """Return all parts in their present state."""
        with self._changed:
            return {name: part for name, part in self._parts.items() if part is not None}

    def show(self, **parts: Any) -> News:
        """Replace the parts of these names. None removes a part."""
        return self._put(parts)

    def report(self, parts: Mapping[str, Any], **fields: Any) -> News:
        """Replace parts and report the compile that computed them. fields: error, diff, ms and why of `News`."""
        with self._changed:
            self.news = News(self.news.number, self.news.compiles + 1, **fields)
            return self._put(parts)

    def begin(self, stage: str) -> None:
        """End the running stage of the first compile and begin this one.

        The part `stages` holds the text, the milliseconds (None until done) and whether it runs, of each stage.
        """
        now = time.perf_counter()
        self._took[self._stage] = self._took.get(self._stage, 0.0) + (now - self._began) * 1e3
        self._stage, self._began = stage, now
        self.show(
            stages=[{"text": text, "ms": self._took.get(name), "now": name == stage} for name, text in STAGES.items()]
        )

    def _put(self, parts: Mapping[str, Any]) -> News:
        with self._changed:
            self.news = replace(self.news, number=self.news.number + 1)
            self._parts.update(parts)
            self._numbers.update(dict.fromkeys(parts, self.news.number))
            self._changed.notify_all()
            return self.news

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for a change after change `number`. Returns False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.news.number > number, seconds)

    def since(self, number: int) -> Record:
        """Return the news, with all parts that changed after change `number` under `data`."""
        with self._changed:
            newer = {name: self._parts[name] for name, known in self._numbers.items() if known > number}
            return {**vars(self.news), "data": newer}


Text = Annotated[str, msgspec.Meta(max_length=399)]


class Switches(msgspec.Struct, frozen=True):
    """Changes by the reader. without: rules that are off; settings: `RULE.PARAM=VALUE`, as `--set` takes them."""

    without: frozenset[Text] = frozenset()
    settings: tuple[Text, ...] = ()


class SearchRequest(msgspec.Struct, frozen=True):
    """Searches that follow each compile. tries: number of schedules, 0 for none; explore: search the e-graph too."""

    tries: Annotated[int, msgspec.Meta(ge=0, le=MOST_TRIES)] = 0
    explore: bool = False


NO_SEARCH = SearchRequest()

# ---- rendering


FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("core", "columns", "timeline", "kernels", "tabs", "suite", "searched")


def page(record: Record, live: bool = False) -> str:
    """Render a record (`view_record`). live: the page polls its server for changes."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    script = "".join(_part(f"{name}.js") for name in (*SCRIPTS, *(["live"] if live else ()), "start"))
    style = _part("page.css")
    return environment.from_string(_part("page.html")).render(
        title=record["title"], style=style, script=script, data=embedded(record), style_hash=_digest(style),
        script_hash=_digest(script), connect="'self'" if live else "'none'",
    )  # fmt: skip


def embedded(record: Any) -> str:
    """Return JSON that is safe inside of a script element."""
    text = as_json(record)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def as_json(record: Any) -> str:
    """Return JSON with null for infinities and NaNs."""
    return msgspec.json.encode(record, enc_hook=float).decode()


@functools.cache
def _part(name: str) -> str:
    return (FOLDER / name).read_text()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---- serving


ADDRESS = "127.0.0.1"
LONGEST = 1 << 16  # bytes of a request's body
PATHS = {"GET": ("/", "/news", "/parameters"), "POST": ("/change", "/search")}
WAIT = 20.0  # seconds that a request for news may last
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class PageServer(ThreadingHTTPServer):
    """Serve a live page at `url`. port: 0 selects a free port.

    program: the `LiveProgram`, after its capture. seen: set by the first request for the page. The server also
    keeps the number of the last news that it sent.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, shown: LivePage, port: int = 0):
        super().__init__((ADDRESS, port), PageHandler)
        self.shown, self.token = shown, secrets.token_urlsafe(24)
        self.program: Any = None
        self.seen, self.sent = threading.Event(), 0

    @property
    def hosts(self) -> tuple[str, str]:
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closed its connection."""


class Refused(Exception):
    """Exception that ends a request. Its argument is the status of the error."""


class PageHandler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "dplc"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        try:
            self._answer(*self._allowed())
        except Refused as refused:
            self.close_connection = True
            (status,) = refused.args
            self._send(f"{status.phrase}\n", "text/plain", status)

    do_POST = do_GET

    def _answer(self, path: str, query: dict[str, str]) -> None:
        shown, program, since = self.server.shown, self.server.program, _number(query.get("since", "0"))
        if path == "/":
            live = shown.since(-1)
            self._send(page({**live.pop("data"), "live": live}, live=True), "text/html")
            self.server.seen.set()
        elif path == "/news":
            news = shown.since(since) if shown.wait(since, WAIT) else None
            self._send(as_json(news))
            if news is not None:
                self.server.sent = max(self.server.sent, news["number"])
        else:
            wanted = self._body() if self.command == "POST" else b""
            if program is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE)
            if path == "/parameters":
                self._send(as_json(program.parameters(query.get("rule", ""))))
                return
            try:
                if path == "/search":
                    program.search(msgspec.json.decode(wanted, type=SearchRequest))
                else:
                    program.compile("changed on the page", msgspec.json.decode(wanted, type=Switches))
            except (ValueError, RecursionError, DplcError):
                raise Refused(HTTPStatus.BAD_REQUEST) from None
            self._send(as_json(shown.since(since)))

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LONGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        return self.rfile.read(int(length))

    def _allowed(self) -> tuple[str, dict[str, str]]:
        """Return path and query of a request. Raises Refused for a request that does not come from the page."""
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, max_num_fields=8))
        mine = [f"http://{host}" for host in self.server.hosts]
        ours = self.headers.get("Host") in self.server.hosts
        ours &= self.headers.get("Origin", mine[0]) in mine
        ours &= self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        given = query.get("token", "").encode()
        if not ours or not hmac.compare_digest(given, self.server.token.encode()):
            raise Refused(HTTPStatus.FORBIDDEN)
        if parts.path not in PATHS[self.command]:
            raise Refused(HTTPStatus.NOT_FOUND)
        return parts.path, query

    def _send(self, text: str, kind: str = "application/json", status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0
