"""Every page of the console against a whole broker, in simulated time and without sockets."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from kraftrio.clients.cli.connect import TargetCluster
from kraftrio.clients.console.app import make_app
from kraftrio.clients.console.console import MAX_SEARCHES, Console, open_console
from kraftrio.clients.console.settings import ConsoleSettings
from tests.unit.clients.console.visitor import Answer, Visitor
from tests.unit.clients.simulated import Kafka, simulate

EVIL = "<script>alert(1)</script>"
Test = Callable[[Kafka, Console, Visitor], Awaitable[None]]


@asynccontextmanager
async def visited(kafka: Kafka, **settings: object) -> AsyncIterator[tuple[Console, Visitor]]:
    """Open a console of the cluster."""
    made = ConsoleSettings(
        TargetCluster(kafka.bootstrap),
        now_ms=kafka.now_ms,
        **settings,  # type: ignore[arg-type]
    )
    async with open_console(made) as console:
        yield console, Visitor(make_app(console))


def visit(test: Test, **settings: object) -> None:
    """Run a test's program with a console that was opened for it."""

    async def main(kafka: Kafka) -> None:
        async with visited(kafka, **settings) as (console, visitor):
            await test(kafka, console, visitor)

    simulate(main)


async def fill(kafka: Kafka) -> None:
    """Make a topic with unusual records, and a group that has read some."""
    await kafka.create("orders", 2, min_insync_replicas=1)
    now_ms = kafka.now_ms()
    async with kafka.producer() as producer:
        for number in range(20):
            await producer.send(
                "orders",
                json.dumps({"id": number, "note": EVIL}).encode(),
                key=EVIL.encode(),
                headers=[(EVIL, EVIL.encode())],
                partition=number % 2,
                timestamp_ms=now_ms + number,
            )
    async with kafka.consumer(group_id="readers") as consumer:
        await consumer.subscribe(["orders"])
        await consumer.poll(max_records=5)
        await consumer.commit()


def test_pages() -> None:
    """What each shows; what records hold is text, wherever it stands."""

    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        await trio.sleep(10)
        overview = await visitor.get("/")
        assert "are served and replicated" in overview.text
        assert "records in" in overview.text
        topics = await visitor.get("/topics?find=ORD")
        assert "orders 2 1 20" in topics.text
        assert "1 topics" in topics.text
        assert (
            "There is no topic with “x<” in its name" in (await visitor.get("/topics?find=x<")).text
        )
        topic = await visitor.get("/topic?name=orders")
        assert "0 1 0 1 1 0 10 10" in topic.text
        assert "min.insync.replicas 1 this topic" in topic.text
        assert "retention.ms" not in topic.text
        assert "retention.ms" in (await visitor.get("/topic?name=orders&all=1")).text
        group = await visitor.get("/group?id=readers")
        assert "state Empty" in group.text
        assert "lag 15" in group.text
        assert "Lag in records peak 15" in group.text
        assert "readers classic Empty 15" in (await visitor.get("/groups")).text
        quorum = await visitor.get("/quorum")
        assert "leader 1 leader epoch" in quorum.text
        settings = await visitor.get("/settings?find=node.id")
        assert "node.id 1 the broker's properties" in settings.text
        records = await visitor.get("/records?topic=orders&limit=3")
        assert records.text.index("1 9 ") < records.text.index("0 9 ") < records.text.index("1 8 ")
        assert '"id": 16' not in records.text
        record = await visitor.get("/record?topic=orders&partition=1&offset=9")
        assert '{ "id": 19, "note": "<script>alert(1)</script>" }' in record.text
        pages = [overview, topics, topic, group, quorum, settings, records, record]
        for page in pages:
            assert page.status == 200
            assert "<script>" not in page.body
            assert "script-src 'self'" in page.headers["content-security-policy"]
            assert "'unsafe" not in page.headers["content-security-policy"]
        assert records.text.count(EVIL) == 3 * 4

    visit(test)


def test_where_records_begin() -> None:
    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)

        async def offsets(query: str) -> list[str]:
            page = await visitor.get(f"/records?topic=orders&{query}")
            rows = page.body.split('data-label="offset">')[1:]
            return [row.partition("</a>")[0].rpartition(">")[2] for row in rows]

        assert await offsets("begin=oldest&limit=3") == ["0", "0", "1"]
        assert await offsets("partition=1&limit=2") == ["9", "8"]
        assert await offsets("begin=offset&at=8&partition=0") == ["8", "9"]
        newest = await visitor.get("/records?topic=orders&limit=1")
        moment = newest.body.split('class="time" data-label="time">')[1][:24]
        assert await offsets(f"begin=time&at={moment}") == ["9"]
        assert (await offsets(f"begin=oldest&until={moment}&partition=1"))[-1] == "8"

    visit(test)


