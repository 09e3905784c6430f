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
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec

Record = dict[str, Any]  # data of a page, which becomes JSON
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

    def __init__(self, title: str):
        self._changed = threading.Condition()
        self._parts: dict[str, tuple[int, object]] = {"title": (0, title)}  # each with the number of its last change
        self.news = News()
        self._stage, self._began = "", 0.0  # no stage runs before the first
        self._took = defaultdict[str, float](float)

    @property
    def record(self) -> Record:
        """Return all parts in their present state."""
        with self._changed:
            return {name: part for name, (_, part) in self._parts.items() if part is not None}

    def show(self, **parts: object) -> News:
        """Replace the parts of these names. None removes a part."""
        with self._changed:
            self.news = replace(self.news, number=self.news.number + 1)
            self._parts |= {name: (self.news.number, part) for name, part in parts.items()}
            self._changed.notify_all()
            return self.news

    def report(self, parts: Mapping[str, object], **fields: Any) -> News:
        """Replace parts and report the compile that computed them. fields: error, diff, ms and why of `News`."""
        with self._changed:
            self.news = News(self.news.number, self.news.compiles + 1, **fields)
            return self.show(**parts)

    def begin(self, stage: str) -> None:
        """End the running stage of the first compile and begin this one.

        The part `stages` holds the text, the milliseconds (None until done) and whether it runs, of each stage.
        """
        now = time.perf_counter()
        self._took[self._stage] += (now - self._began) * 1e3
        self._stage, self._began = stage, now
        self.show(
            stages=[{"text": text, "ms": self._took.get(name), "now": name == stage} for name, text in STAGES.items()]
        )

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for a change after change `number`. Returns False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.news.number > number, seconds)

    def since(self, number: int) -> Record:
        """Return the news, with all parts that changed after change `number` under `data`."""
        with self._changed:
            newer = {name: part for name, (changed, part) in self._parts.items() if changed > number}
            return {**vars(self.news), "data": newer}


Text = Annotated[str, msgspec.Meta(max_length=399)]


class Switches(msgspec.Struct, frozen=True):
    """Changes by the reader. without: rules that are off; settings: `RULE.PARAM=VALUE`, as `--set` takes them."""

    without: frozenset[Text] = frozenset()
    settings: tuple[Text, ...] = ()


# ---- rendering


FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("core", "columns", "timeline", "kernels", "tabs", "egraph")


def page(record: Record, live: bool = False) -> str:
    """Render a record (`view_record`). live: the page polls its server for changes."""
    import jinja2

    script = "".join(_part(f"{name}.js") for name in (*SCRIPTS, *["live"] * live, "start"))
    style = _part("page.css")
    return jinja2.Environment(autoescape=True).from_string(_part("page.html")).render(
        title=record["title"], style=style, script=script, data=embedded(record), style_hash=_digest(style),
        script_hash=_digest(script), connect="'self'" if live else "'none'",
    )  # fmt: skip


def embedded(record: object) -> str:
    """Return JSON that is safe inside of a script element."""
    return as_json(record).translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})


def as_json(record: object) -> str:
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

    program: the `LiveProgram`, after its capture. seen: set by the first request for the page. received: number of
    the last news that a page has, as its next request says.
    """

    def __init__(self, shown: LivePage, port: int = 0):
        super().__init__((ADDRESS, port), PageHandler)
        self.shown, self.token = shown, secrets.token_urlsafe(24)
        self.program: Any = None
        self.seen, self.received = threading.Event(), 0
        self.hosts = [f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")]
        self.url = f"http://{self.hosts[0]}/?token={self.token}"

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Print an error, except that a browser closed its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Query(msgspec.Struct):
    """Query of a URL. since: number of the last change that the page has; rule: whose parameters it asks for."""

    token: str = ""
    since: int = 0
    rule: str = ""


class Refused(Exception):
    """Exception that ends a request. Its argument is the status of the error."""


class PageHandler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "dplc"
    sys_version = ""
    timeout = 30
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def do_GET(self) -> None:
        path, _, text = self.path.partition("?")
        try:
            query = msgspec.convert(dict(parse_qsl(text)), Query, strict=False)
            self._check_origin(query.token)
            self._send(self._answer(path, query))
        except Refused as refused:
            self.send_error(*refused.args)
        except (msgspec.DecodeError, RecursionError):
            self.send_error(HTTPStatus.BAD_REQUEST)
        except Exception:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise

    do_POST = do_GET

    def _answer(self, path: str, query: Query) -> object:
        """Return the text of the page, or data."""
        server, shown, program = self.server, self.server.shown, self.server.program
        given = self._body() if self.command == "POST" else b""
        match self.command, path:
            case "GET", "/":
                live = shown.since(-1)
                text = page({**live.pop("data"), "live": live}, live=True)
                server.seen.set()
                return text
            case "GET", "/news":
                server.received = query.since
                return shown.since(query.since) if shown.wait(query.since, WAIT) else None
            case _, "/parameters" | "/explore" | "/change" if program is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE)
            case "GET", "/parameters":
                return program.parameters(query.rule)
            case "POST", "/explore":
                program.explore_fusion()
            case "POST", "/change":
                program.compile("changed on the page", msgspec.json.decode(given, type=Switches))
            case _:
                raise Refused(HTTPStatus.NOT_FOUND)
        return shown.since(query.since)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        return self.rfile.read(int(length))

    def _check_origin(self, token: str) -> None:
        """Raise Refused for a request that does not come from the page."""
        host = self.headers.get("Host")
        origin = f"http://{host}"
        ours = (
            host in self.server.hosts
            and self.headers.get("Origin", origin) == origin
            and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
            and hmac.compare_digest(token.encode(), self.server.token.encode())
        )
        if not ours:
            raise Refused(HTTPStatus.FORBIDDEN)

    def _send(self, answer: object) -> None:
        kind, text = ("text/html", answer) if isinstance(answer, str) else ("application/json", as_json(answer))
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """End the headers of an answer or an error with those of every answer."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep requests out of the terminal."""
