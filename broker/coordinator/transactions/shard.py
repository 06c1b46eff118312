"""One shard of the transaction coordinator: the ids of one `__transaction_state` partition.

Rules:
1. A change is prepared by a request (`requests`), appended, and counts once its record is
   committed. Until then every other change of the id is refused with CONCURRENT_TRANSACTIONS, but
   for partitions that are added to those being added: they build on each other.
2. If nothing could be appended the id is as it was. What was appended stands, even if its response
   came too late: this broker leads on, and the record is the log's newest about the id.
3. A decided transaction goes to the marker sink; a client that asked for the end has its answer by
   then. Once all markers are written (`markers_written`) the id is complete. That record, and what
   the coordinator does by itself, is tried again until it is appended.
4. What would end a producer is answered once it is certain that this broker still coordinates: one
   that was replaced does not know of the producers and epochs that followed.
5. Losing the partition drops all that is not committed; the next leader finds the decided
   transactions in the log and goes on with their markers (`on_loaded`).

Sans-IO; run by the coordinator runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kraftrio.broker.coordinator.outcome import (
    COMMITTED,
    Change,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    RecordMessages,
)
from kraftrio.broker.coordinator.transactions import requests
from kraftrio.broker.coordinator.transactions.listing import describe_transaction
from kraftrio.broker.coordinator.transactions.ports import (
    NEEDS_PRODUCER_ID,
    EndCause,
    MarkerSink,
    NeedsProducerId,
    TakeProducerId,
    TransactionEnd,
    TransactionProperties,
    TransactionVersion,
)
from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.records import (
    read_transaction,
    read_transaction_key,
    transaction_record,
    transaction_tombstone,
)
from kraftrio.broker.coordinator.transactions.schedule import TransactionSchedule
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata, TransactionState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsState,
    EndTxnRequest,
    EndTxnResponse,
)
from kraftrio.wire.primitives import Buffer, ProducerIdAndEpoch, TopicPartition
from kraftrio.wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_AT_ONCE = 0.0
_DUE_AT_ONCE = 100  # ids that are dealt with in one step; the others follow in the next one

# States that the coordinator takes ids to by itself: nobody would ask again.
_OWN_STEPS = frozenset(
    {
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.DEAD,
    }
)


@dataclass(slots=True, eq=False)
class _Move(Change, FollowUp):
    """Ids on their way to another state.

    Attributes:
        after: what they come to, all in one batch of records.
        cause: of the end, if that is what is prepared.
        end_offset: of the records in the log; None: they are not appended.
        builds_on: the move that was under way before, whose change this one includes.
        is_superseded: one that builds on it was made before it.
    """

    after: list[TransactionMetadata]
    cause: EndCause = EndCause.REQUESTED
    end_offset: int | None = None
    builds_on: _Move | None = None
    is_superseded: bool = False

    def supersede_earlier(self) -> None:
        """What this move builds on is made with it, even if its own turn is yet to come."""
        while self.builds_on is not None:
            self.builds_on.is_superseded = True
            self.builds_on = self.builds_on.builds_on


class TransactionShard:
    """The transactional ids of one partition. See the rules at the top of the module.

    Args:
        partition, leader_epoch: of `__transaction_state`; the epoch is the coordinator's epoch.
        take_producer_id: called where a request needs a new id, and then only.
        transaction_version: of the cluster; decides how records look, and how the coordinator's own
            aborts bump epochs.
    """

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        properties: TransactionProperties,
        *,
        markers: MarkerSink,
        take_producer_id: TakeProducerId,
        transaction_version: TransactionVersion,
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._markers = markers
        self._take_producer_id = take_producer_id
        self._transaction_version = transaction_version
        self._transactions: dict[str, TransactionMetadata] = {}
        self._moves: dict[str, _Move] = {}  # the newest of each id that is under way
        self._late_moves: list[_Move] = []  # in the log, but not committed in time for a response
        self._ready_moves: list[_Move] = []  # late ones, committed by now
        self._schedule = TransactionSchedule(properties)
        self._prepared_ids: dict[str, None] = {}  # while loading

    # --- requests that change an id ---

    def init_producer_id(
        self, request: InitProducerIdRequest, *, api_version: int, now: Now
    ) -> Outcome:
        """Give a producer its id and epoch, and fence all earlier ones.

        The request is checked (`requests.check_init_producer_id`). The response is
        InitProducerIdResponse, or NEEDS_PRODUCER_ID.
        """
        assert request.transactional_id is not None
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            if request.transactional_id in self._moves:
                return Outcome(response=_init_error(ErrorCode.CONCURRENT_TRANSACTIONS, api_version))
            producer_id = self._take_producer_id()
            if producer_id is None:
                return Outcome(response=NEEDS_PRODUCER_ID)
            transaction = TransactionMetadata(
                request.transactional_id,
                ProducerIdentity(producer_id),
                request.transaction_timeout_ms,
            )
        decided = requests.init_producer_id(
            transaction,
            request,
            self._take_producer_id,
            is_busy=self._is_busy(transaction),
            transaction_version=self._transaction_version(),
            now_ms=now.wall_ms,
        )
        if isinstance(decided, NeedsProducerId):
            return Outcome(response=decided)
        if isinstance(decided, ErrorCode):
            producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
            refused = partial(_init_error, api_version=api_version)
            return _refusal(decided, transaction, producer, refused)
        if decided.state is TransactionState.PREPARE_ABORT:
            retry = _init_error(ErrorCode.CONCURRENT_TRANSACTIONS, api_version)
            return self._move(decided, retry, cause=EndCause.FENCED)
        return self._move(
            decided,
            InitProducerIdResponse(
                producer_id=decided.producer.producer_id, producer_epoch=decided.producer.epoch
            ),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        api_version: int,
        client_version: int = 0,
        now: Now,
    ) -> Outcome:
        """Add partitions to a producer's transaction, or begin it. The response is an ErrorCode.

        Args:
            api_version: of AddPartitionsToTxn or AddOffsetsToTxn, which fence alike.
            client_version: the transaction version of the client; see `version_of_adding_client`.
        """
        transaction = self._transactions.get(transactional_id)
        move = self._moves.get(transactional_id)
        is_adding = move is not None and move.after[0].state is TransactionState.ONGOING
        if move is not None and is_adding:
            transaction = move.after[0]
        if transaction is None:
            return _refusal(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, None, producer, lambda code: code
            )
        decided = requests.add_partitions(
            transaction,
            producer,
            partitions,
            is_busy=self._is_busy(transaction) and not is_adding,
            client_version=client_version,
            now_ms=now.wall_ms,
        )
        if decided is ErrorCode.NONE and is_adding:
            decided = transaction.with_partitions(partitions, client_version, now.wall_ms)
        if isinstance(decided, ErrorCode):
            fenced_version = requests.ADD_TO_TRANSACTION_FENCED_VERSION
            return _refusal(
                decided,
                transaction,
                producer,
                lambda code: requests.older_code(code, api_version, fenced_version),
            )
        return self._move(decided, ErrorCode.NONE)

    def end_transaction(self, request: EndTxnRequest, *, api_version: int, now: Now) -> Outcome:
        """Commit or abort a producer's transaction.

        The response is EndTxnResponse, or NEEDS_PRODUCER_ID.
        """
        transaction = self._transactions.get(request.transactional_id)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        refused = partial(_end_error, api_version=api_version)
        if transaction is None:
            return _refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, None, producer, refused)
        is_busy = self._is_busy(transaction)
        decided: TransactionMetadata | ErrorCode | NeedsProducerId
        if requests.bumps_epoch(api_version):
            decided = requests.end_and_bump(
                transaction,
                producer,
                self._take_producer_id,
                is_busy=is_busy,
                commit=request.committed,
                now_ms=now.wall_ms,
            )
        else:
            decided = requests.end_transaction(
                transaction, producer, is_busy=is_busy, commit=request.committed, now_ms=now.wall_ms
            )
        if isinstance(decided, NeedsProducerId):
            return Outcome(response=decided)
        if decided is ErrorCode.NONE:
            return Outcome(response=_ended_response(transaction.producer))
        if isinstance(decided, ErrorCode):
            return _refusal(decided, transaction, producer, refused)
        after_end = decided.producer.ended(decided.client_version)
        return self._move(decided, _ended_response(after_end))

    def markers_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, now: Now
    ) -> Outcome:
        """All markers of a decided transaction are written: complete it.

        Nothing happens unless it is the one that the id is ending.
        """
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or not transaction.state.is_prepared
            or transactional_id in self._moves
            or not transaction.is_of(ProducerIdAndEpoch(producer_id, producer_epoch))
        ):
            return Outcome()
        return self._move(transaction.ended(now.wall_ms), None)

    # --- requests that ask ---

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> Outcome:
        """Return whether partitions belong to a producer's transaction (KIP-890).

        A change that is under way does not matter: the partition checks again when it appends.
        The response has the code of each of them.
        """
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            code = requests.verify_partitions(transaction, producer)
        codes = dict.fromkeys(partitions, code)
        if transaction is not None and code is ErrorCode.NONE:
            for missing in codes.keys() - transaction.partitions:
                code = codes[missing] = ErrorCode.TRANSACTION_ABORTABLE
        return _refusal(code, transaction, producer, lambda _code: codes)

    def describe(self, transactional_id: str) -> DescribeTransactionsState:
        """Answer DescribeTransactions for one id."""
        return describe_transaction(transactional_id, self._transactions.get(transactional_id))

    def transactions(self) -> list[TransactionMetadata]:
        """All ids, for `listing.list_transactions`."""
        return list(self._transactions.values())

    def statistics(self) -> dict[str, int]:
        """How many ids there are, and how many of them are being changed."""
        return {"transactional_ids": len(self._transactions), "moves": len(self._moves)}

    # --- moves ---

    def _is_busy(self, transaction: TransactionMetadata) -> bool:
        return transaction.state.is_prepared or transaction.transactional_id in self._moves

    def _move(
        self, after: TransactionMetadata, response: object, *, cause: EndCause = EndCause.REQUESTED
    ) -> Outcome:
        """Have an id move to another state once its record is committed; the response then."""
        record = transaction_record(after, self._transaction_version())
        move = _Move([after], cause, builds_on=self._moves.get(after.transactional_id))
        return self._begin(move, [record], response)

    def _begin(self, move: _Move, records: list[CoordinatorRecord], response: object) -> Outcome:
        for after in move.after:
            self._moves[after.transactional_id] = move
            self._schedule.forget(after.transactional_id)
        return Outcome(records=records, response=response, change=move, follow_up=move)

    def apply(
        self, change: Change, end_offset: int, now: Now, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Note that the records of a move are in the log."""
        assert isinstance(change, _Move)
        change.end_offset = end_offset

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Make a move whose records are committed, or drop one that could not be appended."""
        assert isinstance(follow_up, _Move)
        if follow_up.end_offset is None:
            self._drop(follow_up, now)
        elif error in COMMITTED:
            return self._make(follow_up, now)
        elif error is ErrorCode.REQUEST_TIMED_OUT:
            self._late_moves.append(follow_up)
        # Else this broker does not lead the partition any more, and will soon be notified.
        return Outcome()

    def on_committed(self, end_offset: int) -> None:
        """Let moves without a waiting request be made in the next step."""
        if self._late_moves:
            waiting: list[_Move] = []
            for move in self._late_moves:
                assert move.end_offset is not None
                (self._ready_moves if move.end_offset <= end_offset else waiting).append(move)
            self._late_moves = waiting

    def _make(self, move: _Move, now: Now) -> Outcome:
        """The records of a move are committed: its ids are there. Gives what follows from that."""
        outcome = Outcome()
        if move.is_superseded:
            return outcome
        move.supersede_earlier()
        for after in move.after:
            transactional_id = after.transactional_id
            is_newest = self._moves.get(transactional_id) is move
            if is_newest:
                del self._moves[transactional_id]
            if after.state is TransactionState.DEAD:
                del self._transactions[transactional_id]
                continue
            self._transactions[transactional_id] = after
            if is_newest:
                self._schedule.set(after, now)
            if after.state.is_prepared:
                outcome = self._finish(after, move.cause, now)
        return outcome

    def _finish(self, transaction: TransactionMetadata, cause: EndCause, now: Now) -> Outcome:
        """Go on with a decided transaction: its markers, if it has any."""
        if not transaction.partitions:
            return self._move(transaction.ended(now.wall_ms), None)
        self._markers.write(
            TransactionEnd(
                transaction.transactional_id,
                self._partition,
                self._leader_epoch,
                transaction.producer.producer_id,
                transaction.producer.epoch,
                transaction.state is TransactionState.PREPARE_COMMIT,
                transaction.client_version,
                transaction.partitions,
                cause,
            )
        )
        return Outcome()

    def _drop(self, move: _Move, now: Now) -> None:
        """Nothing was appended: the ids are as they were."""
        is_own_step = move.cause is EndCause.TIMED_OUT or move.after[0].state in _OWN_STEPS
        for after in move.after:
            transactional_id = after.transactional_id
            if move.builds_on is not None:
                self._moves[transactional_id] = move.builds_on
                continue
            del self._moves[transactional_id]
            if is_own_step:
                self._schedule.set_retry(transactional_id, now)
            elif (transaction := self._transactions.get(transactional_id)) is not None:
                self._schedule.set(transaction, now)

    # --- time ---

    def next_deadline_ms(self) -> float | None:
        return _AT_ONCE if self._ready_moves else self._schedule.next_deadline_ms()

    def on_deadline(self, now: Now) -> list[Outcome]:
        """Make late moves; abort what took too long, expire what is idle, try again what failed."""
        ready, self._ready_moves = self._ready_moves, []
        outcomes = [self._make(move, now) for move in ready]
        expired: list[TransactionMetadata] = []
        for _ in range(_DUE_AT_ONCE):
            transactional_id = self._schedule.pop_due(now)
            if transactional_id is None:
                break
            transaction = self._transactions[transactional_id]
            if transaction.state is TransactionState.ONGOING:
                outcomes.append(self._time_out(transaction, now))
            elif transaction.state.is_prepared:
                outcomes.append(self._move(transaction.ended(now.wall_ms), None))
            else:
                expired.append(transaction.expired())
        if expired:
            tombstones = [transaction_tombstone(each.transactional_id) for each in expired]
            outcomes.append(self._begin(_Move(expired), tombstones, None))
        return outcomes

    def _time_out(self, transaction: TransactionMetadata, now: Now) -> Outcome:
        fenced = requests.fence(
            transaction,
            self._take_producer_id,
            transaction_version=self._transaction_version(),
            now_ms=now.wall_ms,
        )
        if isinstance(fenced, NeedsProducerId):
            self._schedule.set_retry(transaction.transactional_id, now)
            return Outcome()
        return self._move(fenced, None, cause=EndCause.TIMED_OUT)

    # --- life of the shard ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
        messages: RecordMessages | None = None,
    ) -> None:
        """Take over what a record of the log says about its id.

        Raises RemoteProtocolError when the record cannot be read.
        """
        transactional_id = read_transaction_key(key)
        if value is None:
            self._transactions.pop(transactional_id, None)
            self._prepared_ids.pop(transactional_id, None)
            self._schedule.forget(transactional_id)
            return
        transaction = read_transaction(transactional_id, value)
        self._transactions[transactional_id] = transaction
        self._schedule.set(transaction, now)
        if transaction.state.is_prepared:
            self._prepared_ids[transactional_id] = None
        else:
            self._prepared_ids.pop(transactional_id, None)

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, now: Now, *, commit: bool, committed: bool = True
    ) -> None:
        """Nobody writes to this topic in a transaction; a marker in it changes nothing."""

    def on_loaded(self, now: Now) -> Outcome:
        """Go on with the transactions that the former leader had decided."""
        prepared_ids, self._prepared_ids = self._prepared_ids, {}
        for transactional_id in prepared_ids:
            transaction = self._transactions[transactional_id]
            if transaction.partitions:
                self._finish(transaction, EndCause.TAKEN_OVER, now)
            else:
                self._schedule.set_soon(transactional_id, now)
        return Outcome()

    def on_leader_epoch(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch

    def unload(self, now: Now) -> Outcome:
        """Stop: the next leader goes on with the decided transactions."""
        self._markers.drop(self._partition)
        return Outcome()

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Transactions name partitions, and do not look at topics."""

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        """Deleted partitions need no marker, which the marker sink finds out."""
        return Outcome()


def _refusal(
    code: ErrorCode,
    transaction: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    response: Callable[[ErrorCode], object],
) -> Outcome:
    """Refuse a producer, at once unless this coordinator might be one that was replaced."""
    return Outcome(
        response=response(code),
        needs_confirmation=requests.may_be_outdated(code, transaction, producer),
    )


def _init_error(code: ErrorCode, api_version: int) -> InitProducerIdResponse:
    fenced_version = requests.INIT_PRODUCER_ID_FENCED_VERSION
    return InitProducerIdResponse(
        error_code=requests.older_code(code, api_version, fenced_version),
        producer_epoch=NO_PRODUCER_EPOCH,
    )


def _end_error(code: ErrorCode, api_version: int) -> EndTxnResponse:
    fenced_version = requests.END_TRANSACTION_FENCED_VERSION
    return EndTxnResponse(error_code=requests.older_code(code, api_version, fenced_version))


def _ended_response(producer: ProducerIdentity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
