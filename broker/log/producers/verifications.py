"""Verifications of a partition's transactional producers: which are under way, or may be used.

Before the first batch of a transaction is appended, its coordinator has to say that the partition
is part of it (KIP-890). Meanwhile the transaction may end, and another one begin; so each
verification has a guard, and a batch is appended only if its guard still counts then. Rules:
1. A producer has at most one guard here. It ends with the first transactional batch of the producer
   that is appended, data or marker, wherever it comes from: from then on the open transaction
   stands for the verification, or there is none.
2. The lowest sequence that is to be verified is remembered: while it is not in the log, later ones
   must not overtake it.

Pure. `producer_state` owns one for each log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftrio.wire.records.batch import is_later_sequence


class VerificationGuard:
    """Stands for one verification of a producer; counts by its identity."""

    __slots__ = ()


ONGOING: Final = VerificationGuard()
"""No verification was needed: the transaction was open, and has to be still when appending."""


@dataclass(slots=True)
class Verification:
    """What is to be verified of one producer.

    Attributes:
        adds_partition: the coordinator adds the partition itself (transaction.version 2), so the
            producer knows of no earlier records here.
    """

    guard: VerificationGuard
    started_ms: int
    producer_epoch: int
    lowest_sequence: int
    adds_partition: bool

    def _include(self, producer_epoch: int, sequence: int) -> None:
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch and is_later_sequence(
            self.lowest_sequence, sequence
        ):
            self.lowest_sequence = sequence


class Verifications:
    """See the module; false while there is none."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def get(self, producer_id: int) -> Verification | None:
        """The verification of a producer; read only."""
        return self._by_producer.get(producer_id)

    def start(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        *,
        adds_partition: bool,
    ) -> VerificationGuard:
        """Begin a verification, or join the one that a batch of the producer waits for already."""
        verification = self._by_producer.get(producer_id)
        if verification is None:
            verification = self._by_producer[producer_id] = Verification(
                VerificationGuard(), now_ms, producer_epoch, sequence, adds_partition
            )
        else:
            verification._include(producer_epoch, sequence)
        return verification.guard

    def end(self, producer_id: int) -> None:
        """The guard counts no longer (rule 1)."""
        self._by_producer.pop(producer_id, None)

    def expire(self, started_before_ms: int) -> None:
        """Forget those that were never used."""
        for producer_id, verification in list(self._by_producer.items()):
            if verification.started_ms <= started_before_ms:
                del self._by_producer[producer_id]
