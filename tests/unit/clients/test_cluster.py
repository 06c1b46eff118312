"""A client's view of its cluster: versions, metadata, ways to brokers, over loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraftrio.clients.cluster import Cluster, open_cluster
from kraftrio.clients.config import ClientConfig
from kraftrio.clients.errors import (
    BrokerUnavailableError,
    InvalidTopicError,
    NetworkError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, FakeCluster, FakeNode, fake_cluster


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    """Settings with short pauses."""
    defaults = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "retry_backoff_ms": 5}
    return ClientConfig(bootstrap_servers=cluster.bootstrap, **defaults | settings)


async def until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Wait until something is so that a change of the cluster brings about."""
    with trio.fail_after(3):
        while not condition():
            changed = trio.Event()
            cluster.on_change(changed.set)
            await changed.wait()


async def test_metadata_is_fetched_when_it_is_wanted() -> None:
    """Nothing is asked before; then brokers and the topics of interest are known."""
    async with fake_cluster(2) as fake, open_cluster(config=config(fake)) as cluster:
        fake.add_topic("t", [1, 2])
        await trio.sleep(0.02)
        assert not fake.requests
        metadata = await cluster.refresh(["t"])
        assert sorted(metadata.brokers) == [1, 2]
        assert cluster.metadata.leader("t", 1) == (2, 0)
        assert cluster.metadata.leader("t", 2) is None
        assert metadata.cluster_id == "fake"
        assert metadata.topic_name(fake.topics["t"].topic_id) == "t"


async def test_a_new_topic_does_not_wait_for_the_backoff() -> None:
    """Metadata that was just fetched is fetched again at once for a topic that is new."""
    async with fake_cluster() as fake:
        fake.add_topic("a", [1])
        fake.add_topic("b", [1])
        async with open_cluster(config=config(fake, retry_backoff_ms=20_000)) as cluster:
            await cluster.topic("a")
            with trio.fail_after(1):
                assert (await cluster.topic("b")).partitions[0].leader_id == 1


async def test_a_topic_that_comes_later_is_waited_for() -> None:
    """`topic` asks again until the topic is there."""
    async with fake_cluster() as fake, open_cluster(config=config(fake)) as cluster:
        async with trio.open_nursery() as nursery:

            async def create() -> None:
                await until(cluster, lambda: fake.requests[1, "Metadata"] > 0)
                fake.add_topic("t", [1])

            nursery.start_soon(create)
            assert (await cluster.topic("t")).name == "t"
        assert fake.requests[1, "Metadata"] > 1


async def test_a_topic_that_does_not_come_is_named() -> None:
    """Brokers that do not know the topic make another error than brokers that do not answer."""
    async with fake_cluster() as fake, open_cluster(config=config(fake)) as cluster:
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' is not there"):
            await cluster.topic("nope", timeout_s=0.3)
        fake.add_topic("a b", [1])
        fake.topics["a b"].error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(InvalidTopicError, match="topic 'a b'"):
            await cluster.topic("a b")


async def test_no_broker_answers() -> None:
    """The error says whom it asked, for how long, and what went wrong the last time."""
    async with fake_cluster() as fake:
        servers = fake.bootstrap
        settings = config(fake)
        fake.nodes[1].stop()
        await trio.sleep(0.01)
        async with open_cluster(config=settings) as cluster:
            with pytest.raises(TimedOutError, match=rf"no broker of {servers} .*refused"):
                await cluster.refresh(timeout_s=0.1)
            with pytest.raises(NetworkError, match="refused"):
                await cluster.request_any(MetadataRequest())


async def test_the_newest_common_version_is_spoken() -> None:
    """An old broker is spoken to in its versions; what it does not have is a typed error."""
    async with fake_cluster() as fake:
        fake.max_versions = {ApiKey.METADATA: 8, ApiKey.DESCRIBE_CLUSTER: -1}
        async with open_cluster(config=config(fake)) as cluster:
            await cluster.refresh()
            assert fake.versions_used["Metadata"] == 8
            with pytest.raises(UnsupportedVersionError, match="does not serve DescribeCluster"):
                await cluster.request_any(DescribeClusterRequest())
            with pytest.raises(UnsupportedVersionError, match="0 to 8, but 10 to 13"):
                await cluster.request(1, MetadataRequest(), min_version=10)


