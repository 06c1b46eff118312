"""Looking up the coordinator of a group, in the versions that brokers have."""

from __future__ import annotations

import pytest

from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.coordinators import GROUP_KEY_TYPE, Coordinators
from kraftrio.clients.errors import CoordinatorNotAvailableError, KafkaClientError, NetworkError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import Coordinator, FindCoordinatorResponse
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, FakeNode, fake_cluster
from tests.unit.clients.test_cluster import config
from tests.unit.clients.test_nodes import nodes_of


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_coordinators_in_every_version(version: int) -> None:
    """Before version 4 one key is asked for, in another field."""
    async with fake_cluster() as fake:
        fake.max_versions = {ApiKey.FIND_COORDINATOR: version}
        async with open_cluster(config=config(fake)) as cluster:
            assert await cluster.coordinator("group") == 1
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
                    await cluster.coordinator("other")


async def test_the_next_broker_is_asked_when_one_does_not_answer() -> None:
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        cut: list[int] = []

        def script(node: FakeNode, request: object) -> object:
            if cut:
                return None
            cut.append(node.node_id)
            return CUT

        fake.on(ApiKey.FIND_COORDINATOR, script)
        found = await Coordinators(nodes, config(fake)).find("group", GROUP_KEY_TYPE, 5)
        assert cut
        assert (found.node_id, found.port) == (1, fake.nodes[1].port)


async def test_nobody_answers() -> None:
    async with fake_cluster() as fake, nodes_of(fake) as nodes:
        coordinators = Coordinators(nodes, config(fake))
        fake.on(ApiKey.FIND_COORDINATOR, lambda node, _: CUT)
        with pytest.raises(NetworkError):
            await coordinators.find("group", GROUP_KEY_TYPE, 5)
        assert coordinators.get("group", GROUP_KEY_TYPE) is None


async def test_a_refusal_is_the_answer() -> None:
    """Another broker would say the same."""
    async with fake_cluster(2) as fake, nodes_of(fake) as nodes:
        refusal = Coordinator(key="group", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        fake.on(
            ApiKey.FIND_COORDINATOR,
            lambda node, _: FindCoordinatorResponse(coordinators=[refusal]),
        )
        with pytest.raises(KafkaClientError) as caught:
            await Coordinators(nodes, config(fake)).find("group", GROUP_KEY_TYPE, 5)
        assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert sum(fake.requests[node, "FindCoordinator"] for node in (1, 2)) == 1


async def test_a_coordinator_that_nobody_knows_any_more_is_looked_up_again() -> None:
    async with fake_cluster() as fake, nodes_of(fake) as nodes:
        coordinators = Coordinators(nodes, config(fake))
        address = await coordinators.find("group", GROUP_KEY_TYPE, 5)
        assert coordinators.get("group", GROUP_KEY_TYPE) is None, "no such node"
        nodes.add(address)
        assert coordinators.get("group", GROUP_KEY_TYPE) == 1
        coordinators.forget("group", GROUP_KEY_TYPE)
        assert coordinators.get("group", GROUP_KEY_TYPE) is None
