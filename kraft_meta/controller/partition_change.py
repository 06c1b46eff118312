"""Who leads a partition after something changed: `PartitionChange` builds the one record for it.

Owns: the election rules of the controller. Rules, as Kafka's:
1. A leader is an acceptable replica of the ISR (its broker is alive, and its log directory is
   online), the first in assignment order; the present leader stays while it is one. PREFERRED puts
   the first replica of the assignment before that.
2. UNCLEAN takes any live replica when the ISR has none: the ISR becomes that replica alone and the
   partition is RECOVERING until its leader says otherwise (KIP-704). If all that live are replicas
   that are LOST, one of them begins with an empty log: its directory is UNASSIGNED from then.
3. The last member of an ISR never leaves it: without a live one the partition has no leader and
   keeps its ISR, so that no other replica is elected cleanly.
4. A reassignment ends once the adding replicas are all in the ISR: replicas become the target. One
   that makes the replicas fewer waits for the whole target, so that none of it is out of sync.
5. A replica that leaves the assignment ends the leader epoch, so that its fetches are refused.
6. A replica keeps its log directory while it is assigned (KIP-858).

Called by: replication_control.py, reassignment_control.py, directory_control.py. Protocol: KIP-631,
KIP-455.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from kraftrio.kraft_meta.metadata.directories import UNASSIGNED, directories_of, placement
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERING,
    NO_LEADER,
    NO_LEADER_CHANGE,
    PartitionChangeRecord,
)


class Election(Enum):
    """Which kind of election this is."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class PartitionChange:
    """Collects what should change in one partition; `build` gives the record, or None."""

    __slots__ = (
        "_is_acceptable",
        "_partition",
        "_topic_id",
        "adding_replicas",
        "directories",
        "election",
        "isr",
        "leader_recovery_state",
        "may_start_empty",
        "partition_id",
        "removing_replicas",
        "replicas",
    )

    def __init__(
        self,
        topic_id: bytes,
        partition_id: int,
        partition: PartitionImage,
        is_acceptable: Callable[[int], bool],
    ) -> None:
        self._topic_id = topic_id
        self.partition_id = partition_id
        self._partition = partition
        self._is_acceptable = is_acceptable
        self.election = Election.ONLINE
        self.isr: tuple[int, ...] = partition.isr
        self.replicas = partition.replicas
        self.adding_replicas = partition.adding_replicas
        self.removing_replicas = partition.removing_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self.directories = placement(partition.replicas, partition.directories)  # by broker
        # Whether a replica without its log may lead, if records may be lost (rule 2).
        self.may_start_empty: Callable[[int], bool] = _never

    def build(self) -> PartitionChangeRecord | None:
        """Return the record of everything that changed, or None when nothing did."""
        partition = self._partition
        self._maybe_complete_reassignment()
        leader, is_unclean = self._elect()
        isr = self.isr or partition.isr
        recovery_state = self.leader_recovery_state
        if is_unclean:
            isr, recovery_state = (leader,), LEADER_RECOVERING
        leader_change = NO_LEADER_CHANGE if leader == partition.leader else leader
        if leader_change == NO_LEADER_CHANGE and any(
            replica not in self.replicas for replica in partition.replicas
        ):
            leader_change = partition.leader
        record = PartitionChangeRecord(
            topic_id=self._topic_id,
            partition_id=self.partition_id,
            isr=_changed(isr, partition.isr),
            leader=leader_change,
            replicas=_changed(self.replicas, partition.replicas),
            removing_replicas=_changed(self.removing_replicas, partition.removing_replicas),
            adding_replicas=_changed(self.adding_replicas, partition.adding_replicas),
            leader_recovery_state=(
                None if recovery_state == partition.leader_recovery_state else recovery_state
            ),
            directories=self._changed_directories(),
        )
        empty = PartitionChangeRecord(self._topic_id, self.partition_id)
        return None if record == empty else record

    def _changed_directories(self) -> tuple[bytes, ...] | None:
        """Return the directories, unless they follow from what was and the replicas (rule 6)."""
        partition = self._partition
        directories = directories_of(self.replicas, self.directories)
        kept = placement(partition.replicas, partition.directories)
        return None if directories == directories_of(self.replicas, kept) else directories

    def _elect(self) -> tuple[int, bool]:
        """Return the leader (or NO_LEADER) and whether the election is unclean."""

        def may_lead(replica: int) -> bool:
            return replica in self.isr and self._is_acceptable(replica)

        replicas, current = self.replicas, self._partition.leader
        if self.election is Election.PREFERRED and replicas and may_lead(replicas[0]):
            return replicas[0], False
        if current != NO_LEADER and may_lead(current):
            return current, False
        for replica in replicas:
            if may_lead(replica):
                return replica, False
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self._is_acceptable(replica):
                    return replica, True
            for replica in replicas:
                if self.may_start_empty(replica):
                    self.directories[replica] = UNASSIGNED
                    return replica, True
        return NO_LEADER, False

    def _maybe_complete_reassignment(self) -> None:
        adding, removing = self.adding_replicas, self.removing_replicas
        if not adding and not removing:
            return
        target = tuple(r for r in self.replicas if r not in removing)
        isr = tuple(r for r in self.isr if r not in removing)
        if not target or not isr:
            return
        awaited = target if len(adding) < len(removing) else adding
        if any(replica not in isr for replica in awaited):
            return
        self.replicas, self.isr = target, isr
        self.adding_replicas = self.removing_replicas = ()


def _never(_replica: int) -> bool:
    return False


def _changed(new: Sequence[int], old: Sequence[int]) -> tuple[int, ...] | None:
    return None if tuple(new) == tuple(old) else tuple(new)
