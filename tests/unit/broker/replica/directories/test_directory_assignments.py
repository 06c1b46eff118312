"""Where replicas lie is reported in batches, until the metadata says so."""

from __future__ import annotations

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.directories.directory_assignments import DirectoryAssignments
from kraftrio.kraft_meta.metadata.directories import LOST
from kraftrio.kraft_meta.metadata.image import MetadataDelta
from kraftrio.kraft_meta.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    AssignReplicasResponseDirectoryData,
    AssignReplicasResponsePartitionData,
    AssignReplicasResponseTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tests.unit.broker.controller.asked_controller import AskedController

BROKER_ID = 3
A, B = b"a" * 16, b"b" * 16
HERE, THERE = b"h" * 16, b"t" * 16


class Context(AskedController[AssignReplicasToDirsRequest, AssignReplicasToDirsResponse]):
    """Assignments of broker 3, a controller that answers when told, and a clock likewise.

    The topics a and b have three partitions each, with replicas on the brokers 3 and 4.
    """

    def __init__(self, partitions: int = 3) -> None:
        super().__init__(AssignReplicasToDirsRequest)
        self.broker_epoch = 33
        self.metadata = MetadataCache()
        self.assignments = DirectoryAssignments(
            self, BROKER_ID, lambda: self.broker_epoch, self.metadata, self
        )
        for topic_id in (A, B):
            self.publish(
                TopicRecord(topic_id.decode(), topic_id),
                *(
                    PartitionRecord(topic_id, index, (3, 4), (3, 4), 3)
                    for index in range(partitions)
                ),
            )

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = delta.apply(self.metadata.image.offset + 1, 1)

    def known(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        """The metadata says where a replica of this broker lies."""
        directories = (directory_id, THERE)
        self.publish(PartitionRecord(topic_id, index, (3, 4), (3, 4), 3, directories=directories))

    def pass_time(self, by_ms: float = 5) -> None:
        super().pass_time(by_ms)

    def sent(self, number: int = -1) -> dict[bytes, dict[bytes, list[int]]]:
        """What a request said: partitions by directory and topic."""
        return {
            directory.id: {
                topic.topic_id: [one.partition_index for one in topic.partitions]
                for topic in directory.topics
            }
            for directory in self.requests[number].directories
        }

    def answer(
        self,
        errors: dict[tuple[bytes, int], ErrorCode] | None = None,
        code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """Answer the last request: all taken but `errors`, or (code) nothing decided."""
        directories = []
        if not code:
            for directory_id, topics in self.sent().items():
                answered = AssignReplicasResponseDirectoryData(id=directory_id)
                for topic_id, indexes in topics.items():
                    partitions = [
                        AssignReplicasResponsePartitionData(
                            partition_index=index,
                            error_code=(errors or {}).get((topic_id, index), ErrorCode.NONE),
                        )
                        for index in indexes
                    ]
                    answered.topics.append(
                        AssignReplicasResponseTopicData(topic_id=topic_id, partitions=partitions)
                    )
                directories.append(answered)
        response = AssignReplicasToDirsResponse(error_code=code, directories=directories)
        self.answers[-1].complete(response)


def test_what_comes_together_goes_together() -> None:
    """By directory and topic, with the broker's epoch."""
    context = Context()
    for topic_id, index, directory_id in [(A, 0, HERE), (B, 1, HERE), (A, 2, HERE), (A, 1, LOST)]:
        context.assignments.place(topic_id, index, directory_id)
    assert context.requests == []
    context.pass_time()
    [request] = context.requests
    assert (request.broker_id, request.broker_epoch) == (3, 33)
    assert context.sent() == {HERE: {A: [0, 2], B: [1]}, LOST: {A: [1]}}
    context.answer()
    context.pass_time(10_000)
    assert len(context.requests) == 1


def test_one_request_is_under_way() -> None:
    """What comes meanwhile follows it at once; the newest word counts."""
    context = Context()
    context.assignments.place(A, 0, HERE)
    context.pass_time()
    context.assignments.place(A, 0, LOST)
    context.assignments.place(A, 1, HERE)
    context.assignments.place(A, 1, THERE)
    context.pass_time(10_000)
    assert len(context.requests) == 1
    context.answer()
    context.pass_time(0)
    assert context.sent() == {LOST: {A: [0]}, THERE: {A: [1]}}


def test_what_the_metadata_says_is_not_reported() -> None:
    """Nor what is not placed here, or not any more."""
    context = Context()
    context.known(A, 0, HERE)
    context.publish(PartitionRecord(A, 1, (4, 5), (4,), 4))
    for index in range(4):
        context.assignments.place(A, index, HERE)
    context.assignments.place(b"c" * 16, 0, HERE)
    context.pass_time()
    assert context.sent() == {HERE: {A: [2]}}


def test_nothing_is_sent_when_nothing_is_news() -> None:
    """And what comes later is sent as ever."""
    context = Context()
    context.known(A, 0, HERE)
    context.assignments.place(A, 0, HERE)
    context.pass_time()
    assert context.requests == []
    context.assignments.place(A, 1, HERE)
    context.pass_time()
    assert context.sent() == {HERE: {A: [1]}}


def test_what_was_not_decided_is_sent_again_with_the_current_epoch() -> None:
    """The whole request failed: another incarnation, no controller."""
    context = Context()
    context.assignments.place(A, 0, HERE)
    context.assignments.place(A, 1, HERE)
    context.pass_time()
    context.assignments.place(A, 1, THERE)
    context.answer(code=ErrorCode.STALE_BROKER_EPOCH)
    context.broker_epoch = 44
    context.pass_time(100)
    assert len(context.requests) == 1
    context.pass_time(400)
    assert context.requests[-1].broker_epoch == 44
    assert context.sent() == {HERE: {A: [0]}, THERE: {A: [1]}}


def test_what_was_refused_is_sent_again_while_it_is_news() -> None:
    """The controller may not know the topic yet; once it is gone here, nothing is sent."""
    context = Context()
    context.assignments.place(A, 0, HERE)
    context.assignments.place(A, 1, HERE)
    context.pass_time()
    context.answer({(A, 1): ErrorCode.UNKNOWN_TOPIC_ID})
    context.pass_time(500)
    assert context.sent() == {HERE: {A: [1]}}
    context.answer({(A, 1): ErrorCode.UNKNOWN_TOPIC_ID})
    context.publish(PartitionRecord(A, 1, (4, 5), (4,), 4))
    context.pass_time(10_000)
    assert len(context.requests) == 2


def test_a_request_is_bounded() -> None:
    """A broker that starts may have many thousands of replicas to report."""
    context = Context(partitions=3000)
    for index in range(3000):
        context.assignments.place(A, index, HERE)
    context.pass_time()
    assert len(context.sent()[HERE][A]) == 2250
    context.answer()
    context.pass_time(0)
    assert context.sent() == {HERE: {A: list(range(2250, 3000))}}
