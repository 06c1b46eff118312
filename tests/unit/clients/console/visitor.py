"""A visitor of the console without sockets: asks the application as its HTTP server does."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode

import trio
from starlette.types import ASGIApp, Message

HOST = "localhost:8080"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def text(self) -> str:
        """What can be read on the page, in one line."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.body)).split())

    @property
    def token(self) -> str:
        """What its forms send to change something."""
        found = re.search(r'name="token" value="([^"]+)"', self.body)
        assert found is not None, self.text
        return found[1]


class Visitor:
    """Asks for pages, and sends forms."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def get(
        self,
        address: str,
        method: str = "GET",
        *,
        leaves_after_s: float = math.inf,
        **headers: str,
    ) -> Answer:
        """Return a page; headers have _ for the protocol's hyphens."""
        return await self._ask(method, address, headers, b"", leaves_after_s)

    async def post(self, address: str, fields: dict[str, str], **headers: str) -> Answer:
        """Send a form as a browser does from a page of the console."""
        usual = {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin"}
        return await self._ask("POST", address, usual | headers, urlencode(fields).encode())

    async def _ask(
        self,
        method: str,
        address: str,
        headers: dict[str, str],
        body: bytes,
        leaves_after_s: float = math.inf,
    ) -> Answer:
        path, _, query = address.partition("?")
        named = {"host": HOST} | {name.replace("_", "-"): text for name, text in headers.items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), text.encode()) for name, text in named.items()],
            "server": ("localhost", 8080),
            "client": ("127.0.0.1", 1),
        }
        asked = False
        sent: list[Message] = []

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await trio.sleep(leaves_after_s)
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        parts = b"".join(each.get("body", b"") for each in sent[1:])
        return Answer(sent[0]["status"], found, parts.decode())