async def test_a_broker_that_is_too_old_for_our_first_question() -> None:
    """It answers ApiVersions in version 0 with an error (KIP-511) and is asked again in its own."""
    async with fake_cluster() as fake:
        fake.max_versions = {ApiKey.API_VERSIONS: 2}
        async with open_cluster(config=config(fake)) as cluster:
            await cluster.refresh()
            assert fake.requests[1, "ApiVersions"] == 2
            assert fake.versions_used["ApiVersions"] == 2
            assert fake.nodes[1].connections == 1


async def test_requests_go_where_they_belong() -> None:
    """To a broker by its id, to the controller, to the coordinator of a group."""
    async with fake_cluster(3) as fake, open_cluster(config=config(fake)) as cluster:
        fake.controller_id, fake.coordinator_id = 2, 3
        fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: DescribeClusterResponse(cluster_id="x"))
        await cluster.request_controller(DescribeClusterRequest())
        assert fake.requests[2, "DescribeCluster"] == 1
        assert await cluster.coordinators.find("group") == 3
        assert await cluster.coordinators.find("group") == 3
        finds = sum(fake.requests[node_id, "FindCoordinator"] for node_id in (1, 2, 3))
        assert finds == 1, "it is remembered"
        fake.coordinator_id = 1
        cluster.coordinators.forget("group")
        assert await cluster.coordinators.find("group") == 1
        with pytest.raises(BrokerUnavailableError):
            await cluster.request(9, DescribeClusterRequest())


async def test_a_lost_connection_is_opened_again_after_a_pause() -> None:
    """What was asked fails; metadata is fetched again; the next request finds the broker again."""
    async with fake_cluster(2) as fake, open_cluster(config=config(fake)) as cluster:
        await cluster.refresh()
        fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: CUT)
        with pytest.raises(NetworkError, match="closed the connection"):
            await cluster.request(2, DescribeClusterRequest())
        version = cluster.metadata.version
        fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: DescribeClusterResponse(cluster_id="x"))
        assert (await cluster.request(2, DescribeClusterRequest())).cluster_id == "x"
        await until(cluster, lambda: cluster.metadata.version > version)


async def test_a_broker_that_comes_back_elsewhere_is_found_there() -> None:
    """Where a broker is, metadata says; its node goes along."""
    async with fake_cluster(2) as fake, open_cluster(config=config(fake)) as cluster:
        await cluster.refresh()
        fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: DescribeClusterResponse(cluster_id="x"))
        await cluster.request(2, DescribeClusterRequest())
        fake.nodes[2].stop()
        moved = fake.nodes[2] = FakeNode(fake, 2)
        await moved.start()
        await until(cluster, lambda: cluster.metadata.brokers[2].port == moved.port)
        await cluster.request(2, DescribeClusterRequest())
        assert moved.connections == 1


async def test_pauses_between_attempts_grow() -> None:
    """A broker that refuses is tried less and less often, up to reconnect_backoff_max_ms."""
    async with fake_cluster() as fake:
        settings = config(fake, reconnect_backoff_ms=10, reconnect_backoff_max_ms=80)
        async with open_cluster(config=settings) as cluster:
            await cluster.refresh()
            fake.nodes[1].stop()
            node = cluster.node(1)
            assert node is not None
            pauses = []
            for _ in range(7):
                started_at = trio.current_time()
                with pytest.raises(NetworkError):
                    await node.connect()
                pauses.append(trio.current_time() - started_at)
            assert pauses[-1] >= 0.064
            assert sum(pauses) >= 0.8 * (0.01 + 0.02 + 0.04 + 3 * 0.08)


async def test_a_slow_answer_is_not_waited_for_for_ever() -> None:
    """The request fails with TimedOutError, and so does its connection."""
    async with fake_cluster() as fake, open_cluster(config=config(fake)) as cluster:
        await cluster.refresh()
        await cluster.version(1, ApiKey.DESCRIBE_CLUSTER, 5)  # connected
        never = trio.Event()
        fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: never)
        with pytest.raises(TimedOutError, match="did not answer in time"):
            await cluster.request(1, DescribeClusterRequest(), 0.05)


async def test_a_cluster_that_moved_away_is_found_by_the_bootstrap_servers() -> None:
    """When no known broker can be reached, the first addresses are asked again (KIP-899)."""
    async with fake_cluster(2) as fake:
        settings = config(fake)
        async with open_cluster(config=settings) as cluster:
            await cluster.refresh()
            port = fake.nodes[1].port
            for node in list(fake.nodes.values()):
                node.stop()
            await trio.sleep(0.02)
            # Another broker with another id listens where the first one did.
            fake.nodes = {7: FakeNode(fake, 7)}
            fake.nodes[7].port = port
            await fake.nodes[7].start()
            cluster.request_refresh()
            await until(cluster, lambda: 7 in cluster.metadata.brokers)
            assert list(cluster.metadata.brokers) == [7]


