"""The names of the files of one segment, as Kafka gives them. Pure.

<20 digits>.log           the batches, by the offset of the first one
<20 digits>.index         offsets to positions
<20 digits>.timeindex     timestamps to offsets
<20 digits>.txnindex      aborted transactions, if there are any
<20 digits>.snapshot      the producers as they were before that offset
....cleaned, ....swap     a compacted copy being written, and one being put into its place
....deleted               out of use, and removed after file.delete.delay.ms
"""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)


def segment_name(base_offset: int) -> str:
    """The file name stem of a segment: its base offset in 20 digits."""
    return f"{base_offset:020d}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The base offset in the name of a segment's file with this suffix; None for other names."""
    if len(name) != 20 + len(suffix) or not name.endswith(suffix):
        return None
    stem = name[:20]
    return int(stem) if stem.isdigit() else None


class SegmentNames:
    """The paths of a segment's files, which change when it, or its log, is renamed.

    Attributes:
        suffix: after every name: "" for a segment in use, else `.cleaned`, `.swap` or `.deleted`.
    """

    __slots__ = ("base_offset", "directory", "suffix")

    def __init__(self, directory: str, base_offset: int, suffix: str = "") -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix

    def path(self, kind: str) -> str:
        """The path of the file of that kind (one of `SEGMENT_SUFFIXES`)."""
        return f"{self.directory}/{segment_name(self.base_offset)}{kind}{self.suffix}"
