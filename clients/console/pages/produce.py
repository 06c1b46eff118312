"""Writes one record.

Called by: `app`.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.console.console import Console, PageError
from kraftrio.clients.console.guard import check_form
from kraftrio.clients.console.pages.view import link, mark_begin, page
from kraftrio.clients.producer.producer import Producer

Header = tuple[str, bytes | None]


async def form(console: Console, request: Request) -> Response:
    """Show the form."""
    mark_begin(request)
    topic = await console.topic(request.query_params.get("topic", ""))
    return page(
        console,
        "produce.html",
        f"Write into {topic.name}",
        area="topics",
        is_live=False,
        topic=topic,
    )


async def produce(console: Console, request: Request) -> Response:
    """Write what the form has, and show the record."""
    fields = await check_form(console, request)
    mark_begin(request)
    topic = await console.topic(fields.get("topic", ""))
    partition = _partition(fields.get("partition", "").strip(), len(topic.partitions))
    key, value = content_of(fields, "key"), content_of(fields, "value")
    headers = headers_of(fields.get("headers", ""))
    timeout_ms = console.settings.timeout_ms
    chosen = console.settings.client(ProducerConfig) | {
        "transactional_id": None,
        "linger_ms": 0,
        "max_block_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
        "delivery_timeout_ms": 2 * timeout_ms,
    }
    servers, network = console.settings.target.servers, console.settings.network
    async with Producer(servers, network=network, **chosen) as producer:
        delivery = await producer.send(
            topic.name,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=console.settings.now_ms(),
        )
        sent = await delivery
    address = link(
        "/record", topic=sent.topic, partition=sent.partition, offset=sent.offset, written="1"
    )
    return RedirectResponse(address, status_code=303)


def content_of(fields: Mapping[str, str], name: str) -> bytes | None:
    """Return a key or value: text, bytes in hexadecimal, or null, as is a key that is not given.

    Raises:
        PageError: what should be hexadecimal is not.
    """
    text, kind = fields.get(name, ""), fields.get(f"{name}_form", "text")
    if kind == "null" or (kind == "text" and name == "key" and not text):
        return None
    if kind == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise PageError(
                400, f"the {name} must be pairs of hexadecimal digits, such as 00 ff"
            ) from None
    return text.replace("\r\n", "\n").encode()  # as browsers send the ends of lines


def headers_of(text: str) -> list[Header]:
    """Return headers of lines "name: value".

    Raises:
        PageError: a line has another form.
    """
    found: list[Header] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise PageError(400, f"line {number} of the headers must be NAME: VALUE")
            found.append((name.strip(), value.strip().encode()))
    return found


def _partition(text: str, count: int) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text[:10]) >= count:
        raise PageError(400, f"the partition must be a number from 0 to {count - 1}, not {text!r}")
    return int(text)
