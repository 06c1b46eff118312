"""Fetches a snapshot of the metadata from the leader, in pieces: `SnapshotDownloads`.

Rules: one download at a time, over a connection of its own. What has come of a snapshot is kept
until it is whole, another one is wanted, or the leader does not have it any more; only a whole
snapshot is handed on.

Called by: quorum_peers.py. Protocol: KIP-630.
Tested by: tests/unit/broker/controller/test_quorum_peers.py, by whole nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import trio

from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.kraft_meta.quorum.raft_wire import (
    SENT_VERSIONS,
    decode_snapshot_response,
    snapshot_request,
)
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.net.connection import Connection, ConnectionLost
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import KafkaError, RemoteProtocolError

_log = logging.getLogger("kraftrio.metadata")

Connect = Callable[[int], AbstractAsyncContextManager[Connection]]
"""Opens a connection to a voter; entering it raises ConnectionLost when there is none."""


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot as far as it has come; `size_bytes` is -1 until the first piece."""

    source: int
    snapshot_id: SnapshotId
    data: bytearray = field(default_factory=bytearray)
    size_bytes: int = -1
    is_running: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size_bytes

    def append(self, position: int, piece: memoryview, size_bytes: int) -> None:
        """Take the next piece. Raises RemoteProtocolError when it does not fit."""
        if (
            position != len(self.data)
            or not piece
            or size_bytes < position + len(piece)
            or self.size_bytes not in (-1, size_bytes)
        ):
            raise RemoteProtocolError(
                f"a piece of {len(piece)} bytes at {position} of {size_bytes} does not follow"
                f" {len(self.data)} of {self.size_bytes}"
            )
        self.size_bytes = size_bytes
        self.data += piece


class SnapshotDownloads:
    """See the module; `service` says who leads, and takes what has come."""

    def __init__(
        self, service: QuorumService, connect: Connect, tasks: OwnedTasks, config: RaftConfig
    ) -> None:
        self._service = service
        self._connect = connect
        self._tasks = tasks
        self._timeout_s = config.request_timeout_ms / 1000
        self._chunk_bytes = config.snapshot_chunk_bytes
        self._download: SnapshotDownload | None = None

    def fetch(self, source: int, snapshot_id: SnapshotId) -> None:
        """Start to fetch a snapshot, or go on with it."""
        download = self._download
        if download is None or (download.source, download.snapshot_id) != (source, snapshot_id):
            if download is not None:
                download.scope.cancel()
            download = self._download = SnapshotDownload(source, snapshot_id)
        elif download.is_running:
            return
        download.is_running = self._tasks.start(self._run, download)

    async def _run(self, download: SnapshotDownload) -> None:
        with trio.CancelScope() as download.scope:
            try:
                await self._fetch_pieces(download)
            except ConnectionLost as lost:
                _log.info("snapshot fetch interrupted node=%d %s", download.source, lost)
            except (KafkaError, RemoteProtocolError) as error:
                _log.warning("snapshot cannot be fetched node=%d %s", download.source, error)
                if self._download is download:
                    self._download = None
        download.is_running = False
        if self._download is download or self._download is None:
            if download.is_whole:
                self._download = None
                self._service.snapshots.on_received(download.snapshot_id, download.data)
            else:
                self._service.snapshots.on_failed()

    async def _fetch_pieces(self, download: SnapshotDownload) -> None:
        service = self._service
        async with self._connect(download.source) as connection:
            while not download.is_whole:
                request = snapshot_request(
                    service.messages.replica_id,
                    service.leader_epoch,
                    download.snapshot_id,
                    len(download.data),
                    self._chunk_bytes,
                    service.identity.on_wire,
                )
                version = SENT_VERSIONS[type(request)]
                response = await connection.call(request, version, self._timeout_s)
                piece = decode_snapshot_response(response)
                named = (piece.snapshot_id.end_offset, piece.snapshot_id.epoch)
                if named != download.snapshot_id:
                    raise RemoteProtocolError(f"asked for {download.snapshot_id}, got {named}")
                download.append(piece.position, records_view(piece.unaligned_records), piece.size)
                if not service.snapshots.on_progress(download.source):
                    return
