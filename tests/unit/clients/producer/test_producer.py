"""The producer as programs use it, over loopback to brokers in the test's own process."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.clients.errors import (
    BufferExhaustedError,
    ClosedError,
    ConfigError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaClientError,
    RecordTooLargeError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraftrio.clients.producer.batch import Delivery
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    BatchIndexAndErrorMessage,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import (
    CUT,
    CUT_AFTER,
    FakeCluster,
    FakeNode,
    fake_cluster,
)


def make_producer(fake: FakeCluster, **settings: Any) -> Producer:
    """A producer with short pauses."""
    defaults: dict[str, Any] = {
        "linger_ms": 0,
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "reconnect_backoff_ms": 5,
        "reconnect_backoff_max_ms": 20,
    }
    return Producer(fake.bootstrap, **defaults | settings)


def refusal(request: ProduceRequest, code: ErrorCode, **more: Any) -> ProduceResponse:
    """Refuse everything in a request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, **more
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


async def test_records_are_written_and_acknowledged() -> None:
    """A delivery returns topic, partition, offset and timestamp; it may be awaited again."""
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1, 2])
        async with make_producer(fake) as producer:
            first = await producer.send("t", b"a", key=b"k", partition=1, timestamp_ms=123)
            assert (first.topic, first.partition) == ("t", 1)
            assert await first == ("t", 1, 0, 123)
            assert await first.wait() == first.result()
            second = await producer.send("t", b"b", headers=[("h", b"1")], partition=1)
            assert (await second).offset == 1
        (one, two) = fake.logs["t", 1].records
        assert one[1:] == (123, b"k", b"a", ())
        assert two.headers == (("h", b"1"),)


async def test_leaving_writes_what_was_sent() -> None:
    """Nothing needs to be awaited: the end of the scope waits for all, lingering or not."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake, linger_ms=5_000) as producer:
            deliveries = [await producer.send("t", b"%d" % index) for index in range(100)]
        assert [delivery.result().offset for delivery in deliveries] == list(range(100))
        assert fake.values("t") == [b"%d" % index for index in range(100)]
        with pytest.raises(ClosedError):
            await producer.send("t", b"late")


async def test_flush_waits_for_what_was_sent_before() -> None:
    """After it every earlier delivery is done."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake, linger_ms=5_000) as producer:
            delivery = await producer.send("t", b"a")
            await producer.flush()
            assert delivery.done
            await producer.flush()


async def test_values_in_bulk() -> None:
    """As sent one by one: in order, in batches that are full, with the same refusals."""
    values = [b"%d" % index for index in range(5_000)]
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1])
        fake.add_topic("two", [1, 2])
        async with make_producer(fake, batch_size=1_000, linger_ms=5_000) as producer:
            batches = await producer.send_values("t", values)
            assert await producer.send_values("t", []) == []
            await producer.send_values("two", values, partition=1)
            with pytest.raises(TypeError):
                await producer.send_values("t", [b"a", "b"])  # type: ignore[list-item]
            with pytest.raises(RecordTooLargeError):
                await producer.send_values("t", [b"first", b"x" * 2_000_000, b"last"])
            await producer.flush()
            for batch in batches:
                batch.raise_failure()
            assert sum(batch.record_count for batch in batches) == 5_001  # "first" joined the last
        assert fake.values("t") == [*values, b"first"]
        assert [record.value for record in fake.logs["two", 1].records] == values
        with pytest.raises(ClosedError):
            await producer.send_values("t", values)


