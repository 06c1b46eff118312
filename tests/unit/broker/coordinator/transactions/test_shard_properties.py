"""Random requests, failures and changes of leaders, against what must hold for each id.

The harness is a runtime that delays, fails and loses appends as it likes. What is checked knows
nothing of the shard's rules for requests:

1. A failed append changes nothing, and no request that it was for succeeds.
2. What administrators see is what the newest committed record of the id says.
3. A producer that starts afresh gets an epoch that nobody had, and from then on nothing that
   earlier ones ask for succeeds.
4. A transaction is decided once, as its producer was answered. It holds every partition whose
   addition succeeded, and gets its markers once from each leader that finds it decided.
5. States follow each other in the log as Kafka's documentation of the states has it.
6. Once failures stop, every transaction ends within its time-out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.broker.coordinator.transactions.ports import (
    NEEDS_PRODUCER_ID,
    TransactionEnd,
)
from kraftrio.broker.coordinator.transactions.shard import TransactionShard
from kraftrio.wire.codec.message import decode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.transactions import (
    EndTxnRequest,
    TransactionLogKey,
    TransactionLogValue,
)
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from tests.unit.broker.coordinator.transactions.transaction_context import (
    START_WALL_MS,
    TIMEOUT_MS,
    Properties,
)

IDS = ("a", "b")
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMMITTED, ABORTED = range(6)
FOLLOWING: dict[int | None, set[int | None]] = {
    None: {EMPTY},
    EMPTY: {EMPTY, ONGOING, PREPARE_ABORT, None},
    ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT},
    PREPARE_COMMIT: {COMMITTED},
    PREPARE_ABORT: {ABORTED},
    COMMITTED: {EMPTY, ONGOING, PREPARE_ABORT, None},
    ABORTED: {EMPTY, ONGOING, PREPARE_ABORT, None},
}
NAMES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


@dataclass
class Client:
    """A producer of a transactional id, by what it was last given."""

    transactional_id: str
    producer: ProducerIdAndEpoch | None = None
    added: set[TopicPartition] = field(default_factory=set)  # since its last end
    ending: bool | None = None  # how it ends its transaction, until that was answered


@dataclass
class Append:
    """An append that is not settled yet."""

    outcome: Outcome
    end_offset: int
    on_response: Callable[[Any], None]


class Harness:
    """A shard, its log, and what was seen of both."""

    def __init__(self, transaction_version: int, *, is_new_client: bool) -> None:
        self.transaction_version = transaction_version
        self.is_new_client = is_new_client
        self.now = Now(0.0, START_WALL_MS)
        self.log: list[CoordinatorRecord] = []
        self.committed_end = 0
        self.checked_end = 0
        self.appends: list[Append] = []
        self.is_holding = self.is_failing = False
        self.leader_epoch = 1
        self.ends: list[TransactionEnd] = []
        self.decided: dict[tuple[int, str, int, int], bool] = {}
        self.states: dict[str, int | None] = {}
        self.values: dict[str, TransactionLogValue | None] = {}
        self.moves: set[tuple[int | None, int | None]] = set()
        self.next_producer_id = 0
        self.granted: set[ProducerIdAndEpoch] = set()
        self.fenced: dict[str, set[ProducerIdAndEpoch]] = {name: set() for name in IDS}
        self.clients = [Client(name) for name in IDS for _ in range(2)]
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionShard:
        return TransactionShard(
            0,
            self.leader_epoch,
            Properties(),
            markers=self,
            take_producer_id=self.take_producer_id,
            transaction_version=lambda: self.transaction_version,
        )

    def take_producer_id(self) -> int | None:
        self.next_producer_id += 1
        return None if self.next_producer_id % 5 == 0 else self.next_producer_id

    # --- the marker sink ---

    def write(self, end: TransactionEnd) -> None:
        key = (self.leader_epoch, end.transactional_id, end.producer_id, end.producer_epoch)
        is_bumped = end.transaction_version == 2
        assert (*key, is_bumped) not in self.decided, "markers were asked for twice"
        self.decided[key] = end.commit
        self.ends.append(end)

    def drop(self, coordinator_partition: int) -> None:
        self.ends.clear()

    # --- the runtime ---

    def run(self, outcome: Outcome, on_response: Callable[[Any], None] = lambda _: None) -> None:
        if not outcome.records:
            on_response(outcome.response)
            return
        before = self.seen()
        if self.is_failing:
            on_response(ErrorCode.NOT_ENOUGH_REPLICAS)
            assert outcome.follow_up is not None
            self.run(
                self.shard.on_append_done(
                    outcome.follow_up, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.now
                )
            )
            assert self.seen() == before, "a failed append changed something"
            return
        self.log += outcome.records
        assert outcome.change is not None
        self.shard.apply(outcome.change, len(self.log), self.now)
        self.appends.append(Append(outcome, len(self.log), on_response))
        assert self.seen() == before, "something counts before it is committed"
        if not self.is_holding:
            self.commit()

    def seen(self) -> list[Any]:
        return [self.shard.describe(name) for name in IDS]

    def commit(self) -> None:
        appends, self.appends = self.appends, []
        for append in appends:
            self.committed_end = max(self.committed_end, append.end_offset)
            self.check_log()
            self.shard.on_committed(append.end_offset)
            append.on_response(append.outcome.response)
            self.finish(append, ErrorCode.NONE)
        self.committed_end = len(self.log) if not self.appends else self.committed_end
        self.check_log()
        self.shard.on_committed(self.committed_end)

    def give_up(self) -> None:
        """Responses do not wait any longer; the records are still there."""
        appends, self.appends = self.appends, []
        for append in appends:
            append.on_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.finish(append, ErrorCode.REQUEST_TIMED_OUT)

    def finish(self, append: Append, error: ErrorCode) -> None:
        assert append.outcome.follow_up is not None
        self.run(self.shard.on_append_done(append.outcome.follow_up, error, self.now))

    def change_leader(self, *, keeps_tail: bool) -> None:
        """Another broker leads: what was not committed may be lost, or not."""
        for append in self.appends:
            append.on_response(ErrorCode.NOT_COORDINATOR)
        self.appends.clear()
        self.shard.unload(self.now)
        if not keeps_tail:
            del self.log[self.committed_end :]
        self.committed_end = len(self.log)
        self.check_log()
        self.leader_epoch += 1
        self.shard = self.new_shard()
        for offset, (key, value) in enumerate(self.log):
            self.shard.replay(offset, key, value, self.now)
        self.run(self.shard.on_loaded(self.now))

    def advance(self, delay_ms: int) -> None:
        if self.is_failing:
            delay_ms = min(delay_ms, TIMEOUT_MS)  # it tries again twice a second
        end_ms = self.now.monotonic_ms + delay_ms
        for _ in range(1_000):
            due_ms = self.shard.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.set_time(max(due_ms, self.now.monotonic_ms))
            for outcome in self.shard.on_deadline(self.now):
                self.run(outcome)
        else:
            raise AssertionError("deadlines without end")
        self.set_time(end_ms)

    def set_time(self, monotonic_ms: float) -> None:
        passed_ms = int(monotonic_ms - self.now.monotonic_ms)
        self.now = Now(monotonic_ms, self.now.wall_ms + passed_ms)

    # --- requests ---

    def init(self, client: Client, *, keeps_epoch: bool) -> None:
        given = client.producer if keeps_epoch else None
        is_afresh = given is None or self.states.get(client.transactional_id) is None
        request = InitProducerIdRequest(
            transactional_id=client.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1 if given is None else given.producer_id,
            producer_epoch=-1 if given is None else given.producer_epoch,
        )

        def on_response(response: Any) -> None:
            if _code_of(response) is not ErrorCode.NONE:
                return
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            fenced = self.fenced[client.transactional_id]
            if is_afresh:
                assert producer not in self.granted, "an epoch was given twice"
                others = [one for one in self.clients if one is not client]
                fenced.update(
                    one.producer
                    for one in others
                    if one.producer and one.transactional_id == client.transactional_id
                )
            else:
                assert given not in fenced, "a fenced producer has started"
            self.granted.add(producer)
            client.producer, client.added, client.ending = producer, set(), None

        self.run(self.shard.init_producer_id(request, api_version=5, now=self.now), on_response)

    def add(self, client: Client, index: int) -> None:
        if client.producer is None or client.ending is not None:
            return
        producer = client.producer
        partition = TopicPartition("t", index)

        def on_response(response: Any) -> None:
            if response is ErrorCode.NONE:
                assert producer not in self.fenced[client.transactional_id]
                if client.producer == producer:
                    client.added.add(partition)

        version = 5 if self.is_new_client else 3
        outcome = self.shard.add_partitions(
            client.transactional_id,
            producer,
            [partition],
            api_version=version,
            client_version=2 if self.is_new_client else 0,
            now=self.now,
        )
        self.run(outcome, on_response)

    def end(self, client: Client, *, commit: bool) -> None:
        if client.producer is None:
            return
        producer = client.producer
        commit = commit if client.ending is None else client.ending
        client.ending = commit

        def on_response(response: Any) -> None:
            if _code_of(response) is not ErrorCode.NONE:
                return
            assert producer not in self.fenced[client.transactional_id]
            name = client.transactional_id
            ended = COMMITTED if commit else ABORTED
            decided = PREPARE_COMMIT if commit else PREPARE_ABORT
            assert self.states[name] in (ended, decided), "it was answered otherwise"
            value = self.values[name]
            if commit and self.states[name] == decided:
                assert value is not None
                stored = {
                    TopicPartition(topic.topic, index)
                    for topic in value.transaction_partitions or []
                    for index in topic.partition_ids
                }
                assert client.added <= stored, "a partition is lost"
            client.added, client.ending = set(), None
            if self.is_new_client:
                client.producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self.granted.add(client.producer)

        request = EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        version = 5 if self.is_new_client else 4
        outcome = self.shard.end_transaction(request, api_version=version, now=self.now)
        self.run(outcome, on_response)

    def write_markers(self) -> None:
        if self.ends:
            end = self.ends.pop(0)
            self.run(
                self.shard.markers_written(
                    end.transactional_id, end.producer_id, end.producer_epoch, self.now
                )
            )

    # --- what must hold ---

    def check_log(self) -> None:
        """Follow the committed records."""
        for key, value in self.log[self.checked_end : self.committed_end]:
            name = decode(TransactionLogKey, 0, key, 2)[0].transactional_id
            stored = None
            if value is not None:
                version = int.from_bytes(value[:2], "big")
                stored = decode(TransactionLogValue, version, value, 2)[0]
            state = None if stored is None else stored.transaction_status
            former = self.states.get(name)
            assert state in FOLLOWING[former], f"{former} to {state}"
            self.moves.add((former, state))
            before = self.values.get(name)
            if stored is not None and before is not None:
                assert stored.producer_id != before.producer_id or (
                    stored.producer_epoch >= before.producer_epoch
                )
            self.states[name], self.values[name] = state, stored
        self.checked_end = self.committed_end

    def check(self) -> None:
        """What is seen is what is committed, once all of that is made."""
        if self.appends or self.committed_end < len(self.log):
            return
        for name, described in zip(IDS, self.seen(), strict=True):
            state, value = self.states.get(name), self.values.get(name)
            if state is None or value is None:
                assert described.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                continue
            assert described.transaction_state == NAMES[state]
            assert (described.producer_id, described.producer_epoch) == (
                value.producer_id,
                value.producer_epoch,
            )

    def come_to_rest(self) -> None:
        """Without failures, and with markers that get written, everything ends."""
        self.is_failing = self.is_holding = False
        self.commit()
        for _ in range(20):
            self.advance(TIMEOUT_MS)
            while self.ends:
                self.write_markers()
        self.check()
        assert all(self.states.get(name) in (None, EMPTY, COMMITTED, ABORTED) for name in IDS)


def _code_of(response: Any) -> ErrorCode | None:
    if response is NEEDS_PRODUCER_ID:
        return None
    return response if isinstance(response, ErrorCode) else response.error_code


CLIENTS = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("init"), CLIENTS, st.booleans()),
    st.tuples(st.just("add"), CLIENTS, st.integers(0, 2)),
    st.tuples(st.just("add"), CLIENTS, st.integers(0, 2)),
    st.tuples(st.just("end"), CLIENTS, st.booleans()),
    st.tuples(st.just("markers")),
    st.tuples(st.just("markers")),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("commit")),
    st.tuples(st.just("give_up")),
    st.tuples(st.just("leader"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([100, TIMEOUT_MS, 700_000_000])),
)


def take(harness: Harness, step: tuple[Any, ...]) -> None:
    name, *words = step
    if name in ("init", "add", "end"):
        client = harness.clients[words[0]]
        if name == "init":
            harness.init(client, keeps_epoch=words[1])
        elif name == "add":
            harness.add(client, words[1])
        else:
            harness.end(client, commit=words[1])
    elif name == "markers":
        harness.write_markers()
    elif name == "hold":
        harness.is_holding = words[0]
    elif name == "fail":
        harness.is_failing = words[0]
    elif name == "commit":
        harness.commit()
    elif name == "give_up":
        harness.give_up()
    elif name == "leader":
        harness.change_leader(keeps_tail=words[0])
    else:
        harness.advance(words[0])
    if not harness.is_holding:
        harness.commit()
    harness.advance(0)
    harness.check()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([(0, False), (1, False), (2, False), (2, True)]), st.lists(STEPS, max_size=50)
)
def test_what_holds_for_every_transactional_id(
    versions: tuple[int, bool], steps: list[tuple[Any, ...]]
) -> None:
    transaction_version, is_new_client = versions
    harness = Harness(transaction_version, is_new_client=is_new_client)
    for step in steps:
        take(harness, step)
    harness.come_to_rest()


def random_step(rng: random.Random) -> tuple[Any, ...]:
    """A step as above; mostly those that lead on."""
    name = rng.choices(
        ["init", "add", "end", "markers", "hold", "fail", "commit", "give_up", "leader", "wait"],
        [4, 8, 5, 8, 2, 1, 3, 1, 1, 1],
    )[0]
    words: dict[str, list[Any]] = {
        "init": [rng.randrange(4), rng.random() < 0.5],
        "add": [rng.randrange(4), rng.randrange(3)],
        "end": [rng.randrange(4), rng.random() < 0.5],
        "hold": [rng.random() < 0.3],
        "fail": [rng.random() < 0.2],
        "leader": [rng.random() < 0.5],
        "wait": [rng.choice([100, TIMEOUT_MS, 700_000_000])],
    }
    return (name, *words.get(name, []))


def test_every_legal_move_is_taken() -> None:
    """Runs from fixed seeds check the same, and together they go everywhere."""
    moves = set()
    for seed in range(60):
        rng = random.Random(seed)
        harness = Harness(rng.choice([0, 2, 2]), is_new_client=seed % 2 == 0)
        for _ in range(100):
            take(harness, random_step(rng))
        harness.come_to_rest()
        moves |= harness.moves
    assert moves == {(before, after) for before, all in FOLLOWING.items() for after in all}
