"""The room on the disks of the log directories: as a figure, and as a warning before it is gone.

Owns: `DiskSpace`. A directory that comes below `log.dirs.free.bytes.warning` is warned of once, and
again once it has come below half of what was logged last; that it has room again is logged, too.

Called by: `observation`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import trio

from kraftrio.base.statistics import LabelledStatistics
from kraftrio.broker.log.manager.log_dir import LogDir

_log = logging.getLogger("kraftrio.logs")

INTERVAL_S: Final = 10.0
_MIB = 1 << 20


class Usage(NamedTuple):
    """Of a disk, in bytes."""

    total: int
    used: int
    free: int


def disk_usage(path: str) -> Usage:
    """Ask the system (OSError when the disk does not answer)."""
    return Usage(*shutil.disk_usage(path))


class DiskSpace:
    """See the module.

    Args:
        least_free_bytes: below which it is warned; 0: never.
        usage: of the disk of a path.
    """

    def __init__(
        self,
        log_dirs: Iterable[LogDir],
        least_free_bytes: int,
        usage: Callable[[str], Usage] = disk_usage,
    ) -> None:
        self._log_dirs = log_dirs
        self._least_free_bytes = least_free_bytes
        self._usage = usage
        self._warned: dict[str, int] = {}  # the free bytes of which was warned, by path

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            self.check()
            await trio.sleep(INTERVAL_S)

    def check(self) -> None:
        """Warn of what has little room."""
        for log_dir in self._log_dirs:
            usage = self._usage_of(log_dir)
            if usage is None:
                continue
            warned = self._warned.get(log_dir.path)
            if usage.free >= self._least_free_bytes:
                if warned is not None:
                    del self._warned[log_dir.path]
                    _log.info(
                        "log directory has room again directory=%s free_mib=%d",
                        log_dir.path,
                        usage.free // _MIB,
                    )
            elif warned is None or usage.free < warned // 2:
                self._warned[log_dir.path] = usage.free
                _log.warning(
                    "log directory is running full directory=%s free_mib=%d of_mib=%d used=%d%%",
                    log_dir.path,
                    usage.free // _MIB,
                    usage.total // _MIB,
                    100 - 100 * usage.free // max(usage.total, 1),
                )

    def _usage_of(self, log_dir: LogDir) -> Usage | None:
        if not log_dir.is_online:
            return None
        try:
            return self._usage(log_dir.path)
        except OSError:
            return None  # the next write finds out

    def labelled_statistics(self) -> LabelledStatistics:
        """The room of each disk, by log directory."""
        usages = {log_dir.path: self._usage_of(log_dir) for log_dir in self._log_dirs}
        known = {path: usage for path, usage in usages.items() if usage is not None}
        return {
            "free_bytes": {(path,): usage.free for path, usage in known.items()},
            "total_bytes": {(path,): usage.total for path, usage in known.items()},
            "online": {(log_dir.path,): log_dir.is_online for log_dir in self._log_dirs},
        }