async def test_values_in_bulk_go_to_the_partitioner() -> None:
    """One of the program's own wants to see each of them."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1, 1])

        def by_value(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
            return int(value or b"0") % count

        async with make_producer(fake, partitioner=by_value) as producer:
            await producer.send_values("t", [b"0", b"1", b"2"])
        assert [record.value for record in fake.logs["t", 0].records] == [b"0", b"2"]
        assert [record.value for record in fake.logs["t", 1].records] == [b"1"]


async def test_sending_in_bulk() -> None:
    """Many batches over several partitions and brokers: each in order, memory all back."""
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1, 2, 1])
        async with make_producer(fake, linger_ms=5, batch_size=2000) as producer:
            deliveries = [
                await producer.send("t", b"%06d" % index * 10, key=b"%d" % (index % 50))
                for index in range(5000)
            ]
            await producer.flush()
            assert producer.buffered_bytes == 0
        assert all(delivery.done for delivery in deliveries)
        for partition in range(3):
            values = fake.values("t", partition)
            assert values == sorted(values, key=lambda value: value or b"")
        assert sum(len(fake.values("t", partition)) for partition in range(3)) == 5000


async def test_acks_0_and_1() -> None:
    """With acks=0 offsets are not returned; with 1 nothing is idempotent unless asked for."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake, acks=0) as producer:
            delivery = await producer.send("t", b"a")
            assert (await delivery).offset == -1
            await producer.flush()
        with trio.fail_after(2):
            while fake.values("t") != [b"a"]:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.005)
        async with make_producer(fake, acks=1) as producer:
            assert (await (await producer.send("t", b"b"))).offset == 1
        assert fake.requests[1, "InitProducerId"] == 0


async def test_old_brokers_get_topics_by_name() -> None:
    """Before version 13 Produce names topics; before 4 there are no ids at all."""
    choices: list[dict[int, int]] = [
        {ApiKey.PRODUCE: 12},
        {ApiKey.PRODUCE: 7, ApiKey.METADATA: 4},
    ]
    for versions in choices:
        async with fake_cluster() as fake:
            fake.add_topic("t", [1])
            fake.max_versions = dict(versions)
            async with make_producer(fake) as producer:
                assert (await (await producer.send("t", b"a"))).offset == 0
            assert fake.versions_used["Produce"] == versions[ApiKey.PRODUCE]


# Faults


async def test_a_connection_cut_after_writing_doubles_nothing() -> None:
    """The batch is sent again; the broker knows it, and its offset is returned."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        cuts = [CUT_AFTER, CUT, CUT_AFTER]
        fake.on(ApiKey.PRODUCE, lambda node, _: cuts.pop() if cuts else None)
        async with make_producer(fake) as producer:
            deliveries = [await producer.send("t", b"%d" % index) for index in range(10)]
            offsets = [(await delivery).offset for delivery in deliveries]
        assert not cuts
        assert offsets == list(range(10))
        assert fake.values("t") == [b"%d" % index for index in range(10)]


@pytest.mark.parametrize("seed", range(5))
async def test_a_backoff_ends_though_nothing_else_happens(seed: int) -> None:
    """Two batches of a partition are lost with their connection; the one whose pause is longer is
    sent in time, too, when nothing comes in between that could remind of it."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(
            fake, rng=random.Random(seed), retry_backoff_ms=100, retry_backoff_max_ms=100
        ) as producer:
            await (await producer.send("t", b"0"))
            cuts = [CUT]
            fake.on(ApiKey.PRODUCE, lambda node, _: cuts.pop() if cuts else None)
            deliveries = [await producer.send("t", b"%d" % index) for index in range(1, 4)]
            with trio.fail_after(5):
                assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]


async def test_what_waited_behind_a_full_batch_does_not_linger_forever() -> None:
    """A batch that is still open when the one before it goes, long after it was sent for, goes
    linger_ms later at the latest, though nothing else happens."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(
            fake, linger_ms=100, batch_size=1000, max_in_flight_requests_per_connection=1
        ) as producer:
            await (await producer.send("t", b"0"))
            gate = trio.Event()
            fake.on(ApiKey.PRODUCE, lambda node, _: gate)
            deliveries = [await producer.send("t", b"%d" % index * 700) for index in range(1, 4)]
            await trio.sleep(0.15)  # the first is out, the second full, the third open and due
            gate.set()
            with trio.fail_after(5):
                assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]


async def test_a_broker_that_restarts() -> None:
    """Records wait until it is back, in order."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake) as producer:
            await (await producer.send("t", b"0"))
            fake.nodes[1].stop()
            deliveries = [await producer.send("t", b"%d" % index) for index in range(1, 50)]
            await trio.sleep(0.05)
            assert not deliveries[0].done
            await fake.nodes[1].start()
            await producer.flush()
        assert fake.values("t") == [b"%d" % index for index in range(50)]


