"""Names of the files of the metadata log, as Kafka gives them, and the error for what they hold."""

from __future__ import annotations

import re
from typing import Final

from kraftrio.kraft_meta.raft.values import SnapshotId

PART_SUFFIX: Final = ".part"
LEFTOVER_SUFFIXES: Final = (PART_SUFFIX, ".tmp")

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log\Z")
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")


class MetadataLogError(Exception):
    """The directory holds what no crash leaves behind: damaged or missing files."""


def segment_file_name(base_offset: int) -> str:
    """The name of a segment's file."""
    return f"{base_offset:020d}.log"


def parse_segment_file_name(name: str) -> int | None:
    """The base offset of a segment; None for other files."""
    match = _SEGMENT_NAME.match(name)
    return None if match is None else int(match[1])


def snapshot_file_name(snapshot_id: SnapshotId) -> str:
    """The name of a snapshot's file."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def parse_snapshot_file_name(name: str) -> SnapshotId | None:
    """Which snapshot a file is; None for other files."""
    match = _SNAPSHOT_NAME.match(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))
