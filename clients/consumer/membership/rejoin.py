"""Why a member of a classic group has to join again: its topics have changed, or its group has.

Owns the topics subscribed to, those the member has joined with, and the reason that JoinGroup
gives (KIP-800). The first reason stays until an assignment has come.

Called by: `membership`.
"""

from __future__ import annotations


class Rejoin:
    """See the module.

    Attributes:
        topics: what the member subscribes to; None: it is to be in no group.
        reason: why it has to join again; None: it need not.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] | None = None
        self.reason: str | None = None
        self._joined_topics: frozenset[str] = frozenset()

    def subscribe(self, topics: frozenset[str]) -> None:
        """The program subscribes to these topics."""
        if topics == self.topics:
            return
        self.topics = topics
        self.check_topics()

    def unsubscribe(self) -> None:
        """The member leaves the group."""
        self.topics = None
        self.reason = None
        self._joined_topics = frozenset()

    def request(self, reason: str) -> None:
        """The member has to join again."""
        if self.reason is None:
            self.reason = reason

    def check_topics(self) -> None:
        """Request it if the member has joined with other topics."""
        if (self.topics or frozenset()) != self._joined_topics:
            self.request("subscription has changed")

    def join(self) -> tuple[frozenset[str], str]:
        """JoinGroup is sent; return the topics and the reason that are to be in it."""
        self._joined_topics = self.topics or frozenset()
        return self._joined_topics, self.reason or ""

    def done(self) -> None:
        """The member has its assignment."""
        self.reason = None
