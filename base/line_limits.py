"""Which lines of the log are written, so that nothing that comes over and over can fill it.

Owns: `LineLimits`. Rules:
1. A line that was written is not written again for `FIRST_REST_S`, then for twice as long each time
   it still comes, up to `LONGEST_REST_S`.
2. Of one kind of line (the same message before its values are put in) at most `KIND_LINES` are
   written in `KIND_WINDOW_S`: peers and partitions are many.
3. The next line of a kind that is written says how many were left out.

Sans-IO: time comes in. Called by: `logging_setup`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeVar

FIRST_REST_S: Final = 10.0
LONGEST_REST_S: Final = 600.0
KIND_LINES: Final = 20
KIND_WINDOW_S: Final = 10.0

_REMEMBERED = 1000


@dataclass(slots=True)
class _Line:
    rest_s: float
    next_s: float  # not written again before


@dataclass(slots=True)
class _Kind:
    window_end_s: float
    written: int = 0
    left_out: int = 0


class LineLimits:
    """See the module."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._kinds: dict[Hashable, _Kind] = {}

    def admit(self, kind: Hashable, text: Callable[[], str], now_s: float) -> int | None:
        """Decide about a line.

        Args:
            kind: what it has in common with others of its kind.
            text: makes the line itself, without its time; not asked where that does not matter.

        Returns:
            None: it is left out; else how many of its kind were left out since the last one.
        """
        of_kind = self._kinds.pop(kind, None) or _Kind(now_s + KIND_WINDOW_S)
        _remember(self._kinds, kind, of_kind)
        if now_s >= of_kind.window_end_s:
            of_kind.window_end_s = now_s + KIND_WINDOW_S
            of_kind.written = 0
        if of_kind.written >= KIND_LINES or not self._is_due((kind, text()), now_s):
            of_kind.left_out += 1
            return None
        of_kind.written += 1
        left_out, of_kind.left_out = of_kind.left_out, 0
        return left_out

    def _is_due(self, key: Hashable, now_s: float) -> bool:
        line = self._lines.pop(key, None)
        if line is None or now_s >= line.next_s + line.rest_s:  # new, or it had stayed away
            line = _Line(FIRST_REST_S, now_s + FIRST_REST_S)
            is_due = True
        else:
            is_due = now_s >= line.next_s
            if is_due:
                line.rest_s = min(line.rest_s * 2, LONGEST_REST_S)
                line.next_s = now_s + line.rest_s
        _remember(self._lines, key, line)
        return is_due


_V = TypeVar("_V")


def _remember(memory: dict[Hashable, _V], key: Hashable, value: _V) -> None:
    """Keep a value as the newest; forget the oldest of too many."""
    memory[key] = value
    if len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]
