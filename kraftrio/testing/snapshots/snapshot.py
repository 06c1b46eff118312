"""A whole cluster at one instant, as a value: `Snapshot`.

It is what is left when every node is killed at that instant, as by `kill -9`: all that was written,
hence all that was acknowledged, with groups, offsets, transactions and settings, since these are in
logs. What was under way is as after such an end: open transactions are open, members of groups have
the time of their session to come back. All nodes run in what begins from it.

Called by: `kraftrio.testing.kafka_world`, `kraftrio.testing.local_nodes`, and tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Self, TypeAlias

from kraftrio.testing.simulation.disk_image import DiskImage
from kraftrio.testing.snapshots import archive, kafka_directories
from kraftrio.testing.snapshots.archive import Manifest
from kraftrio.testing.snapshots.errors import SnapshotError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """See the module.

    Attributes:
        disks: what each node has on its disk, by node id.
        wall_ms: the time of the nodes' clocks, in milliseconds.
    """

    disks: Mapping[int, DiskImage]
    wall_ms: int

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file, a tar archive compressed with zstd; "case.tar.zst" is a good name.

        Raises:
            OSError: it cannot be written.
            SnapshotError: its cluster had a folder, and is stopped.
        """
        self._check_kept()
        manifest = Manifest(list(self.disks), self.wall_ms)
        archive.write(Path(path), manifest, self.disks)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *others: str | PathLike[str], brokers: int = 1
    ) -> Self:
        """Read what `save` has written, or the log directories of Apache Kafka.

        Log directories (of KRaft; checked with 4.3) are only read, and their broker must not run.
        Topics are there with their ids and settings, records, offsets of groups and transactions;
        users, ACLs, quotas and settings of brokers are not. A partition gets up to three replicas.

        Args:
            path: a file, or a folder with `meta.properties`.
            others: more log directories, of this or other brokers, until every partition is there.
            brokers: of the cluster that is to begin with log directories.

        Raises:
            SnapshotError: there is nothing such, or it is damaged; the text says which.
        """
        if others or Path(path).is_dir():
            folders = [Path(folder) for folder in (path, *others)]
            return cls(*kafka_directories.disks_of(folders, brokers))
        manifest, disks = archive.read(Path(path))
        return cls(disks, manifest.wall_ms)

    def _check_kept(self) -> None:
        for disk in self.disks.values():
            for file in disk.files.values():
                if isinstance(file.content, Path) and not file.content.exists():
                    raise SnapshotError(
                        "the snapshot of a cluster with a folder is gone when that is stopped:"
                        " save() it before"
                    )

    def check_fits(self, node_count: int) -> None:
        """Raise SnapshotError if a cluster of so many nodes cannot begin from it."""
        self._check_kept()
        if list(self.disks) != list(range(1, node_count + 1)):
            raise SnapshotError(
                f"the snapshot is of a cluster with {_nodes(len(self.disks))}, and this one has"
                f" {_nodes(node_count)}: make it with brokers={len(self.disks)}"
            )


Start: TypeAlias = Snapshot | str | PathLike[str]
"""What a cluster can begin with: a snapshot, where one was saved, or a log directory of Kafka."""


def snapshot_at(start: Start, brokers: int) -> Snapshot:
    """Return the given or loaded snapshot, for a cluster of so many nodes.

    Raises:
        SnapshotError: it does not fit, or see `Snapshot.load`.
    """
    found = start if isinstance(start, Snapshot) else Snapshot.load(start, brokers=brokers)
    found.check_fits(brokers)
    return found


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
