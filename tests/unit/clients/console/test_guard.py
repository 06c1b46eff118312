"""Who is let in: the console's own pages, under its own names, and few at a time."""

from __future__ import annotations

import pytest
import trio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from kraftrio.clients.console.guard import MAX_REQUESTS, Guard
from tests.unit.clients.console.visitor import HOST, Visitor


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("served")(scope, receive, send)


VISITOR = Visitor(Guard(app, frozenset({"console.Example"})))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("192.168.1.7", 200),
        ("console.example:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
async def test_names_of_the_console(host: str, status: int) -> None:
    """Addresses are nobody else's; a name may be one that another site has turned here."""
    answer = await VISITOR.get("/", host=host)
    assert answer.status == status, answer.text


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("none", "navigate", 200),
        ("same-origin", "cors", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
    ],
)
async def test_what_other_sites_load(site: str, mode: str, status: int) -> None:
    answer = await VISITOR.get("/", sec_fetch_site=site, sec_fetch_mode=mode)
    assert answer.status == status


@pytest.mark.parametrize(
    ("origin", "site", "status"),
    [
        (f"http://{HOST}", "same-origin", 200),
        (f"https://{HOST}", "same-origin", 200),
        (f"http://{HOST}", "cross-site", 403),
        ("http://evil.example", "same-origin", 403),
        ("http://localhost:9999", "same-origin", 403),
        ("null", "same-origin", 403),
        ("", "same-origin", 403),
    ],
)
async def test_what_other_sites_send(origin: str, site: str, status: int) -> None:
    answer = await VISITOR.post("/", {}, origin=origin, sec_fetch_site=site)
    assert answer.status == status, answer.text


async def test_a_navigation_by_another_site_changes_nothing() -> None:
    """A form of another site is a navigation, too."""
    headers = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert (await VISITOR.post("/", {}, **headers)).status == 403


async def test_refusals_have_the_headers_of_every_answer() -> None:
    for answer in (await VISITOR.get("/"), await VISITOR.get("/", host="evil.example")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


async def test_no_more_requests_than_can_be_served() -> None:
    release = trio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await app(scope, receive, send)

    visitor = Visitor(Guard(slow, frozenset()))
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_REQUESTS):
            nursery.start_soon(visitor.get, "/")
        await trio.testing.wait_all_tasks_blocked()
        assert (await visitor.get("/")).status == 503
        release.set()
    assert (await visitor.get("/")).status == 200
