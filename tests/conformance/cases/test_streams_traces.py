"""The answers to heartbeats of streams groups, through the wire: those of Apache Kafka.

The unit tests of the coordinator hold its core to the same traces. With TEST_BROKER=apache they are
checked against Apache Kafka, and with TEST_REWRITE=1 besides they are recorded again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kraftrio.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.conformance.broker_process import KIND, TEST_CONFIG, Broker
from tests.conformance.cases.calls import create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import committed_records
from tests.support.golden import check
from tests.unit.broker.coordinator.groups.streams.streams_script import StreamsScript

TRACES = Path(__file__).resolve().parents[2] / "unit/broker/coordinator/groups/streams/traces"
SETTLE_S = 30.0
GROUP_RESOURCE = 32
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class WireScript(StreamsScript):
    """A broker that is the coordinator of every group."""

    def __init__(self, client: RawClient) -> None:
        super().__init__()
        self._client = client
        self._required: dict[str, None] = {}

    def ask(self, request: Any) -> Any:
        if isinstance(request, StreamsGroupHeartbeatRequest) and request.topology is not None:
            for one in request.topology.subtopologies:
                for topic in (*one.repartition_source_topics, *one.state_changelog_topics):
                    self._required[topic.name] = None
        deadline = time.monotonic() + SETTLE_S
        while True:
            answer = self._client.call(request)
            is_heartbeat = isinstance(answer, StreamsGroupHeartbeatResponse)
            if not is_heartbeat or answer.error_code not in NOT_YET:
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def configure(self, settings: dict[str, str]) -> None:
        self._client.call(FindCoordinatorRequest(key=self.group_id, key_type=0), 2)
        resource = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=self.group_id,
            configs=[
                IncrementalAlterableConfig(name=name, value=value)
                for name, value in settings.items()
            ],
        )
        response = self._client.call(IncrementalAlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code is ErrorCode.NONE, response
        self._wait_for_settings(settings)

    def _wait_for_settings(self, settings: dict[str, str]) -> None:
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=self.group_id,
            configuration_keys=list(settings),
        )
        deadline = time.monotonic() + SETTLE_S
        while True:
            (result,) = self._client.call(DescribeConfigsRequest(resources=[resource])).results
            if {one.name: one.value for one in result.configs} == settings:
                return
            assert time.monotonic() < deadline, result
            time.sleep(0.05)

    def make_topic(self, name: str, partitions: int) -> None:
        create_topic(self._client, name, partitions=partitions)
        self._wait_for({name: partitions})

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        (result,) = self._client.call(request).results
        assert result.error_code is ErrorCode.NONE, result
        self._wait_for({name: partitions})

    def read_records(self) -> list[tuple[bytes, bytes | None]]:
        count = int(TEST_CONFIG["offsets.topic.num.partitions"])
        partition = partition_for(self.group_id, count)
        records = committed_records(self._client, CONSUMER_OFFSETS, partition)
        return [(record.key or b"", record.value) for record in records]

    def settle(self) -> Iterable[str]:
        names = [name for name in self._required if name.startswith(f"{self.group_id}-")]
        found = self._wait_for(dict.fromkeys(names, 1))
        return [f"{name}:{count}" for name, count in found.items()]

    def _wait_for(self, counts: dict[str, int]) -> dict[str, int]:
        """Wait until topics have so many partitions at least, and a coordinator knows it."""
        deadline = time.monotonic() + SETTLE_S
        topics = [MetadataRequestTopic(name=name) for name in counts]
        while True:
            answer = self._client.call(
                MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            )
            found = {str(topic.name): len(topic.partitions) for topic in answer.topics}
            if all(found[name] >= count for name, count in counts.items()):
                if KIND == "apache":
                    time.sleep(0.5)  # its group coordinator learns of it later than its clients
                return found
            assert time.monotonic() < deadline, (counts, found)
            time.sleep(0.05)


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.txt")), ids=lambda path: path.stem)
def test_answers_through_the_wire(path: Path, make_broker: Callable[[], Broker]) -> None:
    """Groups and topics have fixed names, by which Kafka orders what a status lists."""
    with RawClient(make_broker().address) as client:
        check(path, WireScript(client).run)
