"""What a node's part of the metadata quorum is built from: `QuorumConfig` and `QuorumPorts`.

Called by: the node (builds both), the modules of this room.
Tested by: tests/unit/kraft_meta/quorum/test_service.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kraftrio.base.clock import Clock
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.kraft_meta.raft.ports import (
    ConfigValidator,
    ElectionStateStore,
    NoPeers,
    Peers,
    ReplicatedLog,
    TopicConfigs,
)
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Who is in the quorum, and when snapshots are made (Kafka's property names)."""

    node_id: int
    voters: VoterSet
    raft: RaftConfig = field(default_factory=RaftConfig)
    metadata_log_max_record_bytes_between_snapshots: int = 20 * 1024 * 1024
    metadata_log_max_snapshot_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class QuorumPorts:
    """What the quorum needs from outside: disk, configurations, time, chance, other nodes."""

    log: ReplicatedLog
    election_store: ElectionStateStore
    validator: ConfigValidator
    topic_configs: TopicConfigs
    clock: Clock
    rng: random.Random
    peers: Peers = field(default_factory=NoPeers)
    run_in_thread: RunInThread = run_in_worker_thread
