"""Snapshots of the metadata, written here and received from the leader: `MetadataSnapshots`.

Owns: when the next one is due. Rules:
1. A snapshot is due after so many bytes of log, or so much time, since the last one (Kafka's
   metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot.interval.ms). It is
   written in a worker thread while everything else goes on, one at a time.
2. The log is changed between two Readys only (`finish`): it then begins at the snapshot that was
   written or received.
3. A damaged snapshot of the leader is not installed; one for which there is no room is waited with
   (room.py). Lack of room only delays one of our own.

Called by: quorum/service.py, api/quorum.py (`read`), controller/snapshot_download.py (what becomes
of downloads).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.no_room import NO_ROOM
from kraftrio.base.threads import RunInThread
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.records import encode_record
from kraftrio.kraft_meta.quorum.log_batches import SnapshotContents, parse_snapshot
from kraftrio.kraft_meta.quorum.publication import MetadataPublication
from kraftrio.kraft_meta.quorum.room import once_there_is_room
from kraftrio.kraft_meta.quorum.settings import QuorumConfig
from kraftrio.kraft_meta.raft.ports import ReplicatedLog
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer

_log = logging.getLogger("kraftrio.metadata")


class MetadataSnapshots:
    """See the module.

    Args:
        wake: called when the quorum's task has something to do.

    Attributes:
        written_total: how many were written here since the start.
        installed_total: how many came from a leader.
    """

    def __init__(
        self,
        config: QuorumConfig,
        log: ReplicatedLog,
        publication: MetadataPublication,
        clock: Clock,
        run_in_thread: RunInThread,
        wake: Callable[[], None],
    ) -> None:
        self._max_bytes = config.metadata_log_max_record_bytes_between_snapshots
        self._interval_ms = config.metadata_log_max_snapshot_interval_ms or math.inf  # 0: never
        self._log = log
        self._publication = publication
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._wake = wake
        self._bytes_since_last = 0
        self._due_ms = math.inf
        self._is_writing = False
        self._written: SnapshotId | None = None
        self._received: tuple[SnapshotId, Buffer] | None = None
        self._core: RaftCore | None = None  # once the log is loaded
        self.written_total = 0
        self.installed_total = 0

    async def load(self) -> SnapshotId | None:
        """Publish the newest snapshot on disk, if there is one; return its id."""
        snapshot_id = self._log.latest_snapshot_id()
        if snapshot_id is not None:
            values: list[bytes] = []
            loaded_id = snapshot_id

            def read() -> None:
                values.extend(self._log.read_snapshot(loaded_id))

            await self._run_in_thread(read)
            self._publication.load_snapshot(snapshot_id, values)
        self._bytes_since_last = self._log.size_bytes
        return snapshot_id

    def start(self, core: RaftCore) -> None:
        """Work for a core from now on."""
        self._core = core

    # ---- snapshots out

    @property
    def next_deadline_ms(self) -> float:
        """When to call `maybe_start`."""
        return math.inf if self._is_writing else self._due_ms

    def on_appended(self, size_bytes: int) -> None:
        """Count what the log has grown by."""
        self._bytes_since_last += size_bytes

    def maybe_start(self, now_ms: float, nursery: trio.Nursery) -> None:
        """Start to write a snapshot if one is due (rule 1)."""
        if self._due_ms == math.inf:
            self._due_ms = now_ms + self._interval_ms
        if self._is_writing:
            return
        if self._bytes_since_last < self._max_bytes and now_ms < self._due_ms:
            return
        self._due_ms = now_ms + self._interval_ms
        image, newest = self._publication.image, self._log.latest_snapshot_id()
        if image.offset < 0 or (newest is not None and newest.end_offset > image.offset):
            return
        self._bytes_since_last = 0
        self._is_writing = True
        nursery.start_soon(self._write, image)

    async def _write(self, image: MetadataImage) -> None:
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        timestamp_ms = self._publication.last_timestamp_ms

        def write() -> None:
            values = (encode_record(record) for record in image.to_records())
            self._log.write_snapshot(snapshot_id, values, timestamp_ms)

        try:
            await self._run_in_thread(write)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.error("a snapshot cannot be written now reason=%s", error)
            self._is_writing = False
            return
        _log.info("snapshot written offset=%d epoch=%d", *snapshot_id)
        self._written = snapshot_id
        self.written_total += 1
        self._is_writing = False
        self._wake()

    def read(
        self, source: int, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """Return bytes of a snapshot from a position on, and its size, to a node of the quorum.

        Raises:
            KafkaError: this node does not lead that epoch, has no such snapshot, or the position
                is not in it.
        """
        assert self._core is not None, "the log is loaded"
        error = self._core.answers.on_snapshot_fetch(source, epoch, self._clock.monotonic_ms())
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        chunk = self._log.read_snapshot_chunk(snapshot_id, max(position, 0), max_bytes)
        if chunk is None:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        if not 0 <= position < chunk[1]:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
        return chunk

    # ---- snapshots in

    def on_progress(self, source: int) -> bool:
        """Learn that a piece of the snapshot has come; False: it is not wanted any more."""
        core = self._core
        return core is not None and core.snapshots.on_progress(source, self._clock.monotonic_ms())

    def on_received(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Take the snapshot that `Peers.fetch_snapshot` asked for."""
        self._received = (snapshot_id, data)
        self._wake()

    def on_failed(self) -> None:
        """Learn that the snapshot cannot be fetched; the leader is asked again."""
        if self._core is not None:
            self._core.snapshots.on_failed(self._clock.monotonic_ms())
            self._wake()

    async def finish(self) -> None:
        """Let the log begin at a snapshot that was written or received (rule 2)."""
        core = self._core
        assert core is not None, "the log is loaded"
        written, self._written = self._written, None
        if written is not None and written == self._log.latest_snapshot_id():
            await self._run_in_thread(self._log.flush)  # so that cleaning need not wait for it
            try:
                self._log.clean_before(written)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                # The files that stay go with those before the next snapshot.
                _log.error("the metadata log cannot be cleaned now reason=%s", error)
            core.log.on_snapshot_written(written)
        if self._received is None or self._is_writing:
            return  # one at a time
        (snapshot_id, data), self._received = self._received, None
        if not core.snapshots.begin(snapshot_id):
            core.snapshots.on_failed(self._clock.monotonic_ms())
        elif not await self._install(snapshot_id, data):
            core.snapshots.on_install_failed(self._clock.monotonic_ms())
        else:
            core.snapshots.on_installed(snapshot_id, self._clock.monotonic_ms())

    async def _install(self, snapshot_id: SnapshotId, data: Buffer) -> bool:
        """Put a received snapshot in the log's place; False: it is damaged."""
        parsed: list[SnapshotContents] = []

        def write() -> None:
            snapshot = parse_snapshot(data)
            self._log.write_snapshot(snapshot_id, *snapshot)
            parsed.append(snapshot)

        try:
            await once_there_is_room(partial(self._run_in_thread, write))
        except KafkaError as error:
            _log.error("the leader's snapshot is damaged reason=%s", error)
            return False
        await self._run_in_thread(partial(self._log.reset_to, snapshot_id))
        _log.info("snapshot installed offset=%d epoch=%d", *snapshot_id)
        (snapshot,) = parsed
        self.installed_total += 1
        self._publication.last_timestamp_ms = snapshot.last_timestamp_ms
        self._publication.load_snapshot(snapshot_id, snapshot.values)
        return True
