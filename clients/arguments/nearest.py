"""The name that was most likely meant, for the sentence that refuses another one.

Pure. Called by: the clients' settings; the commands.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

_SIMILAR: Final = 0.6


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest name, or nothing if none is near."""
    found = nearest(name, sorted(names))
    return f"; did you mean {found!r}?" if found is not None else ""


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that is most like another one; None if none is like it."""
    folded = {each.casefold(): each for each in reversed(names)}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_SIMILAR)
    return folded[found[0]] if found else None
