"""Counts which protocols the members of a classic group support, and chooses one by their votes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""A member's protocols with its metadata for each, most preferred first."""


class ProtocolVotes:
    """How many members support each protocol."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, protocols: Protocols) -> None:
        """Count the protocols of one member more."""
        for name, _ in protocols:
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, protocols: Protocols) -> None:
        """Count the protocols of one member less."""
        for name, _ in protocols:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def has_common(self, names: Iterable[str], member_count: int) -> bool:
        """Whether all members support one of some protocols."""
        return any(self._counts.get(name, 0) == member_count for name in names)

    def winner(self, members: Sequence[Protocols]) -> str:
        """Of what all members support, the protocol that most like best; the earliest vote wins
        a tie.
        """
        candidates = {name for name, count in self._counts.items() if count == len(members)}
        votes: dict[str, int] = {}
        for protocols in members:
            choice = next((name for name, _ in protocols if name in candidates), None)
            assert choice is not None, f"no protocol of {candidates} is supported"
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)
