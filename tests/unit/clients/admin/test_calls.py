"""How the admin client's requests find their broker, and when they are given up."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.clients.admin.calls import AdminCalls, Deadline, collect, finish
from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.config import AdminConfig
from kraftrio.clients.errors import NetworkError, NotControllerError, TopicExistsError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftrio.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, FakeCluster, FakeNode, fake_cluster


def config(bootstrap: str = "localhost:1", **settings: Any) -> AdminConfig:
    defaults = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}
    return AdminConfig(bootstrap_servers=bootstrap, **defaults | settings)


def test_results_are_sorted_and_their_first_error_raised() -> None:
    rows = [
        ("a", ErrorCode.NONE, None, 1),
        ("b", ErrorCode.TOPIC_ALREADY_EXISTS, "it is there", 2),
    ]
    results = collect(rows)
    assert results["a"] == 1
    assert results.errors["b"].message == "it is there"
    assert finish(results, raise_errors=False) is results
    with pytest.raises(TopicExistsError, match="it is there"):
        finish(results, raise_errors=True)


async def test_pauses_double_until_the_time_is_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadline = Deadline(config(retry_backoff_ms=100, retry_backoff_max_ms=300), 1_000)
    start = trio.current_time()
    times = []
    while await deadline.pause():
        times.append(round(trio.current_time() - start, 3))
    assert times == [0.1, 0.3, 0.6, 0.9]
    assert deadline.left_s == pytest.approx(0.1)


async def test_retries_are_limited(autojump_clock: trio.testing.MockClock) -> None:
    deadline = Deadline(config(retries=2), 60_000)
    assert await deadline.pause()
    assert await deadline.pause()
    assert not await deadline.pause()


async def test_another_controller_is_looked_for() -> None:
    async with fake_cluster(2) as fake:
        settings = config(fake.bootstrap)
        async with open_cluster(config=settings, rng=random.Random(1)) as cluster:
            moved_to(fake, controller_id=2)
            calls = AdminCalls(cluster, settings)
            response = await calls.ask_controller(
                CreateTopicsRequest(),
                Deadline(settings, 5_000),
                lambda answer: [topic.error_code for topic in answer.topics],
            )
            assert response.topics[0].error_code is ErrorCode.NONE
            assert fake.requests[1, "CreateTopics"] == fake.requests[2, "CreateTopics"] == 1
            with pytest.raises(NotControllerError):
                await calls.ask_controller(
                    CreateTopicsRequest(),
                    Deadline(settings, 50),
                    lambda _: [ErrorCode.NOT_CONTROLLER],
                )


def moved_to(fake: FakeCluster, controller_id: int) -> None:
    """Let the first controller asked say that another one is the controller."""

    def script(node: FakeNode, _request: object) -> CreateTopicsResponse:
        is_controller = node.node_id == controller_id
        fake.controller_id = controller_id
        code = ErrorCode.NONE if is_controller else ErrorCode.NOT_CONTROLLER
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    fake.on(ApiKey.CREATE_TOPICS, script)


async def test_one_broker_is_asked_until_it_answers() -> None:
    """However long that takes within the time of the call; no other broker is asked instead."""
    async with fake_cluster(2) as fake:
        settings = config(fake.bootstrap)
        async with open_cluster(config=settings, rng=random.Random(1)) as cluster:
            calls = AdminCalls(cluster, settings)
            answers = iter([CUT, CUT, DescribeClusterResponse(cluster_id="c")])
            fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: next(answers))
            response = await calls.ask_node(2, DescribeClusterRequest(), Deadline(settings, 30_000))
            assert response.cluster_id == "c"
            assert fake.requests[2, "DescribeCluster"] == 3
            assert fake.requests[1, "DescribeCluster"] == 0


async def test_one_broker_that_does_not_answer_is_given_up() -> None:
    """With the error of the last attempt."""
    async with fake_cluster(2) as fake:
        settings = config(fake.bootstrap, retries=1)
        async with open_cluster(config=settings, rng=random.Random(1)) as cluster:
            calls = AdminCalls(cluster, settings)
            fake.on(ApiKey.DESCRIBE_CLUSTER, lambda node, _: CUT)
            with pytest.raises(NetworkError):
                await calls.ask_node(2, DescribeClusterRequest(), Deadline(settings, 30_000))
            assert fake.requests[2, "DescribeCluster"] == 2
            assert fake.requests[1, "DescribeCluster"] == 0
