"""The in-sync replicas of a partition: as committed, and as they may already be; sans-IO.

Rule: the maximal ISR is the committed one and the members that a proposal in flight would add; the
ones that it would remove still count. If the proposal is accepted before its answer arrives,
everything acknowledged in the meantime is on the new member, too (KIP-497).

Called by `partition_state`, which decides what to propose; the values go to the controller and back
by `isr_keeper` and `isr_proposals`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kraftrio.wire.errors import ErrorCode

_set_of = lru_cache(maxsize=1000)(frozenset[int])  # many partitions have the same members


class IsrMember(NamedTuple):
    """One broker of a proposed ISR; `broker_epoch` is that of its last fetch, -1: not known."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """An ISR for the controller to decide on."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.isr)


class IsrAnswer(NamedTuple):
    """What the controller answered; only `error` counts unless that is NONE."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class Isr:
    """See the module.

    Attributes:
        committed: the members that the controller has decided on last.
        maximal: these, and those that a proposal in flight would add.
        pending: the proposal in flight, if any.
    """

    __slots__ = ("committed", "maximal", "pending")

    def __init__(self) -> None:
        self.committed: tuple[int, ...] = ()
        self.maximal: frozenset[int] = frozenset()
        self.pending: IsrProposal | None = None

    def commit(self, members: tuple[int, ...]) -> None:
        """The controller has decided on these; the proposal in flight stays."""
        self.committed = members
        self._find_maximal()

    def propose(self, proposal: IsrProposal) -> None:
        """A proposal was sent."""
        self.pending = proposal
        self._find_maximal()

    def settle(self) -> None:
        """The proposal is decided, or out of date."""
        self.pending = None
        self._find_maximal()

    def clear(self) -> None:
        """This replica does not lead: it knows no ISR."""
        self.committed = ()
        self.settle()

    def _find_maximal(self) -> None:
        self.maximal = _set_of(self.committed)
        if self.pending is not None:
            self.maximal = self.maximal.union(self.pending.broker_ids)
