"""Log directories as a whole: every partition, and the files about all of them.

Owns `DirectoryCheck`. Called by: the command line.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CheckpointError,
    parse_meta_properties,
    parse_offset_checkpoint,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.inspection.findings import Finding
from kraftrio.broker.log.inspection.folders import PartitionFolder, find_folders
from kraftrio.broker.log.inspection.partition_check import PartitionFacts, check_partition
from kraftrio.wire.primitives import TopicPartition

# What a broker does about each checkpoint that cannot be read, or that is impossible.
_CHECKPOINTS: Mapping[str, str] = {
    RECOVERY_POINT_CHECKPOINT: "a broker goes through all logs when it starts",
    REPLICATION_CHECKPOINT: "a broker finds it out again from the other replicas",
    LOG_START_CHECKPOINT: "records that were deleted come back",
    CLEANER_CHECKPOINT: "a broker compacts from the beginning again",
}


class DirectoryCheck:
    """A check of log directories.

    Args:
        paths: as in `log.dirs`.
        with_records: look into each batch, too.

    Attributes:
        checked: the partitions that were looked at, with what was seen.

    Raises:
        NothingFoundError: no log lies there.
        OSError: a directory cannot be read.
    """

    def __init__(self, fs: FileSystem, paths: str, *, with_records: bool = True) -> None:
        self._fs = fs
        self._with_records = with_records
        self.folders = find_folders(fs, paths)
        self.checked: dict[str, PartitionFacts] = {}

    def run(self, on_partition: Callable[[PartitionFolder], None]) -> Iterator[Finding]:
        """Yield what is wrong, directory by directory.

        Args:
            on_partition: called before each partition is checked.

        Raises:
            OSError: a file cannot be read.
        """
        directories: dict[str, list[PartitionFolder]] = {}
        for folder in self.folders:
            directories.setdefault(posixpath.dirname(folder.path), []).append(folder)
        for directory, folders in directories.items():
            yield from self._check_directory(directory, folders, on_partition)

    def _check_directory(
        self,
        directory: str,
        folders: list[PartitionFolder],
        on_partition: Callable[[PartitionFolder], None],
    ) -> Iterator[Finding]:
        offsets: dict[str, dict[TopicPartition, int]] = {}
        for name, remains in _CHECKPOINTS.items():
            try:
                offsets[name] = self._offsets(posixpath.join(directory, name))
            except CheckpointError as error:
                offsets[name] = {}
                yield Finding(posixpath.join(directory, name), str(error), remains)
        yield from self._check_owner(directory)
        starts, cleaned = offsets[LOG_START_CHECKPOINT], offsets[CLEANER_CHECKPOINT]
        for folder in folders:
            on_partition(folder)
            facts = self.checked[folder.path] = PartitionFacts()
            item = folder.topic_partition
            yield from check_partition(
                self._fs,
                folder,
                facts,
                log_start_offset=starts.get(item, 0),
                was_compacted=item in cleaned,
                with_records=self._with_records,
            )
            if facts.has_damage:
                continue  # checkpoints may rightly be ahead of what is left
            for name, known in offsets.items():
                if known.get(item, 0) > facts.end_offset:
                    fault = (
                        f"{folder.topic_partition.topic}-{item.partition} is said to have"
                        f" {known[item]}, beyond the end of its log, {facts.end_offset}"
                    )
                    path = posixpath.join(directory, name)
                    yield Finding(path, fault, _CHECKPOINTS[name], known[item])

    def _offsets(self, path: str) -> dict[TopicPartition, int]:
        if not self._fs.exists(path):
            return {}
        data = self._fs.read_file(path)
        # Kafka makes the files when it starts, and writes into each when there is something to say.
        return parse_offset_checkpoint(data) if data else {}

    def _check_owner(self, directory: str) -> Iterator[Finding]:
        path = posixpath.join(directory, META_PROPERTIES)
        if not self._fs.exists(path):
            return
        try:
            parse_meta_properties(self._fs.read_file(path))
        except CheckpointError as error:
            yield Finding(path, str(error), "a broker does not start on this directory")
