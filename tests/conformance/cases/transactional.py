"""A transactional producer in raw requests, and what a read_committed consumer sees of it.

`TransactionalProducer` speaks one transaction.version: under 2 (KIP-890) partitions are added by
producing, and each EndTxn answers with the epoch to go on with; under 1 they are added first, and
the epoch stays. What begins with `try_` makes one request and returns the answer; the others ask
again while the coordinator is busy with an earlier request, as every client does, and assert that
they succeed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.data import (
    AbortedTransaction,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
)
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsState,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftrio.wire.records.batch import Record, iter_headers, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker
from tests.conformance.cases.calls import (
    NOT_SERVED_YET,
    SETTLE_DEADLINE_S,
    batch_of,
    fetch,
    produce_request,
)
from tests.conformance.cases.raw_client import RawClient

BUSY = NOT_SERVED_YET - {ErrorCode.NONE} | {ErrorCode.CONCURRENT_TRANSACTIONS}
READ_COMMITTED = 1
TRANSACTION = 1  # the key type of FindCoordinator

T = TypeVar("T")


def repeated(
    ask: Callable[[], T], code_of: Callable[[T], ErrorCode], *, busy: set[ErrorCode] = BUSY
) -> T:
    """Ask until the answer is not that the coordinator is busy."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while code_of(answer := ask()) in busy:
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def wait_for_transactions(client: RawClient) -> None:
    """Wait until every transactional id is served; the first question creates the topic."""
    names = [f"probe-{number}" for number in range(20)]
    find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=names)
    describe = DescribeTransactionsRequest(transactional_ids=names)
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        codes = {one.error_code for one in client.call(find).coordinators}
        if codes == {ErrorCode.NONE}:
            codes = {one.error_code for one in client.call(describe).transaction_states}
            if codes == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}:
                return
        assert time.monotonic() < deadline, codes
        time.sleep(0.05)


