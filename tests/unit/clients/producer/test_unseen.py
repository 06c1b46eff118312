"""Failed deliveries that the program never looked at are warned of; others are not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio

from kraftrio.clients.errors import InvalidRecordError
from kraftrio.clients.producer.batch import Delivery, wait_batch
from kraftrio.clients.producer.producer import Producer
from kraftrio.clients.producer.unseen import WARNINGS
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeCluster, fake_cluster
from tests.unit.clients.producer.test_producer import refusal


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    """Each test's warnings are logged at once."""
    WARNINGS.forget()
    yield
    gc.collect()
    WARNINGS.forget()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()
    return [record.getMessage() for record in caplog.records if "unseen" in record.name]


async def only_warning(caplog: pytest.LogCaptureFixture) -> str:
    """Wait for the only warning: the sender may hold on to the batch for a moment."""
    with trio.fail_after(10):
        while True:
            if found := warnings(caplog):
                assert len(found) == 1, found
                return found[0]
            await trio.sleep(0.001)


async def failed(fake: FakeCluster, producer: Producer, count: int = 1) -> list[Delivery]:
    """Send a batch that the broker refuses."""
    fake.add_topic("t", [1])
    fake.on(ApiKey.PRODUCE, lambda _, request: refusal(request, ErrorCode.INVALID_RECORD))
    sent = [await producer.send("t", b"x", partition=0) for _ in range(count)]
    await producer.flush()
    return sent


async def test_unseen_failures_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """One warning with what to do, and the next with how many were left out."""
    async with fake_cluster() as fake, Producer(fake.bootstrap) as producer:
        await failed(fake, producer, 2)
        sentence = await only_warning(caplog)
        assert sentence.startswith("2 record(s) for t-0 were not delivered, and nobody looked")
        assert sentence.endswith("await what send returns, or use send_and_wait")
        await failed(fake, producer, 3)
        assert len(warnings(caplog)) == 1, "not so soon again"


async def test_seen_failures_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """At one of the deliveries, or at the batch."""
    async with fake_cluster() as fake, Producer(fake.bootstrap) as producer:
        for delivery in await failed(fake, producer):
            with pytest.raises(InvalidRecordError):
                await delivery
        del delivery
        (sent,) = await failed(fake, producer)
        batch = sent.batch
        await wait_batch(batch)
        with pytest.raises(InvalidRecordError):
            batch.raise_failure()
        del batch, sent
        assert warnings(caplog) == []
