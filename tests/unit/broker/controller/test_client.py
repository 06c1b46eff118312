"""Requests find the active controller, wait for one, and are answered whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraftrio.base.deferred import Deferred
from kraftrio.base.timers import Timers
from kraftrio.broker.controller.client import ControllerClient, ControllerClientConfig
from kraftrio.broker.controller.envelopes import unwrap, wrap_response
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.quorum.active_controller import MAY_BE_DECIDED, NEVER_DECIDED
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.security_errors import LoginRefused
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftrio.wire.messages.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DescribeQuorumRequest,
    EnvelopeRequest,
    EnvelopeResponse,
)
from tests.unit.broker.controller.controller_fakes import (
    ControllerNode,
    FakeQuorum,
    accept,
    not_controller,
    silence,
    voters_at,
)

THIS_NODE = 1
CONFIG = ControllerClientConfig(max_waiting=3)


def create_topic(timeout_ms: int = 10_000, name: str = "t") -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name)], timeout_ms=timeout_ms)


def delete_topic() -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)


def deletion_error(response: DeleteTopicsResponse) -> ErrorCode:
    (topic,) = response.responses
    return ErrorCode(topic.error_code)


def topic_error(response: CreateTopicsResponse) -> ErrorCode:
    (topic,) = response.topics
    return ErrorCode(topic.error_code)


@dataclass
class Cluster:
    """The client of node 1, and nodes 2 and 3 that may lead."""

    quorum: FakeQuorum
    client: ControllerClient
    second: ControllerNode
    third: ControllerNode

    def create_topic(self, timeout_ms: int = 10_000) -> Deferred[CreateTopicsResponse]:
        return self.client.submit(create_topic(timeout_ms), api_version=7)

    def delete_topic(self) -> Deferred[DeleteTopicsResponse]:
        return self.client.submit(delete_topic(), api_version=6)

    def heartbeat(self) -> Deferred[BrokerHeartbeatResponse]:
        return self.client.submit(BrokerHeartbeatRequest(broker_id=THIS_NODE), api_version=1)


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> Cluster:
    timers = Timers()
    second, third = ControllerNode(nursery), ControllerNode(nursery)
    addresses = {THIS_NODE: ("127.0.0.1", 1), 2: second.address, 3: third.address}
    quorum = FakeQuorum(THIS_NODE, voters=voters_at(addresses))
    client = ControllerClient(SystemNetwork(), quorum, THIS_NODE, timers, CONFIG)
    nursery.start_soon(timers.run)
    nursery.start_soon(client.run)
    return Cluster(quorum, client, second, third)


async def within(seconds: float, answer: Deferred[Any]) -> Any:
    with trio.fail_after(seconds):
        return await answer.wait()


# ---- where requests go


async def test_a_node_that_leads_decides_by_itself_at_once(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.quorum.elect(THIS_NODE)
    answer = cluster.create_topic()
    assert answer.done
    assert topic_error(answer.value) is ErrorCode.NONE
    assert not cluster.second.requests


async def test_requests_go_to_the_node_that_leads(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.quorum.elect(2)
    assert topic_error(await within(1, cluster.create_topic())) is ErrorCode.NONE
    assert cluster.second.requests == [create_topic()]
    assert not cluster.quorum.submitted


async def test_requests_wait_for_a_leader(cluster: Cluster, autojump_clock: MockClock) -> None:
    over, waiting = cluster.heartbeat(), cluster.create_topic()
    await trio.sleep(5)
    assert over.done
    assert not waiting.done
    cluster.quorum.elect(3)
    assert topic_error(await within(0.1, waiting)) is ErrorCode.NONE
    assert cluster.third.requests == [create_topic()]


async def test_requests_that_wait_are_decided_here_when_this_node_is_elected(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.create_topic()
    await trio.sleep(1)
    cluster.quorum.elect(THIS_NODE)
    assert topic_error(await within(0.1, answer)) is ErrorCode.NONE


async def test_the_brokers_own_requests_go_first(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.create_topic()
    heartbeat = cluster.heartbeat()
    cluster.quorum.elect(2)
    await within(1, heartbeat)
    await cluster.second.wait_requests(2)
    assert isinstance(cluster.second.requests[0], BrokerHeartbeatRequest)


async def test_a_controller_that_comes_back_is_connected_to_again(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.quorum.elect(2)
    await within(1, cluster.heartbeat())
    cluster.second.stop()
    await trio.sleep(0.01)
    answer = cluster.create_topic()
    await trio.sleep(2)
    assert not answer.done
    cluster.second.start()
    assert topic_error(await within(0.2, answer)) is ErrorCode.NONE


async def test_a_new_connection_to_the_controller_is_reported(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    seen: list[int] = []
    cluster.client.on_connected(lambda: seen.append(cluster.quorum.leader_id))
    cluster.quorum.elect(2)
    await within(1, cluster.heartbeat())
    cluster.quorum.elect(3)
    await within(1, cluster.heartbeat())
    cluster.quorum.elect(THIS_NODE)
    await trio.sleep(0.1)
    assert seen == [2, 3, THIS_NODE]


# ---- deadlines


async def test_a_request_without_a_controller_is_over_at_its_own_timeout(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.create_topic(timeout_ms=7_000)
    await trio.sleep(6.99)
    assert not answer.done
    assert topic_error(await within(0.02, answer)) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_timeout_of_zero_is_the_brokers_request_timeout(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.create_topic(timeout_ms=0)
    await trio.sleep(29.9)
    assert not answer.done
    assert topic_error(await within(0.2, answer)) is ErrorCode.REQUEST_TIMED_OUT


async def test_heartbeats_have_a_time_of_their_own(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.heartbeat()
    await trio.sleep(4.4)
    assert not answer.done
    assert (await within(0.2, answer)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_the_quorum_is_described_by_a_controller_or_not_at_all(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.client.submit(DescribeQuorumRequest(), api_version=2)
    assert (await within(30.1, answer)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_decision_of_this_node_that_never_comes_is_over_in_time(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.quorum.answer = silence
    cluster.quorum.elect(THIS_NODE)
    answer = cluster.create_topic(timeout_ms=3_000)
    assert topic_error(await within(3.1, answer)) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_silent_controller_is_connected_to_again(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = silence
    cluster.quorum.elect(2)
    first, other = cluster.heartbeat(), cluster.delete_topic()
    assert (await within(5, first)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert deletion_error(await within(0.1, other)) is ErrorCode.REQUEST_TIMED_OUT  # lost with it
    cluster.second.answer = accept
    assert (await within(1, cluster.heartbeat())).error_code == ErrorCode.NONE
    assert len(cluster.second.clients) == 2


async def test_a_short_timeout_does_not_cost_the_connection(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    parked: list[Deferred[Any]] = []

    def park(request: Any) -> Deferred[Any]:
        parked.append(Deferred())
        return parked[-1]

    cluster.second.answer = park
    cluster.quorum.elect(2)
    answer = cluster.create_topic(timeout_ms=500)
    assert topic_error(await within(1, answer)) is ErrorCode.REQUEST_TIMED_OUT
    parked[0].complete(accept(create_topic()))  # late, for nobody
    cluster.second.answer = accept
    assert (await within(1, cluster.heartbeat())).error_code == ErrorCode.NONE
    assert len(cluster.second.clients) == 1


# ---- elections


async def test_a_node_that_does_not_decide_yet_is_asked_again_soon(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = not_controller
    cluster.quorum.elect(2)
    answer = cluster.create_topic()
    await cluster.second.wait_requests(4)
    assert not answer.done
    cluster.second.answer = accept
    assert topic_error(await within(0.06, answer)) is ErrorCode.NONE


async def test_this_node_is_asked_again_while_it_takes_over(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.quorum.answer = lambda _request: NEVER_DECIDED
    cluster.quorum.elect(THIS_NODE)
    answer = cluster.create_topic()
    await trio.sleep(0.3)
    assert not answer.done
    assert len(cluster.quorum.submitted) > 3
    cluster.quorum.answer = accept
    assert topic_error(await within(0.06, answer)) is ErrorCode.NONE


async def test_after_a_loss_only_harmless_requests_are_sent_again(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = silence
    cluster.quorum.elect(2)
    heartbeat, deletion = cluster.heartbeat(), cluster.delete_topic()
    await cluster.second.wait_requests(2)
    cluster.second.stop()
    assert deletion_error(await within(0.1, deletion)) is ErrorCode.REQUEST_TIMED_OUT
    assert deletion.value.responses[0].error_message
    await trio.sleep(1)
    assert not heartbeat.done
    cluster.quorum.elect(3)
    assert (await within(0.1, heartbeat)).error_code == ErrorCode.NONE
    assert [type(request) for request in cluster.third.requests] == [BrokerHeartbeatRequest]


@pytest.mark.parametrize(
    ("second_answer", "returned"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_a_creation_whose_answer_was_lost_is_not_denied(
    cluster: Cluster, autojump_clock: MockClock, second_answer: ErrorCode, returned: ErrorCode
) -> None:
    cluster.second.answer = silence
    cluster.third.answer = lambda request: error_response(request, second_answer)
    cluster.quorum.elect(2)
    creation = cluster.create_topic()
    await cluster.second.wait_requests(1)
    cluster.second.stop()
    cluster.quorum.elect(3)
    assert topic_error(await within(0.1, creation)) is returned
    assert len(cluster.third.requests) == 1


async def test_a_creation_that_a_controller_gave_up_is_not_denied(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """It decided, stopped leading, and led again: what it had written was committed after all."""
    cluster.quorum.elect(2)
    await within(1, cluster.heartbeat())
    parked: Deferred[Any] = Deferred()
    cluster.second.answer = lambda _request: parked
    creation = cluster.create_topic()
    await cluster.second.wait_requests(2)
    cluster.second.answer = lambda request: error_response(request, ErrorCode.TOPIC_ALREADY_EXISTS)
    parked.complete(not_controller(create_topic()))
    assert topic_error(await within(0.1, creation)) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_creation_that_no_controller_took_is_denied_as_ever(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = not_controller
    cluster.third.answer = lambda request: error_response(request, ErrorCode.TOPIC_ALREADY_EXISTS)
    cluster.quorum.elect(2)
    creation = cluster.create_topic()
    await cluster.second.wait_requests(2)
    cluster.quorum.elect(3)
    assert topic_error(await within(0.1, creation)) is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_leader_that_resigned_may_still_answer(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    parked: dict[type[Any], Deferred[Any]] = {}

    def park(request: Any) -> Deferred[Any]:
        return parked.setdefault(type(request), Deferred())

    cluster.second.answer = park
    cluster.quorum.elect(2)
    heartbeat, deletion = cluster.heartbeat(), cluster.delete_topic()
    await cluster.second.wait_requests(2)
    cluster.quorum.elect(3)
    await within(0.1, heartbeat)  # the new leader has it
    assert not deletion.done
    parked[BrokerHeartbeatRequest].complete(accept(BrokerHeartbeatRequest()))
    parked[DeleteTopicsRequest].complete(accept(delete_topic()))
    assert deletion_error(await within(0.1, deletion)) is ErrorCode.NONE
    await trio.sleep(0.1)
    assert cluster.second.clients[0].is_closed
    assert len(cluster.third.requests) == 1


async def test_a_former_leader_is_not_waited_for_long(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = silence
    cluster.quorum.elect(2)
    deletion = cluster.delete_topic()
    await cluster.second.wait_requests(1)
    cluster.quorum.elect(3)
    assert deletion_error(await within(0.6, deletion)) is ErrorCode.REQUEST_TIMED_OUT
    assert not cluster.third.requests


async def test_a_former_leader_that_was_silent_is_not_waited_for(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = silence
    cluster.quorum.elect(2)
    deletion = cluster.delete_topic()
    await trio.sleep(2)
    cluster.quorum.elect(3)
    assert deletion_error(await within(0.01, deletion)) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_former_leader_that_gave_the_request_up_sends_it_to_the_next(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    parked: Deferred[Any] = Deferred()
    cluster.second.answer = lambda _request: parked
    cluster.quorum.elect(2)
    deletion = cluster.delete_topic()
    await cluster.second.wait_requests(1)
    cluster.quorum.elect(3)
    await trio.sleep(0.1)
    parked.complete(not_controller(delete_topic()))
    assert deletion_error(await within(0.1, deletion)) is ErrorCode.NONE
    assert cluster.third.requests == [delete_topic()]


@pytest.mark.parametrize("make", [Cluster.delete_topic, Cluster.heartbeat])
async def test_what_this_node_decided_but_did_not_commit_is_not_done_twice(
    cluster: Cluster, autojump_clock: MockClock, make: Callable[[Cluster], Deferred[Any]]
) -> None:
    parked: Deferred[Any] = Deferred()
    cluster.quorum.answer = lambda _request: parked
    cluster.quorum.elect(THIS_NODE)
    answer = make(cluster)
    assert not answer.done
    cluster.quorum.elect(3)
    parked.complete(MAY_BE_DECIDED)
    response = await within(0.1, answer)
    if make is Cluster.heartbeat:
        assert response.error_code == ErrorCode.NONE
        assert len(cluster.third.requests) == 1
    else:
        assert deletion_error(response) is ErrorCode.REQUEST_TIMED_OUT
        assert not cluster.third.requests


# ---- bounds


async def test_forwarded_requests_that_wait_are_bounded(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    waiting = [cluster.create_topic() for _ in range(CONFIG.max_waiting)]
    refused = cluster.create_topic()
    assert refused.done
    assert topic_error(refused.value) is ErrorCode.NOT_CONTROLLER
    heartbeat = cluster.heartbeat()
    assert not heartbeat.done  # the broker's own requests are few
    cluster.quorum.elect(2)
    await within(1, heartbeat)
    for answer in waiting:
        assert topic_error(await within(1, answer)) is ErrorCode.NONE
    assert topic_error(await within(1, cluster.create_topic())) is ErrorCode.NONE


# ---- voters


async def test_a_voter_that_is_added_may_lead(
    cluster: Cluster, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The client is notified of changed voters, and connects to the new one once it leads."""
    added = ControllerNode(nursery)
    cluster.quorum.elect(4)
    answer = cluster.create_topic()
    await trio.sleep(0.1)
    assert not answer.done
    voters = {2: cluster.second.address, 3: cluster.third.address, 4: added.address}
    cluster.quorum.voters.change(voters_at(voters))
    assert topic_error(await within(0.1, answer)) is ErrorCode.NONE
    assert len(added.requests) == 1


