"""What a Produce may have to pass before its batches are appended: gate, append, await.

A gate is asked once for each request, or part of a large one, before anything of it is appended:
the transaction coordinator has to confirm that a transactional batch's partition is part of its
transaction (`verification`, KIP-890). Rules for gates:
1. None lets everything pass at once, at the cost of the call.
2. A deferred holds the request until it is completed, and the requests behind it on its connection,
   so that nothing is appended out of order; requests of other connections go on. Its value names
   the batches that are refused; the others are appended, with the guards they have.

Owns: `AppendGate`, and a gate that is always open. Called by `api/produce`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import ProduceRequest

RequestedPartition: TypeAlias = tuple[str | bytes, int]
"""The topic's name or id, whichever the request has, and the partition's index."""


class Refusal(NamedTuple):
    """Why a batch is not appended."""

    code: ErrorCode
    message: str | None = None


class GateDecision(NamedTuple):
    """What becomes of a request's batches.

    Attributes:
        refusals: those that are not appended.
        guards: what others must be appended with (`led_partitions`).
    """

    refusals: dict[RequestedPartition, Refusal]
    guards: dict[RequestedPartition, VerificationGuard]


class AppendGate(Protocol):
    """See the module."""

    def admit(
        self, request: ProduceRequest, *, api_version: int, by_id: bool
    ) -> Deferred[GateDecision] | None:
        """What becomes of a request's batches, now or later; None: all of them may be appended.

        Args:
            by_id: the request names its topics by ids, not by names.
        """
        ...


class OpenGate:
    """Lets everything pass."""

    def admit(
        self, request: ProduceRequest, *, api_version: int, by_id: bool
    ) -> Deferred[GateDecision] | None:
        return None
