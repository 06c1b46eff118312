"""Leader epochs of one log: which epoch began at which offset (KIP-101, KIP-279, KIP-320).

Owns the ordered list of (epoch, start_offset), both strictly rising. It is pure: `partition_log`
assigns epochs as batches arrive, truncates the list with the log, and writes it to
`leader-epoch-checkpoint` whenever `version` moved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Epoch -> start offset; answers where an epoch ended and which epoch wrote an offset."""

    __slots__ = ("_epochs", "_start_offsets", "version")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.version = 0  # moves with every change; the owner compares it with what it saved
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.version = 0

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        # Copies, as long as the shorter one: a flush in another thread may read while one list
        # grows.
        pairs = zip(self._epochs[:], self._start_offsets[:], strict=False)
        return [EpochEntry(epoch, start_offset) for epoch, start_offset in pairs]

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def earliest(self) -> EpochEntry | None:
        if not self._epochs:
            return None
        return EpochEntry(self._epochs[0], self._start_offsets[0])

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Say that `epoch` begins at `start_offset`; return whether that was news.

        Entries that the new one contradicts (a later or equal epoch or offset) are dropped: the
        batches that made them were cut off by a newer leader.
        """
        if epoch < 0 or start_offset < 0:
            return False
        epochs, offsets = self._epochs, self._start_offsets
        if epochs and epochs[-1] == epoch and start_offset >= offsets[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or offsets[-1] >= start_offset):
            epochs.pop()
            offsets.pop()
        epochs.append(epoch)
        offsets.append(start_offset)
        self.version += 1
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """Where the largest epoch <= `epoch` ends here: (that epoch, its end offset).

        The latest epoch ends at the log end. An epoch below the first known one ends where that one
        starts. An unknown later epoch gives (-1, -1).
        """
        epochs = self._epochs
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == epochs[-1]:
            return EpochEntry(epoch, log_end_offset)
        higher = bisect_right(epochs, epoch)
        floor_epoch = epochs[higher - 1] if higher else epoch
        return EpochEntry(floor_epoch, self._start_offsets[higher])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when it lies before the first known epoch."""
        index = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def previous_epoch(self, epoch: int) -> int:
        """The largest known epoch below `epoch`, -1 when there is none."""
        index = bisect_right(self._epochs, epoch - 1) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after `end_offset`."""
        before = len(self._epochs)
        while self._epochs and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
        if len(self._epochs) != before:
            self.version += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended at or before `start_offset`; the one it is in starts there."""
        last = bisect_right(self._start_offsets, start_offset) - 1
        if last < 0 or (last == 0 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[:last]
        del self._start_offsets[:last]
        self._start_offsets[0] = start_offset
        self.version += 1

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._start_offsets.clear()
            self.version += 1
