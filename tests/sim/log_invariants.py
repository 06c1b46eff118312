"""What must hold of one replica's segments, and of the members of an ISR.

Owns: `SegmentShape` and `IsrCompleteness`; `Invariants` asks them about what has changed.
1. Closed segments are not empty. The batches of one begin where its name says and end where the
   next one begins: no overlap, and no gap but in compacted logs, where recovery takes the end of a
   segment that a broken disk has lost for one that was compacted away.
2. A log starts within its segments and not behind its end.
3. A member of the ISR holds all that any leader has ever held to be committed: who is elected from
   it loses nothing.

Exempt from 3: who lost its power, or what else costs a replica its tail, until it is in sync again.
"""

from __future__ import annotations

from collections import defaultdict

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.image import MetadataImage, PartitionImage
from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import iter_headers

Key = tuple[bytes, int]  # topic id, partition
_Shape = tuple[int, int, int, int]  # number of segments, first and last base offset, log start


class SegmentShape:
    """The segments of the replicas of one life of a node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._shapes: dict[Key, _Shape] = {}
        self._known: dict[Key, set[tuple[int, int, int]]] = defaultdict(set)
        self.count = 0

    def check(self, log: PartitionLog, key: Key, name: str) -> None:
        """Look at what has come since the last call."""
        segments = log.segments
        bases = segments.base_offsets
        shape = (len(bases), bases[0], bases[-1], log.log_start_offset)
        if self._shapes.get(key) == shape:
            return
        self._shapes[key] = shape
        if not bases[0] <= log.log_start_offset <= log.log_end_offset:
            raise SimulationFailure(
                f"{name} starts at {log.log_start_offset}, but its segments hold {bases[0]} to"
                f" {log.log_end_offset}"
            )
        known = self._known[key]
        for number, next_base in enumerate(bases[1:]):
            segment = segments[number]
            what = (segment.base_offset, segment.size_bytes, next_base)
            if what not in known:
                known.add(what)
                self._check_closed(segment, next_base, name, log.config.compact)

    def _check_closed(self, segment: Segment, next_base: int, name: str, compacts: bool) -> None:
        self.count += 1
        base = segment.base_offset
        if not segment.size_bytes:
            raise SimulationFailure(f"{name}: the segment of {base} is empty, {next_base} follows")
        path = segment.log_file.path
        headers = list(iter_headers(self._node.disk.tree.contents(path)[: segment.size_bytes]))
        first, end = headers[0].base_offset, headers[-1].next_offset
        has_gap = end < next_base or first > base
        if end > next_base or first < base or (has_gap and not compacts):
            raise SimulationFailure(
                f"{name}: the segment of {base} holds {first} to {end}, but {next_base} follows"
            )


class IsrCompleteness:
    """What is committed of each partition, and whether the members of its ISR hold it."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._committed: dict[Key, int] = {}
        self._image: MetadataImage | None = None
        self.count = 0

    def commit(self, key: Key, high_watermark: int) -> None:
        """A leader holds this to be committed."""
        if high_watermark > self._committed.get(key, 0):
            self._committed[key] = high_watermark

    def on_controller(self, node: SimNode, newest_epoch: int) -> None:
        """Check the ISRs that the newest active controller has changed."""
        quorum = node.quorum
        if not quorum.is_active_controller or quorum.leader_epoch < newest_epoch:
            return
        image, before = quorum.image, self._image
        if image is before:
            return
        self._image = image
        for topic in image.topics_by_name.values():
            known = None if before is None else before.topic(topic.name)
            if topic is known:
                continue
            for index, partition in topic.partitions.items():
                self._check(TopicPartition(topic.name, index), topic.topic_id, partition)

    def on_shorter(self, node: SimNode, replica: Partition) -> None:
        """Check a replica whose log has become shorter."""
        if self._image is None:
            return
        tp = replica.topic_partition
        partition = self._image.partition(*tp)
        if partition is not None and node.node_id in partition.isr:
            self._check(tp, replica.topic_id, partition)

    def _check(self, tp: TopicPartition, topic_id: bytes, partition: PartitionImage) -> None:
        committed = self._committed.get((topic_id, tp.partition), 0)
        if not committed:
            return
        for broker_id in partition.isr:
            replica = _serving(self._cluster.nodes.get(broker_id), tp)
            if replica is None or replica.topic_id != topic_id:
                continue  # down, or not there yet
            self.count += 1
            end = replica.log.log_end_offset
            if end < committed and not self._cluster.lost_power(broker_id):
                raise SimulationFailure(
                    f"broker {broker_id} is in the ISR {partition.isr} of {tp.topic}-{tp.partition}"
                    f" with an end of {end}, but {committed} was committed"
                )


def _serving(node: SimNode | None, tp: TopicPartition) -> Partition | None:
    manager = None if node is None else node.replica_manager
    found = None if manager is None else manager.hosted.partition(tp)
    if node is None or found is None or found.state.role is Role.OFFLINE:
        return None
    return None if node.disk.failed_syncs else found
