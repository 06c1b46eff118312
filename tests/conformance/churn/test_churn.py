"""Groups of every client whose members come and go, are killed, and paused past their session.

Some seconds of that for each client, in mixed groups; or, as long as TEST_CHURN_S says, for each
client alone, also while coordinators are killed and with static members. TEST_SEED sets what
happens (1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.churn.churn import (
    ALL_CLIENTS,
    MIXES,
    STATIC_CLIENTS,
    Churn,
    Plan,
    broker_settings,
)
from tests.conformance.cluster_process import Cluster

_SECONDS = float(os.environ.get("TEST_CHURN_S", "0"))
_SEED = int(os.environ.get("TEST_SEED", "1"))
_RUNS = {one: (one,) for one in ALL_CLIENTS} if _SECONDS else MIXES
_MEMBERS, _PARTITIONS, _SESSION_MS, _INTERVAL_S = (
    (8, 32, 6_000, 3) if _SECONDS else (4, 8, 3_000, 1)
)
_SHORT_S = 8.0
_LED = {name: clients for name, clients in MIXES.items() if name != "broker"}
_LED_SESSION_MS = 10_000
_STATIC_SESSION_MS = 300_000  # long enough for a restart, on however busy a machine

pytestmark = [
    pytest.mark.timeout(int(_SECONDS) + 1_000),
    pytest.mark.filterwarnings("ignore"),
]


def check(plan: Plan, folder: Path) -> None:
    """Let the group run, and check the result."""
    churn = Churn(plan, folder)
    errors = churn.run()
    model = churn.model
    print(
        f"{'+'.join(plan.clients)} static={plan.is_static} seed={plan.seed} {churn.counts}"
        f" written={sum(churn.ends.values())} read={model.read_count}"
        f" commits={model.commit_count} moves={model.moves} errors={errors}"
    )
    assert not errors
    assert model.moves or plan.is_static  # who may all have come in one generation
    assert model.read_count >= sum(churn.ends.values()) > 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test's group is: a topic of its own, on a broker or a cluster of its own."""

    bootstrap: str
    topic: str
    group: str
    kill_coordinator: Callable[[], None] | None = None


@pytest.fixture
def on_broker(
    make_broker: Callable[..., Broker],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> Callable[[int], Place]:
    """Start a broker, with sessions of so many milliseconds."""

    def start(session_ms: int) -> Place:
        broker = make_broker(**broker_settings(session_ms))
        with RawClient(broker.address) as raw:
            topic = create_topic(raw, unique_topic(), partitions=_PARTITIONS)
        return Place(broker.address, topic, unique_group())

    return start


@pytest.fixture
def on_cluster(
    make_cluster: Callable[..., Cluster],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> Callable[[int], Place]:
    """Start three nodes, with sessions of so many milliseconds."""

    def start(session_ms: int) -> Place:
        cluster = make_cluster(**broker_settings(session_ms))
        topic, group = unique_topic(), unique_group()
        made = CreatableTopic(name=topic, num_partitions=_PARTITIONS, replication_factor=3)
        cluster.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000))
        cluster.wait_healthy(topic)

        def kill_coordinator() -> None:
            cluster.node(cluster.coordinator(group)).kill9()
            cluster.heal()

        return Place(cluster.bootstrap, topic, group, kill_coordinator)

    return start


def plan_of(
    clients: Sequence[str], place: Place, session_ms: int, *, is_static: bool = False
) -> Plan:
    """What is to happen to a group there."""
    return Plan(
        clients,
        place.bootstrap,
        place.topic,
        place.group,
        _PARTITIONS,
        _MEMBERS,
        _SECONDS or _SHORT_S,
        _INTERVAL_S,
        session_ms,
        _SEED,
        place.kill_coordinator,
        is_static,
    )


@pytest.mark.parametrize("clients", _RUNS.values(), ids=_RUNS.keys())
def test_members_come_and_go(
    clients: Sequence[str], on_broker: Callable[[int], Place], tmp_path: Path
) -> None:
    """One owner for each partition, no record lost, no commit that goes back."""
    check(plan_of(clients, on_broker(_SESSION_MS), _SESSION_MS), tmp_path)


@pytest.mark.parametrize("clients", _LED.values(), ids=_LED.keys())
def test_members_without_a_share(
    clients: Sequence[str],
    bootstrap: str,
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
    tmp_path: Path,
) -> None:
    """Members to which the leader gives nothing stay, and each gets the one partition in turn."""
    with RawClient(bootstrap) as raw:
        topic = create_topic(raw, unique_topic(), partitions=1)
    count = max(len(clients), 2)
    plan = Plan(clients, bootstrap, topic, unique_group(), 1, count, 0, 0, _LED_SESSION_MS, _SEED)
    assert set(Churn(plan, tmp_path).hand_over()) == set(clients)


@pytest.mark.long_churn
@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_while_coordinators_are_killed(
    client: str, on_cluster: Callable[[int], Place], tmp_path: Path
) -> None:
    """The same on three nodes, of which the coordinator of the group is killed now and then."""
    check(plan_of([client], on_cluster(_SESSION_MS), _SESSION_MS), tmp_path)


@pytest.mark.long_churn
@pytest.mark.parametrize("client", STATIC_CLIENTS)
@pytest.mark.parametrize("where", ["on_broker", "on_cluster"])
def test_static_members_are_restarted(
    where: str, client: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They keep their partitions, also while coordinators are killed."""
    place = request.getfixturevalue(where)(_STATIC_SESSION_MS)
    check(plan_of([client], place, _STATIC_SESSION_MS, is_static=True), tmp_path)
