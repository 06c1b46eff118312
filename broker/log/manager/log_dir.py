"""What is known of one log directory (log.dirs), and of what was found in it at start.

Owned by `log_dirs` and `log_manager`, which alone change it; others look.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import NamedTuple

from kraftrio.broker.log.files import DirectoryLock
from kraftrio.broker.log.manager.directories import directory_name
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints
from kraftrio.wire.primitives import TopicPartition


class PendingLog(NamedTuple):
    """A partition directory found at start and not loaded yet."""

    directory: LogDir
    topic_partition: TopicPartition

    @property
    def path(self) -> str:
        """The folder."""
        return posixpath.join(self.directory.path, directory_name(self.topic_partition))


@dataclass(eq=False, slots=True)
class LogDir:
    """One of the log directories."""

    path: str
    checkpoints: OffsetCheckpoints
    directory_id: bytes = b""
    lock: DirectoryLock | None = None
    failure: OSError | None = None  # offline when set
    has_no_room: bool = False  # until a checkpoint could be written again
    is_fresh: bool = False  # without meta.properties
    clean_shutdown: bool = False
    previous_broker_epoch: int = -1
    is_loaded: bool = False

    @property
    def is_online(self) -> bool:
        return self.failure is None
