"""A member of a group by kraftrio's own consumer: as `python_member`, with the same arguments."""

from __future__ import annotations

import sys
from typing import Any

import trio

from kraftrio import Consumer, TopicPartition
from kraftrio.clients.consumer.consumer import RebalanceListener
from tests.conformance.churn.python_member import (
    COMMIT_MS,
    HEARTBEAT_MS,
    POLL_S,
    Assignment,
    Client,
    Place,
    leaving,
    main,
    say,
)


def member(place: Place, protocol: str) -> None:
    """Read until it is to leave."""
    held = Assignment()

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            held.add(partitions)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            held.drop(partitions)

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            held.drop(partitions)

    settings: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        settings |= {"session_timeout_ms": place.session_ms, "heartbeat_interval_ms": HEARTBEAT_MS}

    async def live() -> None:
        async with Consumer(
            place.address,
            group_id=place.group,
            client_id=place.name,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            fetch_max_wait_ms=100,
            group_instance_id=place.instance_id,
            **settings,
        ) as consumer:
            await consumer.subscribe([place.topic], listener=Listener())
            while not leaving.is_set():
                polled = await consumer.poll(timeout_ms=int(POLL_S * 1000))
                if polled:
                    say(records=[[one.partition, one.offset] for one in polled])

    trio.run(live)


OUR_CLIENTS: dict[str, Client] = {
    "ours-classic": lambda place: member(place, "classic"),
    "ours-consumer": lambda place: member(place, "consumer"),
}

if __name__ == "__main__":
    main(OUR_CLIENTS, *sys.argv[1:])