def test_what_is_not_there() -> None:
    """One sentence, with the nearest name where there is one."""

    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        expected = {
            "/topic?name=ordres": "There is no topic 'ordres'; did you mean 'orders'?",
            "/records?topic=no": "There is no topic 'no'.",
            "/records?topic=orders&partition=7": "has no partition 7; the last is 1.",
            "/search?topic=orders&partition=7&text=x": "Topic 'orders' has no partition 7",
            "/record?topic=orders&offset=99": "Orders-0 has no record with offset 99",
            "/group?id=reeders": "There is no group 'reeders'; did you mean 'readers'?",
            "/reset?group=x": "There is no group 'x'",
            "/settings?broker=9": "There is no broker '9' now; those that run are 1.",
            "/nowhere": "There is no page /nowhere.",
        }
        for address, sentence in expected.items():
            page = await visitor.get(address)
            assert page.status == 404, address
            assert sentence in page.text, page.text
            assert "data-live" not in page.body
        wrong = {
            "/records?topic=orders&begin=time": "a time such as 5m ago",
            "/records?topic=orders&limit=201": "Limit must be a whole number from 1 to 200",
            "/reset?group=readers&to=moment&value=soon": "'soon' is not a moment such as '5m ago'",
            "/reset?group=readers&to=sideways": "not 'sideways'",
        }
        for address, sentence in wrong.items():
            page = await visitor.get(address)
            assert (page.status, sentence in page.text) == (400, True), page.text
        assert (await visitor.get("/topics", "PUT")).status in (403, 405)

    visit(test)


def events(answer: Answer) -> list[tuple[str, object]]:
    """The events of a search."""
    found = []
    for event in answer.body.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_search() -> None:
    """By text, key and bytes; bounded, with how far it came; as many at a time as are allowed."""

    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        page = await visitor.get("/records?topic=orders&text=19%2C")
        assert 'data-address="/search?topic=orders&amp;text=19%2C"' in page.body

        async def found(query: str) -> tuple[list[str], dict[str, float]]:
            *rows, (last, progress) = events(await visitor.get(f"/search?topic=orders&{query}"))
            assert last == "done"
            assert isinstance(progress, dict)
            return [str(row) for name, row in rows if name == "found"], progress

        (row,), progress = await found("text=%22id%22%3A+19%2C")
        assert (progress["seen"], progress["total"], progress["found"]) == (20, 20, 1)
        assert "offset=9" in row
        assert "<script>" not in row
        assert "&lt;script&gt;" in row
        assert (await found("text=nowhere"))[1]["found"] == 0
        assert (await found("key=%3Cscript%3Ealert(1)%3C/script%3E"))[1]["found"] == 20
        assert (await found("key=script"))[1]["found"] == 0
        assert (await found("text=0x3c73637269&partition=1"))[1]["found"] == 10
        assert (await found("text=id&begin=oldest&limit=3"))[1]["found"] == 3
        wrong = await visitor.get("/search?topic=orders&text=0x3")
        assert "pairs of hexadecimal digits" in wrong.text
        for _ in range(MAX_SEARCHES):
            console.searches.acquire_nowait()
        ((name, sentence),) = events(await visitor.get("/search?topic=orders&text=id"))
        assert name == "failed"
        assert sentence == f"{MAX_SEARCHES} searches are running: try again when one ends"

    visit(test)


def test_who_leaves_ends_the_search() -> None:
    """Nothing is read any more, and another search has the place."""

    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        for _ in range(2 * MAX_SEARCHES):
            answer = await visitor.get("/search?topic=orders&text=nowhere", leaves_after_s=0.0)
            assert "event: done" not in answer.body
            assert "event: failed" not in answer.body
        assert console.searches.value == MAX_SEARCHES

    visit(test)


