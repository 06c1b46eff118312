"""Who votes now, and the subscribers to changes of that: `CurrentVoters`.

The voters are static today: there is one set, which every subscriber is given at once.

Called by: quorum/service.py (owns it), what keeps connections to the voters (`subscribe`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftrio.kraft_meta.raft.voters import VoterSet

VotersCallback: TypeAlias = Callable[[VoterSet], object]


class CurrentVoters:
    """The set of voters in force.

    Attributes:
        current: that set.
    """

    def __init__(self, voters: VoterSet) -> None:
        self.current = voters
        self._callbacks: list[VotersCallback] = []

    def subscribe(self, callback: VotersCallback) -> None:
        """Call `callback(voters)` now and at every change, on the loop."""
        self._callbacks.append(callback)
        callback(self.current)

    def change(self, voters: VoterSet) -> None:
        """Put another set in force, and let every subscriber know."""
        if voters == self.current:
            return
        self.current = voters
        for callback in self._callbacks:
            callback(voters)
