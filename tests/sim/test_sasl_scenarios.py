"""A cluster all of whose links log in by SCRAM: it starts, fails over and starts again, and what is
changed of its users counts on each node in the order of the metadata log.
"""

from __future__ import annotations

import base64
from functools import partial

from kraftrio.kraft_meta.metadata.scram_image import ScramUser
from kraftrio.net.connection import AuthenticationFailed, open_connection
from kraftrio.testing.simulation.cluster import BROKER_PORT
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.sim.logins import SASL, SHA_256, as_user, delete, first_users, upsert
from tests.sim.stage import Stage, expect, play

FIRST = first_users("alice", "one")


async def is_let_in(
    stage: Stage, node_id: int, user: str, password: str, name: str, *more: str
) -> bool:
    network = as_user(user, password, *more)(stage.cluster.new_host(name))
    try:
        async with open_connection(
            network, f"n{node_id}", BROKER_PORT, client_id=name, connect_timeout_s=10
        ):
            return True
    except AuthenticationFailed:
        return False


def knows(stage: Stage, node_id: int, user: str) -> bool:
    """Whether a node's image has a credential of this user."""
    return ScramUser(user, SHA_256) in stage.node(node_id).quorum.image.scram_credentials


def is_unknown(stage: Stage, node_id: int) -> bool:
    return not knows(stage, node_id, "bob")


async def a_cluster_of_scram(stage: Stage) -> None:
    """Leaders of both kinds are lost, then all nodes at once, which have nobody to ask then."""
    stage.cluster.secured = as_user("alice", "one")
    tp = await stage.create("t", [1, 2, 3])
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    stage.node(1).crash()
    leader = next(one for one in stage.cluster.controllers if one.quorum.is_active_controller)
    leader.crash()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    expect(await stage.produce(client, 2, tp, "m1") is ErrorCode.NONE, "m1 is acknowledged")
    for node in stage.cluster.nodes.values():
        node.crash()
    stage.cluster.start()
    await stage.cluster.wait_until(stage.cluster.all_ready, "all brokers are up")
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all replicas are in sync")
    late = stage.client("late")
    leader_id = stage.image(tp).leader
    expect(await stage.produce(late, leader_id, tp, "m2") is ErrorCode.NONE, "m2 is acknowledged")
    expect(stage.values(3, tp)[:2] == ["m0", "m1"], "what was acknowledged is there")


async def users_in_the_order_of_the_log(stage: Stage) -> None:
    """A node lets in whom its image has, no sooner and no later than that."""
    stage.cluster.secured = as_user("alice", "one")
    client = stage.client("admin")
    expect(not await is_let_in(stage, 1, "bob", "two", "c0"), "bob is nobody yet")
    stage.cut_off(3)
    response = await client.call_any(upsert("bob", "two"))
    expect(response.results[0].error_code == ErrorCode.NONE, str(response))
    await stage.until(lambda: knows(stage, 1, "bob") and knows(stage, 2, "bob"), "two know bob")
    for node_id in (1, 2):
        expect(await is_let_in(stage, node_id, "bob", "two", f"c{node_id}"), "bob is let in")
    expect(not knows(stage, 3, "bob"), "broker 3 has not heard of bob")
    expect(not await is_let_in(stage, 3, "bob", "two", "c3"), "nor lets him in")
    stage.mend()
    await stage.until(lambda: knows(stage, 3, "bob"), "broker 3 knows bob")
    expect(await is_let_in(stage, 3, "bob", "two", "c4"), "and lets him in")
    await client.call_any(upsert("bob", "three"))
    await stage.until(
        lambda: len({one.quorum.image.offset for one in stage.cluster.brokers}) == 1, "one offset"
    )
    for node_id in (1, 2, 3):
        expect(not await is_let_in(stage, node_id, "bob", "two", f"d{node_id}"), "not by the old")
        expect(await is_let_in(stage, node_id, "bob", "three", f"e{node_id}"), "by the new")
    await client.call_any(delete("bob"))
    for node_id in (1, 2, 3):
        await stage.until(partial(is_unknown, stage, node_id), "bob is gone")
        expect(not await is_let_in(stage, node_id, "bob", "three", f"f{node_id}"), "nobody is bob")


async def the_life_of_a_delegation_token(stage: Stage) -> None:
    """Made by a controller that another broker is asked for, used anywhere, renewed by the next
    controller, and removed by it when nobody renews it any more.
    """
    stage.cluster.secured = as_user("alice", "one")
    client = stage.client("owner")
    made = await client.call_any(CreateDelegationTokenRequest(max_lifetime_ms=60_000))
    expect(made.error_code == ErrorCode.NONE, str(made))
    expect((made.principal_name, len(made.hmac)) == ("alice", 64), "it is alice's")
    token = made.token_id, base64.b64encode(made.hmac).decode()

    def known_to(node_id: int) -> bool:
        return token[0] in stage.node(node_id).quorum.image.delegation_tokens

    for node_id in (1, 2, 3):
        await stage.until(partial(known_to, node_id), "the token is known")
        expect(
            await is_let_in(stage, node_id, *token, f"t{node_id}", " tokenauth=true"), "it lets in"
        )
    leader = next(one for one in stage.cluster.controllers if one.quorum.is_active_controller)
    leader.crash()
    request = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=20_000)
    renewed = await client.call_any(request)
    expect(renewed.error_code == ErrorCode.NONE, str(renewed))
    expect(renewed.expiry_timestamp_ms > made.issue_timestamp_ms, "it lives on")
    await stage.until(lambda: not any(map(known_to, (1, 2, 3))), "the token is gone", 60)
    expect(not await is_let_in(stage, 1, *token, "late", " tokenauth=true"), "it lets nobody in")


def test_the_life_of_a_delegation_token() -> None:
    play(the_life_of_a_delegation_token, properties=SASL, first_credentials=FIRST)


def test_a_cluster_of_scram() -> None:
    play(a_cluster_of_scram, properties=SASL, first_credentials=FIRST)


def test_users_in_the_order_of_the_log() -> None:
    play(users_in_the_order_of_the_log, properties=SASL, first_credentials=FIRST)