def test_changes() -> None:
    """A record is written, and a group goes on where the preview says, and nowhere else."""

    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        form = await visitor.get("/produce?topic=orders")
        record = {"token": form.token, "topic": "orders", "partition": "1", "key_form": "null"}
        record |= {"value": "00 ff", "value_form": "hex", "headers": "a: b\n\nc:"}
        sent = await visitor.post("/produce", record)
        assert sent.status == 303
        shown = await visitor.get(sent.headers["location"])
        assert "orders-1 at 10" in shown.text
        assert "hex, 2 B 00000000 00 ff" in shown.text
        assert "name value a b c Time" not in shown.text
        sent = await visitor.post("/produce", {**record, "key": "", "key_form": "text"})
        assert "Key null Value" in (await visitor.get(sent.headers["location"])).text
        wrong = {
            "the value must be pairs": {**record, "value": "0"},
            "line 1 of the headers must be NAME: VALUE": {**record, "headers": "x"},
            "the partition must be a number from 0 to 1, not '7'": {**record, "partition": "7"},
            "there is no topic 'o'": {**record, "topic": "o"},
            "this page is older than the console": {**record, "token": "x"},
        }
        for sentence, fields in wrong.items():
            page = await visitor.post("/produce", fields)
            assert page.status in (400, 403, 404)
            assert sentence[1:] in page.text
        preview = await visitor.get("/reset?group=readers&to=earliest")
        assert "orders 0 5 0 -5 10" in preview.text or "orders 1 5 0 -5 12" in preview.text
        offsets = "orders,0,2\norders,1,3\n"
        commit = {"token": preview.token, "group": "readers", "offsets": offsets}
        done = await visitor.post("/reset", commit)
        assert done.headers["location"] == "/group?id=readers&reset=1"
        page = await visitor.get(done.headers["location"])
        assert "The group goes on where the preview said." in page.text
        assert "orders 0 2 10 8" in page.text
        empty = await visitor.post("/reset", {**commit, "offsets": ""})
        assert "there are no offsets" in empty.text.replace("There", "there")
        async with kafka.consumer(group_id="readers") as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(max_records=1)
            refused = await visitor.post("/reset", commit)
            assert refused.status == 409
            assert "has members, so nothing was changed" in refused.text

    visit(test, is_writable=True)


def test_a_console_that_is_read_only_changes_nothing() -> None:
    async def test(kafka: Kafka, console: Console, visitor: Visitor) -> None:
        await fill(kafka)
        assert "read-only" in (await visitor.get("/produce?topic=orders")).text
        preview = await visitor.get("/reset?group=readers&to=latest")
        assert "Nothing was changed: this console is read-only" in preview.text
        fields = {"token": console.token, "group": "readers", "topic": "orders"}
        for address in ("/produce", "/reset"):
            page = await visitor.post(address, {**fields, "offsets": "orders,0,9"})
            assert page.status == 403
            assert "read-only; started with --writable it is not" in page.text
        ends = await console.admin.list_group_offsets("readers")
        assert sum(each.offset for each in ends.values() if each is not None) == 5

    visit(test)


async def test_no_broker_answers(kafka: Kafka) -> None:
    """Who was asked and for how long; the page looks again, and is there when a broker is."""
    (node,) = kafka.cluster.nodes.values()
    async with visited(kafka, timeout_s=2.0) as (_, visitor):
        assert (await visitor.get("/topics")).status == 200
        node.crash()
        for address in ("/quorum", "/records?topic=orders", "/search?topic=x&text=y"):
            page = await visitor.get(address)
            assert page.status == 503, page.text
            sentence = rf"No broker answered at {kafka.bootstrap} within [12]\.\d s \("
            assert re.search(sentence, page.text), page.text
            assert f"kraftrio doctor --bootstrap-server {kafka.bootstrap}" in page.text
            assert "data-live" in page.body
        await trio.sleep(10)
        page = await visitor.get("/topics")
        assert page.status == 503
        assert "within 2.0 s" in page.text
        node.start()
        with trio.fail_after(60):
            while (await visitor.get("/topics")).status != 200:  # noqa: ASYNC110
                await trio.sleep(0.5)
        assert (await visitor.get("/quorum")).status == 200


@pytest.mark.kafka(brokers=3)
async def test_one_of_several_brokers_is_killed(kafka: Kafka) -> None:
    """What the others know is shown, first as it was, then what is the matter."""
    await kafka.create("t", 3, 3)
    async with visited(kafka, timeout_s=2.0) as (_, visitor):
        assert "are served and replicated" in (await visitor.get("/")).text
        kafka.cluster.nodes[3].crash()
        texts: list[str] = []
        with trio.fail_after(120):
            while not any("3 of 3 partitions have problems" in text for text in texts):
                page = await visitor.get("/")
                assert page.status == 200, page.text
                texts.append(page.text)
                await trio.sleep(1)
        assert "under-replicated t 0" in texts[-1]
