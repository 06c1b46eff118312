"""kraftrio.asyncio against a broker: programs of `asyncio.run`, a web application, Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from kraftrio import ConsumerRecord, RebalanceListener, TopicPartition
from kraftrio.asyncio import Admin, Consumer, Producer, ShareConsumer
from kraftrio.clients.admin.types import AlterConfigOp, ConfigResource, ConfigResourceType
from kraftrio.clients.serialization import (
    json_deserializer,
    json_serializer,
    string_deserializer,
    string_serializer,
)
from kraftrio.errors import ClosedError, TransactionStateError, UnknownTopicOrPartitionError
from kraftrio.testing import KafkaBroker

DEADLINE_S = 30
ROOT = Path(__file__).resolve().parent.parent.parent
TOPIC = "topic"


pytestmark = pytest.mark.kafka(scope="module")


@pytest.fixture
def address(kafka_broker: KafkaBroker) -> str:
    """Of one broker for all, with the topic of the test alone."""
    kafka_broker.create_topic(TOPIC)
    return kafka_broker.bootstrap_servers


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """The clients' thread ends with the last client."""
    yield
    assert not [each for each in threading.enumerate() if each.name == "kraftrio-clients"]


def run(program: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await program

    asyncio.run(bounded())


async def produced(address: str, topic: str, count: int) -> None:
    async with Producer(address) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


def test_what_is_sent_is_read_in_order(address: str) -> None:
    """Also across batches; deliveries of one batch are awaited together, or looked at."""

    async def program() -> None:
        topic = TOPIC
        async with Producer(address, batch_size=1000, linger_ms=5) as producer:
            deliveries = [await producer.send(topic, b"%d" % number) for number in range(2000)]
            results = await asyncio.gather(*deliveries)
            assert [each.offset for each in results] == list(range(2000))
            last = await producer.send(topic, b"last", headers=[("a", b"b")], key=b"k")
            assert not last.done
            await producer.flush()
            assert last.done and last.result().offset == 2000 == (await last).offset
        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            values: list[bytes | None] = []
            async for record in consumer:
                values.append(record.value)
                place = consumer.positions()[record.topic_partition].offset
                assert place == record.offset + 1 if record.offset % 100 == 0 else True
                if record.value == b"last":
                    break
            assert values == [*(b"%d" % number for number in range(2000)), b"last"]
            consumer.seek(TopicPartition(topic, 0), 1990)
            async for batch in consumer.batches():
                assert batch.first_offset == 1990
                break

    run(program())


def test_keys_and_values_may_be_objects(address: str) -> None:
    """Serializers and deserializers, also for records that change threads by the batch."""

    async def program() -> None:
        topic = TOPIC
        async with Producer(
            address, key_serializer=string_serializer, value_serializer=json_serializer
        ) as writer:
            for number in range(500):
                await writer.send(topic, {"number": number}, key=str(number))
            with pytest.raises(TypeError):
                await writer.send(topic, {"number": object()})
        async with Consumer(
            address,
            key_deserializer=string_deserializer,
            value_deserializer=json_deserializer,
            auto_offset_reset="earliest",
        ) as reader:
            reader.assign(TopicPartition(topic, 0))
            for number in range(500):
                record = await anext(reader)
                assert (record.key, record.value) == (str(number), {"number": number})

    run(program())


def test_a_record_that_cannot_be_sent_is_refused_by_its_call(address: str) -> None:
    async def program() -> None:
        topic = TOPIC
        async with Producer(address, max_block_ms=300) as producer:
            await (await producer.send(topic, b"good"))
            with pytest.raises(TypeError):
                await producer.send(topic, 5)  # type: ignore[arg-type]
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send(topic, b"nowhere", partition=7)
            assert (await producer.send_and_wait(topic, b"better")).offset == 1
        with pytest.raises(ClosedError):
            await producer.send(topic, b"late")

    run(program())


def test_a_cancelled_call_loses_no_record(address: str) -> None:
    """Calls are cancelled again and again while records come: each is seen once, in order."""

    async def program() -> None:
        topic = TOPIC
        seen: list[int] = []

        async def note(record: ConsumerRecord) -> None:
            seen.append(int(record.value or b""))

        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            producing = asyncio.create_task(produced(address, topic, 3000))
            pause = 0.0
            while len(seen) < 3000:
                pause = (pause + 0.0003) % 0.003
                taking = asyncio.create_task(consumer.poll(max_records=50))
                await asyncio.wait([taking], timeout=pause)
                taking.cancel()
                with_records = (await asyncio.gather(taking, return_exceptions=True))[0]
                if not isinstance(with_records, BaseException):
                    for record in with_records:
                        await note(record)
                try:
                    async with asyncio.timeout(pause):
                        await note(await anext(consumer))
                except TimeoutError:
                    continue
            await producing
            assert seen == list(range(3000))

    run(program())


def test_members_of_a_group_commit_and_are_notified_of_their_partitions(address: str) -> None:
    """A listener is called in the program's event loop, and may call its consumer there."""

    class Listener(RebalanceListener):
        def __init__(self) -> None:
            self.calls: list[str] = []
            self.threads: set[str] = set()

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.threads.add(threading.current_thread().name)
            self.calls.append(f"assigned {len(partitions)}")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            self.threads.add(threading.current_thread().name)
            if partitions:
                await consumer.commit()
                self.calls.append("committed")

    listener = Listener()
    commits: list[object] = []
    consumer: Consumer

    async def program() -> None:
        nonlocal consumer
        topic = TOPIC
        await produced(address, topic, 10)
        settings: dict[str, Any] = {"group_id": f"group-of-{topic}", "enable_auto_commit": False}
        place = TopicPartition(topic, 0)
        async with Consumer(address, auto_offset_reset="earliest", **settings) as consumer:
            await consumer.subscribe([topic], listener=listener)
            for _ in range(4):
                await anext(consumer)
            committed = asyncio.Event()

            def on_commit(*result: object) -> None:
                commits.append(result)
                committed.set()

            consumer.commit_async(callback=on_commit)
            await committed.wait()
            await anext(consumer)
            await consumer.unsubscribe()
        async with Consumer(address, **settings) as consumer:
            found = (await consumer.offsets.committed([place]))[place]
            assert found is not None and found.offset == 5
        assert listener.calls == ["assigned 1", "committed"]
        assert listener.threads == {threading.current_thread().name} and len(commits) == 1

    run(program())


def test_a_body_that_raises_has_not_finished_with_its_record(address: str) -> None:
    """Nor has one that is cancelled: the next member gets that record again."""

    async def program() -> None:
        topic = TOPIC
        await produced(address, topic, 10)
        settings: dict[str, Any] = {"group_id": f"group-of-{topic}"}
        offsets: list[int] = []

        async def read(end: type[BaseException], count: int) -> None:
            async with Consumer(address, auto_offset_reset="earliest", **settings) as consumer:
                await consumer.subscribe([topic])
                async for record in consumer:
                    offsets.append(record.offset)
                    if len(offsets) == count:
                        raise end

        with pytest.raises(ZeroDivisionError):
            await read(ZeroDivisionError, 3)
        with pytest.raises(asyncio.CancelledError):
            await read(asyncio.CancelledError, 6)
        with pytest.raises(ZeroDivisionError):
            await read(ZeroDivisionError, 7)
        assert offsets == [0, 1, 2, 2, 3, 4, 4]

    run(program())


def test_a_loop_commits_after_the_body(address: str) -> None:
    """The records of a body that raised or was cancelled come again, also with `batches`."""

    async def program() -> None:
        topic = TOPIC
        await produced(address, topic, 2000)
        settings: dict[str, Any] = {"group_id": f"group-of-{topic}", "enable_auto_commit": False}
        seen: list[int] = []
        async with Consumer(address, auto_offset_reset="earliest", **settings) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(ZeroDivisionError):
                async for record in consumer.committed():
                    if record.offset == 1500:
                        raise ZeroDivisionError
                    seen.append(record.offset)

            async def read_on() -> None:
                async for record in consumer.committed():
                    seen.append(record.offset)
                    if record.offset == 1999:
                        has_all.set()

            has_all = asyncio.Event()
            task = asyncio.create_task(read_on())
            await has_all.wait()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert seen == list(range(2000))
        await produced(address, topic, 10)
        async with Consumer(address, **settings) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(ZeroDivisionError):
                async for batch in consumer.committed().batches():
                    assert batch.first_offset == 2000
                    raise ZeroDivisionError
        async with Consumer(address, **settings) as consumer:
            found = await consumer.offsets.committed(TopicPartition(topic, 0))
            assert [each and each.offset for each in found.values()] == [2000]

    run(program())


def test_a_transaction_counts_whole_or_not_at_all(address: str) -> None:
    async def program() -> None:
        topic = TOPIC
        async with Producer(address, transactional_id=f"id-of-{topic}") as producer:
            with pytest.raises(TransactionStateError):
                await producer.send(topic, b"outside")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"aborted")
                    raise ZeroDivisionError
            cancelled = asyncio.Event()

            async def be_cancelled() -> None:
                async with producer.transaction():
                    await producer.send(topic, b"cancelled")
                    cancelled.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(be_cancelled())
            await cancelled.wait()
            task.cancel()
            await asyncio.wait([task])
            async with producer.transaction() as transaction:
                await producer.send(topic, b"committed")
                await transaction.send_offsets({TopicPartition(topic, 0): 1}, f"group-{topic}")
        async with Consumer(
            address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert (await anext(consumer)).value == b"committed"
        async with Admin(address) as admin:
            found = await admin.list_group_offsets(f"group-{topic}")
            assert [each and each.offset for each in found.values()] == [1]

    run(program())


def test_a_share_group_works_on_records(address: str) -> None:
    """Acknowledgements are made in the program's thread; a cancelled call loses nothing."""

    async def program() -> None:
        topic = TOPIC
        group = f"share-{topic}"
        threads: list[str] = []
        async with Admin(address) as admin:
            earliest = AlterConfigOp("share.auto.offset.reset", "earliest")
            resource = ConfigResource(ConfigResourceType.GROUP, group)
            await admin.incremental_alter_configs({resource: [earliest]})
        await produced(address, topic, 200)
        async with ShareConsumer(
            address, group_id=group, share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.acknowledgement_callback = lambda *_: threads.append(
                threading.current_thread().name
            )
            await consumer.subscribe(topic)
            values: list[int] = []
            pause = 0.0
            while len(values) < 200:
                pause = (pause + 0.0003) % 0.003
                taking = asyncio.create_task(anext(consumer))
                await asyncio.wait([taking], timeout=pause)
                taking.cancel()
                found = (await asyncio.gather(taking, return_exceptions=True))[0]
                if not isinstance(found, BaseException):
                    values.append(int(found.value or b""))
                    assert found.delivery_count == 1
                    found.accept()
            outcome = await consumer.commit()
            assert values == list(range(200)) and not any(outcome.values())
        assert set(threads) == {threading.current_thread().name}

    run(program())


def test_a_web_application_holds_its_clients_for_its_lifetime(address: str) -> None:
    """FastAPI: the lifespan opens clients, and requests and a background task call them."""
    read: list[bytes | None] = []

    async def read_all(consumer: Consumer, topic: str) -> None:
        await consumer.subscribe([topic])
        async for record in consumer:
            read.append(record.value)  # noqa: PERF401 - others look at it meanwhile

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.topic = topic = TOPIC
        settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with Producer(address) as producer, Consumer(address, **settings) as consumer:
            app.state.producer = producer
            reading = asyncio.create_task(read_all(consumer, topic))
            yield
            reading.cancel()
            await asyncio.wait([reading])

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}")
    async def order(request: Request, number: int) -> dict[str, int]:
        state = request.app.state
        delivery = await state.producer.send(state.topic, b"%d" % number)
        return {"offset": (await delivery).offset}

    @app.get("/orders")
    async def orders() -> list[int]:
        async with asyncio.timeout(DEADLINE_S):
            while len(read) < 5:  # noqa: ASYNC110 - a task beside appends to it
                await asyncio.sleep(0.001)
        return [int(value or b"") for value in read]

    with TestClient(app) as client:
        answers = [client.post(f"/orders/{number}").json() for number in range(5)]
        assert answers == [{"offset": number} for number in range(5)]
        assert client.get("/orders").json() == [0, 1, 2, 3, 4]


def test_the_program_of_the_readme_runs(address: str) -> None:
    section = (ROOT / "README.md").read_text().partition("### asyncio\n")[2].partition("\n### ")[0]
    code = section.partition("```python\n")[2].partition("```")[0]
    with started(code.replace("localhost:9092", address), address) as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert output.splitlines()[-1] == "greetings-0 at 99", errors


_UNTIL_STOPPED = """
import asyncio, sys
from kraftrio import TopicPartition
from kraftrio.asyncio import Consumer

async def main():
    async with Consumer(sys.argv[1]) as consumer:
        consumer.assign([TopicPartition("topic-that-stays-empty", 0)])
        print("ready", flush=True)
        async for record in consumer:
            print(record)

asyncio.run(main())
"""

_NEVER_CLOSED = """
import asyncio, sys
from kraftrio.asyncio import Producer

loop = asyncio.new_event_loop()
loop.run_until_complete(Producer(sys.argv[1]).__aenter__())
"""


def started(program: str, address: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, address]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def test_ctrl_c_ends_a_program_in_a_few_lines(address: str) -> None:
    with started(_UNTIL_STOPPED, address) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=DEADLINE_S)
    lines = complaint.splitlines()
    assert lines[-1] == "KeyboardInterrupt" and len(lines) < 45, complaint
    assert process.returncode == -signal.SIGINT
    assert "Group" not in complaint


def test_a_program_that_closes_nothing_ends_all_the_same(address: str) -> None:
    with started(_NEVER_CLOSED, address) as process:
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