@dataclass
class TransactionalProducer:
    """What one producer sends, and what was answered last."""

    client: RawClient
    transactional_id: str
    version: int = 2
    timeout_ms: int = 60_000
    producer_id: int = -1
    producer_epoch: int = -1
    _sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def twin(self, client: RawClient | None = None) -> TransactionalProducer:
        """Return a producer that knows the same and goes on by itself: a zombie of this one."""
        return TransactionalProducer(
            client or self.client,
            self.transactional_id,
            self.version,
            self.timeout_ms,
            self.producer_id,
            self.producer_epoch,
            dict(self._sequences),
        )

    def forget(self, topic: str) -> None:
        """Begin again with sequence 0 in a topic, as with one of the same name and another id."""
        self._sequences = {at: one for at, one in self._sequences.items() if at[0] != topic}

    # The coordinator

    def try_init(
        self, version: int = 5, *, producer_id: int = -1, producer_epoch: int = -1
    ) -> InitProducerIdResponse:
        """Ask for a producer id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        response = self.client.call(request, version)
        assert isinstance(response, InitProducerIdResponse)
        return response

    def init(self) -> TransactionalProducer:
        """Get a producer id and epoch; what was open is aborted first."""
        response = repeated(self.try_init, lambda one: one.error_code)
        assert response.error_code == ErrorCode.NONE, response
        self._go_on(response.producer_id, response.producer_epoch)
        return self

    def _go_on(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            self._sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def try_add(self, topic: str, *partitions: int, version: int = 3) -> ErrorCode:
        """Add partitions of one topic; return the one code that all of them got."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=topics,
        )
        (answered,) = self.client.call(request, version).results_by_topic_v3_and_below
        (code,) = {one.partition_error_code for one in answered.results_by_partition}
        return ErrorCode(code)

    def add(self, topic: str, *partitions: int) -> None:
        """Add partitions of one topic."""
        code = repeated(lambda: self.try_add(topic, *partitions), lambda code: code)
        assert code == ErrorCode.NONE

    def try_add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        """Add a group's partition of the offsets topic."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )
        return ErrorCode(self.client.call(request, version).error_code)

    def try_end(self, commit: bool, version: int | None = None) -> EndTxnResponse:
        """Ask for a commit or an abort."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        if version is None:
            version = 5 if self.version == 2 else 4
        response = self.client.call(request, version)
        assert isinstance(response, EndTxnResponse)
        return response

    def end(self, *, commit: bool) -> None:
        """Commit or abort, and go on as the answer says."""
        response = repeated(lambda: self.try_end(commit), lambda one: one.error_code)
        assert response.error_code == ErrorCode.NONE, response
        if self.version == 2:
            self._go_on(response.producer_id, response.producer_epoch)

    def state(self) -> DescribeTransactionsState:
        """Return what the coordinator knows of this id."""
        return describe_transaction(self.client, self.transactional_id)

    # Data

    def try_write(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None
    ) -> PartitionProduceResponse:
        """Write a batch of the transaction, in the Produce version of the transaction.version."""
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        batch = batch_of(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(topic, batch, partition)
        request.transactional_id = self.transactional_id
        if version is None:
            version = 12 if self.version == 2 else 11
        ((answer,),) = [t.partition_responses for t in self.client.call(request, version).responses]
        assert isinstance(answer, PartitionProduceResponse)
        if answer.error_code == ErrorCode.NONE:
            self._sequences[place] = sequence + len(values)
        return answer

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Write a batch of the transaction, to which it adds the partition; return its offset."""
        if self.version < 2:
            self.add(topic, partition)
        answer = repeated(
            lambda: self.try_write(topic, *values, partition=partition),
            lambda one: ErrorCode(one.error_code),
            busy=BUSY | {ErrorCode.NOT_ENOUGH_REPLICAS},
        )
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.base_offset

    def offsets_request(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> TxnOffsetCommitRequest:
        """Make a commit of one partition's offset within the transaction."""
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m"
        )
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )

    def try_commit_offset(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        """Send such a commit; return the code of its partition."""
        ((answer,),) = [topic.partitions for topic in self.client.call(request, version).topics]
        return ErrorCode(answer.error_code)

    def commit_offset(self, group: str, topic: str, offset: int, **member: object) -> ErrorCode:
        """Commit an offset within the transaction, to which it adds the group."""
        if self.version < 2:
            code = repeated(lambda: self.try_add_offsets(group), lambda code: code)
            assert code == ErrorCode.NONE
        request = self.offsets_request(group, topic, offset, **member)  # type: ignore[arg-type]
        version = 5 if self.version == 2 else 4
        return repeated(lambda: self.try_commit_offset(request, version), lambda code: code)


def describe_transaction(client: RawClient, transactional_id: str) -> DescribeTransactionsState:
    """Return what the coordinator knows of an id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def ask() -> DescribeTransactionsState:
        (state,) = client.call(request).transaction_states
        assert isinstance(state, DescribeTransactionsState)
        return state

    return repeated(ask, lambda one: ErrorCode(one.error_code))


def wait_for_state(client: RawClient, transactional_id: str, *states: str) -> str:
    """Wait until an id is in one of these states; return it."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (found := describe_transaction(client, transactional_id)).transaction_state not in states:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found.transaction_state


def wait_stable(client: RawClient, topic: str, partition: int = 0) -> int:
    """Wait until no transaction is open in a partition; return its high watermark."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        answer = fetch(client, topic, 0, partition, isolation_level=READ_COMMITTED)
        assert answer.error_code == ErrorCode.NONE, answer
        if answer.last_stable_offset == answer.high_watermark:
            return answer.high_watermark
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)


def committed(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values that a read_committed consumer hands out, up to the last stable offset."""
    return [record.value for record in committed_records(client, topic, partition)]


def committed_records(
    client: RawClient, topic: str, partition: int = 0, offset: int = 0
) -> list[Record]:
    """Return the records that a read_committed consumer hands out, up to the last stable offset."""
    records: list[Record] = []
    while True:
        answer = fetch(client, topic, offset, partition, isolation_level=READ_COMMITTED)
        assert answer.error_code == ErrorCode.NONE, answer
        if not answer.records:
            assert offset == answer.last_stable_offset
            return records
        aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or []]
        for end, found in _handed_out(records_view(answer.records), aborted, offset):
            offset = end
            records += found


def _handed_out(
    buffer: memoryview, aborted: list[tuple[int, int]], first: int
) -> Iterator[tuple[int, list[Record]]]:
    """Yield (next offset, records) of each batch, without what was aborted, as a consumer does."""
    waiting = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    for header in iter_headers(buffer, allow_partial=True):
        end = header.base_offset + header.last_offset_delta + 1
        while waiting and waiting[0][1] < end:
            aborting.add(waiting.pop(0)[0])
        records: list[Record] = []
        if header.is_control:
            marker = read_end_transaction_marker(buffer, header)
            if marker is not None and not marker.commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records = [one for one in iter_records(buffer, header) if one.offset >= first]
        yield end, records


def aborted_in(
    client: RawClient, topic: str, offset: int = 0, partition: int = 0
) -> list[AbortedTransaction]:
    """Return the aborted transactions that a read_committed fetch names."""
    answer = fetch(client, topic, offset, partition, isolation_level=READ_COMMITTED)
    return answer.aborted_transactions or []


def markers_in(client: RawClient, topic: str, partition: int = 0) -> list[tuple[int, int, bool]]:
    """Return (producer id, epoch, commit) of every marker in a partition."""
    data = fetch(client, topic, 0, partition).records
    if not data:
        return []
    buffer = records_view(data)
    found = []
    for header in iter_headers(buffer, allow_partial=True):
        marker = read_end_transaction_marker(buffer, header)
        if marker is not None:
            found.append((header.producer_id, header.producer_epoch, marker.commit))
    return found
