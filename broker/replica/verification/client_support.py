"""What a client understands of transactions, by the version of its request (KIP-890).

It decides what a coordinator is asked, and what its errors mean to a client. Pure; used by
`verification`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from kraftrio.broker.replica.append_gate import Refusal
from kraftrio.wire.errors import ErrorCode

_PRODUCE_ABORTABLE: Final = 11
_PRODUCE_ADDS: Final = 12


class ClientSupport(Enum):
    """How new a client is.

    OLD: it adds partitions by itself, and does not know TRANSACTION_ABORTABLE.
    ABORTABLE: it knows that code.
    ADDS_PARTITIONS: writing to a partition adds it to the transaction (transaction.version 2).
    """

    OLD = auto()
    ABORTABLE = auto()
    ADDS_PARTITIONS = auto()

    @property
    def adds_partitions(self) -> bool:
        """Whether the coordinator is to add partitions, not only to verify them."""
        return self is ClientSupport.ADDS_PARTITIONS

    @classmethod
    def of_produce(cls, api_version: int) -> ClientSupport:
        """Of a client that sends this version of Produce."""
        return cls.of(
            adds_partition=api_version >= _PRODUCE_ADDS,
            knows_abortable=api_version >= _PRODUCE_ABORTABLE,
        )

    @classmethod
    def of(cls, *, adds_partition: bool, knows_abortable: bool) -> ClientSupport:
        """Of a client of which this is known."""
        if adds_partition:
            return cls.ADDS_PARTITIONS
        return cls.ABORTABLE if knows_abortable else cls.OLD

    def known(self, code: ErrorCode) -> ErrorCode:
        """A coordinator's code as one that writers of transactions know."""
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and self is ClientSupport.OLD:
            return ErrorCode.INVALID_TXN_STATE
        return code


# A producer sends again after each of these, but not every client knows that of the first four.
# NOT_ENOUGH_REPLICAS it repeats without looking for another leader first.
_UNVERIFIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def produce_refusal(code: ErrorCode, support: ClientSupport) -> Refusal:
    """The answer to a producer whose transaction was not verified, with a code that it knows."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return Refusal(code, "Partition was not added to the transaction")
    if code in _UNVERIFIED or (
        # Newer producers get this while their last transaction ends, and wait for it themselves.
        code is ErrorCode.CONCURRENT_TRANSACTIONS and not support.adds_partitions
    ):
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return Refusal(code)
