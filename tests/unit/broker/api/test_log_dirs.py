"""What log directories hold, and moves of replicas between them, as requests."""

from __future__ import annotations

from kraftrio.broker.api.log_dirs import LogDirHandlers
from kraftrio.broker.ports import FutureReplica, LogDirectory
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context


class Directories:
    """Log directories to report, and the moves that were asked for."""

    def __init__(self) -> None:
        self.found: list[LogDirectory] = []
        self.asked: list[tuple[TopicPartition, str]] = []
        self.codes: dict[str, ErrorCode] = {}

    def log_directories(self) -> list[LogDirectory]:
        return self.found

    def alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        self.asked.append((topic_partition, path))
        return self.codes.get(topic_partition.topic, ErrorCode.NONE)


def _log_dirs(
    settings: dict[str, str], found: list[LogDirectory], topics: list[DescribableLogDirTopic] | None
) -> DescribeLogDirsResponse:
    directories = Directories()
    directories.found = found
    handlers = LogDirHandlers(ClusterContext(settings).dynamic, directories, directories)
    response = finish(handlers.describe_log_dirs(DescribeLogDirsRequest(topics=topics), context(5)))
    for version in range(1, 6):
        encode(response, version)
    return response


def test_log_folders_are_described() -> None:
    """Null topics mean all; asked-for partitions that are not here are left out."""
    settings = {"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"}
    found = [
        LogDirectory("/a", {TopicPartition("t", 1): 5, TopicPartition("t", 0): 7}, 100, 40),
        LogDirectory("/b", {}, error=KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)),
    ]
    first, second = _log_dirs(settings, found, None).results
    assert (first.log_dir, first.total_bytes, first.usable_bytes) == ("/a", 100, 40)
    (topic,) = first.topics
    assert [
        (one.partition_index, one.partition_size, one.offset_lag) for one in topic.partitions
    ] == [(0, 7, 0), (1, 5, 0)]
    assert (second.error_code, second.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    asked = [
        DescribableLogDirTopic(topic="t", partitions=[1, 9]),
        DescribableLogDirTopic(topic="nope", partitions=[0]),
    ]
    (topic,) = _log_dirs(settings, found, asked).results[0].topics
    assert [one.partition_index for one in topic.partitions] == [1]
    assert _log_dirs(settings, found, []).results[0].topics == []


def test_cordoned_folders_are_marked() -> None:
    """A cordoned folder says so; * stands for all."""
    for cordoned, marks in (("/b", [False, True]), ("*", [True, True]), ("", [False, False])):
        found = [LogDirectory("/a", {}), LogDirectory("/b", {})]
        settings = {"log.dirs": "/a,/b", "cordoned.log.dirs": cordoned}
        results = _log_dirs(settings, found, None).results
        assert [one.is_cordoned for one in results] == marks


def test_a_replica_that_moves_is_in_both_directories() -> None:
    """The copy is listed as a future replica, with how far it is behind."""
    t0 = TopicPartition("t", 0)
    found = [
        LogDirectory("/a", {t0: 70}),
        LogDirectory("/b", {}, futures={t0: FutureReplica(40, 3)}),
    ]
    first, second = _log_dirs({}, found, None).results
    assert [(p.partition_size, p.is_future_key) for p in first.topics[0].partitions] == [
        (70, False)
    ]
    (future,) = second.topics[0].partitions
    assert (future.partition_size, future.offset_lag, future.is_future_key) == (40, 3, True)


def test_moves_are_answered_partition_by_partition() -> None:
    directories = Directories()
    directories.codes["gone"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    handlers = LogDirHandlers(ClusterContext().dynamic, directories, directories)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path="/a",
                topics=[
                    AlterReplicaLogDirTopic(name="t", partitions=[0, 1]),
                    AlterReplicaLogDirTopic(name="gone", partitions=[0]),
                ],
            ),
            AlterReplicaLogDir(
                path="/b", topics=[AlterReplicaLogDirTopic(name="t", partitions=[1])]
            ),
        ]
    )
    response = finish(handlers.alter_replica_log_dirs(request, context(2)))
    for version in (1, 2):
        encode(response, version)
    codes = {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in response.results
        for one in topic.partitions
    }
    assert codes == {("t", 0): 0, ("t", 1): 0, ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert sorted(directories.asked) == [
        (TopicPartition("gone", 0), "/a"),
        (TopicPartition("t", 0), "/a"),
        (TopicPartition("t", 1), "/b"),
    ]
