"""The steps of a truncation that follow that of the segments, at the latest before an append.

Any of them may fail on disk. The log then ends where its segments do, and nothing is written beyond
that end while the disk still has files that contradict it: producers' snapshots, epochs, or removed
files whose names a power cut would bring back. `partition_log` owns one.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.partition.partition_files import PartitionFiles


class PendingTruncation:
    """See the module; nothing is left while `rest` is None."""

    __slots__ = ("_files", "_fs", "rest")

    def __init__(self, fs: FileSystem, files: PartitionFiles) -> None:
        self._fs = fs
        self._files = files
        self.rest: Callable[[], None] | None = None

    def finish(self) -> None:
        """Do what is left. OSError: it is still left to do."""
        if self.rest is None:
            return
        self.rest()
        # Removed segments and snapshots must not come back at a power cut, after new records.
        self._fs.sync_directory(self._files.directory)
        self._files.save_epochs()
        self.rest = None
