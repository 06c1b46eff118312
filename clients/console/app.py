"""The application: which path shows what, and what a page says that cannot be shown.

Owns `make_app`. An error that can be expected (no broker answers, no such topic, not allowed) is a
page with one sentence, which looks again by itself; any other is a fault of ours, with status 500
and a traceback in the log.

Called by: `server`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kraftrio.clients.cli.failures import CommandError, explain, innermost
from kraftrio.clients.console.console import Console, PageError
from kraftrio.clients.console.guard import Guard
from kraftrio.clients.console.pages import configs, groups, overview, produce, records, topics
from kraftrio.clients.console.pages.view import error_page
from kraftrio.clients.console.rendering import FOLDER
from kraftrio.clients.errors import AuthorizationError, NetworkError, TimedOutError
from kraftrio.wire.errors import KafkaError

Page: TypeAlias = Callable[[Console, Request], Awaitable[Response]]

_PAGES: Final[dict[str, Page]] = {
    "/": overview.overview,
    "/quorum": overview.quorum,
    "/topics": topics.topics,
    "/topic": topics.topic,
    "/records": records.records,
    "/record": records.record,
    "/search": records.search,
    "/groups": groups.groups,
    "/group": groups.group,
    "/reset": groups.reset,
    "/settings": configs.settings,
    "/produce": produce.form,
}
_CHANGES: Final[dict[str, Page]] = {"/produce": produce.produce, "/reset": groups.apply_reset}
_FILES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_STATUS_UNREACHABLE: Final = 503
_STATUS_REFUSED: Final = 502


def make_app(console: Console) -> ASGIApp:
    """Return the application of a console."""
    routes = [Route(path, partial(page, console), methods=["GET"]) for path, page in _PAGES.items()]
    routes += [
        Route(path, partial(change, console), methods=["POST"]) for path, change in _CHANGES.items()
    ]
    for name, content_type in _FILES.items():
        content = (FOLDER / "static" / name).read_bytes()
        routes.append(Route(f"/static/{name}", _file(content, content_type), methods=["GET"]))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        sentence = f"there is no page {request.url.path}"
        if error.status_code != 404:
            sentence = f"{request.method} cannot be done on {request.url.path}"
        return error_page(console, request, error.status_code, sentence)

    async def on_error(request: Request, error: Exception) -> Response:
        found = innermost(error)
        if isinstance(found, PageError):
            return error_page(console, request, found.status, found.sentence)
        sentence = explain(found)
        if sentence is None:
            raise error
        status, sentence = _meaning(console, request, found, sentence)
        return error_page(console, request, status, sentence)

    kinds = (PageError, CommandError, KafkaError, OSError, ExceptionGroup)
    handlers = dict.fromkeys(kinds, on_error) | {HTTPException: on_http}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, console.settings.host_names)


def _meaning(
    console: Console, request: Request, error: BaseException, sentence: str
) -> tuple[int, str]:
    """Return the status and the sentence of an error of the cluster or the way to it."""
    if isinstance(error, NetworkError | TimedOutError):
        target, waited_s = console.settings.target, console.settings.timeout_s
        began_at = getattr(request.state, "began_at", None)
        if began_at is not None:
            waited_s = max(trio.current_time() - began_at, 0.0)
        return _STATUS_UNREACHABLE, (
            f"no broker answered at {target.servers} within {waited_s:.1f} s ({sentence});"
            f" 'kraftrio doctor --bootstrap-server {target.servers}' looks into it"
        )
    if isinstance(error, AuthorizationError):
        return 403, f"the console may not do this: {sentence}"
    return _STATUS_REFUSED, sentence


def _file(content: bytes, content_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(_request: Request) -> Response:
        return Response(content, media_type=content_type, headers={"Cache-Control": "no-cache"})

    return send
