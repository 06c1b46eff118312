"""What transactional clients did and saw, and an independent model of what the logs may hold then.

Owns: `TransactionHistory`. It knows nothing of brokers; clients report to it, it raises at once
for what no later event can mend, and compares everything with the final logs in `check`. Terms: a
life is one answer to InitProducerId; an attempt is one transaction of a life; the value of its
record n is `attempt/n`. The promises it checks
1. A committed attempt is there whole, an aborted one nowhere: not lost, not torn.
2. Nothing is there twice, or in another order than it was sent in, or in another partition.
3. Only an attempt whose commit was asked for is committed; what was answered is what is.
4. A producer epoch belongs to one life. Once a newer life has begun, an older one writes, adds and
   commits no more: whatever it sends from then on is nowhere, not even as aborted.
5. After an attempt's marker no record of it comes to that partition, and every attempt ends.
6. Offsets that an attempt sends to a group are committed if and only if the attempt is. So the
   committed attempts of a group form a chain over each input partition: each begins where the last
   one ended, and has an output for every committed input record between.
7. A reader of committed data sees each committed record between where it began and where it is,
   once and in order, and nothing else; any other reader sees every record.
8. A last stable offset is given only if every transaction that began below it had its marker below
   the high watermark given with it.

Called by: the transactional programs of a simulation, and its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.known_commits import KnownCommits


class Entry(NamedTuple):
    """A record or a marker in a final log."""

    offset: int
    producer_id: int
    producer_epoch: int
    content: str | bool  # a record's value; True: the marker of a commit, False: of an abort


class Source(NamedTuple):
    """The input record that an output was made of."""

    topic_partition: TopicPartition
    offset: int


@dataclass(slots=True, eq=False)
class Life:
    """A producer that was given its epoch by InitProducerId."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_superseded: bool = False  # a newer life has begun


