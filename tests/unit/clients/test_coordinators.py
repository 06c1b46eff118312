"""Looking up the coordinator of a group, in the versions that brokers have."""

from __future__ import annotations

import pytest

from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.coordinators import Coordinators
from kraftrio.clients.errors import CoordinatorNotAvailableError, KafkaClientError, NetworkError
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.nodes import Nodes
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import Coordinator, FindCoordinatorResponse
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, FakeCluster, FakeNode, fake_cluster
from tests.unit.clients.test_cluster import config
from tests.unit.clients.test_nodes import nodes_of


def coordinators_of(nodes: Nodes, fake: FakeCluster) -> Coordinators:
    return Coordinators(nodes, config(fake), lambda: None)


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_coordinators_in_every_version(version: int) -> None:
    """Before version 4 one key is asked for, in another field."""
    async with fake_cluster() as fake:
        fake.max_versions = {ApiKey.FIND_COORDINATOR: version}
        async with open_cluster(config=config(fake)) as cluster:
            assert await cluster.coordinators.find("group") == 1
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            fake.on(
                ApiKey.FIND_COORDINATOR,
                lambda node, request: (
                    FindCoordinatorResponse(error_code=code)
                    if version < 4
                    else FindCoordinatorResponse(
                        coordinators=[fake.coordinator(request, 4).coordinators[0]]
                    )
                ),
            )
            if version < 4:
                with pytest.raises(CoordinatorNotAvailableError):
                    await cluster.coordinators.find("other")


async def test_the_next_broker_is_asked_when_one_does_not_answer() -> None:
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        cut: list[int] = []

        def script(node: FakeNode, request: object) -> object:
            if cut:
                return None
            cut.append(node.node_id)
            return CUT

        fake.on(ApiKey.FIND_COORDINATOR, script)
        found = await coordinators_of(nodes, fake).find("group", timeout_s=5)
        assert cut
        assert found == 1


async def test_no_broker_answers() -> None:
    async with fake_cluster() as fake, nodes_of(fake) as nodes:
        coordinators = coordinators_of(nodes, fake)
        fake.on(ApiKey.FIND_COORDINATOR, lambda node, _: CUT)
        with pytest.raises(NetworkError):
            await coordinators.find("group", timeout_s=5)
        assert coordinators.known("group") is None


async def test_a_refusal_is_the_answer() -> None:
    """Another broker would say the same."""
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        refusal = Coordinator(key="group", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        fake.on(
            ApiKey.FIND_COORDINATOR,
            lambda node, _: FindCoordinatorResponse(coordinators=[refusal]),
        )
        with pytest.raises(KafkaClientError) as caught:
            await coordinators_of(nodes, fake).find("group", timeout_s=5)
        assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert sum(fake.requests[node, "FindCoordinator"] for node in (1, 2)) == 1


async def test_a_coordinator_that_metadata_does_not_name_is_connected_to() -> None:
    """And looked up again, once it is nowhere any more."""
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        unknown: list[int] = []
        coordinators = Coordinators(nodes, config(fake), lambda: unknown.append(1))
        assert await coordinators.find("group", timeout_s=5) == 1
        assert unknown == [1]
        found = coordinators.known("group")
        assert found is not None
        assert (found.node_id, found.port) == (1, fake.nodes[1].port)
        assert await coordinators.find("group", timeout_s=5) == 1
        assert unknown == [1], "it is remembered"
        nodes.update({2: BrokerAddress(2, "localhost", fake.nodes[2].port)})
        assert coordinators.known("group") is None, "no such node"
        assert await coordinators.find("group", timeout_s=5) == 1
        coordinators.forget("group")
        assert coordinators.known("group") is None
