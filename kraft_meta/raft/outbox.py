"""Messages that the core wants to send with its next Ready: `Outbox`.

Called by: the parts of the Raft core.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.messages import Message


class Outbox:
    """Messages in the order in which they were made."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: list[Message] = []

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def send(self, message: Message) -> None:
        """Let a message leave with the next Ready."""
        self._messages.append(message)

    def withdraw(self, message: Message) -> bool:
        """Take a message back; False: it has left already."""
        count = len(self._messages)
        self._messages = [waiting for waiting in self._messages if waiting is not message]
        return len(self._messages) < count

    def take(self) -> tuple[Message, ...]:
        """Return what waits, and keep nothing of it."""
        messages, self._messages = tuple(self._messages), []
        return messages
