"""The answer to a fetch, put together from what was read, some partitions at a time.

Called by `fetch/fetch` and `long_fetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.broker.api.fetch.reads import ReadOutcome
from kraftrio.broker.api.fetch.session import FetchKey, FetchPlan
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.metadata.leader_hints import WRONG_LEADER, LeaderHints
from kraftrio.broker.server.context import RequestContext
from kraftrio.wire.messages.data import FetchableTopicResponse, FetchResponse, PartitionData

_HINTS_VERSION = 16


class FetchAnswer:
    """One answer while it is put together.

    Args:
        keep: makes of each partition's answer what stands for it in the response.
    """

    __slots__ = ("_context", "_hints", "_keep", "_metadata", "_plan", "_served", "_topics")

    def __init__(
        self,
        plan: FetchPlan,
        metadata: MetadataCache,
        context: RequestContext,
        keep: Callable[[PartitionData], Any] | None = None,
    ) -> None:
        self._keep = keep
        self._plan = plan
        self._metadata = metadata
        self._context = context
        self._topics: dict[tuple[bytes, str], FetchableTopicResponse] = {}
        self._hints: LeaderHints | None = None
        self._served: list[FetchKey] = []

    def add(self, reading: ReadOutcome) -> None:
        """Answer with what was read, as far as it has changed, and note that it is sent.

        This must be done in the step that reads: the session would miss a change in between.
        """
        plan, topics, hints = self._plan, self._topics, self._hints
        keep, has_session = self._keep, self._plan.session is not None
        for key, part, answer in reading.data:
            has_records = bool(answer.records)
            if has_session and not plan.note_change(
                part,
                has_records=has_records
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0,
                error=answer.error_code,
                high_watermark=answer.high_watermark,
                last_stable_offset=answer.last_stable_offset,
                log_start_offset=answer.log_start_offset,
            ):
                continue
            if has_records:
                self._served.append(key)
            elif answer.error_code in WRONG_LEADER and self._context.api_version >= _HINTS_VERSION:
                if hints is None:
                    hints = self._hints = LeaderHints(self._metadata, self._context.listener_name)
                assert part.topic_name is not None, "only a known topic has a leader"
                answer.current_leader = hints.leader_of(part.topic_name, key.partition)
            topic = topics.get(key[:2])
            if topic is None:
                topic = FetchableTopicResponse(
                    topic=key.topic, topic_id=key.topic_id, partitions=[]
                )
                topics[key[:2]] = topic
            topic.partitions.append(answer if keep is None else keep(answer))
        reading.count_served()
        if reading.up_to_date:
            plan.mark_up_to_date(reading.up_to_date)

    def response(self) -> FetchResponse:
        """Give the whole answer."""
        if self._served:
            self._plan.move_to_back(self._served)
        return FetchResponse(
            session_id=self._plan.session_id,
            responses=list(self._topics.values()),
            node_endpoints=[] if self._hints is None else self._hints.node_endpoints(),
        )
