"""The follower's half of an incremental fetch session (KIP-227), sans-IO.

The leader remembers which partitions a follower fetches and from where; a later request names only
what was added, changed or dropped. `api/fetch/session` is the leader's half.

Rules
1. Epoch 0 names every partition and asks for a new session; the answer brings its id, or 0: none
   was granted, and the next request is full again.
2. FETCH_SESSION_ID_NOT_FOUND starts over. Any other top-level error, and a lost connection, also
   end the session that the leader may still have: the next full request names its id.
3. A second request may follow before the first is answered, once there is a session. Answers that
   belong to an earlier session are void.

Called by `follower/fetch`.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.wire.errors import ErrorCode

INITIAL_EPOCH = 0
NO_SESSION = 0
_MAX_EPOCH = 2**31 - 1


class SessionKey(NamedTuple):
    """A partition as Fetch names it from version 13 on."""

    topic_id: bytes
    partition: int


class SessionStep(NamedTuple):
    """What the session says in one request."""

    session_id: int
    epoch: int
    generation: int  # counts the sessions, and what became of them
    named: list[SessionKey]  # every one in a full request, else those added or changed
    forgotten: list[SessionKey]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class FollowerSession:
    """What the leader knows of our wishes, and what it does not know yet."""

    __slots__ = (
        "_awaits_session",
        "_changed",
        "_epoch",
        "_forgotten",
        "_generation",
        "_known",
        "_session_id",
        "_wanted",
        "is_refused",
    )

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._generation = 0
        self._awaits_session = False
        self.is_refused = False  # the last full request was granted no session
        # Dicts for their order: what was asked first is named first.
        self._wanted: dict[SessionKey, None] = {}
        self._known: dict[SessionKey, None] = {}
        self._changed: dict[SessionKey, None] = {}
        self._forgotten: dict[SessionKey, None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: SessionKey) -> None:
        """Fetch a partition, or go on with it from another offset or epoch."""
        self._wanted[key] = None
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def drop(self, key: SessionKey) -> None:
        """Fetch a partition no longer."""
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self._known:
            self._forgotten[key] = None

    @property
    def has_changes(self) -> bool:
        """Does the leader not yet know of something that we want?"""
        return bool(self._changed)

    @property
    def may_pipeline(self) -> bool:
        """May a request follow one that is not answered (rule 3)?"""
        return self._epoch != INITIAL_EPOCH and not self._awaits_session

    def next_step(self) -> SessionStep:
        """Take what the next request has to say."""
        assert not self._awaits_session, "the session's id is not known yet"
        if self._epoch == INITIAL_EPOCH:
            self._known = dict(self._wanted)
            step = SessionStep(
                self._session_id, INITIAL_EPOCH, self._generation, list(self._wanted), []
            )
            self._awaits_session = True
        else:
            named = list(self._changed)
            forgotten = list(self._forgotten)
            self._known.update(self._changed)
            for key in forgotten:
                del self._known[key]
            step = SessionStep(self._session_id, self._epoch, self._generation, named, forgotten)
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        self._changed.clear()
        self._forgotten.clear()
        return step

    def on_answer(self, step: SessionStep, error: ErrorCode, session_id: int) -> bool:
        """Take the top level of an answer; False when its partitions are void."""
        if step.generation != self._generation:
            return False
        if error is not ErrorCode.NONE:
            self._start_over(keep_id=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if step.is_full:
            self._awaits_session = False
            self._session_id = session_id
            self.is_refused = session_id == NO_SESSION
            if not self.is_refused:
                self._epoch = 1
        elif session_id == NO_SESSION:  # the leader has closed it with this answer
            self._start_over(keep_id=False)
        return True

    def on_lost(self) -> None:
        """The connection is gone, and with it the order of what was under way."""
        self._start_over(keep_id=True)

    def _start_over(self, *, keep_id: bool) -> None:
        if not keep_id:
            self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._awaits_session = False
        self._generation += 1
        self._known.clear()
        self._forgotten.clear()
        self._changed = dict(self._wanted)