async def test_a_leader_that_is_killed() -> None:
    """The next leader is found by metadata and gets the rest."""
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake) as producer:
            await (await producer.send("t", b"0"))
            fake.nodes[1].stop()
            delivery = await producer.send("t", b"1")
            await trio.sleep(0.03)
            fake.lead("t", 0, 2)
            assert (await delivery).offset == 1
        assert fake.requests[2, "Produce"] >= 1


async def test_a_hint_about_the_leader_is_followed_at_once() -> None:
    """NOT_LEADER_OR_FOLLOWER with the new leader beside it needs no metadata (KIP-951)."""
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake, retry_backoff_ms=20_000) as producer:
            await (await producer.send("t", b"0"))
            fake.lead("t", 0, 2)
            asked = sum(count for (_, name), count in fake.requests.items() if name == "Metadata")

            def script(node: FakeNode, request: ProduceRequest) -> Any:
                if node.node_id == 2:
                    return None
                response = refusal(
                    request,
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
                )
                endpoint = NodeEndpoint(node_id=2, host="127.0.0.1", port=fake.nodes[2].port)
                response.node_endpoints = [endpoint]
                return response

            fake.on(ApiKey.PRODUCE, script)
            with trio.fail_after(2):
                assert (await (await producer.send("t", b"1"))).offset == 1
            now = sum(count for (_, name), count in fake.requests.items() if name == "Metadata")
            assert now == asked


async def test_a_refused_record_says_why() -> None:
    """The broker's reasons, record by record, are in the error; the next records arrive."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])

        def script(node: FakeNode, request: ProduceRequest) -> Any:
            errors = [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key")]
            return refusal(
                request,
                ErrorCode.INVALID_RECORD,
                record_errors=errors,
                error_message="One or more records have been rejected",
            )

        async with make_producer(fake) as producer:
            fake.on(ApiKey.PRODUCE, script)
            delivery = await producer.send("t", b"a")
            with pytest.raises(InvalidRecordError, match="rejected; record 0: no key"):
                await delivery
            fake.off(ApiKey.PRODUCE)
            assert (await (await producer.send("t", b"b"))).offset == 0


async def test_what_cannot_be_delivered_is_given_up_in_time() -> None:
    """A broker that never answers: each record ends with TimedOutError after
    delivery_timeout_ms, and leaving does not hang."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        never = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: never)
        started_at = trio.current_time()
        async with make_producer(fake, request_timeout_ms=100, delivery_timeout_ms=300) as producer:
            delivery = await producer.send("t", b"a")
        assert 0.25 < trio.current_time() - started_at < 2
        with pytest.raises(TimedOutError, match="within 300 ms"):
            delivery.result()


async def test_a_producer_id_is_asked_for_until_there_is_one() -> None:
    """Retriable refusals are waited out; one that stays ends what waits with its error."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]

        def script(node: FakeNode, _: object) -> Any:
            return InitProducerIdResponse(error_code=codes.pop()) if codes else None

        fake.on(ApiKey.INIT_PRODUCER_ID, script)
        async with make_producer(fake) as producer:
            assert (await (await producer.send("t", b"a"))).offset == 0
        codes = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        async with make_producer(fake) as producer:
            delivery = await producer.send("t", b"a")
            with pytest.raises(KafkaClientError) as raised:
                await delivery
            assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Steps(trio.abc.Instrument):
    """Counts what the event loop does."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def steps_within(seconds: float) -> int:
    """How many steps all tasks take in a time."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await trio.sleep(seconds)
    trio.lowlevel.remove_instrument(steps)
    return steps.count


async def test_waiting_for_a_producer_id_costs_nothing() -> None:
    """The task sleeps until there is one."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        later = trio.Event()
        fake.on(ApiKey.INIT_PRODUCER_ID, lambda node, _: later)
        async with make_producer(fake) as producer:
            delivery = await producer.send("t", b"a")
            assert await steps_within(0.2) < 100
            later.set()
            assert (await delivery).offset == 0