# ---- figures


async def test_statistics_count_requests_and_what_became_of_them(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """Gauges show what waits now; counters only grow."""
    waiting = cluster.create_topic(timeout_ms=100)
    before = cluster.client.statistics()
    assert (before["waiting_requests"], before["unanswered_requests"]) == (1, 1)
    await within(1, waiting)
    cluster.quorum.elect(2)
    await within(1, cluster.heartbeat())
    cluster.second.answer = silence
    lost = cluster.delete_topic()
    await cluster.second.wait_requests(2)
    cluster.second.stop()
    await within(1, lost)
    assert cluster.client.statistics() == {
        "waiting_requests": 0,
        "unanswered_requests": 0,
        "requests_total": 3,
        "timeouts_total": 1,
        "lost_answers_total": 1,
        "connections_total": 1,
    }
    assert before["requests_total"] == 1, "a snapshot changes no more"


# ---- in the name of clients


async def test_a_request_for_a_client_travels_in_an_envelope(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """To this node's own controller it goes as it is."""
    alice = RequestSender("alice", "app")
    cluster.second.answer = in_envelope
    cluster.quorum.elect(2)
    answer = await within(1, cluster.client.submit_for(alice, create_topic(), api_version=7))
    assert topic_error(answer) is ErrorCode.NONE
    (envelope,) = cluster.second.requests
    unwrapped = unwrap(envelope)
    assert (unwrapped.sender, unwrapped.request.topics[0].name) == (alice, "t")
    cluster.quorum.elect(THIS_NODE)
    answer = await within(1, cluster.client.submit_for(alice, create_topic(), api_version=7))
    assert topic_error(answer) is ErrorCode.NONE
    assert cluster.quorum.senders == [alice]


async def test_an_envelope_that_is_refused_is_the_answer_to_its_client(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster.second.answer = lambda _envelope: EnvelopeResponse(error_code=code)
    cluster.quorum.elect(2)
    answer = cluster.client.submit_for(RequestSender("a", "b"), create_topic(), api_version=7)
    assert topic_error(await within(1, answer)) is code


def in_envelope(envelope: EnvelopeRequest) -> EnvelopeResponse:
    unwrapped = unwrap(envelope)
    return wrap_response(accept(unwrapped.request), unwrapped)


class Refused:
    """A login that no controller accepts."""

    async def log_in(self, _network: Any, sock: Any, _host: str) -> None:
        await trio.lowlevel.checkpoint()
        sock.close()
        raise LoginRefused("Authentication failed: Invalid username or password")


async def test_a_controller_that_does_not_let_this_node_in_is_logged_and_asked_again(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    controller = ControllerNode(nursery)
    quorum = FakeQuorum(THIS_NODE, voters=voters_at({2: controller.address}))
    network = SecuredNetwork(SystemNetwork(), login=Refused())
    client = ControllerClient(network, quorum, THIS_NODE, Timers(), CONFIG)
    quorum.elect(2)
    nursery.start_soon(client.run)
    with trio.fail_after(10):
        while len(caplog.records) < 2:
            await trio.lowlevel.checkpoint()
    assert "does not let this node in node=2" in caplog.text
    assert "Invalid username or password" in caplog.text