@dataclass(slots=True)
class _Sent:
    topic_partition: TopicPartition
    source: Source | None
    was_allowed: bool = False  # it was sent while no newer life had begun
    is_acknowledged: bool = False
    offset: int | None = None


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction."""

    name: str
    life: Life
    number: int
    sent: list[_Sent] = field(default_factory=list)
    offsets: dict[GroupPartition, tuple[int, int]] = field(default_factory=dict)  # from, up to
    asked: int = 0  # how often a commit was asked for
    may_commit: bool = False  # one of them was sent while no newer life had begun
    outcome: bool | None = None  # what was answered: committed, aborted


class GroupPartition(NamedTuple):
    """An input partition of a group."""

    group: str
    topic_partition: TopicPartition


@dataclass(slots=True)
class Passage:
    """What one reader was given of a partition, from where it began to where it is."""

    reader: str
    topic_partition: TopicPartition
    committed_only: bool
    begin: int
    position: int
    seen: list[tuple[int, str]] = field(default_factory=list)


class Span(NamedTuple):
    """A transaction in a partition of the final log."""

    first_offset: int
    marker_offset: int


class TransactionHistory:
    """See the module.

    Args:
        has_old_coordinator: see `known_commits`.
    """

    def __init__(self, has_old_coordinator: Callable[[], bool] = lambda: False) -> None:
        self.commits = KnownCommits(has_old_coordinator)
        self.attempts: dict[str, Attempt] = {}
        self._lives: dict[str, list[Life]] = defaultdict(list)
        self._found: dict[GroupPartition, set[int]] = defaultdict(set)
        self._passages: list[Passage] = []
        self._stable: dict[TopicPartition, set[tuple[int, int]]] = defaultdict(set)

    # -- producers --------------------------------------------------------------------------------

    def newest_epoch(self, transactional_id: str) -> int:
        """The newest epoch that a life was given; ask it before InitProducerId is sent."""
        return max((life.producer_epoch for life in self._lives[transactional_id]), default=-1)

    def begin_life(
        self, transactional_id: str, producer_id: int, producer_epoch: int, newest: int
    ) -> Life:
        """InitProducerId was answered; `newest` is what `newest_epoch` was when it was sent."""
        made = Life(transactional_id, producer_id, producer_epoch)
        for life in self._lives[transactional_id]:
            if life.producer_id != producer_id:
                _fail(f"{transactional_id} had producer id {life.producer_id}, has {producer_id}")
            if life.producer_epoch == producer_epoch:
                _fail(f"{transactional_id} was given epoch {producer_epoch} twice")
            if life.producer_epoch < producer_epoch:
                life.is_superseded = True
            else:
                made.is_superseded = True  # its answer came late
        if producer_epoch <= newest:
            _fail(f"{transactional_id} was given epoch {producer_epoch}, after {newest}")
        self._lives[transactional_id].append(made)
        return made

    def go_on(self, life: Life, producer_id: int, producer_epoch: int) -> None:
        """EndTxn was answered with the epoch of the next transaction (KIP-890)."""
        if producer_id != life.producer_id or producer_epoch <= life.producer_epoch:
            _fail(
                f"{life.transactional_id} had epoch {life.producer_epoch} of"
                f" {life.producer_id}, and was told to go on with {producer_epoch} of {producer_id}"
            )
        for other in self._lives[life.transactional_id]:
            if other is not life and other.producer_epoch == producer_epoch:
                _fail(f"{life.transactional_id} was given epoch {producer_epoch} twice")
        life.producer_epoch = producer_epoch

    def attempt(self, life: Life) -> Attempt:
        """Begin a transaction."""
        number = len(self.attempts)
        name = f"{life.transactional_id}.{life.producer_epoch}.{number}"
        made = self.attempts[name] = Attempt(name, life, number)
        return made

    def new_record(
        self, attempt: Attempt, topic_partition: TopicPartition, source: Source | None = None
    ) -> str:
        """Add a record to a transaction; return its value."""
        attempt.sent.append(_Sent(topic_partition, source))
        return f"{attempt.name}/{len(attempt.sent) - 1}"

    def send(self, attempt: Attempt, numbers: Sequence[int]) -> None:
        """Records are sent, for the first time or again."""
        for number in numbers:
            attempt.sent[number].was_allowed |= not attempt.life.is_superseded

    def acknowledge(
        self, attempt: Attempt, numbers: Sequence[int], base_offset: int | None
    ) -> None:
        """Records were acknowledged; the first one at this offset, if it was returned."""
        for index, number in enumerate(numbers):
            sent = attempt.sent[number]
            if not sent.was_allowed:
                _fail(f"{attempt.name}/{number} was acknowledged, after a newer producer began")
            sent.is_acknowledged = True
            sent.offset = None if base_offset is None else base_offset + index

    def send_offsets(
        self, attempt: Attempt, group: str, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        """Offsets of a group are sent into a transaction: those that were known, and the new."""
        for topic_partition, (begin, end) in offsets.items():
            attempt.offsets[GroupPartition(group, topic_partition)] = (begin, end)

    def ask_commit(self, attempt: Attempt) -> None:
        """EndTxn is sent, for the first time or again."""
        attempt.asked += 1
        attempt.may_commit |= not attempt.life.is_superseded

    def refuse_commit(self, attempt: Attempt) -> None:
        """EndTxn was answered with an error after which nothing was committed by it."""
        if attempt.asked == 1:
            attempt.may_commit = False

    def end(self, attempt: Attempt, *, commit: bool) -> None:
        """EndTxn was answered well."""
        if commit and not attempt.may_commit:
            _fail(f"the commit of {attempt.name} was answered, after a newer producer began")
        attempt.outcome = commit
        if commit:
            for key, (_, end) in attempt.offsets.items():
                self.commits.acknowledge(*key, end)

    # -- groups and readers -----------------------------------------------------------------------

    def committed_offset(self, group: str, topic_partition: TopicPartition) -> int:
        """What is committed at least; ask it before OffsetFetch is sent."""
        return self.commits.least(group, topic_partition)

    def find_offset(
        self, group: str, topic_partition: TopicPartition, known: int, found: int
    ) -> None:
        """OffsetFetch was answered; `known` is what `committed_offset` was when it was sent."""
        key = GroupPartition(group, topic_partition)
        where = f"offset {found} of {_name(topic_partition)} for group {group}"
        if found < known:
            _fail(f"{where} is returned as committed, but {known} was acknowledged before")
        if found and not any(
            attempt.may_commit and attempt.offsets.get(key, (0, -1))[1] == found
            for attempt in self.attempts.values()
        ):
            _fail(f"{where} is returned as committed, which nobody asked to commit")
        self._found[key].add(found)

    def passage(
        self, reader: str, topic_partition: TopicPartition, begin: int, *, committed_only: bool
    ) -> Passage:
        """A reader begins at an offset."""
        made = Passage(reader, topic_partition, committed_only, begin, begin)
        self._passages.append(made)
        return made

    def see(self, passage: Passage, offset: int, value: str) -> None:
        """A reader was given a record."""
        where = _at(passage.topic_partition, offset)
        if offset < passage.position:
            _fail(f"{passage.reader} is at {passage.position} and was given {where}")
        attempt, _ = self._find(passage.topic_partition, offset, value)
        if passage.committed_only and not attempt.may_commit:
            _fail(f"{passage.reader} was given {value} at {where}: its commit was not asked for")
        if passage.committed_only and attempt.outcome is False:
            _fail(f"{passage.reader} was given {value} at {where}, which was aborted")
        passage.seen.append((offset, value))
        passage.position = offset + 1

    def move(self, passage: Passage, position: int) -> None:
        """A reader has got all before this offset."""
        passage.position = max(passage.position, position)

    def see_stable(
        self, topic_partition: TopicPartition, last_stable_offset: int, high_watermark: int
    ) -> None:
        """A leader returned its last stable offset."""
        if not 0 <= last_stable_offset <= high_watermark:
            _fail(
                f"{_name(topic_partition)}: a last stable offset of {last_stable_offset} with a"
                f" high watermark of {high_watermark}"
            )
        self._stable[topic_partition].add((last_stable_offset, high_watermark))

    # -- the end ----------------------------------------------------------------------------------

    def check(
        self,
        logs: Mapping[TopicPartition, Sequence[Entry]],
        committed_offsets: Mapping[GroupPartition, int],
    ) -> None:
        """Compare the final logs, and what groups have committed, with all of the above."""
        replays = {tp: _Replay(self, tp, entries) for tp, entries in logs.items()}
        ends: dict[Attempt, dict[TopicPartition, bool]] = defaultdict(dict)
        for tp, replay in replays.items():
            for attempt, commit in replay.ends.items():
                ends[attempt][tp] = commit
        for attempt in self.attempts.values():
            _check_attempt(attempt, ends[attempt], replays)
        for tp, observed in self._stable.items():
            _check_stable(tp, observed, replays[tp].spans)
        for passage in self._passages:
            replay = replays[passage.topic_partition]
            _check_passage(passage, replay.committed if passage.committed_only else replay.records)
        committed = [a for a in self.attempts.values() if True in ends[a].values()]
        keys = {key for attempt in self.attempts.values() for key in attempt.offsets}
        for key in sorted(keys):
            self._check_chain(key, committed, replays, committed_offsets.get(key, 0))

    def _check_chain(
        self,
        key: GroupPartition,
        committed: Sequence[Attempt],
        replays: Mapping[TopicPartition, _Replay],
        found: int,
    ) -> None:
        inputs = replays[key.topic_partition].committed
        at = 0
        links = sorted(((a.offsets[key], a) for a in committed if key in a.offsets), key=_first)
        ends = {0}
        for (begin, end), attempt in links:
            if begin != at:
                _fail(
                    f"{attempt.name} took {_name(key.topic_partition)} from {begin} for group"
                    f" {key.group}, where {at} is next"
                )
            wanted = [offset for offset, _ in inputs if begin <= offset < end]
            made = {
                sent.source.offset
                for sent in attempt.sent
                if sent.source is not None and sent.source.topic_partition == key.topic_partition
            }
            if sorted(made) != wanted:
                _fail(
                    f"{attempt.name} took {_name(key.topic_partition)} from {begin} to {end}, made"
                    f" of {sorted(made)}, where {wanted} are committed"
                )
            at = end
            ends.add(end)
        if found != at:
            _fail(
                f"group {key.group} is at {found} of {_name(key.topic_partition)}, but outputs are"
                f" committed up to {at}"
            )
        for offset in sorted(self._found[key] - ends):
            _fail(
                f"group {key.group} got {offset} of {_name(key.topic_partition)} as committed,"
                " which it never was"
            )

    def _find(self, tp: TopicPartition, offset: int, value: str) -> tuple[Attempt, int]:
        name, _, number = value.rpartition("/")
        attempt = self.attempts.get(name)
        if attempt is None or int(number) >= len(attempt.sent):
            _fail(f"{value} at {_at(tp, offset)}: nobody sent it")
        assert attempt is not None
        if attempt.sent[int(number)].topic_partition != tp:
            _fail(f"{value} at {_at(tp, offset)}: it was sent elsewhere")
        return attempt, int(number)

    def counts(self) -> str:
        """Tell how much was done."""
        attempts = self.attempts.values()
        committed = sum(attempt.outcome is True for attempt in attempts)
        aborted = sum(attempt.outcome is False for attempt in attempts)
        seen = sum(len(passage.seen) for passage in self._passages)
        return (
            f"transactions={len(self.attempts)} committed={committed} aborted={aborted} seen={seen}"
        )


class _Replay:
    """One partition's final log, transaction by transaction."""

    def __init__(
        self, history: TransactionHistory, tp: TopicPartition, entries: Sequence[Entry]
    ) -> None:
        self._history = history
        self._tp = tp
        self.records: list[tuple[int, str]] = []
        self.committed: list[tuple[int, str]] = []
        self.where: dict[str, int] = {}
        self.ends: dict[Attempt, bool] = {}
        self.spans: list[Span] = []
        self._open: dict[int, list[tuple[int, str]]] = {}
        self._epochs: dict[int, int] = {}
        self._newest: dict[int, Attempt] = {}  # by producer id
        self._last: dict[Attempt, int] = {}  # the number of its last record so far
        for entry in entries:
            self._take(entry)
        for open_records in self._open.values():
            offset, value = open_records[0]
            _fail(f"the transaction of {value} at {_at(tp, offset)} never ended")
        self.committed.sort()

    def _take(self, entry: Entry) -> None:
        newest = self._epochs.get(entry.producer_id, -1)
        if entry.producer_epoch < newest:
            _fail(
                f"{entry.content} at {_at(self._tp, entry.offset)} has epoch"
                f" {entry.producer_epoch} of producer {entry.producer_id}, after {newest}"
            )
        self._epochs[entry.producer_id] = entry.producer_epoch
        if isinstance(entry.content, bool):
            self._end(entry, entry.content)
        else:
            self._add(entry, entry.content)

    def _add(self, entry: Entry, value: str) -> None:
        at = _at(self._tp, entry.offset)
        attempt, number = self._history._find(self._tp, entry.offset, value)
        if value in self.where:
            _fail(f"{value} is twice: at {_at(self._tp, self.where[value])} and {at}")
        if attempt in self.ends:
            _fail(f"{value} is at {at}, behind the marker of its transaction")
        if not attempt.sent[number].was_allowed:
            _fail(f"{value} is at {at}, though it was sent after a newer producer began")
        if number < self._last.get(attempt, -1):
            _fail(f"{value} is at {at}, behind {self._last[attempt]} of its transaction")
        newest = self._newest.get(entry.producer_id, attempt)
        if attempt is not newest and self._is_before(attempt, newest):
            _fail(f"{value} is at {at}, behind the later transaction {newest.name}")
        self._last[attempt] = number
        self._newest[entry.producer_id] = attempt
        self.where[value] = entry.offset
        self.records.append((entry.offset, value))
        records = self._open.setdefault(entry.producer_id, [])
        if records and records[0][1].rpartition("/")[0] != attempt.name:
            _fail(f"{value} is at {at}, where the transaction of {records[0][1]} is still open")
        records.append((entry.offset, value))

    @staticmethod
    def _is_before(attempt: Attempt, other: Attempt) -> bool:
        return attempt.life is other.life and attempt.number < other.number

    def _end(self, entry: Entry, commit: bool) -> None:
        records = self._open.pop(entry.producer_id, [])
        if not records:
            return  # of a partition that was added and not written to, or a marker that came again
        self.spans.append(Span(records[0][0], entry.offset))
        attempt, _ = self._history._find(self._tp, *records[0])
        self.ends[attempt] = commit
        if commit:
            self.committed += records