async def test_waiting_to_connect_again_costs_nothing() -> None:
    """The task sleeps while a broker that refuses is left alone for a moment."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(
            fake, reconnect_backoff_ms=300, reconnect_backoff_max_ms=300
        ) as producer:
            await (await producer.send("t", b"a"))
            fake.nodes[1].stop()
            delivery = await producer.send("t", b"b")
            await trio.sleep(0.05)
            assert await steps_within(0.2) < 200
            await fake.nodes[1].start()
            assert (await delivery).offset == 1


async def test_a_broker_without_producer_ids() -> None:
    """An idempotent producer cannot work with it, and says so."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        fake.max_versions = {ApiKey.INIT_PRODUCER_ID: -1}
        async with make_producer(fake) as producer:
            with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
                await (await producer.send("t", b"a"))
        async with make_producer(fake, enable_idempotence=False) as producer:
            assert (await (await producer.send("t", b"a"))).offset == 0


async def test_a_broker_that_takes_nothing_is_avoided() -> None:
    """partitioner_availability_timeout_ms: records without a key go to the other brokers."""
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [1, 2])
        gate = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: gate if node.node_id == 2 else None)
        async with make_producer(
            fake, partitioner_availability_timeout_ms=20, batch_size=1000
        ) as producer:

            async def send_to_partition() -> int:
                await trio.sleep(0.001)
                return (await producer.send("t", b"x" * 900)).partition

            with trio.fail_after(10):
                while await send_to_partition() != 1:
                    pass
            deadline = trio.current_time() + 0.1
            while trio.current_time() < deadline:
                await send_to_partition()
            assert {await send_to_partition() for _ in range(50)} == {0}
            gate.set()


# Waiting


async def test_a_full_buffer_makes_send_wait() -> None:
    """With a slow broker senders wait in turn, and go on as batches are written."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        gate = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: gate)
        async with make_producer(
            fake, batch_size=1000, buffer_memory=4000, max_block_ms=5_000
        ) as producer:
            accepted: list[int] = []

            async def send(index: int) -> None:
                await producer.send("t", b"%d" % index * 800)
                accepted.append(index)

            async with trio.open_nursery() as nursery:
                for index in range(8):
                    nursery.start_soon(send, index)
                    await trio.testing.wait_all_tasks_blocked(0.02)
                assert accepted == [0, 1, 2, 3]
                assert producer.buffered_bytes > 3000
                gate.set()
                fake.off(ApiKey.PRODUCE)
            assert sorted(accepted) == list(range(8))
        written = sorted(value[:1] for value in fake.values("t") if value)
        assert written == [b"%d" % index for index in range(8)]


async def test_a_buffer_that_stays_full() -> None:
    """After max_block_ms send gives up; its record is not sent later."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        gate = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: gate)
        async with make_producer(
            fake, batch_size=1000, buffer_memory=2000, max_block_ms=300
        ) as producer:
            await producer.send("t", b"a" * 800)
            await producer.send("t", b"b" * 800)
            with pytest.raises(BufferExhaustedError, match="2000 bytes had no room"):
                await producer.send("t", b"c" * 800)
            gate.set()
            fake.off(ApiKey.PRODUCE)
            await producer.flush()
            await (await producer.send("t", b"d" * 800))
        assert [value[:1] for value in fake.values("t") if value] == [b"a", b"b", b"d"]


