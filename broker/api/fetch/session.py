"""Incremental fetch sessions (KIP-227), sans-IO: what a client asked for before need not be
repeated.

A session remembers the partitions of a client and what it was last sent of each.  A later fetch
names only what changed, and is answered only with partitions that have changed: records, an error,
or a new high watermark, last stable offset or log start offset.

Rules
1. Epoch 0 asks for a new session (the answer carries its id), epoch -1 for none (and closes the one
   it names); session id 0 in an answer means that none was granted.
2. An id that we do not know is FETCH_SESSION_ID_NOT_FOUND, an epoch out of turn is
   INVALID_FETCH_SESSION_EPOCH; both are answered at the top level with no partitions.
3. Partitions that were given records move to the back, so that a full one cannot starve the others.
4. One session uses topic ids (Fetch 13 and later) or names, never both:
   FETCH_SESSION_TOPIC_ID_ERROR.
5. A full cache evicts the session that was idle longest, once idle for `eviction_ms`; for a
   follower a consumer's at once; else it grants none.
6. A follower's session has a partition read only when it is due: named by the request, or changed
   since it was last answered as being at the log's end. A broker follows thousands of partitions,
   few of which change from one fetch to the next. The reader calls `FetchPlan.mark_up_to_date`,
   the partition calls its `SessionWatch` when it changes; now and then some are read all the same.
7. A follower that fetches again while its last fetch is parked has something to report. The
   handler looks for that one (`superseded_by`) and answers it before it plans the new one: what it
   is answered with is what the session was until then.

Called by `fetch/fetch` and `long_fetch`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kraftrio.broker.replica.state.followers import FollowerProgress
from kraftrio.broker.replica.waiting.waiters import FetchWaiter
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1
_REFRESH_INTERVAL_MS = 1000
_REFRESH_COUNT = 20


class FetchKey(NamedTuple):
    """A partition as the request names it: by topic id from version 13 on, by name before."""

    topic_id: bytes
    topic: str
    partition: int


@dataclass(slots=True)
class FetchPart:
    """What a client wants of one partition, and what it was last sent."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    # last sent; -1, so that the first answer always counts as a change
    high_watermark: int = -1
    last_stable_offset: int = -1
    sent_log_start_offset: int = -1
    topic_name: str | None = None  # as it was asked by, or what its id meant when first resolved

    def update(self, other: FetchPart) -> None:
        """Take over what a later fetch asks, keeping what was sent.

        A follower in a new leader epoch, or with a truncated log, has dropped the answers to
        what it had asked before: they are sent again.
        """
        if (
            other.current_leader_epoch != self.current_leader_epoch
            or other.fetch_offset < self.fetch_offset
        ):
            self.high_watermark = self.last_stable_offset = self.sent_log_start_offset = -1
        self.fetch_offset = other.fetch_offset
        self.partition_max_bytes = other.partition_max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset


class PackedParts:
    """Partitions that no session keeps, as tuples: many objects would hold up garbage collection.

    Their `FetchPart`s are made on iteration.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[tuple[bytes, str, int], tuple[int, int, int, int, int, str | None]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __setitem__(self, key: FetchKey, part: FetchPart) -> None:
        self._parts[key.topic_id, key.topic, key.partition] = (
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
            part.last_fetched_epoch,
            part.log_start_offset,
            part.topic_name,
        )

    def items(self) -> Iterator[tuple[FetchKey, FetchPart]]:
        """Give them in the order in which they were first set."""
        for key, (offset, max_bytes, epoch, last_epoch, start, name) in self._parts.items():
            part = FetchPart(offset, max_bytes, epoch, last_epoch, start, topic_name=name)
            yield FetchKey(*key), part

    def popitem(self) -> None:
        """Drop the last one."""
        self._parts.popitem()


class ParkedFetch(NamedTuple):
    """A follower's fetch that waits for changes.

    Attributes:
        waiter: counts what comes to the partitions of the session.
        answer: answers it now, once.
    """

    waiter: FetchWaiter
    answer: Callable[[], None]


class FetchSession:
    """One client's remembered partitions, in the order in which they are served.

    Attributes:
        due: what the next fetch reads (rule 6): for a consumer everything.
        parked: of a follower, its latest fetch that was parked.
    """

    __slots__ = (
        "_broker_epoch",
        "_fetched_ms",
        "_refreshed_ms",
        "due",
        "epoch",
        "is_follower",
        "last_used_ms",
        "parked",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[FetchKey, FetchPart],
        now_ms: float,
        *,
        uses_topic_ids: bool,
        is_follower: bool,
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions = partitions
        self.due = dict(partitions) if is_follower else partitions
        self.parked: ParkedFetch | None = None
        self._refreshed_ms = now_ms
        self._broker_epoch: int | None = None  # of the follower
        self._fetched_ms = 0.0

    def advance(self) -> None:
        """Expect the next epoch; it wraps to 1, since 0 asks for a new session."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def update(self, parts: Iterable[tuple[FetchKey, FetchPart]]) -> None:
        """Take over what a fetch names."""
        for key, part in parts:
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = part
            else:
                known.update(part)
                part = known
            self.due[key] = part

    def forget(self, keys: Iterable[FetchKey]) -> None:
        """Drop what is not fetched any more."""
        for key in keys:
            self.partitions.pop(key, None)
            self.due.pop(key, None)

    def on_follower_fetch(self, broker_epoch: int, now_ms: float) -> None:
        """The follower fetches; once it has another broker epoch, all partitions are due."""
        self._fetched_ms = now_ms
        if broker_epoch != self._broker_epoch:
            if self._broker_epoch is not None:
                self.due.update(self.partitions)
            self._broker_epoch = broker_epoch

    def on_change(
        self, key: FetchKey, progress: FollowerProgress | None, appended_bytes: int
    ) -> None:
        """A partition has changed: its follower's progress here, and what its log has more.

        While it was not due, each fetch read it from its end, though the fetch did not name it.
        """
        part = self.partitions.get(key)
        if part is not None and key not in self.due:
            self.due[key] = part
            if progress is not None:
                progress.on_quiet_fetch(self._fetched_ms)
        if appended_bytes and self.parked is not None:
            self.parked.waiter.count(appended_bytes)

    def refresh(self, now_ms: float) -> None:
        """Now and then make some partitions due, another few each time."""
        if self.due is self.partitions or now_ms - self._refreshed_ms < _REFRESH_INTERVAL_MS:
            return
        self._refreshed_ms = now_ms
        for key in list(itertools.islice(self.partitions, _REFRESH_COUNT)):
            part = self.partitions.pop(key)
            self.partitions[key] = part
            self.due[key] = part


