"""The records of a topic: a page of them, one of them, and a search that says how far it is.

A search is a stream of server-sent events: `found` with rows as HTML, `progress`, then `done` or
`failed`. It ends with the connection: leaving the page, or stopping it, cancels it.

Called by: `app`. WHATWG HTML ("Server-sent events").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kraftrio.clients.cli.failures import explain, innermost
from kraftrio.clients.cli.records.starts import Start, begin_and_end
from kraftrio.clients.console.console import MAX_SEARCHES, Console, PageError
from kraftrio.clients.console.pages.view import link, mark_begin, page
from kraftrio.clients.console.records import reading
from kraftrio.clients.console.records.query import Begin, Query, QueryError, read_query
from kraftrio.clients.console.records.shown import Form
from kraftrio.clients.console.records.windows import Window
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.primitives import TopicPartition

_ROWS_PER_EVENT: Final = 50
_FIELDS: Final = ("topic", "partition", "begin", "at", "until", "key", "text", "limit", "form")


async def records(console: Console, request: Request) -> Response:
    """Show a page of records; where some are searched for, the page's script starts that."""
    mark_begin(request)
    fields = {name: request.query_params.get(name, "") for name in _FIELDS}
    topic = await console.topic(fields["topic"])
    query, complaint, browsed = None, "", reading.Browsed([], True)
    try:
        query = read_query(fields, console.settings.now_ms())
    except QueryError as error:
        complaint = str(error)
    is_search = query is not None and not query.wanted.is_everything
    if query is not None and not is_search:
        spans = await _spans(console, topic, query)
        browsed = await reading.browse(console.settings, query, spans)
    return page(
        console,
        "records.html",
        f"Records of {topic.name}",
        area="topics",
        status=400 if complaint else 200,
        is_live=query is not None and query.begin is Begin.NEWEST and not is_search,
        topic=topic,
        fields=fields | {"begin": fields["begin"] or Begin.NEWEST.value},
        complaint=complaint,
        browsed=browsed,
        search_address=link("/search", **fields) if is_search else "",
        forms=[form.value for form in Form],
    )


async def record(console: Console, request: Request) -> Response:
    """Show all of one record."""
    mark_begin(request)
    fields = {"limit": "1", "begin": "offset", "at": request.query_params.get("offset", "")}
    fields |= {name: request.query_params.get(name, "") for name in ("topic", "partition", "form")}
    topic = await console.topic(fields["topic"])
    query = _query(console, {**fields, "partition": fields["partition"] or "0"})
    begins, ends = await _spans(console, topic, query)
    ((item, begin),) = begins.items()
    offset, found = query.offset, None
    assert offset is not None
    if begin == offset < ends[item]:
        async with reading.open_reading(console.settings) as source:
            async for some in source.records([Window(item, offset, offset + 1)]):
                found = next(iter(some), found)
    if found is None:
        raise PageError(
            404,
            f"{item.topic}-{item.partition} has no record with offset {offset}: it has been"
            f" deleted or compacted away, is a marker, or is yet to come ({begin} to {ends[item]})",
        )
    return page(
        console,
        "record.html",
        f"{item.topic}-{item.partition} at {offset}",
        area="topics",
        is_live=False,
        record=reading.shown_record(found, query.form, pretty=True),
        form=query.form.value,
        forms=[form.value for form in Form],
    )


async def search(console: Console, request: Request) -> Response:
    """Search, as a stream of events."""
    mark_begin(request)
    fields = {name: request.query_params.get(name, "") for name in _FIELDS}
    topic = await console.topic(fields["topic"])
    query = _query(console, fields)
    return SearchStream(console, query, await _spans(console, topic, query))


class SearchStream(Response):
    """The events of a search; it is cancelled when the visitor leaves."""

    media_type = "text/event-stream"

    def __init__(self, console: Console, query: Query, spans: reading.Spans) -> None:
        super().__init__()
        self._console = console
        self._query = query
        self._spans = spans
        self._row = console.templates.get_template("_rows.html")
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Search until all is seen, enough is found, or the browser is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
            await self._search(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel()

    async def _search(self, send: Send) -> None:
        async def send_event(event: str, data: object) -> None:
            body = f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def on_found(found: Sequence[ConsumerRecord]) -> None:
            for start in range(0, len(found), _ROWS_PER_EVENT):
                some = found[start : start + _ROWS_PER_EVENT]
                shown = [reading.shown_record(each, self._query.form) for each in some]
                await send_event("found", self._row.render(records=shown, link=link, form=""))

        async def on_progress(progress: reading.SearchProgress) -> None:
            await send_event("progress", asdict(progress))

        console = self._console
        try:
            console.searches.acquire_nowait()
        except trio.WouldBlock:
            await send_event(
                "failed", f"{MAX_SEARCHES} searches are running: try again when one ends"
            )
            return
        try:
            done = await reading.search(
                console.settings, self._query, self._spans, on_found, on_progress
            )
        except (KafkaError, OSError, ExceptionGroup) as error:
            sentence = explain(innermost(error))
            if sentence is None:
                raise
            await send_event("failed", sentence)
        else:
            await send_event("done", asdict(done))
        finally:
            console.searches.release()


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _query(console: Console, fields: Mapping[str, str]) -> Query:
    try:
        return read_query(fields, console.settings.now_ms())
    except QueryError as error:
        raise PageError(400, str(error)) from None


async def _spans(console: Console, topic: TopicMetadata, query: Query) -> reading.Spans:
    """Return where to begin and end in each partition that is wanted."""
    numbers = sorted(topic.partitions)
    if query.partition is not None:
        if query.partition not in topic.partitions:
            raise PageError(
                404,
                f"topic {topic.name!r} has no partition {query.partition}; the last is"
                f" {numbers[-1]}",
            )
        numbers = [query.partition]
    items = [TopicPartition(topic.name, number) for number in numbers]
    start = Start(offset=query.offset, at_ms=query.at_ms)
    return await begin_and_end(console.admin, items, start, query.until_ms, read_committed=False)
