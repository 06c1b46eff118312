"""The topics that members subscribe to, kept once for members that subscribe to the same ones.

Most members of a group do. What compares members, as each new target does, then compares them by
identity, and a thousand members take the memory of one set. Called by groups with each member that
a record makes.
"""

from __future__ import annotations

_NONE: frozenset[str] = frozenset()


class KeptNames:
    """See the module; of one group. Remembers the newest set alone."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest = _NONE

    def of(self, names: frozenset[str]) -> frozenset[str]:
        """The same names, in the set that was given before if that is equal."""
        # Identity first: comparing sets goes through their elements.
        if names is not self._newest and names != self._newest:
            self._newest = names
        return self._newest
