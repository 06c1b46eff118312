"""What must hold in a cluster at every instant, checked by looking into the nodes.

Owns: `Invariants`. It is called whenever the world is at rest (no task can run: after every event),
and looks at the nodes whose tasks ran since. What it checks
1. An epoch of the metadata quorum has one leader.
2. Metadata that a node takes for committed is the same on every node, record for record; what a
   node takes for committed only grows.
3. A leader epoch of a partition has one leader.
4. While a replica leads in an epoch, its high watermark does not go back.
5. A leader's high watermark is not above the log end offset of a live member of the maximal ISR.
6. What any replica holds below its high watermark is the same on every replica, byte for byte.
7. Segments follow each other without gaps, overlaps and empty ones, and members of the ISR hold all
   that is committed (see `log_invariants`).
8. What is held in memory for connections stays within its bound (see `memory_invariants`).
9. Transactions are decided once, in order, and hold back the last stable offset until they are (see
   `transaction_invariants`).

Exempt from 6: compacted topics, whose replicas compact by themselves.
"""

from __future__ import annotations

import errno
import sys
import zlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.testing.simulation.damage import is_metadata
from kraftrio.testing.simulation.incarnation import Incarnation
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import iter_headers
from tests.sim.log_contents import read_files
from tests.sim.log_invariants import IsrCompleteness, Key, SegmentShape
from tests.sim.memory_invariants import check_memory
from tests.sim.topic_uses import TABLE
from tests.sim.transaction_invariants import TransactionInvariants

_READ_BYTES = 1 << 20
_COMPACTED = ("__consumer_offsets", "__transaction_state", TABLE)


@dataclass(slots=True)
class _NodeView:
    """What was seen of one life of a node."""

    incarnation: Incarnation
    shape: SegmentShape
    metadata_offset: int = 0
    # by topic id and partition: (leader epoch if it leads, high watermark)
    watermarks: dict[tuple[bytes, int], tuple[int, int]] = field(default_factory=dict)
    ends: dict[tuple[bytes, int], int] = field(default_factory=dict)
    # How far logs must be committed before they know all of their transactions.
    loaded_ends: dict[tuple[bytes, int], int] = field(default_factory=dict)


