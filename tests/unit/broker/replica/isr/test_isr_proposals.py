"""ISR proposals go in batches, one request at a time, and each is answered once."""

from __future__ import annotations

from kraftrio.broker.replica.isr.isr_proposals import IsrProposals
from kraftrio.broker.replica.state.isr import IsrAnswer, IsrMember, IsrProposal
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.controller.asked_controller import AskedController

BROKER_ID = 3
TOPIC_IDS = {"a": b"a" * 16, "b": b"b" * 16}
MEMBERS = (IsrMember(3, 33), IsrMember(4, 44))


class Context(AskedController[AlterPartitionRequest, AlterPartitionResponse]):
    """Proposals, a controller that answers when told, and a clock that goes when told."""

    def __init__(self) -> None:
        super().__init__(AlterPartitionRequest)
        self.broker_epoch = 33
        self.results: list[tuple[str, int, IsrAnswer]] = []
        self.proposals = IsrProposals(self, BROKER_ID, lambda: self.broker_epoch, self)

    def propose(self, topic: str, partition: int = 0, *, partition_epoch: int = 7) -> None:
        self.proposals.propose(
            TopicPartition(topic, partition),
            TOPIC_IDS[topic],
            IsrProposal(2, partition_epoch, MEMBERS),
            lambda result: self.results.append((topic, partition, result)),
        )

    def asked(self, number: int) -> list[tuple[str, int, int]]:
        """Topic, partition and partition epoch of what a request proposed."""
        names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
        return [
            (names[topic.topic_id], partition.partition_index, partition.partition_epoch)
            for topic in self.requests[number].topics
            for partition in topic.partitions
        ]

    def answer(self, *partitions: tuple[str, int, ErrorCode]) -> None:
        """Answer the newest request, per partition."""
        topics: dict[str, AlterPartitionResponseTopicData] = {}
        for name, index, error in partitions:
            topic = topics.setdefault(
                name, AlterPartitionResponseTopicData(topic_id=TOPIC_IDS[name])
            )
            topic.partitions.append(
                AlterPartitionResponsePartitionData(
                    partition_index=index,
                    error_code=error,
                    leader_id=BROKER_ID,
                    leader_epoch=2,
                    isr=[3, 4],
                    partition_epoch=8,
                )
            )
        self.answers[-1].complete(AlterPartitionResponse(topics=list(topics.values())))

    def fail(self, error: ErrorCode) -> None:
        self.answers[-1].complete(AlterPartitionResponse(error_code=error))

    def outcomes(self) -> list[tuple[str, int, ErrorCode]]:
        return [(topic, partition, result.error) for topic, partition, result in self.results]


def test_what_is_proposed_in_one_turn_goes_in_one_request() -> None:
    context = Context()
    context.propose("a", 0)
    context.propose("b", 0)
    context.propose("a", 1)
    assert not context.requests
    context.pass_time()
    (request,) = context.requests
    assert (request.broker_id, request.broker_epoch) == (BROKER_ID, 33)
    assert context.asked(0) == [("a", 0, 7), ("a", 1, 7), ("b", 0, 7)]
    first = request.topics[0].partitions[0]
    assert [(s.broker_id, s.broker_epoch) for s in first.new_isr_with_epochs] == list(MEMBERS)
    assert (first.leader_epoch, first.leader_recovery_state) == (2, 0)


def test_each_proposal_gets_its_own_answer() -> None:
    context = Context()
    context.propose("a", 0)
    context.propose("a", 1)
    context.pass_time()
    context.answer(("a", 1, ErrorCode.INVALID_UPDATE_VERSION), ("a", 0, ErrorCode.NONE))
    assert {(t, p): r.error for t, p, r in context.results} == {
        ("a", 0): ErrorCode.NONE,
        ("a", 1): ErrorCode.INVALID_UPDATE_VERSION,
    }
    taken = next(result for _, partition, result in context.results if partition == 0)
    assert taken == IsrAnswer(ErrorCode.NONE, 2, 8, (3, 4))


def test_what_comes_while_a_request_is_under_way_goes_in_the_next() -> None:
    context = Context()
    context.propose("a")
    context.pass_time()
    context.propose("b", 0)
    context.propose("b", 1)
    context.pass_time(1_000)
    assert len(context.requests) == 1
    context.answer(("a", 0, ErrorCode.NONE))
    context.pass_time()
    assert context.asked(1) == [("b", 0, 7), ("b", 1, 7)]


def test_of_one_partition_the_newest_waits_for_the_answer_to_the_former() -> None:
    context = Context()
    context.propose("a", partition_epoch=7)
    context.pass_time()
    context.propose("a", partition_epoch=8)
    context.propose("a", partition_epoch=9)
    context.pass_time()
    assert len(context.requests) == 1
    assert context.outcomes() == [("a", 0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    context.answer(("a", 0, ErrorCode.NONE))
    context.pass_time()
    assert context.asked(1) == [("a", 0, 9)]
    context.answer(("a", 0, ErrorCode.NONE))
    assert len(context.results) == 3


def test_a_callback_may_propose() -> None:
    context = Context()
    context.proposals.propose(
        TopicPartition("a", 0),
        TOPIC_IDS["a"],
        IsrProposal(2, 7, MEMBERS),
        lambda _: context.propose("b"),
    )
    context.pass_time()
    context.answer(("a", 0, ErrorCode.NONE))
    context.pass_time()
    assert context.asked(1) == [("b", 0, 7)]


def test_an_undecided_request_is_sent_again_after_a_pause() -> None:
    context = Context()
    context.propose("a")
    context.pass_time()
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH):
        context.fail(error)
        context.broker_epoch += 1
        count = len(context.requests)
        context.pass_time(49)
        assert len(context.requests) == count
        context.pass_time(1)
        assert context.asked(count) == [("a", 0, 7)]
    assert context.requests[-1].broker_epoch == 35
    assert not context.results
    context.answer(("a", 0, ErrorCode.NONE))
    assert context.outcomes() == [("a", 0, ErrorCode.NONE)]


def test_a_newer_proposal_replaces_an_undecided_one() -> None:
    context = Context()
    context.propose("a", partition_epoch=7)
    context.propose("b", partition_epoch=7)
    context.pass_time()
    context.propose("a", partition_epoch=8)
    context.fail(ErrorCode.REQUEST_TIMED_OUT)
    context.pass_time(50)
    assert sorted(context.asked(1)) == [("a", 0, 8), ("b", 0, 7)]
    assert context.outcomes() == [("a", 0, ErrorCode.OPERATION_NOT_ATTEMPTED)]


def test_a_proposal_that_the_answer_leaves_out_is_sent_again() -> None:
    context = Context()
    context.propose("a", 0)
    context.propose("a", 1)
    context.pass_time()
    context.answer(("a", 1, ErrorCode.NONE), ("b", 9, ErrorCode.NONE))
    assert context.outcomes() == [("a", 1, ErrorCode.NONE)]
    context.pass_time(50)
    assert context.asked(1) == [("a", 0, 7)]
