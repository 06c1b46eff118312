"""What all pages have in common: the frame around them, fields of their address, pieces of lists.

Called by: the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse

from kraftrio.clients.console.console import Console

T = TypeVar("T")

PAGE_SIZE: Final = 100


def page(
    console: Console,
    template: str,
    title: str,
    *,
    area: str,
    status: int = 200,
    is_live: bool = True,
    **content: Any,
) -> HTMLResponse:
    """Make a page.

    Args:
        area: which of the areas at the top it belongs to.
        is_live: whether it looks again by itself.
    """
    text = console.templates.get_template(template).render(
        title=title,
        area=area,
        is_live=is_live,
        is_writable=console.settings.is_writable,
        servers=console.settings.target.servers,
        token=console.token,
        now_ms=console.settings.now_ms(),
        link=link,
        **content,
    )
    return HTMLResponse(text, status)


def error_page(console: Console, request: Request, status: int, sentence: str) -> HTMLResponse:
    """Make the page that says why there is no other."""
    return page(
        console,
        "error.html",
        "Not shown",
        area=area_of(request.url.path),
        status=status,
        # A form is not sent again, and a page that does not exist does not appear later.
        is_live=request.method == "GET" and status >= 500,
        sentence=sentence,
    )


def area_of(path: str) -> str:
    """Return the area that a path belongs to."""
    areas = {"topic": "topics", "record": "topics", "records": "topics", "produce": "topics"}
    areas |= {"group": "groups", "reset": "groups"}
    name = path.strip("/")
    return areas.get(name, name or "overview")


def link(path: str, **fields: object) -> str:
    """Return the address of a page; fields that are None or empty are left out."""
    kept = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def mark_begin(request: Request) -> None:
    """Note when a page began to ask the cluster: the error says how long it took."""
    request.state.began_at = trio.current_time()


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """A piece of a long list.

    Attributes:
        number: which piece, from 1 on.
        count: how many pieces there are.
        total: how many items all pieces have.
    """

    items: Sequence[T]
    number: int
    count: int
    total: int


def piece_of(items: Sequence[T], request: Request) -> Piece[T]:
    """Return the piece of a list that the field `page` names; the nearest if there is none."""
    text = request.query_params.get("page", "1")
    count = max(-(-len(items) // PAGE_SIZE), 1)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
    number = min(max(number, 1), count)
    start = (number - 1) * PAGE_SIZE
    return Piece(items[start : start + PAGE_SIZE], number, count, len(items))