class Invariants:
    """See the module."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._views: dict[int, _NodeView] = {}
        self._raft_leaders: dict[int, int] = {}
        self._metadata: dict[int, tuple[int, int]] = {}  # base offset -> (end offset, checksum)
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._committed: dict[tuple[bytes, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        self.isr = IsrCompleteness(cluster)
        self.transactions = TransactionInvariants()
        self.check_count = 0
        self.segment_count = 0

    def check(self) -> None:
        """Check the nodes that did something since the last call."""
        active = self._cluster.world.active
        if not active:
            return
        for node in self._cluster.nodes.values():
            if node.incarnation in active and node.node is not None:
                with node.disk.as_written():
                    self._check_node(node, node.incarnation)
        self.transactions.finish()

    def check_all(self) -> None:
        """Check every node."""
        for node in self._cluster.nodes.values():
            if node.incarnation is not None and node.node is not None:
                with node.disk.as_written():
                    self._check_node(node, node.incarnation)
        self.transactions.finish_all()

    def _check_node(self, node: SimNode, incarnation: Incarnation) -> None:
        self.check_count += 1
        view = self._views.get(node.node_id)
        if view is None or view.incarnation is not incarnation:
            view = self._views[node.node_id] = _NodeView(incarnation, SegmentShape(node))
        # What has lost something by a failed sync is about to learn it, and to end. All else goes
        # on until then: what is committed meanwhile will be there after the restart.
        lost = node.disk.failed_syncs
        if not any(map(is_metadata, lost)):
            self._check_quorum(node, view)
            self.isr.on_controller(node, max(self._raft_leaders, default=-1))
        check_memory(node)
        manager = node.replica_manager
        if manager is not None:
            for partition in manager.hosted.partitions():
                key = (partition.topic_id, partition.topic_partition.partition)
                log, state = partition.log, partition.state
                if state.role is Role.OFFLINE or _holds(log.directory, lost):
                    self.transactions.on_offline(partition, key)
                    continue
                high_watermark, end = log.high_watermark, log.log_end_offset
                if end != view.ends.get(key):
                    self._check_ends(node, view, partition, key, end)
                epoch = state.leader_epoch if state.is_leader else -1
                if view.watermarks.get(key) != (epoch, high_watermark):
                    self._check_partition(node, view, partition, key, epoch)
                    name = f"{_name(partition.topic_partition)} on {node.name}"
                    knows_all = high_watermark >= view.loaded_ends[key]
                    self.transactions.on_high_watermark(partition, key, name, knows_all=knows_all)
                    view.watermarks[key] = (epoch, high_watermark)

    def _check_ends(
        self, node: SimNode, view: _NodeView, partition: Partition, key: Key, end: int
    ) -> None:
        before, view.ends[key] = view.ends.get(key, 0), end
        if key not in view.loaded_ends:
            view.loaded_ends[key] = _known_from(node, partition)
        if end < before:
            self.isr.on_shorter(node, partition)
        count = view.shape.count
        name = f"{_name(partition.topic_partition)} on {node.name}"
        self.transactions.on_append(partition, name, before, end)
        view.shape.check(partition.log, key, name)
        self.segment_count += view.shape.count - count

    # -- the quorum -----------------------------------------------------------------------------

    def _check_quorum(self, node: SimNode, view: _NodeView) -> None:
        quorum = node.quorum
        epoch, leader = quorum.leader_epoch, quorum.leader_id
        if leader >= 0:
            known = self._raft_leaders.setdefault(epoch, leader)
            if known != leader:
                self._fail(f"epoch {epoch} of the quorum has two leaders: {known} and {leader}")
        high_watermark = quorum.high_watermark
        if high_watermark > view.metadata_offset:
            self._check_metadata(node, view, high_watermark)
        elif 0 <= high_watermark < view.metadata_offset:
            self._fail(
                f"{node.name} took metadata up to {view.metadata_offset} for committed, now only"
                f" up to {high_watermark}"
            )

    def _check_metadata(self, node: SimNode, view: _NodeView, high_watermark: int) -> None:
        log: Any = node.metadata_log
        start = max(view.metadata_offset, log.log_start_offset)
        end = min(high_watermark, log.log_end_offset)
        while start < end:
            try:
                batches = log.read(start, end, _READ_BYTES)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                return  # closed: the node has found damage in it, and ends at this instant
            if not batches:
                break
            for batch in batches:
                values = b"\0".join(batch.values)
                found = (batch.end_offset, zlib.crc32(values, batch.epoch))
                known = self._metadata.setdefault(batch.base_offset, found)
                if known != found:
                    self._fail(
                        f"{node.name} has other committed metadata at {batch.base_offset}"
                        f" epoch={batch.epoch} than another node had"
                    )
            start = batches[-1].end_offset
        view.metadata_offset = max(view.metadata_offset, end)

    # -- partitions -----------------------------------------------------------------------------

    def _check_partition(
        self,
        node: SimNode,
        view: _NodeView,
        partition: Partition,
        key: tuple[bytes, int],
        epoch: int,
    ) -> None:
        log = partition.log
        before_epoch, before = view.watermarks.get(key, (-1, 0))
        high_watermark = log.high_watermark
        name = f"{_name(partition.topic_partition)} on {node.name}"
        if epoch >= 0:
            leader = self._leaders.setdefault((*key, epoch), node.node_id)
            if leader != node.node_id:
                self._fail(f"{name} leads in epoch {epoch}, in which {leader} led")
            if before_epoch == epoch and high_watermark < before:
                self._fail(f"{name}: high watermark back from {before} to {high_watermark}")
            self._check_isr(partition, name, high_watermark)
            self.isr.commit(key, high_watermark)
        if high_watermark > log.log_end_offset:
            self._fail(f"{name}: high watermark {high_watermark} above its end")
        if partition.topic_partition.topic not in _COMPACTED:
            self._check_bytes(partition, key, name, min(before, high_watermark), high_watermark)

    def _check_isr(self, partition: Partition, name: str, high_watermark: int) -> None:
        for broker_id in sorted(partition.state.isr.maximal):
            other = self._cluster.nodes.get(broker_id)
            manager = None if other is None else other.replica_manager
            replica = (
                None if manager is None else manager.hosted.partition(partition.topic_partition)
            )
            if replica is None or replica.topic_id != partition.topic_id:
                continue  # down, or not there yet
            if replica.state.leader_epoch > partition.state.leader_epoch:
                continue  # this leader is none any more and will learn it
            end = replica.log.log_end_offset
            if end < high_watermark and not self._cluster.lost_power(broker_id):
                self._fail(
                    f"{name}: high watermark {high_watermark} is above the end {end} of broker"
                    f" {broker_id}, a member of the maximal ISR"
                )

    def _check_bytes(
        self, partition: Partition, key: tuple[bytes, int], name: str, start: int, end: int
    ) -> None:
        log = partition.log
        start = max(start, log.log_start_offset)
        committed = self._committed[key]
        while start < end:
            found_data = read_files(log, start, end)
            if found_data is None or not len(found_data.records):
                return
            view = memoryview(found_data.records)
            next_offset = start
            for header in iter_headers(view, allow_partial=True):
                batch = view[header.position : header.position + header.size_bytes]
                found = (header.next_offset, zlib.crc32(batch))
                known = committed.setdefault(header.base_offset, found)
                if known != found:
                    self._fail(
                        f"{name}: the committed batch at {header.base_offset}"
                        f" epoch={header.partition_leader_epoch} is another than elsewhere"
                    )
                next_offset = header.next_offset
            if next_offset <= start:
                return
            start = next_offset

    def _fail(self, text: str) -> None:
        raise SimulationFailure(text)


def _known_from(node: SimNode, partition: Partition) -> int:
    """From which high watermark on a log that was just loaded knows all of its transactions.

    One that began without a high watermark does when all that it held is committed; one that was
    rotten, and may have lost a marker, is not held to it.
    """
    log = partition.log
    if _holds(log.directory, node.disk.misread):
        return sys.maxsize
    return 0 if log.high_watermark else log.log_end_offset


def _holds(directory: str, paths: Collection[str]) -> bool:
    """Whether one of the files is in the directory."""
    return any(path.startswith(f"{directory}/") for path in paths)


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
