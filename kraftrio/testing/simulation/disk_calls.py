"""Single calls of a disk that fail for want of a file descriptor or of room, while others succeed.

Owns: `FailingCalls`, which a `SimDisk` asks before each call. A call that fails here has no effect.
"""

from __future__ import annotations

import errno
import random

# Which calls need a file descriptor, if only for a moment, and which need room.
_BY_ERROR = {
    errno.EMFILE: frozenset({"open", "create", "read_file", "list", "sync_directory"}),
    errno.ENOSPC: frozenset({"write", "create", "make_directory", "rename"}),
}
_TEXTS = {errno.EMFILE: "Too many open files", errno.ENOSPC: "No space left on device"}


class FailingCalls:
    """Some calls of one node's disk fail.

    Args:
        error: EMFILE or ENOSPC.
        chance: of each call that can fail so.
        part: only calls with this in their path fail.

    Attributes:
        failed: the operation and path of each call that did.
    """

    def __init__(self, rng: random.Random, error: int, chance: float, part: str = "") -> None:
        self._rng = rng
        self._error = error
        self._operations = _BY_ERROR[error]
        self._chance = chance
        self._part = part
        self.failed: list[str] = []

    def check(self, operation: str, path: str) -> None:
        """Raise OSError if this call fails."""
        if (
            operation in self._operations
            and self._part in path
            and self._rng.random() < self._chance
        ):
            self.failed.append(f"{operation} {path}")
            raise OSError(self._error, _TEXTS[self._error], path)
