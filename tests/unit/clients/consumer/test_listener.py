"""How listeners are called."""

from __future__ import annotations

from kraftrio.clients.consumer.listener import ListenerCalls, RebalanceListener
from kraftrio.wire.primitives import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Mixed(RebalanceListener):
    """Sync and async methods, and none for what is lost."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", partitions))


async def test_methods_may_be_async_and_get_partitions_in_order() -> None:
    """What is lost counts as revoked, unless the listener tells them apart."""
    calls = ListenerCalls(lambda error: None)
    await calls.assigned([P0])
    calls.listener = mixed = Mixed()
    await calls.assigned([P1, P0])
    await calls.given_up([P1, P0], is_lost=False)
    await calls.given_up([P1], is_lost=True)
    assert mixed.events == [("assigned", [P0, P1]), ("revoked", [P0, P1]), ("revoked", [P1])]


async def test_what_a_listener_raises_is_handed_on() -> None:
    """The rebalance goes on; the application's poll raises it."""

    class Failing(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise KeyError("mine")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            raise ValueError("mine, too")

    failures: list[Exception] = []
    calls = ListenerCalls(failures.append)
    calls.listener = Failing()
    await calls.assigned([P0])
    await calls.given_up([P0], is_lost=False)
    assert [type(each) for each in failures] == [KeyError, ValueError]
