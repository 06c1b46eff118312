"""What clients see of a broker that is about to join its cluster."""

from __future__ import annotations

import trio

from kraftrio.net.connection import Connection, ConnectionLost, open_connection
from kraftrio.wire.messages.cluster import MetadataRequest, MetadataResponse
from tests.sim.stage import Stage, play


async def metadata(connection: Connection) -> MetadataResponse:
    response = await connection.call(MetadataRequest(topics=[]), 12, 60)
    assert isinstance(response, MetadataResponse)
    return response


def test_a_broker_answers_once_it_belongs_to_the_cluster() -> None:
    """Clients drop what metadata do not name: it would be the very broker that they ask."""
    answers: list[set[int]] = []

    async def script(stage: Stage) -> None:
        network = stage.cluster.new_host("asker")
        node = stage.node(1)
        node.crash()
        await stage.until(
            lambda: stage.node(2).quorum.image.brokers[1].fenced, "the broker is fenced"
        )
        node.start()
        while not answers:
            try:
                async with open_connection(
                    network, "n1", 9092, client_id="asker", connect_timeout_s=60
                ) as connection:
                    answers.append({one.node_id for one in (await metadata(connection)).brokers})
            except ConnectionLost:
                await trio.sleep(0.001)

    play(script)
    assert answers == [{1, 2, 3}]
