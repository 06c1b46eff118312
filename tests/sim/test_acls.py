"""ACLs in a whole cluster: every node decides by its newest metadata, and by nothing older.

A client is the user that is named as its machine is; nodes are super users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
import trio
from immutables import Map

from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.server import server
from kraftrio.broker.server.context import ClientInfo
from kraftrio.kraft_meta.metadata.acl_image import Acl, AclChanges
from kraftrio.testing.simulation import network
from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.sim.client import SimClient, Unavailable
from tests.sim.mutations import mutated
from tests.sim.stage import Stage, expect, play, values_of

PROPERTIES = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:node;User:admin;User:creator",
}


@pytest.fixture(autouse=True)
def users_by_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers and controllers take a machine's name for its user's."""
    names: dict[str, str] = {}

    def host(name: str, address: str) -> network.Host:
        names[address] = "node" if re.fullmatch(r"n[0-9]+", name) else name
        return original_host(name, address)

    def client_info(host: str, port: int, listener: str, **fields: Any) -> ClientInfo:
        fields["principal"] = KafkaPrincipal("User", names[host])
        return ClientInfo(host, port, listener, **fields)

    original_host = network.Host
    monkeypatch.setattr(network, "Host", host)
    monkeypatch.setattr(server, "ClientInfo", client_info)


def acl(topic: str, user: str = "reader") -> AclCreation:
    """Let a user read a topic."""
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )


def filter_of(one: AclCreation) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=one.resource_type,
        resource_name_filter=one.resource_name,
        pattern_type_filter=one.resource_pattern_type,
        principal_filter=one.principal,
        host_filter=one.host,
        operation=one.operation,
        permission_type=one.permission_type,
    )


async def create(client: SimClient, acls: Iterable[AclCreation]) -> None:
    response = await client.call_any(CreateAclsRequest(creations=list(acls)), extra_s=20)
    codes = {one.error_code for one in response.results}
    expect(codes == {ErrorCode.NONE}, f"the ACLs are made: {codes}")


async def delete(client: SimClient, *acls: AclCreation) -> None:
    request = DeleteAclsRequest(filters=[filter_of(one) for one in acls])
    response = await client.call_any(request, extra_s=20)
    matched = [len(one.matching_acls) for one in response.filter_results]
    expect(matched == [1] * len(acls), f"the ACLs are deleted: {matched}")


def authorizer_of(node: SimNode) -> StandardAuthorizer:
    assert node.node is not None
    authorizer = node.node._context.authorizer
    assert isinstance(authorizer, StandardAuthorizer)
    return authorizer


def rules_of(acls: Iterable[Acl]) -> Any:
    """What an authorizer makes of ACLs when they come all at once."""
    fresh = StandardAuthorizer()
    by_id = {one.id: one for one in acls}
    changes = AclChanges(Map())
    changes.changed = dict(by_id)
    fresh.update(changes)
    return fresh._rules


def check_nodes(stage: Stage) -> None:
    """Whenever the world is at rest, each node decides by its own newest image."""
    for node in stage.cluster.nodes.values():
        if node.is_running and node.node is not None and not node.is_paused:
            image = node.quorum.image
            if authorizer_of(node)._rules != rules_of(image.acls.values()):
                raise SimulationFailure(f"{node.name} decides by other ACLs than its image has")


def test_every_node_decides_by_its_own_newest_metadata() -> None:
    """Through the crash of the active controller, and after a broker came back to a snapshot."""

    async def script(stage: Stage) -> None:
        stage.world.checks.append(lambda: check_nodes(stage))
        admin = stage.client("admin")
        await stage.create("t", [1, 2, 3])
        stage.node(3).crash()
        made = [acl(f"t{i}") for i in range(20)]
        await create(admin, made[:10])
        leader = next(n for n in stage.cluster.controllers if n.quorum.is_active_controller)
        leader.crash()
        for _ in range(50):
            try:
                await create(admin, made[10:])
                break
            except (SimulationFailure, Unavailable):
                await trio.sleep(0.5)
        leader.restore()
        leader.start()
        stage.node(3).restore()
        stage.node(3).start()
        await delete(admin, *made[:5])
        expected = {one.resource_name for one in made[5:]}

        def all_know() -> bool:
            return all(
                node.node is not None
                and {one.resource_name for one in node.quorum.image.acls.values()} == expected
                for node in stage.cluster.nodes.values()
            )

        await stage.until(all_know, "all nodes know the ACLs")

    play(script, properties=PROPERTIES)


async def _long_poll(client: SimClient, tp: TopicPartition, answers: list[PartitionData]) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=tp.topic, partitions=[partition])
    request = FetchRequest(max_wait_ms=20_000, min_bytes=1, session_epoch=-1, topics=[topic])
    response = await client.call_node(1, request, extra_s=30)
    answers.append(response.responses[0].partitions[0])


async def revoked_while_it_waits(stage: Stage) -> None:
    """A consumer waits for records when its right to read is taken from it."""
    admin, reader = stage.client("admin"), stage.client("reader")
    tp = await stage.create("t", [1, 2, 3])
    right = acl("t")
    await create(admin, [right])
    leader = stage.node(1)
    await stage.until(lambda: len(leader.quorum.image.acls) == 1, "the leader knows the ACL")
    answers: list[PartitionData] = []
    reader.addresses[1] = ("n1", 9092)
    stage.start(_long_poll, reader, tp, answers)
    manager = leader.replica_manager
    assert manager is not None
    partition = manager.hosted.partition(tp)
    assert partition is not None
    await stage.until(lambda: len(partition.fetch_waiters) > 0, "the fetch waits")
    await delete(admin, right)
    await stage.until(lambda: not leader.quorum.image.acls, "the leader has revoked it")
    expect(await stage.produce(admin, 1, tp, "secret") is ErrorCode.NONE, "a record is written")
    await stage.until(lambda: bool(answers), "the fetch is answered")
    expect(values_of(answers[0].records) == [], "the reader got what it may not read any more")
    expect(
        answers[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "and gets an authorization error",
    )


def test_a_fetch_that_waits_gets_nothing_after_its_right_was_revoked() -> None:
    play(revoked_while_it_waits, properties=PROPERTIES)


def test_the_scenario_notices_a_fetch_that_is_checked_only_when_it_comes() -> None:
    with (
        mutated("fetch-is-checked-when-it-comes"),
        pytest.raises(SimulationFailure, match="may not read any more"),
    ):
        play(revoked_while_it_waits, properties=PROPERTIES)
