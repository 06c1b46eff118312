"""Groups of every client whose members come and go, are killed, and paused past their session.

TEST_CHURN_S sets how long each of them does (unset: some seconds, in a small group of one client),
TEST_SEED what happens (1).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.churn.churn import ALL_CLIENTS, Churn, Plan, broker_settings
from tests.conformance.cluster_process import Cluster

_SECONDS = float(os.environ.get("TEST_CHURN_S", "0"))
_SEED = int(os.environ.get("TEST_SEED", "1"))
_CLIENTS = ALL_CLIENTS if _SECONDS else ("confluent-consumer",)
_MEMBERS, _PARTITIONS, _SESSION_MS = (8, 32, 6_000) if _SECONDS else (3, 8, 1_500)
_SHORT_S = 3.0

pytestmark = [
    pytest.mark.timeout(int(_SECONDS) + 400),
    pytest.mark.filterwarnings("ignore"),
]


def check(plan: Plan, folder: Path) -> None:
    """Let it run, and look what came of it."""
    churn = Churn(plan, folder)
    errors = churn.run()
    model = churn.model
    print(
        f"{plan.client} seed={plan.seed} {churn.counts} written={sum(churn.ends.values())}"
        f" read={model.read_count} commits={model.commit_count} moves={model.moves}"
        f" errors={errors}"
    )
    assert not errors
    assert model.moves
    assert model.read_count >= sum(churn.ends.values()) > 0


@pytest.mark.parametrize("client", _CLIENTS)
def test_members_come_and_go(
    client: str,
    make_broker: Callable[..., Broker],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
    tmp_path: Path,
) -> None:
    """One owner for each partition, no record lost, no commit that goes back."""
    broker = make_broker(**broker_settings(_SESSION_MS))
    with RawClient(broker.address) as raw:
        topic = create_topic(raw, unique_topic(), partitions=_PARTITIONS)
    plan = Plan(
        client,
        broker.address,
        topic,
        unique_group(),
        _PARTITIONS,
        _MEMBERS,
        _SECONDS or _SHORT_S,
        _SESSION_MS,
        _SEED,
    )
    check(plan, tmp_path)


@pytest.mark.skipif(not _SECONDS, reason="takes long: TEST_CHURN_S says how long")
@pytest.mark.parametrize("client", _CLIENTS)
def test_while_coordinators_are_killed(
    client: str,
    make_cluster: Callable[..., Cluster],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
    tmp_path: Path,
) -> None:
    """The same on three nodes, of which the coordinator of the group is killed now and then."""
    cluster = make_cluster(**broker_settings(_SESSION_MS))
    topic, group = unique_topic(), unique_group()
    made = CreatableTopic(name=topic, num_partitions=_PARTITIONS, replication_factor=3)
    cluster.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000))
    cluster.wait_healthy(topic)

    def kill_coordinator() -> None:
        cluster.node(cluster.coordinator(group)).kill9()
        cluster.heal()

    plan = Plan(
        client,
        cluster.bootstrap,
        topic,
        group,
        _PARTITIONS,
        _MEMBERS,
        _SECONDS,
        _SESSION_MS,
        _SEED,
        kill_coordinator,
    )
    check(plan, tmp_path)
