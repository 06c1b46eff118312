"""Which replica a consumer shall read from (KIP-392): a choice among values, without I/O.

Owns: `select_replica`. A consumer reads from
the leader unless the leader names it another replica, beside an answer without records. That one is
in sync, lies in the consumer's rack, and has what the consumer asks for.

Called by: fetch/reads.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ReplicaView(NamedTuple):
    """An in-sync replica that has what the consumer asks for, as its leader knows it."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: float
    is_leader: bool = False


def select_replica(rack_id: str, replicas: Iterable[ReplicaView]) -> int | None:
    """The replica of the consumer's rack to read from; None: the leader.

    The leader is preferred in its own rack; else the replica with the largest log end offset, then
    the one that caught up last.
    """
    if not rack_id:
        return None
    near = [replica for replica in replicas if replica.rack == rack_id]
    if not near or any(replica.is_leader for replica in near):
        return None
    best = max(near, key=lambda one: (one.log_end_offset, one.last_caught_up_ms, one.broker_id))
    return best.broker_id