async def test_topics_that_are_not_there() -> None:
    """Unknown and impossible topics and partitions are told apart, within max_block_ms."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        fake.add_topic("bad", [1])
        fake.topics["bad"].error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        async with make_producer(fake, max_block_ms=300) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match="'nope'"):
                await producer.send("nope", b"a")
            with pytest.raises(InvalidTopicError):
                await producer.send("bad", b"a")
            with pytest.raises(UnknownTopicOrPartitionError, match=r"no partition 3 after 300 ms"):
                await producer.send("t", b"a", partition=3)
            assert await producer.partitions_for("t") == [0]
        fake.auto_create = True
        async with make_producer(fake) as producer:
            assert (await (await producer.send("nope", b"a"))).offset == 0


async def test_a_partition_that_comes_later() -> None:
    """A record for it waits; records by key take it into account."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake) as producer:
            await (await producer.send("t", b"a"))
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    assert (await (await producer.send("t", b"b", partition=1))).offset == 0

                nursery.start_soon(send)
                await trio.sleep(0.02)
                fake.topics["t"].leaders.append((1, 0))
                fake.logs["t", 1] = type(fake.logs["t", 0])()


async def test_wrong_arguments() -> None:
    """What is not a record is refused before anything is accepted; settings when it is made."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with make_producer(fake, max_request_size=2000) as producer:
            with pytest.raises(TypeError, match="value must be bytes or None, not str"):
                await producer.send("t", "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="key must be bytes"):
                await producer.send("t", b"", key=1)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="name of a header"):
                await producer.send("t", b"", headers=[(b"h", b"")])  # type: ignore[list-item]
            with pytest.raises(ValueError, match="timestamp_ms"):
                await producer.send("t", b"", timestamp_ms=-1)
            with pytest.raises(ValueError, match="partition"):
                await producer.send("t", b"", partition=-1)
            with pytest.raises(RecordTooLargeError, match="max_request_size"):
                await producer.send("t", b"x" * 2000)
            memory: Any = bytearray(b"mine")
            delivery = await producer.send("t", memory)
            memory[:] = b"your"
            await delivery
        assert fake.values("t") == [b"mine"]
        with pytest.raises(ConfigError, match="batch_size must be a whole number"):
            make_producer(fake, batch_size="big")


async def test_a_partitioner_of_the_programs_own() -> None:
    """It sees topic, key, value and the number of partitions; a negative choice is an error."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1, 1, 1])

        def last(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
            assert (topic, key) == ("t", None)
            return -1 if value == b"bad" else count - 1

        async with make_producer(fake, partitioner=last) as producer:
            assert (await producer.send("t", b"a")).partition == 2
            with pytest.raises(ValueError, match="partitioner"):
                await producer.send("t", b"bad")


# The end


async def test_an_exception_in_the_scope_writes_what_was_sent() -> None:
    """It comes out as it is, after everything accepted was decided."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        with pytest.raises(KeyError, match="mine"):
            async with make_producer(fake, linger_ms=5_000) as producer:
                await producer.send("t", b"a")
                raise KeyError("mine")
        assert fake.values("t") == [b"a"]


async def test_cancelling_the_scope_gives_up_at_once() -> None:
    """What is not written is raised in tasks that wait elsewhere; nothing hangs."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        never = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: never)
        raised: list[KafkaClientError] = []
        deliveries: list[Delivery] = []

        async def wait() -> None:
            try:
                await deliveries[0]
            except KafkaClientError as error:
                raised.append(error)

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(5) as scope:
                async with make_producer(fake) as producer:
                    deliveries.append(await producer.send("t", b"a"))
                    nursery.start_soon(wait)
                    await trio.sleep(0.02)
                    scope.cancel()
                    await trio.sleep_forever()
            assert scope.cancelled_caught
        assert isinstance(raised[0], ClosedError)
        assert deliveries[0].done


async def test_a_cancelled_wait_changes_nothing() -> None:
    """The record is sent all the same, and may be waited for again."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        gate = trio.Event()
        fake.on(ApiKey.PRODUCE, lambda node, _: gate)
        async with make_producer(fake) as producer:
            delivery = await producer.send("t", b"a")
            with trio.move_on_after(0.01) as scope:
                await delivery
            assert scope.cancelled_caught
            gate.set()
            assert (await delivery).offset == 0
