"""Answers of the shard's streams groups beside Apache Kafka's, heartbeat by heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.streams.descriptions import describe_group
from kraftrio.broker.coordinator.groups.streams.request_checks import check_request
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import InternalTopic
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatResponse,
)
from tests.support.golden import check
from tests.unit.broker.coordinator.groups.streams.streams_context import StreamsContext
from tests.unit.broker.coordinator.groups.streams.streams_script import StreamsScript

TRACES = Path(__file__).resolve().parent / "traces"


class CoreScript(StreamsScript):
    """The groups themselves; requests and responses go through the wire's bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._context = StreamsContext()
        self._missing: dict[str, InternalTopic] = {}

    def ask(self, request: Any) -> Any:
        received, _ = decode(type(request), 0, encode(request, 0))
        response = self._answer(received)
        return decode(type(response), 0, encode(response, 0))[0]

    def _answer(self, request: Any) -> Any:
        if isinstance(request, StreamsGroupDescribeRequest):
            return StreamsGroupDescribeResponse(
                groups=list(map(self._described, request.group_ids))
            )
        try:
            check_request(request)
        except KafkaError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        answer = self._context.heartbeat(request)
        self._missing.update({topic.name: topic for topic in answer.missing_topics})
        return answer.response

    def _described(self, group_id: str) -> StreamsGroupDescribeDescribedGroup:
        try:
            return describe_group(self._context.groups.find(group_id))
        except KafkaError as error:
            return StreamsGroupDescribeDescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )

    def configure(self, settings: dict[str, str]) -> None:
        self._context.configure(self.group_id, settings)

    def make_topic(self, name: str, partitions: int) -> None:
        self._context.make_topic(name, partitions)

    def grow_topic(self, name: str, partitions: int) -> None:
        self._context.make_topic(name, partitions)

    def read_records(self) -> list[tuple[bytes, bytes | None]]:
        return list(self._context.log)

    def settle(self) -> Iterable[str]:
        missing, self._missing = self._missing, {}
        for topic in missing.values():
            self._context.make_topic(topic.name, topic.partition_count)
        return [f"{topic.name}:{topic.partition_count}" for topic in missing.values()]


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.txt")), ids=lambda path: path.stem)
def test_traces(path: Path) -> None:
    """Each command's trace is the recorded one."""
    check(path, CoreScript().run)