def _check_attempt(
    attempt: Attempt,
    ends: Mapping[TopicPartition, bool],
    replays: Mapping[TopicPartition, _Replay],
) -> None:
    """Check that an attempt ended in one way, and that all of it is there if it was committed."""
    name = attempt.name
    for number, sent in enumerate(attempt.sent):
        at = replays[sent.topic_partition].where.get(f"{name}/{number}")
        if sent.is_acknowledged and (at is None or sent.offset not in (None, at)):
            _fail(
                f"{name}/{number} was acknowledged at {_at(sent.topic_partition, sent.offset)}, and"
                f" is at {at}"
            )
    if len(set(ends.values())) > 1:
        parts = {_name(tp): "committed" if commit else "aborted" for tp, commit in ends.items()}
        _fail(f"{name} is torn: {parts}")
    is_committed = True in ends.values()
    if is_committed and not attempt.may_commit:
        _fail(f"{name} is committed, and was not asked to be")
    if is_committed and attempt.outcome is False:
        _fail(f"{name} is committed, and was answered to be aborted")
    if attempt.outcome and not is_committed and attempt.sent:
        _fail(f"{name} is {'aborted' if ends else 'lost'}, and was answered to be committed")
    if is_committed:
        for number, sent in enumerate(attempt.sent):
            if f"{name}/{number}" not in replays[sent.topic_partition].where:
                _fail(f"{name} is torn: {number} is not in {_name(sent.topic_partition)}")


