"""Apache Kafka opens a log of transactions that ours wrote, and the other way round.

In a recorded data folder the log of one topic is replaced by one that our engine wrote and closed
cleanly, so that Apache's broker trusts its indexes and snapshots; the broker must then answer what
our engine does. After it has stopped, ours opens the log again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftrio.broker.log.checkpoints import parse_partition_metadata
from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import AppendOrigin, PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import iter_headers
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.conformance.broker_process import ApacheBroker
from tests.conformance.cases.calls import LATEST, fetch, list_offset, wait_for_leaders
from tests.conformance.cases.raw_client import RawClient
from tests.support.logs import batch

RECORDED = Path(__file__).resolve().parents[1] / "data" / "log-dirs"
TXN = TopicPartition("txn", 0)
NOW_MS = time.time_ns() // 1_000_000  # producers that were last active a day ago are forgotten
FIRST_ID = 1000  # above the recorded producers, whose coordinator may still write markers


class Writer:
    """Producers of a log, some with an epoch for each of their transactions."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    def send(self, producer: int, *, plain: bool = False) -> None:
        """Append a batch of two records in the producer's transaction, or outside of it."""
        sequence = self.sequences.get(producer, 0)
        data = batch(
            b"a" * 50,
            b"b" * 50,
            timestamps=[NOW_MS] * 2,
            producer_id=FIRST_ID + producer,
            producer_epoch=self.epochs.get(producer, 0),
            sequence=sequence,
            transactional=not plain,
        )
        self.log.append_as_leader(data, 0, NOW_MS)
        self.sequences[producer] = sequence + 2

    def end(self, producer: int, *, commit: bool, bump: bool) -> None:
        """Append the marker of the producer's transaction."""
        if bump:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        marker = build_end_transaction_batch(
            FIRST_ID + producer,
            self.epochs.get(producer, 0),
            EndTransactionMarker(commit, 4),
            timestamp=NOW_MS,
        )
        self.log.append_as_leader(
            marker,
            0,
            NOW_MS,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=2 if bump else 0,
        )


@contextmanager
def opened(data: Path) -> Iterator[PartitionLog]:
    """The log in a data folder, as it is after a clean stop."""
    directory = data / "txn-0"
    stored = parse_partition_metadata((RECORDED / "txn-0" / "partition.metadata").read_bytes())
    log = open_log(
        LogResources(OsFileSystem()),
        str(directory),
        TXN,
        LogConfig(segment_bytes=1000, index_interval_bytes=200),
        CheckpointedOffsets(),
        topic_id=stored,
        clean_shutdown=True,
        now_ms=NOW_MS,
    )
    log.update_high_watermark(log.log_end_offset)
    yield log
    log.close()


def write(data: Path) -> None:
    """Replace the recorded log by ours."""
    shutil.copytree(RECORDED, data)
    shutil.rmtree(data / "txn-0")
    (data / "txn-0").mkdir()
    with opened(data) as log:
        writer = Writer(log)
        for turn in range(4):
            for producer in range(4):
                writer.send(producer)
            writer.send(9, plain=True)
            writer.end(1, commit=turn % 2 == 0, bump=False)
            writer.send(0)
            writer.end(2, commit=turn % 2 == 1, bump=True)
        writer.end(0, commit=False, bump=True)
        writer.send(2)
        end_offset = log.log_end_offset
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = (data / name).read_text().splitlines()
        changed = [f"txn 0 {end_offset}" if one.startswith("txn 0 ") else one for one in lines]
        (data / name).write_text("\n".join(changed) + "\n")
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def test_apache_kafka_opens_our_log_of_transactions(tmp_path: Path) -> None:
    broker = ApacheBroker(tmp_path, auto_create_topics_enable="false")
    write(broker.data_directory)
    with opened(broker.data_directory) as log:
        assert len(log.segments) > 3
        stable, end_offset = log.last_stable_offset, log.log_end_offset
        aborted = aborted_in(log)
        producers = {
            one.producer_id: (
                one.producer_epoch,
                one.last_sequence,
                one.coordinator_epoch,
                -1 if one.current_txn_first_offset is None else one.current_txn_first_offset,
            )
            for one in log.producer_state.active_producers()
        }
    assert stable < end_offset and len(aborted) > 1 and len(producers) == 5
    with broker, RawClient(broker.address) as client:
        wait_for_leaders(client, "txn")
        assert list_offset(client, "txn", LATEST, isolation_level=1).offset == stable
        assert aborted_transactions(client, stable) == aborted
        described = describe_producers(client)
        assert producers == {key: one for key, one in described.items() if key >= FIRST_ID}
    with opened(broker.data_directory) as log:
        assert log.last_stable_offset == stable and not log.recovery_events
        assert aborted_in(log) == aborted


def aborted_in(log: PartitionLog) -> set[tuple[int, int]]:
    """The aborted transactions that our engine names: producer and first offset."""
    stable = log.last_stable_offset
    return {(one.producer_id, one.first_offset) for one in log.aborted_transactions(0, stable)}


def aborted_transactions(client: RawClient, end_offset: int) -> set[tuple[int, int]]:
    """The aborted transactions that read_committed fetches list; each reads one segment."""
    found: set[tuple[int, int]] = set()
    offset = 0
    while offset < end_offset:
        answer = fetch(client, "txn", offset, isolation_level=1)
        assert answer.error_code is ErrorCode.NONE and answer.last_stable_offset == end_offset
        found |= {(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()}
        for header in iter_headers(records_view(answer.records)):
            offset = header.next_offset
    return found


def describe_producers(client: RawClient) -> dict[int, tuple[int, int, int, int]]:
    """Epoch, last sequence, coordinator epoch and open transaction of each producer of txn-0."""
    request = DescribeProducersRequest(
        topics=[DescribeProducersTopicRequest(name="txn", partition_indexes=[0])]
    )
    response = client.call(request, 0)
    assert isinstance(response, DescribeProducersResponse)
    partition = response.topics[0].partitions[0]
    assert partition.error_code is ErrorCode.NONE
    return {
        one.producer_id: (
            one.producer_epoch,
            one.last_sequence,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in partition.active_producers
    }
