"""Figures of the groups that are coordinated here: how many of each kind, members, lag.

Owns: `GroupFigures`. A group's lag is the distance from its committed offset to the high watermark.
The high watermarks of partitions that other brokers lead have to be asked for: `refresh` does that,
and what it found is shown until the next time. A partition whose leader does not answer has no lag
shown, rather than one of the past.

Called by `node/watch/observation`, when the metrics are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import LabelledStatistics
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.events import MEMBER_EXPIRED, REBALANCED
from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition


class AsksLeaders(Protocol):
    """Asks leaders for high watermarks (`peers/latest_offsets`)."""

    def ask(
        self, topic_partitions: Iterable[TopicPartition], /
    ) -> Deferred[Mapping[TopicPartition, int | ErrorCode]]:
        """One request goes to each leader."""


class GroupFigures:
    """See the module.

    Args:
        own_high_watermark: of a partition that this broker leads; None: it does not.
        limit: of offsets that are looked at.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        own_high_watermark: Callable[[TopicPartition], int | None],
        leaders: AsksLeaders,
        limit: int,
    ) -> None:
        self._coordinator = coordinator
        self._own_high_watermark = own_high_watermark
        self._leaders = leaders
        self._limit = limit
        self._asking: Deferred[None] | None = None
        self._elsewhere: Mapping[TopicPartition, int | ErrorCode] = {}

    def _committed(self) -> dict[OffsetKey, int]:
        shards = self._coordinator.active_shards()
        offsets = chain.from_iterable(shard.offsets.committed() for shard in shards)
        return dict(islice(offsets, self._limit))

    def refresh(self) -> Deferred[None]:
        """Ask for what only others know; one question at a time is under way."""
        if self._asking is not None and not self._asking.done:
            return self._asking
        elsewhere = {
            topic_partition: None
            for topic_partition in (TopicPartition(*key[1:]) for key in self._committed())
            if self._own_high_watermark(topic_partition) is None
        }
        self._asking = self._leaders.ask(elsewhere).map(self._note)
        return self._asking

    def _note(self, found: Mapping[TopicPartition, int | ErrorCode]) -> None:
        self._elsewhere = found

    def lag(self) -> LabelledStatistics:
        """How far groups are behind, by group, topic and partition."""
        lags: dict[tuple[str, ...], float] = {}
        committed: dict[tuple[str, ...], float] = {}
        for key, offset in self._committed().items():
            labels = (key.group_id, key.topic, str(key.partition))
            committed[labels] = offset
            topic_partition = TopicPartition(key.topic, key.partition)
            end_offset = self._own_high_watermark(topic_partition)
            if end_offset is None:
                found = self._elsewhere.get(topic_partition)
                if found is None or isinstance(found, ErrorCode):
                    continue
                end_offset = found
            lags[labels] = max(end_offset - offset, 0)
        return {"lag_records": lags, "committed_offset": committed}

    def kinds(self) -> LabelledStatistics:
        """How many groups there are, by kind and state."""
        groups: Counter[tuple[str, ...]] = Counter(
            (group.group_type, group.state_name) for group in self._groups()
        )
        return {"groups": groups}

    def events(self) -> LabelledStatistics:
        """How often groups have rebalanced, and members stayed away."""
        return {
            "rebalances_total": self._coordinator.event_count(REBALANCED),
            "expired_total": self._coordinator.event_count(MEMBER_EXPIRED),
        }

    def members(self) -> LabelledStatistics:
        """How many members groups have."""
        return {
            "members": {
                (group.group_id,): group.member_count
                for group in islice(self._groups(), self._limit)
            }
        }

    def _groups(self) -> chain[Group]:
        return chain.from_iterable(
            iter(shard.groups) for shard in self._coordinator.active_shards()
        )