async def test_a_broker_may_send_us_back_to_the_bootstrap_servers() -> None:
    """REBOOTSTRAP_REQUIRED (KIP-1102): the answer counts as none, and the first ones are asked."""
    async with fake_cluster(2) as fake:
        settings = ClientConfig(
            bootstrap_servers=f"127.0.0.1:{fake.nodes[1].port}", retry_backoff_ms=5
        )

        def script(node: FakeNode, request: MetadataRequest) -> MetadataResponse:
            if node.node_id == 2:
                return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            usual = fake.metadata(request)
            usual.brokers = [broker for broker in usual.brokers if broker.node_id == 2]
            return usual

        fake.on(ApiKey.METADATA, script)
        async with open_cluster(config=settings) as cluster:
            assert list((await cluster.refresh()).brokers) == [2]
            await cluster.refresh()
            assert fake.requests[2, "Metadata"] == 1
            assert fake.requests[1, "Metadata"] == 2
            assert cluster.last_failure is None


async def test_old_news_about_a_partition_are_ignored() -> None:
    """A broker behind the others does not take a leader back; a new topic of the name counts."""
    async with fake_cluster(2) as fake, open_cluster(config=config(fake)) as cluster:
        fake.add_topic("t", [1])
        await cluster.topic("t")
        fake.lead("t", 0, 2)
        await cluster.refresh()
        assert cluster.metadata.leader("t", 0) == (2, 1)
        fake.topics["t"].leaders[0] = (1, 0)
        await cluster.refresh()
        assert cluster.metadata.leader("t", 0) == (2, 1)
        fake.topics["t"].topic_id = b"another topic id"
        await cluster.refresh()
        assert cluster.metadata.leader("t", 0) == (1, 0)


async def test_a_hint_is_as_good_as_metadata() -> None:
    """A newer leader given beside an error counts at once (KIP-951), an older one does not."""
    async with fake_cluster(2) as fake, open_cluster(config=config(fake)) as cluster:
        fake.add_topic("t", [1])
        await cluster.topic("t")
        changes: list[int] = []
        cluster.on_change(lambda: changes.append(cluster.metadata.version))
        assert not cluster.leader_hint("t", 0, 2, 0)
        assert not cluster.leader_hint("t", 0, 9, 3)
        assert cluster.leader_hint("t", 0, 9, 3, [BrokerAddress(9, "127.0.0.1", 1)])
        assert cluster.metadata.leader("t", 0) == (9, 3)
        assert len(changes) == 1
        assert cluster.node(9) is not None


async def test_a_throttled_client_leaves_the_broker_alone() -> None:
    """throttle_time_ms mutes the broker for that long (KIP-219)."""
    async with fake_cluster() as fake, open_cluster(config=config(fake)) as cluster:
        await cluster.refresh()
        fake.on(
            ApiKey.DESCRIBE_CLUSTER,
            lambda node, _: DescribeClusterResponse(cluster_id="x", throttle_time_ms=60),
        )
        await cluster.request(1, DescribeClusterRequest())
        node = cluster.node(1)
        assert node is not None and node.is_connected and not node.is_ready
        started_at = trio.current_time()
        await cluster.request(1, DescribeClusterRequest())
        assert trio.current_time() - started_at >= 0.05


async def test_idle_connections_close() -> None:
    """After connections_max_idle_ms without a request, the connection is given up."""
    async with (
        fake_cluster() as fake,
        open_cluster(config=config(fake, connections_max_idle_ms=40)) as cluster,
    ):
        await cluster.refresh()
        node = cluster.node(1)
        assert node is not None
        await node.connect()
        await until(cluster, lambda: not node.is_connected)


async def test_leaving_ends_everything() -> None:
    """No task and no connection outlives the scope; an exception of the body is not wrapped."""
    async with fake_cluster() as fake:
        with pytest.raises(KeyError):
            async with open_cluster(config=config(fake)) as cluster:
                await cluster.refresh()
                raise KeyError("body")
        with trio.move_on_after(1) as scope:
            async with open_cluster(config=config(fake)) as cluster:
                await cluster.refresh()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
