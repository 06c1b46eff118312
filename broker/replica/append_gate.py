"""What a Produce may have to pass before its batches are appended: gate, append, await.

A gate is asked once for each request, or part of a large one, before anything of it is appended:
for instance, the transaction coordinator has to confirm that a transactional batch's partition is
part of its transaction (KIP-890). Rules for gates:
1. None lets everything pass at once; that costs no more than the call.
2. A deferred holds the request until it is completed, and the requests behind it on its connection,
   so that nothing is appended out of order; requests of other connections go on. Its value names
   the batches that are refused, each with an error code; the others are appended.

Owns: `AppendGate`, and the gate of a broker without transactions. Called by `api/produce`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import ProduceRequest
from kraftrio.wire.records.batch import is_transactional

RequestedPartition: TypeAlias = tuple[str | bytes, int]
"""The topic's name or id, whichever the request has, and the partition's index."""

Refusals: TypeAlias = Mapping[RequestedPartition, ErrorCode]

NO_REFUSALS: Final[Refusals] = MappingProxyType({})


class AppendGate(Protocol):
    """See the module."""

    def admit(self, request: ProduceRequest, *, by_id: bool) -> Deferred[Refusals] | None:
        """What becomes of a request's batches, now or later; None: all of them may be appended.

        Args:
            by_id: the request names its topics by ids, not by names.
        """
        ...


class NoTransactions:
    """Refuses what belongs to a transaction: no coordinator has it here, so nobody would end it."""

    def admit(self, request: ProduceRequest, *, by_id: bool) -> Deferred[Refusals] | None:
        if request.transactional_id is None:
            return None  # with such a batch it was refused whole
        refusals: dict[RequestedPartition, ErrorCode] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None and is_transactional(data.records):
                    requested = topic.topic_id if by_id else topic.name, data.index
                    refusals[requested] = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return Deferred.completed(refusals) if refusals else None
