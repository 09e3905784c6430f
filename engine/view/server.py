"""Serve the live page on this machine: the page, its data and the requests of its reader.

The server starts before the first compile, and the page polls for each new part. It listens on 127.0.0.1 alone. Every
request must name this server as its host (against DNS rebinding), carry the token of the URL, and come from the page's
own origin.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

from ...ir.diagnostic import DplcError
from .live_page import LivePage, search_of, switches_of
from .page import as_json, page

if TYPE_CHECKING:
    from .live_program import LiveProgram

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
    """Serve a live page at `url`. port: 0 takes a free port.

    program: the program that compiles, after its capture. seen: set by the first request for the page. heard: number of
    the last news that was sent.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, shown: LivePage, port: int = 0):
        super().__init__((ADDRESS, port), PageHandler)
        self.shown, self.token = shown, secrets.token_urlsafe(24)
        self.program: LiveProgram | None = None
        self.seen, self.heard = threading.Event(), 0

    @property
    def hosts(self) -> tuple[str, str]:
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    def close(self) -> None:
        """Close the socket."""
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closed its connection."""


class PageHandler(BaseHTTPRequestHandler):
    """Answer one request."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "dplc"
    sys_version = ""
    timeout = 30
    known: ClassVar[dict[str, tuple[str, ...]]] = {
        "GET": ("/", "/news", "/parameters"), "POST": ("/change", "/search"),
    }  # fmt: skip

    def do_GET(self) -> None:
        asked = self._allowed("GET")
        if asked is None:
            return
        path, query = asked
        shown, program = self.server.shown, self.server.program
        if path == "/":
            told = shown.since(-1)
            self._send(page({**told.pop("data"), "live": told}, live=True), "text/html")
            self.server.seen.set()
        elif path == "/news":
            since = _number(query.get("since", "0"))
            newer = shown.wait(lambda news: news.number > since, WAIT)
            heard = shown.since(since) if newer else None
            self._send(as_json(heard))
            if heard is not None:
                self.server.heard = max(self.server.heard, heard["number"])
        elif program is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._send(as_json(program.parameters(query.get("rule", ""))))

    def do_POST(self) -> None:
        asked = self._allowed("POST")
        if asked is None:
            return
        path, query = asked
        program = self.server.program
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LONGEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return
        if program is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            wanted = json.loads(self.rfile.read(int(length)))
            if path == "/search":
                program.search(search_of(wanted))
            else:
                program.compile("changed on the page", switches_of(wanted))
        except (ValueError, RecursionError, DplcError):
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        self._send(as_json(self.server.shown.since(_number(query.get("since", "0")))))

    # ---- who may ask
    def _allowed(self, method: str) -> tuple[str, dict[str, str]] | None:
        """Return path and query of a request, or None after refusing it."""
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, max_num_fields=8))
        mine = [f"http://{host}" for host in self.server.hosts]
        ours = self.headers.get("Host") in self.server.hosts
        ours &= self.headers.get("Origin", mine[0]) in mine
        ours &= self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        given = query.get("token", "").encode()
        if not ours or not hmac.compare_digest(given, self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN)
            return None
        if parts.path not in self.known[method]:
            self._refuse(HTTPStatus.NOT_FOUND)
            return None
        return parts.path, query

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(f"{status.phrase}\n", "text/plain", status)

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
