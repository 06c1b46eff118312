"""Addresses, areas and pieces of lists."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from kraftrio.clients.console.pages.view import PAGE_SIZE, area_of, link, piece_of


def test_links_leave_out_what_is_empty() -> None:
    assert link("/topic") == "/topic"
    assert link("/topic", name="a b&c", all=None, find="") == "/topic?name=a+b%26c"
    assert link("/record", partition=0) == "/record?partition=0"


def test_areas() -> None:
    found = [area_of(path) for path in ("/", "/records", "/reset", "/quorum", "/x")]
    assert found == ["overview", "topics", "groups", "quorum", "x"]


@pytest.mark.parametrize(
    ("query", "number", "first"),
    [("", 1, 0), ("page=2", 2, PAGE_SIZE), ("page=99", 3, 2 * PAGE_SIZE), ("page=-1", 1, 0)],
)
def test_pieces(query: str, number: int, first: int) -> None:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    piece = piece_of(range(2 * PAGE_SIZE + 5), request)
    assert (piece.number, piece.count, piece.total) == (number, 3, 2 * PAGE_SIZE + 5)
    assert piece.items[0] == first
    empty: list[int] = []
    assert piece_of(empty, request).count == 1
