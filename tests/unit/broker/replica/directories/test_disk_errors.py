"""An error of a disk: the client's answer, the line in the log, what becomes of the directory."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.replica.replica_context import Broker, topic


@pytest.mark.parametrize(
    ("code", "goes_offline"),
    [(errno.EIO, True), (errno.EROFS, True), (errno.ENOSPC, False), (errno.EMFILE, False)],
)
async def test_only_a_fault_takes_the_directory_offline(code: int, goes_offline: bool) -> None:
    broker = Broker()
    async with broker.running():
        broker.publish(*topic(1))
        partition = broker.replicas.hosted.find(TopicPartition("t", 0))
        with (
            pytest.raises(KafkaError, match="read failed") as caught,
            broker.replicas.disk_errors.guard("read", partition),
        ):
            raise OSError(code, "of the disk")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert bool(broker.replicas.failures.offline_partitions()) is goes_offline


async def test_a_partition_fills_no_log_with_its_errors(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    async with broker.running():
        broker.publish(*topic(2))
        errors = broker.replicas.disk_errors
        for index in (0, 0, 1, 0):
            errors.report(TopicPartition("t", index), "read", OSError(errno.EIO, "x"))
        assert len(caplog.messages) == 2
        await trio.sleep(11)
        errors.report(TopicPartition("t", 0), "read", OSError(errno.EIO, "x"))
        assert len(caplog.messages) == 3
        errors.forget(TopicPartition("t", 0))
        errors.report(TopicPartition("t", 0), "read", OSError(errno.EIO, "x"))
        assert len(caplog.messages) == 4, "a new partition of that name"
