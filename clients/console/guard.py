"""Lets in what the console's own pages ask for, and nothing that other sites make a browser ask.

Owns `Guard`, which wraps the application, and `check_form`. Rules:
1. A request must name a host that is the console's: an address, localhost, or a name that it was
   told. So a site whose name comes to resolve to this machine's address (DNS rebinding) gets
   nothing.
2. What another site makes a browser load or send is refused, by Sec-Fetch-Site and Origin; only
   following a link is not. A change needs the token of this console's own pages, too.
3. Each answer says that nothing is to be loaded from elsewhere, no script within a page is to run,
   and no other site may frame it (Content-Security-Policy).
4. Above `MAX_REQUESTS` requests at a time further ones are refused.

Called by: `app`. WHATWG Fetch ("Origin"), W3C Fetch Metadata, CSP level 3.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from hmac import compare_digest
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kraftrio.clients.console.console import Console, PageError

MAX_REQUESTS: Final = 64
MAX_FORM_BYTES: Final = 4 << 20
TOKEN_FIELD: Final = "token"

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: a browser would then send no Origin with a form.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """See the module.

    Args:
        host_names: names that are this console's, besides localhost and addresses.
    """

    def __init__(self, app: ASGIApp, host_names: frozenset[str]) -> None:
        self._app = app
        self._host_names = {name.lower() for name in host_names} | {"localhost"}
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope), scope["method"])
        if refusal is not None:
            response = PlainTextResponse(f"{refusal[1]}\n", refusal[0])
            await response(scope, receive, _with_headers(send))
            return
        self._requests += 1
        try:
            await self._app(scope, receive, _with_headers(send))
        finally:
            self._requests -= 1

    def _refusal(self, headers: Headers, method: str) -> tuple[int, str] | None:
        host = headers.get("host", "")
        name = _host_name(host)
        if not self._is_ours(name):
            return 421, (
                f"this console does not answer to the name {name!r}: use localhost or its address,"
                f" or start it with --allow-host {name}"
            )
        site = headers.get("sec-fetch-site", "same-origin")
        is_ours = site in ("same-origin", "none")
        is_link = headers.get("sec-fetch-mode") == "navigate"
        if method in ("GET", "HEAD"):
            if not is_ours and not is_link:
                return 403, "another site asked for this: only the console's own pages may"
        elif not is_ours or _origin_host(headers.get("origin", "")) != host.lower():
            return 403, "this was sent from another site: changes are made on the console's pages"
        if self._requests >= MAX_REQUESTS:
            return 503, f"{MAX_REQUESTS} requests are being served: try again in a moment"
        return None

    def _is_ours(self, name: str) -> bool:
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name in self._host_names
        return True


def _with_headers(send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_more


def _host_name(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _origin_host(origin: str) -> str:
    scheme, separator, host = origin.lower().partition("://")
    return host if separator and scheme in ("http", "https") else ""


async def check_form(console: Console, request: Request) -> Mapping[str, str]:
    """Return the fields of a form that may change something.

    Raises:
        PageError: this console changes nothing, or the form is not of its own pages.
    """
    if not console.settings.is_writable:
        raise PageError(403, "this console is read-only; started with --writable it is not")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise PageError(413, f"a form may have {MAX_FORM_BYTES >> 20} MiB, and this has more")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise PageError(400, "a form must be sent as UTF-8") from None
    if not compare_digest(fields.pop(TOKEN_FIELD, "").encode(), console.token.encode()):
        raise PageError(
            403, "this page is older than the console that runs now: load it again, then send"
        )
    return fields
