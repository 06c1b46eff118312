"""What the admin client asks about transactions, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kraftrio import Admin, TopicPartition
from kraftrio.clients.admin.types import (
    AbortTransactionSpec,
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from kraftrio.errors import (
    InvalidProducerEpochError,
    TransactionalIdAuthorizationError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kraftrio.wire.messages.data import ProducerState as WireProducerState
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsState,
    DescribeTransactionsTopicData,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsState,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeCluster, FakeNode, fake_cluster

PLACE = TopicPartition("a", 1)


@asynccontextmanager
async def administering(**settings: Any) -> AsyncIterator[tuple[FakeCluster, Admin]]:
    """Two brokers; the second one coordinates, and leads a-1."""
    async with fake_cluster(2) as cluster:
        cluster.coordinator_id = 2
        cluster.add_topic("a", [1, 2])
        async with Admin(cluster.bootstrap, retry_backoff_ms=1, **settings) as admin:
            yield cluster, admin


async def test_the_list_is_that_of_all_coordinators() -> None:
    async with administering() as (cluster, admin):
        asked: list[ListTransactionsRequest] = []
        refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

        def listed(node: FakeNode, request: ListTransactionsRequest) -> ListTransactionsResponse:
            asked.append(request)
            if refusals:
                return ListTransactionsResponse(error_code=refusals.pop())
            state = ListTransactionsState(
                transactional_id=f"t{node.node_id}",
                producer_id=node.node_id,
                transaction_state="Ongoing",
            )
            return ListTransactionsResponse(transaction_states=[state])

        cluster.on(ApiKey.LIST_TRANSACTIONS, listed)
        found = await admin.transactions.list_ids(
            states=["Ongoing"],
            producer_ids=[1, 2],
            min_duration_ms=5,
            transactional_id_pattern="t.*",
        )
        assert found == [
            TransactionListing("t1", 1, "Ongoing"),
            TransactionListing("t2", 2, "Ongoing"),
        ]
        assert len(asked) == 3
        request = asked[-1]
        assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [1, 2])
        assert (request.duration_filter, request.transactional_id_pattern) == (5, "t.*")
        await admin.transactions.list_ids()
        assert (asked[-1].duration_filter, asked[-1].transactional_id_pattern) == (-1, None)


async def test_a_filter_that_a_broker_does_not_know_is_not_left_out() -> None:
    async with fake_cluster() as cluster:
        cluster.max_versions[ApiKey.LIST_TRANSACTIONS] = 0
        async with Admin(cluster.bootstrap) as admin:
            for filters in ({"min_duration_ms": 5}, {"transactional_id_pattern": "t"}):
                with pytest.raises(UnsupportedVersionError):
                    await admin.transactions.list_ids(**filters)


async def test_descriptions_come_from_the_coordinator() -> None:
    async with administering() as (cluster, admin):

        def described(
            node: FakeNode, request: DescribeTransactionsRequest
        ) -> DescribeTransactionsResponse:
            assert node.node_id == 2
            (name,) = request.transactional_ids
            state = DescribeTransactionsState(
                transactional_id=name,
                transaction_state="Ongoing",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1 if name == "idle" else 1234,
                producer_id=7,
                producer_epoch=3,
                topics=[DescribeTransactionsTopicData(topic="a", partitions=[0, 1])],
            )
            if name == "unknown":
                state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return DescribeTransactionsResponse(transaction_states=[state])

        cluster.on(ApiKey.DESCRIBE_TRANSACTIONS, described)
        found = await admin.transactions.describe(["t", "idle", "unknown"], raise_errors=False)
        assert found["t"] == TransactionDescription(
            2, "Ongoing", 7, 3, 60_000, 1234, frozenset({TopicPartition("a", 0), PLACE})
        )
        assert found["idle"].transaction_start_time_ms is None
        assert isinstance(found.errors["unknown"], TransactionalIdNotFoundError)


async def test_fencing_waits_for_the_transaction_that_it_aborts() -> None:
    async with administering() as (cluster, admin):
        answers = [
            InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
            InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR),
            InitProducerIdResponse(producer_id=7, producer_epoch=4),
            InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ]

        def fenced(node: FakeNode, request: InitProducerIdRequest) -> InitProducerIdResponse:
            assert node.node_id == 2 and request.producer_id == -1
            assert request.transactional_id in ("t", "not-mine")
            assert request.transaction_timeout_ms > 0
            return answers.pop(0)

        cluster.on(ApiKey.INIT_PRODUCER_ID, fenced)
        assert dict(await admin.transactions.fence_producers(["t"])) == {"t": FencedProducer(7, 4)}
        with pytest.raises(TransactionalIdAuthorizationError):
            await admin.transactions.fence_producers(["not-mine"])


async def test_an_abort_goes_to_the_leader_of_the_partition() -> None:
    async with administering() as (cluster, admin):
        codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]

        def write(node: FakeNode, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            assert node.node_id == 2
            (marker,) = request.markers
            assert (marker.producer_id, marker.producer_epoch) == (7, 3)
            assert (marker.coordinator_epoch, marker.transaction_result) == (9, False)
            result = WritableTxnMarkerPartitionResult(partition_index=1, error_code=codes.pop(0))
            topic = WritableTxnMarkerTopicResult(name="a", partitions=[result])
            return WriteTxnMarkersResponse(
                markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])]
            )

        cluster.on(ApiKey.WRITE_TXN_MARKERS, write)
        spec = AbortTransactionSpec(PLACE, 7, 3, 9)
        await admin.transactions.abort(spec)
        with pytest.raises(InvalidProducerEpochError):
            await admin.transactions.abort(spec)
        assert not codes


async def test_producers_are_those_of_the_leader_or_of_one_replica() -> None:
    async with administering() as (cluster, admin):

        def described(
            node: FakeNode, request: DescribeProducersRequest
        ) -> DescribeProducersResponse:
            states = [
                WireProducerState(
                    producer_id=node.node_id,
                    producer_epoch=3,
                    last_sequence=5,
                    last_timestamp=1234,
                    coordinator_epoch=-1,
                ),
                WireProducerState(
                    producer_id=8,
                    last_sequence=6,
                    last_timestamp=1235,
                    coordinator_epoch=2,
                    current_txn_start_offset=40,
                ),
            ]
            return DescribeProducersResponse(
                topics=[
                    DescribeProducersTopicResponse(
                        name=topic.name,
                        partitions=[
                            DescribeProducersPartitionResponse(
                                partition_index=index, active_producers=states
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in request.topics
                ]
            )

        cluster.on(ApiKey.DESCRIBE_PRODUCERS, described)
        wanted = (ProducerState(2, 3, 5, 1234, None, None), ProducerState(8, 0, 6, 1235, 2, 40))
        assert (await admin.transactions.describe_producers([PLACE]))[PLACE] == wanted
        (first, _) = (await admin.transactions.describe_producers([PLACE], broker_id=1))[PLACE]
        assert first.producer_id == 1
