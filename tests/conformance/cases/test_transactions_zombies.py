"""Writes that the network holds back until their transaction has been aborted: never to be seen.

The abort is that of a new producer, of the coordinator after the time-out, or of the producer
itself. If a late batch were accepted, it would be read with the next commit, or hold back readers
for ever (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cases.calls import create_topic, end_offset
from tests.conformance.cases.holding_proxy import HoldingProxy
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    TransactionalProducer,
    committed,
    wait_for_state,
    wait_for_transactions,
    wait_stable,
)
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import log
from tests.conformance.clients.install import python_client

pytestmark = scenarios.MARKS

OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
# The error of a producer of Produce 11, whose epoch is still the current one.
NOT_IN_TRANSACTION = ErrorCode.TRANSACTION_ABORTABLE

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, HoldingProxy]]:
    """A broker that clients find behind the proxy."""
    with HoldingProxy() as proxy:
        broker = start_broker(
            tmp_path_factory.mktemp("held"),
            advertised_listeners=f"PLAINTEXT://{proxy.address}",
            transaction_abort_timed_out_transaction_cleanup_interval_ms=200,
        )
        proxy.target = broker.address
        with RawClient(broker.address) as client:
            wait_for_transactions(client)
        yield broker, proxy
        broker.close()


@pytest.fixture
def proxy(network: tuple[Broker, HoldingProxy]) -> HoldingProxy:
    """The network, which lets everything pass at first."""
    return network[1]


@pytest.fixture
def bootstrap(network: tuple[Broker, HoldingProxy]) -> str:
    """The broker itself, for connections that are not held up."""
    return network[0].address


@pytest.fixture
def slow(proxy: HoldingProxy) -> Iterator[RawClient]:
    """A connection through the network that holds back."""
    with RawClient(proxy.address) as made:
        yield made


@pytest.mark.parametrize("abort", ["by a new producer", "by its time-out", "by itself"])
@both_versions
def test_a_write_that_comes_after_the_abort(
    client: RawClient,
    slow: RawClient,
    proxy: HoldingProxy,
    request: pytest.FixtureRequest,
    version: int,
    abort: str,
) -> None:
    """It is refused, and neither the next commit nor the last stable offset knows of it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    topic = create_topic(client, name)
    timeout_ms = 1500 if abort == "by its time-out" else 60_000
    producer = TransactionalProducer(slow, name, version, timeout_ms).init()
    producer.write(topic, b"lost")
    late = producer.twin()
    proxy.hold(ApiKey.PRODUCE)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(proxy.release)
        answer = pool.submit(late.try_write, topic, b"late")
        proxy.wait_held()
        younger = producer.twin(client)
        if abort == "by a new producer":
            younger.init()
        elif abort == "by itself":
            younger.end(commit=False)
        wait_for_state(client, name, "CompleteAbort", "Empty")
        assert wait_stable(client, topic) == 2
        proxy.release()
        code = answer.result().error_code
    is_current = abort == "by itself" and version == 1
    assert code == (NOT_IN_TRANSACTION if is_current else OLD_EPOCH)
    assert wait_stable(client, topic) == end_offset(client, topic) == 2
    if abort != "by itself":
        younger.init()
    younger.write(topic, b"next")
    younger.end(commit=True)
    wait_stable(client, topic)
    assert committed(client, topic) == [b"next"]


def test_a_commit_that_comes_after_the_next_producer(
    client: RawClient, slow: RawClient, proxy: HoldingProxy
) -> None:
    """It does not end the transaction of the newer one."""
    for version in (1, 2):
        name = f"late-commit-{version}"
        topic = create_topic(client, name)
        producer = TransactionalProducer(slow, name, version).init()
        producer.write(topic, b"lost")
        late = producer.twin()
        proxy.hold(ApiKey.END_TXN)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(late.try_end, True)
            proxy.wait_held()
            younger = producer.twin(client).init()
            younger.write(topic, b"open")
            proxy.release()
            assert answer.result().error_code == ErrorCode.PRODUCER_FENCED
        assert younger.state().transaction_state == "Ongoing"
        assert committed(client, topic) == []
        younger.end(commit=True)
        wait_stable(client, topic)
        assert committed(client, topic) == [b"open"]


def test_librdkafka_as_a_zombie(
    client: RawClient, proxy: HoldingProxy, unique_name: Callable[[str], str]
) -> None:
    """Its producer ends with a fatal error, whose late batch is never seen."""
    library = python_client("confluent_kafka")
    topic, name = create_topic(client, unique_name("topic")), unique_name("id")
    settings = {"bootstrap.servers": proxy.address, "transactional.id": name, "linger.ms": 0}
    zombie = library.Producer(settings, logger=log)
    zombie.init_transactions(scenarios.DEADLINE_S)
    zombie.begin_transaction()
    zombie.produce(topic, value=b"lost")
    assert zombie.flush(scenarios.DEADLINE_S) == 0
    proxy.hold(ApiKey.PRODUCE)
    zombie.produce(topic, value=b"late")
    zombie.poll(0)
    proxy.wait_held()
    younger = TransactionalProducer(client, name).init()
    younger.write(topic, b"new")
    younger.end(commit=True)
    wait_stable(client, topic)
    proxy.release()
    with pytest.raises(library.KafkaException) as caught:
        zombie.commit_transaction(scenarios.DEADLINE_S)
    assert caught.value.args[0].fatal()
    assert wait_stable(client, topic) == end_offset(client, topic)
    assert committed(client, topic) == [b"new"]
