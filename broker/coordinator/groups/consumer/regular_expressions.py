"""Regular expressions of consumer groups: when they are looked up in the topics, and what that
leads to.

Rules, Kafka's:
1. A heartbeat starts a look-up for all of a group's expressions, if one of them is new, or topics
   were made since the last, or that is long ago (`group.consumer.regex.refresh.interval.ms`); no
   sooner than 10 s after the last.
2. A look-up is of one version of the metadata. It runs in slices between requests; a group has one
   at a time.
3. Topics that the client whose heartbeat started it may not describe do not match.
4. What is found becomes records, and a new group epoch if it is not what there was. Expressions
   that nobody subscribes to any more, by then, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from enum import Enum

from kraftrio.base.patterns.pattern import Pattern
from kraftrio.base.patterns.syntax import PatternError
from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.consumer.member_updates import MemberUpdate
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient, Parts
from kraftrio.broker.coordinator.groups.consumer.records import (
    epoch_record,
    regex_record,
    regex_tombstone,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.subscriptions import ResolvedRegex
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.errors import ErrorCode, KafkaError

LOOKUP_DEADLINE = "consumer-regex"
"""First part of the deadline key of a group's look-up; then comes the group id."""

_SLICE_MATCHES = 500
_NEXT_SLICE_MS = 1
_MIN_INTERVAL_MS = 10_000

Resolved = dict[str, ResolvedRegex]


class RegexChange(Enum):
    """What an update did to the expression that its member subscribes to.

    NONE: nothing.
    UPDATED: it is another one, and what that matches is not known yet.
    RESOLVED: it is another one, and what that matches is known; or there is none any more.
    """

    NONE = "none"
    UPDATED = "updated"
    RESOLVED = "resolved"


class RegularExpressions:
    """See the module."""

    def __init__(self, parts: Parts, deadlines: DeadlineQueue) -> None:
        self._parts = parts
        self._deadlines = deadlines
        self._lookups: dict[str, Generator[None, None, Resolved]] = {}
        self._topics_version = parts.metadata.image.offset

    def on_topics_changed(self) -> None:
        """Topics may have been made: what was found before does not have them."""
        self._topics_version = self._parts.metadata.image.offset

    def is_due(self, group: ConsumerGroup, now: Now) -> bool:
        """Whether a heartbeat that changes nothing starts a look-up."""
        subscriptions = group.subscriptions
        return bool(subscriptions.regexes) and self._is_due(
            group, now, len(subscriptions.regexes), is_new=False
        )

    def _is_due(self, group: ConsumerGroup, now: Now, count: int, *, is_new: bool) -> bool:
        if group.group_id in self._lookups:
            return False
        resolved = group.subscriptions.resolved
        last = next(iter(resolved.values()), None)
        if last is None:
            return is_new or bool(count)
        if now.wall_ms <= last.timestamp_ms + _MIN_INTERVAL_MS:
            return False
        interval_ms = self._parts.properties.group_consumer_regex_refresh_interval_ms
        return (
            is_new
            or count != len(resolved)
            or last.version < self._topics_version
            or now.wall_ms > last.timestamp_ms + interval_ms
        )

    def update(self, update: MemberUpdate, client: HeartbeatClient, now: Now) -> RegexChange:
        """Take over the expression of an updated member, and start a look-up if it is time.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        group = update.group
        subscriptions = group.subscriptions
        former = update.former.subscribed_topic_regex
        regex = update.member.subscribed_topic_regex
        change, is_new = RegexChange.NONE, False
        if regex != former:
            change = RegexChange.UPDATED
            if former and subscriptions.regexes[former] == 1:
                update.records.append(regex_tombstone(group.group_id, former))
            if not regex:
                change = RegexChange.RESOLVED if former else change
            elif not subscriptions.regexes[regex]:
                _check(regex)
                is_new = True
            elif regex in subscriptions.resolved:
                change = RegexChange.RESOLVED
        if not is_new and not subscriptions.regexes:
            return change
        regexes = subscriptions.regexes.copy()
        if former:
            regexes[former] -= 1
        if regex:
            regexes[regex] += 1
        wanted = [one for one, count in regexes.items() if count > 0]
        if wanted and self._is_due(group, now, len(wanted), is_new=is_new):
            image = self._parts.metadata.image
            self._lookups[group.group_id] = _look_up(wanted, image, client.may_describe, now)
            self._schedule(group.group_id, now)
        return change

    def _schedule(self, group_id: str, now: Now) -> None:
        self._deadlines.schedule((LOOKUP_DEADLINE, group_id), now.monotonic_ms + _NEXT_SLICE_MS)

    def on_deadline(self, group_id: str, group: ConsumerGroup | None, now: Now) -> Outcome:
        """Go on with a look-up; once it is done, store what it found."""
        lookup = self._lookups.get(group_id)
        if lookup is None:
            return Outcome()
        try:
            next(lookup)
        except StopIteration as stop:
            del self._lookups[group_id]
            return Outcome() if group is None else self._found(group, stop.value, now)
        self._schedule(group_id, now)
        return Outcome()

    def _found(self, group: ConsumerGroup, found: Resolved, now: Now) -> Outcome:
        subscriptions = group.subscriptions.copy()
        records: list[CoordinatorRecord] = []
        is_changed = False
        for regex, resolved in found.items():
            if not subscriptions.regexes[regex]:
                continue
            former = subscriptions.resolved.get(regex)
            is_changed |= resolved.topics != (former.topics if former else frozenset())
            subscriptions.resolve(regex, resolved)
            records.append(regex_record(group.group_id, regex, resolved))
        metadata_hash = self._parts.hashes.of_group(subscriptions.topics())
        if is_changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
            group.refresh.note(epoch, now.monotonic_ms)
        return Outcome(records=records, replay=True)


def _check(regex: str) -> None:
    try:
        Pattern(regex)
    except PatternError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


def _look_up(
    regexes: Iterable[str], image: MetadataImage, may_describe: Callable[[str], bool], now: Now
) -> Generator[None, None, Resolved]:
    """Find the topics that match; pauses on the way. A bad expression matches nothing."""
    found: dict[str, set[str]] = {}
    matches = 0
    for regex in regexes:
        topics = found[regex] = set()
        try:
            pattern = Pattern(regex)
        except PatternError:
            continue
        for name in image.topics_by_name:
            if (yield from pattern.match(name)) and may_describe(name):
                topics.add(name)
            matches += 1
            if matches % _SLICE_MATCHES == 0:
                yield
    return {
        regex: ResolvedRegex(frozenset(topics), image.offset, now.wall_ms)
        for regex, topics in found.items()
    }