def _check_stable(
    tp: TopicPartition, observed: set[tuple[int, int]], spans: Sequence[Span]
) -> None:
    for last_stable_offset, high_watermark in sorted(observed):
        for span in spans:
            if span.first_offset < last_stable_offset and span.marker_offset >= high_watermark:
                _fail(
                    f"{_name(tp)}: a last stable offset of {last_stable_offset} was returned with a"
                    f" high watermark of {high_watermark}, but the transaction from"
                    f" {span.first_offset} ended at {span.marker_offset}"
                )


def _check_passage(passage: Passage, records: Sequence[tuple[int, str]]) -> None:
    wanted = [record for record in records if passage.begin <= record[0] < passage.position]
    if passage.seen == wanted:
        return
    different = sorted(set(passage.seen) ^ set(wanted)) or wanted
    offset, value = different[0]
    what = "was not given" if (offset, value) in wanted else "was given"
    _fail(f"{passage.reader} {what} {value} at {_at(passage.topic_partition, offset)}")


def _first(link: tuple[tuple[int, int], Attempt]) -> tuple[int, int]:
    return link[0]


def _fail(text: str) -> None:
    raise SimulationFailure(text)


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def _at(topic_partition: TopicPartition, offset: int | None) -> str:
    return f"{_name(topic_partition)}:{offset}"
