"""The nodes that a client knows: who is asked first, who stays, where they are."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftrio.clients.config import ClientConfig
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.clients.nodes import Nodes
from kraftrio.net.transport import SystemNetwork
from tests.unit.clients.fake_cluster import FakeCluster, fake_cluster


@asynccontextmanager
async def nodes_of(fake: FakeCluster, **settings: Any) -> AsyncIterator[Nodes]:
    """The nodes of a client that has asked nobody yet."""
    config = ClientConfig(bootstrap_servers=fake.bootstrap, reconnect_backoff_ms=5, **settings)
    async with trio.open_nursery() as nursery:
        yield Nodes(config, SystemNetwork(), nursery, random.Random(1), lambda node: None)
        nursery.cancel_scope.cancel()


def brokers(fake: FakeCluster) -> dict[int, BrokerAddress]:
    return {
        node_id: BrokerAddress(node_id, "127.0.0.1", node.port)
        for node_id, node in fake.nodes.items()
    }


def known(nodes: Nodes, node_id: int) -> BrokerNode:
    node = nodes.get(node_id)
    assert node is not None
    return node


async def test_before_anything_is_known_there_are_the_bootstrap_servers() -> None:
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        assert nodes.get(1) is None
        assert [node.node_id for node in nodes.candidates()] == [-1, -2]


async def test_the_connected_and_least_busy_is_asked_first() -> None:
    async with fake_cluster(3) as fake, nodes_of(fake) as nodes:
        nodes.update(brokers(fake))
        await known(nodes, 2).connect()
        assert nodes.candidates()[0].node_id == 2
        assert [node.node_id for node in nodes.candidates()[-3:]] == [-1, -2, -3]


async def test_without_rebootstrap_only_brokers_are_asked_once_they_are_known() -> None:
    async with (
        fake_cluster(2) as fake,
        nodes_of(fake, metadata_recovery_strategy="none") as nodes,
    ):
        nodes.update(brokers(fake))
        assert sorted(node.node_id for node in nodes.candidates()) == [1, 2]


async def test_a_node_that_metadata_drops_goes_unless_it_is_connected() -> None:
    async with fake_cluster(3) as fake, nodes_of(fake) as nodes:
        addresses = brokers(fake)
        nodes.update(addresses)
        for node_id in (2, 3):
            assert nodes.get(node_id) is not None
        await known(nodes, 3).connect()
        nodes.update({1: addresses[1]})
        assert nodes.get(2) is None
        assert known(nodes, 3).is_connected
        assert 3 not in {node.node_id for node in nodes.candidates()}


async def test_idle_connections_to_bootstrap_servers_are_closed() -> None:
    async with fake_cluster() as fake, nodes_of(fake) as nodes:
        bootstrap = nodes.candidates()[0]
        await bootstrap.connect()
        nodes.close_idle_bootstrap()
        assert not bootstrap.is_connected
