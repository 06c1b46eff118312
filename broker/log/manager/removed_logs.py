"""Folders of logs that are out of service: renamed at once, and removed after their delay.

Owns: `RemovedLogs`. Rules:
1. A folder that is given up has a marked name (`-delete`, `-stray`) before another log is made
   under its plain one. Where the disk refuses the rename for want of room, that is tried again by
   `clear_way` before such a log is made, and by `remove_expired`; what lies there is not served.
2. `-delete` folders go after file.delete.delay.ms, those that an earlier process left at once;
   `-stray` ones stay for their owner.

Called by: log_manager.py.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.partition.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


class _Removal(NamedTuple):
    """A folder that waits for its removal; `due_ms` None: it is to stay under its name."""

    due_ms: int | None
    path: str
    log: PartitionLog | None


class RemovedLogs:
    """See the module."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: list[_Removal] = []
        self._unmoved: dict[str, _Removal] = {}  # by the path where they still are

    def found(self, path: str) -> None:
        """An earlier process left a `-delete` folder."""
        self._waiting.append(_Removal(0, path, None))

    def move(self, log: PartitionLog, path: str, due_ms: int | None) -> bool:
        """Rename the folder of a closed log; remove it from `due_ms` on (None: keep it).

        Returns:
            False: it was removed already, which was the wish.

        Raises:
            OSError: it has its name still. `retry_move` lets it be tried again.
        """
        return self._rename(log.directory, _Removal(due_ms, path, log))

    def retry_move(self, log: PartitionLog, path: str, due_ms: int | None) -> None:
        """Try the same again later, by `clear_way` or `remove_expired`."""
        self._unmoved[log.directory] = _Removal(due_ms, path, log)

    def _rename(self, source: str, removal: _Removal) -> bool:
        try:
            self._fs.rename(source, removal.path)
        except FileNotFoundError:
            return False
        if removal.log is not None:
            removal.log.moved(removal.path)
        if removal.due_ms is not None:
            self._waiting.append(removal)
        return True

    def clear_way(self, path: str) -> None:
        """Rename what still has this path, for a new log to be made there. Raises OSError."""
        removal = self._unmoved.get(path)
        if removal is not None:
            self._rename(path, removal)
            del self._unmoved[path]

    def remove_unused(self, path: str) -> None:
        """Remove a folder whose log could not be made, if it can be: else it is used again."""
        try:
            self._fs.remove_directory(path)
        except OSError as error:
            _logger.warning("cannot remove %s: %s", path, error)

    def remove_expired(self, now_ms: int) -> int:
        """Remove the folders whose delay is over; return how many wait."""
        for path in list(self._unmoved):
            try:
                self.clear_way(path)
            except OSError as error:
                _logger.warning("cannot rename %s yet: %s", path, error)
        waiting: list[_Removal] = []
        for removal in self._waiting:
            assert removal.due_ms is not None
            if removal.due_ms > now_ms:
                waiting.append(removal)
                continue
            try:
                self._fs.remove_directory(removal.path)
            except OSError as error:
                _logger.warning("cannot remove %s: %s", removal.path, error)
        self._waiting = waiting
        return len(waiting) + len(self._unmoved)
