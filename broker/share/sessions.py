"""Share sessions: which partitions a member of a share group fetches from this broker (KIP-932).

Rules (Apache Kafka's)
1. A session belongs to a member of a group, and to the connection that opened it, with which it
   ends.
2. Epoch 0 opens a session, in place of an earlier one; -1 ends it.  Between, each request has the
   next epoch, fetches and acknowledgements alike; after the greatest comes 1.
3. There are at most so many (group.share.max.share.sessions); another one is refused.
4. Topics are known by their ids.  A partition that was added, or whose last answer was an error, is
   answered in any case (`is_due`); others when there is something to report.

A core: the shell (`SharePartitions`) ends sessions with their connections. Called by the handlers
of ShareFetch and ShareAcknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kraftrio.wire.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF


class ShareSessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class SessionPartition(NamedTuple):
    """A partition in a session."""

    topic_id: bytes
    partition: int


class ShareSession:
    """One session.

    Attributes:
        epoch: of the next request.
        partitions: in the order in which they came; True: it is to be answered in any case.
        is_ended: no request may use it any more.
    """

    __slots__ = ("epoch", "is_ended", "key", "partitions")

    def __init__(self, key: ShareSessionKey) -> None:
        self.key = key
        self.epoch = 1
        self.partitions: dict[SessionPartition, bool] = {}
        self.is_ended = False

    def rotated(self) -> Iterator[SessionPartition]:
        """The partitions, each time beginning with another one, so that all get their turn."""
        partitions = list(self.partitions)
        if partitions:
            start = (self.epoch - 1) % len(partitions)
            yield from partitions[start:]
            yield from partitions[:start]

    def note_answer(self, partition: SessionPartition, *, has_data: bool, is_error: bool) -> bool:
        """Whether an answer is to be given; it is taken for given."""
        is_due = self.partitions.get(partition, True)
        if partition in self.partitions:
            self.partitions[partition] = is_error
        return is_due or has_data or is_error


class ShareSessions:
    """See the module.

    Args:
        limit: how many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._members: dict[str, int] = {}  # sessions by group

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: ShareSessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Has any member of a group a session?"""
        return group_id in self._members

    def open(self, key: ShareSessionKey, partitions: Iterable[SessionPartition]) -> ShareSession:
        """Open a session; an earlier one of this member must have been ended.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        assert key not in self._sessions, key
        if len(self._sessions) >= self._limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key)
        session.partitions.update(dict.fromkeys(partitions, False))
        self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
        return session

    def use(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """The session that a request goes on with, or ends.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def change(
        self,
        session: ShareSession,
        added: Iterable[SessionPartition],
        forgotten: Iterable[SessionPartition],
    ) -> None:
        """Take partitions in, and out."""
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)

    def end(self, session: ShareSession) -> bool:
        """End a session; False: it has ended before."""
        if session.is_ended:
            return False
        session.is_ended = True
        del self._sessions[session.key]
        group_id = session.key.group_id
        self._members[group_id] -= 1
        if not self._members[group_id]:
            del self._members[group_id]
        return True
