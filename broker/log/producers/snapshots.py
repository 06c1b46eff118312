"""The `.snapshot` files of a log: the producer state before the offset in their name.

`partition_log` writes one at each roll and at a clean stop; `recovery` and truncation load the
newest that is not beyond the log and replay the batches after it. A damaged file is skipped (its
checksum shows it): an older one and a longer replay give the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.log.producers.producer_state import ProducerStateManager
from kraftrio.broker.log.segment.names import SNAPSHOT_SUFFIX, base_offset_of, segment_name
from kraftrio.wire.errors import CorruptBatchError

_logger = logging.getLogger(__name__)


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among file names, rising."""
    offsets = (base_offset_of(name, SNAPSHOT_SUFFIX) for name in names)
    return sorted(offset for offset in offsets if offset is not None)


class ProducerSnapshots:
    """Which snapshot files a log directory has; writes, loads and removes them."""

    __slots__ = ("_fs", "_unsynced", "directory", "offsets")

    def __init__(self, fs: FileSystem, directory: str, names: Iterable[str]) -> None:
        self._fs = fs
        self.directory = directory
        self.offsets = snapshot_offsets(names)
        self._unsynced = dict.fromkeys(self.offsets)  # as a process that was killed left them

    def mark_durable(self) -> None:
        """The files were flushed by a clean stop."""
        self._unsynced.clear()

    def write(self, state: ProducerStateManager, offset: int, *, sync: bool = False) -> None:
        """Save the state as it is before `offset`. An existing snapshot there stays."""
        if offset in self.offsets:
            return
        state.map_end_offset = offset
        path = snapshot_path(self.directory, offset)
        write_atomically(self._fs, path, state.snapshot_bytes(), sync=sync)
        if not sync:
            self._unsynced[offset] = None
        self.offsets.append(offset)
        self.offsets.sort()

    def sync(self) -> None:
        """Make the files durable: they know producers whose batches are deleted. Any thread."""
        unsynced = list(self._unsynced)
        for offset in unsynced:
            try:
                file = self._fs.open(snapshot_path(self.directory, offset))
            except FileNotFoundError:  # removed meanwhile
                continue
            try:
                file.sync()
            finally:
                file.close()
        if unsynced:
            self._fs.sync_directory(self.directory)
        for offset in unsynced:
            self._unsynced.pop(offset, None)

    def load_latest(self, state: ProducerStateManager, before: int, now_ms: int) -> int | None:
        """Load the newest readable snapshot at or below `before`; return its offset."""
        for offset in reversed(self.offsets[:]):
            if offset > before:
                continue
            try:
                data = self._fs.read_file(snapshot_path(self.directory, offset))
                state.load_snapshot(data, offset, now_ms)
            except (CorruptBatchError, FileNotFoundError) as error:
                _logger.warning(
                    "drop producer snapshot %s of %s: %s", offset, self.directory, error
                )
                self.remove([offset])
            else:
                return offset
        return None

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in list(offsets):
            self._fs.remove(snapshot_path(self.directory, offset))
            self._unsynced.pop(offset, None)
            if offset in self.offsets:
                self.offsets.remove(offset)

    def remove_after(self, offset: int) -> bool:
        """Remove the snapshots of offsets the log does not reach (any more); was there one?"""
        beyond = [taken for taken in self.offsets if taken > offset]
        self.remove(beyond)
        return bool(beyond)

    def remove_stray(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep what belongs to a segment and the newest one."""
        wanted = {*segment_base_offsets, *self.offsets[-1:]}
        self.remove([offset for offset in self.offsets if offset not in wanted])