class SessionWatch:
    """One partition of a follower's session, to which its replica reports changes."""

    __slots__ = ("_key", "_session")

    def __init__(self, session: FetchSession, key: FetchKey) -> None:
        self._session = session
        self._key = key

    def is_of(self, session: FetchSession, key: FetchKey) -> bool:
        """Whether it is this session that is notified of changes, by this key."""
        return self._session is session and self._key == key

    @property
    def is_parked(self) -> bool:
        """Whether the follower's latest fetch waits for changes."""
        parked = self._session.parked
        return parked is not None and parked.waiter.is_parked

    def on_change(self, progress: FollowerProgress | None, appended_bytes: int) -> None:
        """The partition has changed."""
        self._session.on_change(self._key, progress, appended_bytes)


@dataclass(slots=True)
class FetchPlan:
    """What one Fetch request comes down to.

    Attributes:
        error: top-level error; nothing else counts then.
        session_id: what the answer carries (0: no session).
        incremental: only partitions that have changed are answered.
        session: the session to keep up to date, if any.
        epoch: of the session when this was its latest fetch.
    """

    error: ErrorCode
    session_id: int = 0
    incremental: bool = False
    session: FetchSession | None = None
    parts: dict[FetchKey, FetchPart] | PackedParts | None = None
    epoch: int = FINAL_EPOCH

    @property
    def is_superseded(self) -> bool:
        """Has a later fetch of the session come?"""
        return self.session is not None and self.session.epoch != self.epoch

    def partitions(self) -> Iterable[tuple[FetchKey, FetchPart]]:
        """The partitions to read, in order; more may become due meanwhile."""
        if self.parts is None:
            return ()
        return self.parts.items() if self.session is None else list(self.parts.items())

    @property
    def is_partial(self) -> bool:
        """Are there partitions that are not read, for they have not changed (rule 6)?"""
        session = self.session
        return session is not None and len(session.due) < len(session.partitions)

    def mark_up_to_date(self, keys: list[FetchKey]) -> None:
        """A follower was sent all there is of these partitions."""
        if self.session is not None and self.session.is_follower:
            for key in keys:
                self.session.due.pop(key, None)

    def note_change(
        self,
        part: FetchPart,
        *,
        has_records: bool,
        error: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> bool:
        """Note what a client would be sent of a partition; return whether it is to be sent."""
        has_changed = (
            has_records
            or error != ErrorCode.NONE
            or high_watermark != part.high_watermark
            or last_stable_offset != part.last_stable_offset
            or log_start_offset != part.sent_log_start_offset
        )
        if self.session is not None:
            part.high_watermark = high_watermark
            part.last_stable_offset = last_stable_offset
            part.sent_log_start_offset = log_start_offset
            if error != ErrorCode.NONE:
                part.high_watermark = -1  # an error is repeated until it is over
        return has_changed or not self.incremental

    def move_to_back(self, keys: list[FetchKey]) -> None:
        """Serve these partitions last from now on (rule 3)."""
        if self.session is not None:
            partitions = self.session.due
            for key in keys:
                part = partitions.pop(key, None)
                if part is not None:
                    partitions[key] = part


class FetchSessions:
    """The sessions of one broker.

    Args:
        max_sessions: `max.incremental.fetch.session.cache.slots`.
        rng: gives session ids.
        eviction_ms: how long a session is safe from eviction after its last use.
    """

    def __init__(self, max_sessions: int, rng: random.Random, eviction_ms: int = 120_000) -> None:
        self._max_sessions = max_sessions
        self._rng = rng
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def superseded_by(self, session_id: int, epoch: int) -> ParkedFetch | None:
        """Return the last parked fetch of a session that goes on with this epoch (rule 7)."""
        session = self._sessions.get(session_id)
        return None if session is None or session.epoch != epoch else session.parked

    def plan(
        self,
        session_id: int,
        epoch: int,
        parts: dict[FetchKey, FetchPart],
        forgotten: list[FetchKey],
        *,
        uses_topic_ids: bool,
        now_ms: float,
        is_follower: bool = False,
    ) -> FetchPlan:
        """Decide what a Fetch request reads and how it is answered (rules 1, 2 and 4)."""
        if epoch == FINAL_EPOCH and not session_id:
            return FetchPlan(ErrorCode.NONE, parts=parts)
        found = self._open(
            session_id,
            epoch,
            parts,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
            is_follower=is_follower,
        )
        if isinstance(found, FetchPlan):
            return found
        if parts:
            found.update(parts.items())
        if forgotten:
            found.forget(forgotten)
        return self._go_on(found, now_ms)

    def plan_slices(
        self,
        session_id: int,
        epoch: int,
        parts: dict[FetchKey, FetchPart] | PackedParts,
        forgotten: Iterable[FetchKey],
        *,
        uses_topic_ids: bool,
        now_ms: float,
        is_follower: bool = False,
    ) -> Slices[FetchPlan]:
        """Like `plan`, with pauses; `parts` may be packed for a fetch without a session."""
        found = self._open(
            session_id,
            epoch,
            parts,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
            is_follower=is_follower,
        )
        if isinstance(found, FetchPlan):
            return found
        for entry in parts.items():
            found.update((entry,))
            yield
        for key in forgotten:
            found.forget((key,))
            yield
        if self._sessions.get(session_id) is not found or found.epoch != epoch:
            return FetchPlan(ErrorCode.INVALID_FETCH_SESSION_EPOCH)  # another fetch came between
        return self._go_on(found, now_ms)

    def _open(
        self,
        session_id: int,
        epoch: int,
        parts: dict[FetchKey, FetchPart] | PackedParts,
        *,
        uses_topic_ids: bool,
        now_ms: float,
        is_follower: bool,
    ) -> FetchPlan | FetchSession:
        """Find the session that goes on; else plan a fetch that begins, or a refusal."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._begin(
                session_id,
                epoch,
                parts,
                uses_topic_ids=uses_topic_ids,
                now_ms=now_ms,
                is_follower=is_follower,
            )
        existing = self._sessions.get(session_id)
        if existing is None:
            return FetchPlan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if existing.epoch != epoch:
            return FetchPlan(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if existing.uses_topic_ids != uses_topic_ids:
            return FetchPlan(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return existing

    def _begin(
        self,
        session_id: int,
        epoch: int,
        parts: dict[FetchKey, FetchPart] | PackedParts,
        *,
        uses_topic_ids: bool,
        now_ms: float,
        is_follower: bool,
    ) -> FetchPlan:
        """Plan a fetch without a session, or with a new one."""
        if session_id:
            self._sessions.pop(session_id, None)
        if epoch == FINAL_EPOCH or not parts or not self._has_room(is_follower, now_ms):
            return FetchPlan(ErrorCode.NONE, parts=parts)
        assert not isinstance(parts, PackedParts), "a session keeps them"
        session = FetchSession(
            self._new_id(), parts, now_ms, uses_topic_ids=uses_topic_ids, is_follower=is_follower
        )
        self._sessions[session.session_id] = session
        return FetchPlan(
            ErrorCode.NONE, session.session_id, False, session, session.due, session.epoch
        )

    def _go_on(self, session: FetchSession, now_ms: float) -> FetchPlan:
        """Read what a session names now."""
        self._touch(session, now_ms)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchPlan(ErrorCode.NONE, parts={})
        session.advance()
        session.refresh(now_ms)
        return FetchPlan(
            ErrorCode.NONE, session.session_id, True, session, session.due, session.epoch
        )

    def leave(self, plan: FetchPlan) -> int:
        """Answer a planned fetch with no partitions, not even those that changed.

        A new session ends, since its client takes only a full answer for one.

        Returns:
            The session's id for that answer.
        """
        if plan.session is not None and not plan.incremental:
            self._sessions.pop(plan.session_id, None)
            return 0
        return plan.session_id

    def _touch(self, session: FetchSession, now_ms: float) -> None:
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _has_room(self, is_follower: bool, now_ms: float) -> bool:
        """Is there room for one more session, if need be in the place of another (rule 5)?"""
        if len(self._sessions) < self._max_sessions:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms < self._eviction_ms:
            consumers = (s for s in self._sessions.values() if not s.is_follower)
            oldest = next(consumers, None) if is_follower else None
            if oldest is None:
                return False
        del self._sessions[oldest.session_id]
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                return session_id
