"""The `.txnindex` file of a segment: present only when a transaction was aborted there (KIP-98).

The entries and the search are `txn_index`'s; this is the file under the rules of `index_file`. Used
by `segment` only.
"""

from __future__ import annotations

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_config import INT_MAX
from kraftrio.broker.log.segment.index_file import CorruptIndexError, IndexFile
from kraftrio.broker.log.segment.txn_index import (
    ENTRY_BYTES,
    AbortedTxn,
    check_index,
    decode_index,
    encode_index,
    entries_before,
)
from kraftrio.wire.errors import CorruptBatchError


class TxnIndexFile(IndexFile):
    """The aborted transactions whose markers lie in the segment."""

    ENTRY_SIZE_BYTES = ENTRY_BYTES

    __slots__ = ("_entries",)

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, new: bool) -> None:
        super().__init__(fs, path, base_offset, INT_MAX, new=new)
        self._entries: list[AbortedTxn] = []
        self._unsynced = False

    def load(self) -> None:
        if not self._loaded and not self._fs.exists(self.path):
            self._loaded = True
            return
        super().load()

    def flush(self, *, sync: bool) -> None:
        if self._loaded and not self._entries:
            if self._unsynced or self._file_size_bytes:
                self._fs.remove(self.path)
                self._unsynced = False
                self._file_size_bytes = 0
            return
        super().flush(sync=sync)

    def _count(self) -> int:
        return len(self._entries)

    def _parse(self, data: bytes) -> None:
        try:
            entries = decode_index(data)
            check_index(entries, self._base_offset)
        except CorruptBatchError as error:
            raise CorruptIndexError(f"{self.path}: {error}") from None
        self._entries = entries

    def _pack(self, start: int, end: int) -> bytes:
        return encode_index(self._entries[start:end])

    def _keep_first(self, count: int) -> None:
        del self._entries[count:]

    @property
    def entries(self) -> list[AbortedTxn]:
        """All entries, in the order of their markers; read only."""
        self.load()
        return self._entries

    def append(self, transaction: AbortedTxn) -> None:
        self.load()
        self._entries.append(transaction)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers are at or above `offset`."""
        self.load()
        self._truncate_entries(sum(1 for _ in entries_before(self._entries, offset)))
