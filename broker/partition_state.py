"""One partition replica's role, leader epoch, ISR and high watermark, sans-IO.

The leader's rules
1. The high watermark is the smallest log end offset among the in-sync replicas.  It never goes
   back within a leader epoch.
2. An append with acks=all is refused while the ISR is smaller than `min.insync.replicas`, or than
   all replicas where the topic has fewer.
3. A request that names a leader epoch is served only if it is ours: an older one is fenced
   (FENCED_LEADER_EPOCH), a newer one means that we have not heard of it yet (UNKNOWN_LEADER_EPOCH;
   KIP-320).

Called by `replica_manager`, which owns one `PartitionState` beside each log and calls it without an
await between read and write.
"""

from __future__ import annotations

from enum import Enum

from kraftrio.kraft_meta.image import PartitionImage
from kraftrio.wire.errors import ErrorCode


class Role(Enum):
    """What this broker is for the partition.

    NONE: not told yet, or the partition is going away; moves to LEADER or FOLLOWER.
    LEADER: serves clients; moves to FOLLOWER and NONE.
    FOLLOWER: another replica leads, or none does; moves to LEADER and NONE.
    """

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class PartitionState:
    """The replication state of one replica on this broker."""

    __slots__ = (
        "_end_offsets",
        "broker_id",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_id",
        "partition_epoch",
        "replicas",
        "role",
    )

    def __init__(self, broker_id: int, high_watermark: int) -> None:
        self.broker_id = broker_id
        self.high_watermark = high_watermark
        self.role = Role.NONE
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self._end_offsets: dict[int, int] = {}

    def apply(self, partition: PartitionImage, log_end_offset: int) -> bool:
        """Take over what the controller decided.

        Returns:
            True when this broker has just become leader of a new epoch (the log then notes where
            that epoch starts).
        """
        assert partition.leader_epoch >= self.leader_epoch, "a leader epoch never goes back"
        new_epoch = partition.leader_epoch > self.leader_epoch
        self.leader_id = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.isr = partition.isr
        if partition.leader != self.broker_id:
            self.role = Role.FOLLOWER
            self._end_offsets.clear()
            return False
        became_leader = new_epoch or self.role is not Role.LEADER
        if became_leader:
            self._end_offsets.clear()
        self.role = Role.LEADER
        self._end_offsets[self.broker_id] = log_end_offset
        return became_leader

    def resign(self) -> None:
        """The replica goes away: serve nobody any more."""
        self.role = Role.NONE

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """May a request that names this leader epoch (-1: none) be served here?"""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_append(self, required_acks: int, min_insync_replicas: int) -> ErrorCode:
        """May a batch with these acks be appended here (rules 2 and 3)?"""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == -1 and len(self.isr) < min(min_insync_replicas, len(self.replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def on_append(self, log_end_offset: int) -> bool:
        """The leader's log grew; True when the high watermark advanced."""
        self._end_offsets[self.broker_id] = log_end_offset
        return self.advance_high_watermark()

    def advance_high_watermark(self) -> bool:
        """Apply rule 1; True when the high watermark advanced."""
        if self.role is not Role.LEADER:
            return False
        offset = min((self._end_offsets.get(replica, -1) for replica in self.isr), default=-1)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True
