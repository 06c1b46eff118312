"""The model of transactions finds each kind of mistake in a history made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.transaction_model import (
    Attempt,
    Entry,
    GroupPartition,
    Life,
    Source,
    TransactionHistory,
)

A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)
GROUP = GroupPartition("g", IN)


@dataclass
class Story:
    """A history, and the logs that it ended in; each step does what a client and a broker would."""

    history: TransactionHistory = field(default_factory=TransactionHistory)
    logs: dict[TopicPartition, list[Entry]] = field(default_factory=lambda: {A: [], B: [], IN: []})
    groups: dict[GroupPartition, int] = field(default_factory=dict)

    def life(self, epoch: int = 0) -> Life:
        newest = self.history.newest_epoch("t")
        return self.history.begin_life("t", 7, epoch, newest)

    def write(
        self,
        attempt: Attempt,
        *tps: TopicPartition,
        epoch: int | None = None,
        source: Source | None = None,
        appended: bool = True,
        acknowledged: bool = True,
    ) -> None:
        for tp in tps:
            number = len(attempt.sent)
            value = self.history.new_record(attempt, tp, source)
            self.history.send(attempt, [number])
            offset = self.append(attempt, tp, value, epoch) if appended else 0
            if acknowledged:
                self.history.acknowledge(attempt, [number], offset)

    def append(
        self, attempt: Attempt, tp: TopicPartition, content: str | bool, epoch: int | None = None
    ) -> int:
        log = self.logs[tp]
        offset = log[-1].offset + 1 if log else 0
        life = attempt.life
        epoch = life.producer_epoch if epoch is None else epoch
        log.append(Entry(offset, life.producer_id, epoch, content))
        return offset

    def mark(self, attempt: Attempt, commit: bool, *tps: TopicPartition) -> None:
        for tp in tps:
            self.append(attempt, tp, commit)

    def commit(self, attempt: Attempt) -> None:
        self.history.ask_commit(attempt)
        self.history.end(attempt, commit=True)
        self.mark(attempt, True, *dict.fromkeys(sent.topic_partition for sent in attempt.sent))

    def abort(self, attempt: Attempt) -> None:
        self.history.end(attempt, commit=False)
        self.mark(attempt, False, *dict.fromkeys(sent.topic_partition for sent in attempt.sent))

    def check(self) -> None:
        self.history.check(self.logs, self.groups)


def test_what_is_right_is_left_alone() -> None:
    """Commits, aborts, an end without an answer, a bumped epoch, a loop, and their readers."""
    story = Story()
    history, life = story.history, story.life()
    first = history.attempt(life)
    story.write(first, IN, A, IN)
    story.commit(first)
    history.go_on(life, 7, 1)
    second = history.attempt(life)
    story.write(second, IN, A)
    story.abort(second)
    third = history.attempt(life)
    story.write(third, B, epoch=1)
    story.write(third, A, epoch=1, appended=False, acknowledged=False)
    story.append(third, B, False)  # by the coordinator
    fourth = history.attempt(story.life(2))
    story.write(fourth, B, source=Source(IN, 0))
    story.write(fourth, B, source=Source(IN, 1))
    history.send_offsets(fourth, "g", {IN: (0, 2)})
    known = history.committed_offset("g", IN)
    history.find_offset("g", IN, known, 0)
    story.commit(fourth)
    story.append(fourth, B, True)  # a marker again
    history.find_offset("g", IN, history.committed_offset("g", IN), 2)
    story.groups[GROUP] = 2
    reader = history.passage("r", A, 0, committed_only=True)
    history.see(reader, 0, f"{first.name}/1")
    history.move(reader, 4)
    reader = history.passage("u", A, 2, committed_only=False)
    history.see(reader, 2, f"{second.name}/1")
    history.see_stable(A, 0, 1)
    history.see_stable(A, 2, 3)
    story.check()
    assert history.counts() == "transactions=4 committed=2 aborted=1 seen=2"


def _lost(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, B)
    story.commit(attempt)
    del story.logs[A][0]


def _lost_whole(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, appended=False, acknowledged=False)
    story.commit(attempt)
    story.logs[A].clear()


def _moved(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.logs[A][0] = story.logs[A][0]._replace(offset=3)
    story.append(attempt, A, False)


def _torn_between_partitions(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, B)
    story.history.ask_commit(attempt)
    story.mark(attempt, True, A)
    story.mark(attempt, False, B)


def _torn_within_a_partition(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.write(attempt, A, appended=False, acknowledged=False)
    story.history.ask_commit(attempt)
    story.mark(attempt, True, A)


def _aborted_after_the_answer(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.history.ask_commit(attempt)
    story.history.end(attempt, commit=True)
    story.mark(attempt, False, A)


def _committed_after_an_abort(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.history.ask_commit(attempt)
    story.history.end(attempt, commit=False)
    story.mark(attempt, True, A)


def _committed_by_itself(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.mark(attempt, True, A)


def _committed_though_refused(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.history.ask_commit(attempt)
    story.history.refuse_commit(attempt)
    story.mark(attempt, True, A)


def _doubled(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.append(attempt, A, f"{attempt.name}/0")
    story.abort(attempt)


def _reordered(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, A, acknowledged=False)
    one, other = story.logs[A]
    story.logs[A][:] = [one._replace(content=other.content), other._replace(content=one.content)]
    story.abort(attempt)


def _reordered_transactions(story: Story, life: Life) -> None:
    first, second = story.history.attempt(life), story.history.attempt(life)
    story.write(second, A)
    story.abort(second)
    story.write(first, A)
    story.abort(first)


def _never_sent(story: Story, life: Life) -> None:
    story.append(story.history.attempt(life), A, "x/0")


def _sent_elsewhere(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, appended=False, acknowledged=False)
    story.append(attempt, B, f"{attempt.name}/0")


def _never_ended(story: Story, life: Life) -> None:
    story.write(story.history.attempt(life), A)


def _marker_left_out(story: Story, life: Life) -> None:
    first, second = story.history.attempt(life), story.history.attempt(life)
    story.write(first, A, B)
    story.history.end(first, commit=False)
    story.mark(first, False, B)
    story.write(second, A)


def _behind_its_marker(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.abort(attempt)
    story.write(attempt, A)


def _older_epoch(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.mark(story.history.attempt(story.life(1)), False, A)
    story.write(attempt, A, epoch=0, acknowledged=False)


def _zombie_is_there(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.life(1)
    story.write(attempt, A, acknowledged=False)
    story.append(attempt, A, False)


def _zombie_is_acknowledged(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.life(1)
    story.write(attempt, A)


def _zombie_commits(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.life(1)
    story.commit(attempt)


def _epoch_of_two(story: Story, life: Life) -> None:
    story.life(life.producer_epoch)


def _epoch_goes_back(story: Story, life: Life) -> None:
    story.history.go_on(life, 7, 5)
    story.life(4)


def _epoch_is_not_bumped(story: Story, life: Life) -> None:
    story.history.go_on(life, 7, life.producer_epoch)


def _id_changes(story: Story, life: Life) -> None:
    story.history.begin_life(life.transactional_id, 8, 1, 0)


def _loop(story: Story, life: Life) -> Attempt:
    """Two committed inputs, and a transaction that made an output of each."""
    inputs = story.history.attempt(life)
    story.write(inputs, IN, IN)
    story.commit(inputs)
    attempt = story.history.attempt(life)
    for offset in range(2):
        story.write(attempt, B, source=Source(IN, offset))
    story.history.send_offsets(attempt, "g", {IN: (0, 2)})
    return attempt


def _offsets_without_output(story: Story, life: Life) -> None:
    story.abort(_loop(story, life))
    story.groups[GROUP] = 2


def _output_without_offsets(story: Story, life: Life) -> None:
    story.commit(_loop(story, life))
    story.groups[GROUP] = 0


def _input_taken_twice(story: Story, life: Life) -> None:
    story.commit(_loop(story, life))
    story.commit(_loop(story, life))
    story.groups[GROUP] = 2


def _input_left_out(story: Story, life: Life) -> None:
    attempt = _loop(story, life)
    attempt.sent[1].source = None
    story.commit(attempt)
    story.groups[GROUP] = 2


def _pending_offset(story: Story, life: Life) -> None:
    _loop(story, life)
    story.history.find_offset("g", IN, 0, 2)


def _offset_of_an_aborted_one(story: Story, life: Life) -> None:
    attempt = _loop(story, life)
    story.history.ask_commit(attempt)
    story.history.find_offset("g", IN, 0, 2)
    story.mark(attempt, False, B)


def _offset_taken_back(story: Story, life: Life) -> None:
    story.commit(_loop(story, life))
    story.history.find_offset("g", IN, story.history.committed_offset("g", IN), 0)


def _read_before_the_commit(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    passage = story.history.passage("r", A, 0, committed_only=True)
    story.history.see(passage, 0, f"{attempt.name}/0")


def _read_of_an_aborted_one(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.history.ask_commit(attempt)
    passage = story.history.passage("r", A, 0, committed_only=True)
    story.history.see(passage, 0, f"{attempt.name}/0")
    story.mark(attempt, False, A)


def _not_read(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    story.commit(attempt)
    story.history.move(story.history.passage("r", A, 0, committed_only=True), 1)


def _read_twice(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A)
    passage = story.history.passage("r", A, 0, committed_only=False)
    story.history.see(passage, 0, f"{attempt.name}/0")
    story.history.see(passage, 0, f"{attempt.name}/0")


def _stable_past_an_open_one(story: Story, life: Life) -> None:
    attempt = story.history.attempt(life)
    story.write(attempt, A, A)
    story.commit(attempt)
    story.history.see_stable(A, 2, 2)


def _stable_above_the_high_watermark(story: Story, life: Life) -> None:
    story.history.see_stable(A, 3, 2)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (_lost, "/0 was acknowledged at a-0:0, and is at None"),
        (_lost_whole, "is lost, and was answered to be committed"),
        (_moved, "was acknowledged at a-0:0, and is at 3"),
        (_torn_between_partitions, "is torn: {'a-0': 'committed', 'b-0': 'aborted'}"),
        (_torn_within_a_partition, "is torn: 1 is not in a-0"),
        (_aborted_after_the_answer, "is aborted, and was answered to be committed"),
        (_committed_after_an_abort, "is committed, and was answered to be aborted"),
        (_committed_by_itself, "is committed, and was not asked to be"),
        (_committed_though_refused, "is committed, and was not asked to be"),
        (_doubled, "is twice: at a-0:0 and a-0:1"),
        (_reordered, "/0 is at a-0:1, behind 1 of its transaction"),
        (_reordered_transactions, "behind the later transaction t.0.1"),
        (_never_sent, "x/0 at a-0:0: nobody sent it"),
        (_sent_elsewhere, "at b-0:0: it was sent elsewhere"),
        (_never_ended, "the transaction of t.0.0/0 at a-0:0 never ended"),
        (_marker_left_out, "where the transaction of t.0.0/0 is still open"),
        (_behind_its_marker, "behind the marker of its transaction"),
        (_older_epoch, "has epoch 0 of producer 7, after 1"),
        (_zombie_is_there, "though it was sent after a newer producer began"),
        (_zombie_is_acknowledged, "was acknowledged, after a newer producer began"),
        (_zombie_commits, "was answered, after a newer producer began"),
        (_epoch_of_two, "was given epoch 0 twice"),
        (_epoch_goes_back, "was given epoch 4, after 5"),
        (_epoch_is_not_bumped, "was told to go on with 0 of 7"),
        (_id_changes, "had producer id 7, has 8"),
        (_offsets_without_output, "is at 2 of in-0, but outputs are committed up to 0"),
        (_output_without_offsets, "is at 0 of in-0, but outputs are committed up to 2"),
        (_input_taken_twice, "took in-0 from 0 for group g, where 2 is next"),
        (_input_left_out, "where [0, 1] are committed"),
        (_pending_offset, "returned as committed, which nobody asked to commit"),
        (_offset_of_an_aborted_one, "got 2 of in-0 as committed, which it never was"),
        (_offset_taken_back, "but 2 was acknowledged before"),
        (_read_before_the_commit, "its commit was not asked for"),
        (_read_of_an_aborted_one, "r was given t.0.0/0 at a-0:0"),
        (_not_read, "r was not given t.0.0/0 at a-0:0"),
        (_read_twice, "r is at 1 and was given a-0:0"),
        (_stable_past_an_open_one, "but the transaction from 0 ended at 2"),
        (_stable_above_the_high_watermark, "of 3 with a high watermark of 2"),
    ],
)
def test_mistakes_are_found(act: Callable[[Story, Life], None], text: str) -> None:
    """Each is reported with the record or transaction that shows it."""
    story = Story()
    with pytest.raises(SimulationFailure) as caught:
        act(story, story.life())
        story.check()
    assert text in str(caught.value)


def test_a_late_answer_supersedes_no_producer() -> None:
    """Of two producers of an id that ask at once, the newer one fences, in any order of answers."""
    history = TransactionHistory()
    newer = history.begin_life("t", 7, 1, -1)
    older = history.begin_life("t", 7, 0, -1)
    assert (older.is_superseded, newer.is_superseded) == (True, False)
