"""A producer's requests to coordinators for its transactions, repeated until they are answered.

Owns the requests InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn.
Rules:
1. A request is repeated after a back-off while that may help, for max_block_ms at most; the
   coordinator is looked up again when it has moved or cannot be reached. `error_meanings` says
   what each error code means.
2. What ends the transaction is raised as `TransactionAbortedError`, what ends the producer as
   `FatalProducerError`, each with the broker's code; the end of max_block_ms as `TimedOutError`.
3. A commit that is refused, or not answered in time, after an attempt whose answer did not come or
   was that the coordinator has moved, may have been done by that one: `TransactionInDoubtError`.
4. Under transaction.version 2 EndTxn has version 5 and TxnOffsetCommit version 5, which adds the
   group to the transaction; before that both have older versions (KIP-890).

Called by: `manager`. KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.coordinators import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from kraftrio.clients.errors import (
    CommitFailedError,
    FatalProducerError,
    KafkaClientError,
    ProducerFencedError,
    RetriableError,
    TimedOutError,
    TransactionAbortedError,
    TransactionInDoubtError,
    error_for,
)
from kraftrio.clients.group_offsets import GroupMetadata, OffsetAndMetadata
from kraftrio.clients.producer.transactions.error_meanings import Meaning, meaning_of, worst_of
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from kraftrio.wire.protocol.api import ApiKey

TRANSACTION_VERSION_FEATURE: Final = "transaction.version"

# The newest that clients send without transaction.version 2; AddPartitionsToTxn from 4 on is the
# brokers' own.
_ADD_PARTITIONS_VERSION: Final = 3
_END_VERSION_BEFORE_2: Final = 4
_COMMIT_VERSION_BEFORE_2: Final = 4
_MEMBER_VERSION: Final = 3  # of TxnOffsetCommit: fences by member and generation

_LOST_MEMBER: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH}
)


@dataclass(slots=True)
class _Call:
    """One request, and where it goes.

    Attributes:
        may_be_done: by an attempt whose answer, if one came, was not the coordinator's last word.
    """

    api: ApiKey
    key: str
    key_type: int
    request: Any
    codes_of: Callable[[Any], list[ErrorCode]]
    min_version: int = 0
    max_version: int | None = None
    may_be_done: bool = False


class TransactionRequests:
    """Asks the coordinators of a transactional id and of groups.

    Args:
        rng: for the jitter between attempts.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, rng: random.Random) -> None:
        assert config.transactional_id is not None, "only with a transactional id"
        self._cluster = cluster
        self._config = config
        self._rng = rng
        self._transactional_id = config.transactional_id
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._short_backoff = config.concurrent_transactions_backoff

    def transaction_version(self, otherwise: int) -> int:
        """Return the cluster's transaction.version, as the coordinator gave it on connecting.

        Args:
            otherwise: what to return if the coordinator is not connected at the moment.
        """
        node = self._cluster.coordinators.known(self._transactional_id, TRANSACTION_KEY_TYPE)
        if node is None or not node.is_connected:
            return otherwise
        return node.versions.features.get(TRANSACTION_VERSION_FEATURE, 0)

    async def init_producer_id(self, known: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Get an id and epoch, which fences every other producer of the transactional id.

        Args:
            known: what this producer has: it gets the next epoch of it.

        Raises:
            FatalProducerError, TimedOutError: see the module.
        """
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )
        call = self._to_own_coordinator(
            ApiKey.INIT_PRODUCER_ID,
            request,
            min_version=0 if known == ProducerIdAndEpoch() else 3,  # KIP-360
        )
        response: InitProducerIdResponse = await self._repeat(call)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the transaction before they are written to (before version 2).

        Raises:
            TransactionAbortedError, FatalProducerError, TimedOutError: see the module.
        """
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, AddPartitionsToTxnTopic(name=name))
            topic.partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        await self._repeat(
            self._to_own_coordinator(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                request,
                _codes_of_partitions,
                max_version=_ADD_PARTITIONS_VERSION,
            )
        )

    async def add_offsets(self, identity: ProducerIdAndEpoch, group_id: str) -> None:
        """Add a group to the transaction before its offsets are committed (before version 2).

        Raises:
            TransactionAbortedError, FatalProducerError, TimedOutError: see the module.
        """
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )
        await self._repeat(self._to_own_coordinator(ApiKey.ADD_OFFSETS_TO_TXN, request))

    async def commit_offsets(
        self,
        identity: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        *,
        adds_group: bool,
    ) -> None:
        """Have offsets committed with the transaction.

        Args:
            group: the group, and the member that commits.
            adds_group: the request also adds the group to the transaction (version 2).

        Raises:
            TransactionAbortedError: refused; a `CommitFailedError` is its cause where the
                partitions are no longer the member's.
            FatalProducerError, TimedOutError: see the module.
        """
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        is_member = bool(group.member_id) or group.generation_id >= 0
        call = _Call(
            ApiKey.TXN_OFFSET_COMMIT,
            group.group_id,
            GROUP_KEY_TYPE,
            TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=group.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=list(topics.values()),
            ),
            _codes_of_offsets,
            min_version=_MEMBER_VERSION if is_member else 0,
            max_version=None if adds_group else _COMMIT_VERSION_BEFORE_2,
        )
        await self._repeat(call)

    async def end(
        self, identity: ProducerIdAndEpoch, *, commit: bool, gets_epoch: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort the transaction.

        Args:
            gets_epoch: the answer has the id and epoch for the next transaction (version 2).

        Returns:
            the id and epoch for the next transaction.

        Raises:
            TransactionAbortedError, FatalProducerError, TimedOutError: see the module; no
                TimedOutError of a commit, which is in doubt then.
        """
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )
        call = self._to_own_coordinator(
            ApiKey.END_TXN, request, max_version=None if gets_epoch else _END_VERSION_BEFORE_2
        )
        try:
            response: EndTxnResponse = await self._repeat(call)
        except (TransactionAbortedError, FatalProducerError, TimedOutError) as error:
            if commit and (call.may_be_done or isinstance(error, TimedOutError)):
                raise TransactionInDoubtError(
                    f"it is not known whether the commit was done: {error}"
                ) from error
            raise
        if response.producer_id < 0:
            return identity
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    # -- asking ---------------------------------------------------------------------------------

    def _to_own_coordinator(
        self,
        api: ApiKey,
        request: Any,
        codes_of: Callable[[Any], list[ErrorCode]] | None = None,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> _Call:
        """A request for the coordinator of the transactional id."""
        return _Call(
            api,
            self._transactional_id,
            TRANSACTION_KEY_TYPE,
            request,
            codes_of or _code_of_all,
            min_version,
            max_version,
        )

    async def _repeat(self, call: _Call) -> Any:
        """Send a request until the answer has no error, and return that answer."""
        timeout_ms = self._config.max_block_ms
        deadline = trio.current_time() + timeout_ms / 1000
        attempts = brief_attempts = 0
        while True:
            error, meaning, response = await self._attempt(call, deadline)
            if meaning is Meaning.DONE:
                return response
            assert error is not None, "whatever is not done has an error"
            if meaning not in (Meaning.AGAIN, Meaning.SOON, Meaning.MOVED):
                raise _failure(meaning, error, call)
            if meaning is Meaning.MOVED:
                call.may_be_done = True
                self._cluster.coordinators.forget(call.key, call.key_type)
            if meaning is Meaning.SOON:
                pause_ms = self._short_backoff.jittered(brief_attempts, self._rng)
                brief_attempts += 1
            else:
                pause_ms = self._backoff.jittered(attempts, self._rng)
                attempts += 1
            if trio.current_time() + pause_ms / 1000 >= deadline:
                raise TimedOutError(f"{call.api.name} not answered within {timeout_ms} ms: {error}")
            await trio.sleep(pause_ms / 1000)

    async def _attempt(
        self, call: _Call, deadline: float
    ) -> tuple[KafkaClientError | None, Meaning, Any]:
        """Send a request once; return the error if there is one, what it means, and the answer."""
        cluster = self._cluster
        timeout_s = self._config.request_timeout_ms / 1000
        timeout_s = max(min(timeout_s, deadline - trio.current_time()), 0.001)
        try:
            node_id = await cluster.coordinators.find(call.key, call.key_type, timeout_s)
        except KafkaClientError as error:
            return error, meaning_of(ApiKey.FIND_COORDINATOR, error.code), None
        try:
            response = await cluster.request(
                node_id,
                call.request,
                timeout_s,
                min_version=call.min_version,
                max_version=call.max_version,
            )
        except RetriableError as error:
            return error, Meaning.MOVED, None
        except KafkaClientError as error:
            return error, Meaning.FATAL, None
        code = worst_of(call.api, call.codes_of(response))
        if code == ErrorCode.NONE:
            return None, Meaning.DONE, response
        return error_for(code), meaning_of(call.api, code), response


def _failure(meaning: Meaning, error: KafkaClientError, call: _Call) -> KafkaClientError:
    """Return what to raise for an error that repeating cannot help."""
    if meaning is Meaning.FENCED:
        return ProducerFencedError(
            f"the transactional id {call.key!r} has a newer producer, or this one's time was up"
        )
    if meaning is Meaning.ABORT:
        cause = error
        if error.code in _LOST_MEMBER:
            cause = CommitFailedError(
                f"the group {call.key!r} has given the partitions to another member",
                code=error.code,
            )
        failure = TransactionAbortedError(f"the transaction failed: {cause}", code=error.code)
        failure.__cause__ = cause
        return failure
    if isinstance(error, FatalProducerError):
        return error
    fatal = FatalProducerError(f"{call.api.name} is refused: {error}", code=error.code)
    fatal.__cause__ = error
    return fatal


def _code_of_all(response: Any) -> list[ErrorCode]:
    return [response.error_code]


def _codes_of_partitions(response: AddPartitionsToTxnResponse) -> list[ErrorCode]:
    return [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ] or [ErrorCode.NONE]


def _codes_of_offsets(response: TxnOffsetCommitResponse) -> list[ErrorCode]:
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    return codes or [ErrorCode.NONE]
