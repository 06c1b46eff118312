"""The log directories of a broker (log.dirs): opened, online or failed, marked clean, released.

Rules:
1. One process per directory: `.lock` is held from `open` to `release`.
2. The clean-shutdown marker is removed before anything is loaded and written only after everything
   is flushed, so a crash in between is never taken for a clean stop (KAFKA-10471).
3. A directory whose disk fails is offline from then on; the others go on (KIP-112). One without
   room is not: what needs space fails, and is tried again.

`log_manager` owns them, and decides what becomes of the logs of a directory that fails.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping

from kraftrio.broker.log.checkpoints import (
    LOCK_FILE,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints

_logger = logging.getLogger(__name__)

_PROBE_FILE = ".kraftrio-room"
_PROBE_BYTES = 1 << 20


class LogDirError(Exception):
    """A log directory cannot be used: locked, of another node, or unreadable."""


class LogDirs:
    """See the module; iterates over all directories.

    Args:
        new_id: makes the unique ids of fresh directories.
    """

    def __init__(self, fs: FileSystem, paths: Iterable[str], new_id: Callable[[], bytes]) -> None:
        self._fs = fs
        self._new_id = new_id
        self._dirs = [LogDir(path, OffsetCheckpoints(fs, path)) for path in paths]

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._dirs)

    def __getitem__(self, index: int) -> LogDir:
        return self._dirs[index]

    # -- start ----------------------------------------------------------------------------------

    def open(self, cluster_id: str, node_id: int, known_ids: Mapping[str, bytes]) -> None:
        """Lock and check the directories; one whose disk fails is offline.

        A fresh one gets its meta.properties, or when the cluster is not known yet ("") by `format`.

        Args:
            known_ids: ids that fresh directories have already, by path.

        Raises:
            LogDirError: a directory is locked by another process or belongs to another node.
        """
        for log_dir in self._dirs:
            log_dir.directory_id = known_ids.get(log_dir.path, b"")
            try:
                self._open(log_dir, cluster_id, node_id)
            except OSError as error:
                log_dir.failure = error  # even for lack of space: it is not set up

    def _open(self, log_dir: LogDir, cluster_id: str, node_id: int) -> None:
        fs, path = self._fs, log_dir.path
        if not fs.is_directory(path):
            fs.make_directory(path)
            fs.sync_directory(posixpath.dirname(path) or ".")
        try:
            log_dir.lock = fs.lock(posixpath.join(path, LOCK_FILE))
        except BlockingIOError:
            raise LogDirError(
                f"{path} is locked: another process is using this log directory"
            ) from None
        try:
            found = read_meta_properties(fs, path)
        except CheckpointError as error:
            raise LogDirError(f"{path}: {error}") from None
        if found is None:
            found = MetaProperties(cluster_id, node_id, log_dir.directory_id or self._new_id())
            log_dir.is_fresh = not cluster_id
            if cluster_id:
                write_meta_properties(fs, path, found)
        if found.cluster_id != cluster_id:
            raise LogDirError(
                f"{path} belongs to cluster {found.cluster_id}, but this is {cluster_id}"
            )
        if found.node_id != node_id:
            raise LogDirError(f"{path} belongs to node {found.node_id}, but this is {node_id}")
        log_dir.directory_id = found.directory_id
        epoch = take_clean_shutdown(fs, path)
        log_dir.clean_shutdown = epoch is not None
        log_dir.previous_broker_epoch = -1 if epoch is None else epoch
        for name, problem in log_dir.checkpoints.read():
            # Recovery points and log starts are then found from the logs, from their beginning on.
            _logger.warning("ignore %s: %s", log_dir.checkpoints.path(name), problem)
            if name == RECOVERY_POINT_CHECKPOINT:
                log_dir.clean_shutdown = False

    def check_usable(self) -> None:
        """Log which directories are offline. Raises LogDirError when all of them are."""
        if not self.online():
            raise LogDirError(f"no log directory can be used: {self.describe_failures()}")
        for log_dir in self._dirs:
            if log_dir.failure is not None:
                _logger.error("log directory %s is offline: %s", log_dir.path, log_dir.failure)

    def format(self, cluster_id: str, node_id: int) -> None:
        """Write meta.properties where it is missing; blocks. Directories that fail go offline."""
        for log_dir in [one for one in self._dirs if one.is_fresh and one.is_online]:
            owner = MetaProperties(cluster_id, node_id, log_dir.directory_id)
            try:
                write_meta_properties(self._fs, log_dir.path, owner)
                log_dir.is_fresh = False
            except OSError as error:
                log_dir.failure = error
                _logger.error("log directory %s is offline: %s", log_dir.path, error)

    def finish_loading(self) -> None:
        """All logs are loaded: from now on a stop may be marked as clean."""
        for log_dir in self._dirs:
            log_dir.is_loaded = log_dir.is_online

    # -- which are in use -----------------------------------------------------------------------

    def online(self) -> list[LogDir]:
        """The directories that work."""
        return [log_dir for log_dir in self._dirs if log_dir.is_online]

    def has_online(self, directory_id: bytes) -> bool:
        """Is the directory with this id one of ours, and online?"""
        return any(log_dir.directory_id == directory_id for log_dir in self.online())

    def offline_ids(self) -> list[bytes]:
        """The ids of the directories that have failed, as far as they could be read."""
        return [
            log_dir.directory_id
            for log_dir in self._dirs
            if not log_dir.is_online and log_dir.directory_id
        ]

    def holding(self, directory: str) -> LogDir | None:
        """The log directory in which a log's folder lies."""
        name = posixpath.basename(directory)
        for log_dir in self._dirs:
            if posixpath.join(log_dir.path, name) == directory:
                return log_dir
        return None

    def describe_failures(self) -> str:
        """Why directories are offline, in words for a user."""
        return "; ".join(
            f"{log_dir.path}: {log_dir.failure.strerror or log_dir.failure}"
            for log_dir in self._dirs
            if log_dir.failure is not None
        )

    # -- failures -------------------------------------------------------------------------------

    def on_no_room(self, log_dir: LogDir, error: OSError) -> None:
        """Log once that nothing can be written to a directory now."""
        if not log_dir.has_no_room:
            _logger.error("log directory %s cannot be written now: %s", log_dir.path, error)
            log_dir.has_no_room = True

    def on_written(self, log_dir: LogDir) -> None:
        """Log once that a directory without room has some again."""
        if log_dir.has_no_room:
            log_dir.has_no_room = False
            _logger.info("log directory %s can be written again", log_dir.path)

    def fail(self, log_dir: LogDir, error: OSError) -> bool:
        """Take a directory offline; False if it was already."""
        if log_dir.failure is not None:
            return False
        log_dir.failure = error
        _logger.error("log directory %s is offline: %s", log_dir.path, error)
        return True

    def probe(self, log_dir: LogDir) -> None:
        """Write as much as a few batches and remove it again. Raises OSError."""
        path = posixpath.join(log_dir.path, _PROBE_FILE)
        file = self._fs.open(path, create=True)
        try:
            file.write_at(bytes(_PROBE_BYTES), 0)
        finally:
            file.close()
            self._fs.remove(path)

    # -- stop -----------------------------------------------------------------------------------

    def mark_clean(self, log_dir: LogDir, broker_epoch: int) -> None:
        """Everything in the directory is flushed and closed. Raises OSError."""
        write_clean_shutdown(self._fs, log_dir.path, broker_epoch)

    def release(self) -> None:
        """Release the locks."""
        for log_dir in self._dirs:
            if log_dir.lock is not None:
                log_dir.lock.release()
                log_dir.lock = None
