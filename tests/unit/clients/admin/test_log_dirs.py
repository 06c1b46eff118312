"""Log directories of brokers as the admin client describes them."""

from __future__ import annotations

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import ClusterAuthorizationError, KafkaStorageError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster


async def test_directories_offline_disks_and_brokers_that_refuse() -> None:
    replica = DescribeLogDirsPartition(partition_index=3, partition_size=70, offset_lag=2)
    topic = DescribeLogDirsTopic(name="t", partitions=[replica])

    def answer(node: FakeNode, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        if node.node_id != 1:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeLogDirsResponse(error_code=code)
        broken = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/b")
        fine = DescribeLogDirsResult(log_dir="/a", topics=[topic], total_bytes=9, usable_bytes=4)
        return DescribeLogDirsResponse(results=[fine, broken])

    async with fake_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_LOG_DIRS, answer)
        found = await admin.describe_log_dirs([1, 2], raise_errors=False)
    assert isinstance(found.errors[2], ClusterAuthorizationError)
    directory = found[1]["/a"]
    assert (directory.error, directory.total_bytes, directory.usable_bytes) == (None, 9, 4)
    assert directory.replicas == {TopicPartition("t", 3): (70, 2, False)}
    assert isinstance(found[1]["/b"].error, KafkaStorageError)
    assert found[1]["/b"].total_bytes is None
