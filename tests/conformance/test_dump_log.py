"""Apache's kafka-dump-log reads the files our log engine writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.broker.coordinator.groups.offset_commit import (
    Committer,
    NamedPartition,
    prepare_commit,
)
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import AppendOrigin, PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.wire.messages.group_records.classic import encode_offset_key
from kraftrio.wire.messages.transactions import TxnOffsetCommitRequestPartition
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Compression
from kraftrio.wire.records.builder import BatchBuilder
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.support.logs import NOW_MS, TOPIC_ID, batch
from tests.support.sliced import finish
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    Member,
    settle,
)
from tests.unit.broker.coordinator.groups.consumer.test_classic_members import ClassicMember
from tests.unit.broker.coordinator.groups.share.share_context import ShareContext
from tests.unit.broker.coordinator.share_state.share_stand_in import ShareStandIn

Dump = Callable[..., str]


@pytest.fixture
def dump(tool_runner: ToolRunner) -> Dump:
    """Run kafka-dump-log on files, and return what it prints."""
    tools = KafkaTools("", tool_runner)

    def run(files: list[Path], *options: str) -> str:
        names = ",".join(map(str, files))
        done = tools.run("kafka-dump-log", "--files", names, *options)
        assert done.exit_code == 0, done.output
        return done.output

    return run


class DiskLog:
    """A log in a real directory."""

    def __init__(self, path: Path, **config: object) -> None:
        self.path = path / "topic-0"
        self.config = LogConfig(**config)  # type: ignore[arg-type]
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> PartitionLog:
        self.log = open_log(
            LogResources(OsFileSystem()),
            str(self.path),
            TopicPartition("topic", 0),
            self.config,
            CheckpointedOffsets(),
            topic_id=TOPIC_ID,
            clean_shutdown=clean,
            now_ms=NOW_MS,
        )
        return self.log

    def append(self, *values: bytes, **options: object) -> None:
        data = batch(*values, **options)  # type: ignore[arg-type]
        self.log.append_as_leader(data, 3, NOW_MS)

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.path.glob("*" + suffix))


def fill(log: DiskLog) -> None:
    """Batches of all codecs, sizes and counts, with timestamps that go up and down."""
    for number in range(120):
        count = 1 + number % 4
        values = [b"value %d %d " % (number, index) * (number % 9) for index in range(count)]
        times = [NOW_MS + number * 10 + (index * 37) % 50 for index in range(count)]
        log.append(*values, timestamps=times, compression=Compression(number % 5))


@pytest.mark.parametrize("recovered", [False, True])
def test_logs_and_indexes_pass_the_sanity_check(
    tmp_path: Path, dump: Dump, recovered: bool
) -> None:
    """Every record is listed as valid, and both indexes fit the log, also after a recovery."""
    log = DiskLog(tmp_path, segment_bytes=6000, index_interval_bytes=300)
    fill(log)
    if recovered:
        log.log.close_files()
        for index in log.files("index"):
            index.unlink()
        log.open(clean=False)
    log.log.close()
    assert len(log.files(".log")) > 2
    text = dump(log.files(".log"), "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in text
    assert text.count("isvalid: true") == 120
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(log.log.log_end_offset))
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", text)) == {"3"}
    for file in [*log.files(".index"), *log.files(".timeindex")]:
        assert file.stat().st_size > 0
    checked = dump(log.files(".index"), "--index-sanity-check")
    assert checked.count("passed sanity check") == len(log.files(".index"))
    verified = dump([*log.files(".index"), *log.files(".timeindex")], "--verify-index-only")
    for complaint in ("mismatch", "Mismatch", "out of order", "not found", "Exception"):
        assert complaint not in verified


def test_transactions_and_producers(tmp_path: Path, dump: Dump) -> None:
    """Control batches, the aborted transaction and the producer snapshot print as Kafka's do."""
    log = DiskLog(tmp_path)
    for sequence in range(3):
        log.append(b"x", producer_id=9, producer_epoch=2, sequence=sequence, transactional=True)
    marker = build_end_transaction_batch(
        9, 2, EndTransactionMarker(commit=False, coordinator_epoch=6), timestamp=NOW_MS
    )
    log.log.append_as_leader(marker, 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.append(b"open", producer_id=9, producer_epoch=2, sequence=3, transactional=True)
    log.log.update_high_watermark(5)
    log.log.close()
    text = dump(log.files(".log"), "--deep-iteration")
    assert "endTxnMarker: ABORT coordinatorEpoch: 6" in text
    assert "isvalid: false" not in text
    aborted = dump(log.files(".txnindex"))
    assert "producerId: 9 firstOffset: 0 lastOffset: 3 lastStableOffset: 4" in aborted
    producers = dump(log.files(".snapshot"))
    assert "producerId: 9 producerEpoch: 2 coordinatorEpoch: 6" in producers
    assert "currentTxnFirstOffset: OptionalLong[4]" in producers
    assert "lastSequence: 3 lastOffset: 4 offsetDelta: 0" in producers


def test_offsets_within_transactions(tmp_path: Path, dump: Dump) -> None:
    """The decoder for groups prints them, with their producer and its marker; tombstones, too."""
    log = DiskLog(tmp_path)
    key = OffsetKey("group", "topic", 3)
    producer = ProducerOfBatch(9, 2)
    entry = TxnOffsetCommitRequestPartition(
        partition_index=3, committed_offset=41, committed_leader_epoch=7, committed_metadata="note"
    )
    named = NamedPartition("topic", TOPIC_ID, entry)
    commit = finish(prepare_commit(Committer("group"), [named], NOW_MS, 4_096))
    written = commit.batch.build(
        producer_id=9, producer_epoch=2, base_sequence=0, transactional=True
    )
    log.log.append_as_leader(written, 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    marker = build_end_transaction_batch(*producer, EndTransactionMarker(True, 6), timestamp=NOW_MS)
    log.log.append_as_leader(marker, 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    tombstone = BatchBuilder(NOW_MS)
    tombstone.add([(encode_offset_key(*key), None)])
    log.log.append_as_leader(tombstone.build(), 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.log.close()
    text = dump(log.files(".log"), "--offsets-decoder")
    assert "isvalid: false" not in text
    assert "producerId: 9 producerEpoch: 2 partitionLeaderEpoch: 3 isTransactional: true" in text
    decoded = 'key: {"type":"1","data":{"group":"group","topic":"topic","partition":3}} payload: '
    stored, deleted = text.split(decoded)[1:]
    assert stored.startswith('{"version":"4","data":{"offset":41,"leaderEpoch":7,"metadata":"note"')
    assert "endTxnMarker: COMMIT coordinatorEpoch: 6" in stored
    assert deleted.startswith("<DELETE>")


def test_records_of_consumer_groups(tmp_path: Path, dump: Dump) -> None:
    """The decoder for groups prints each of them, those of classic members and tombstones, too."""
    context = ConsumerContext()
    context.add_topic("topic", 4)
    settle(Member(context, "a", instance_id="i"), Member(context, "b"))
    ClassicMember(context).join()
    context.join("c", topics=None, subscribed_topic_regex="topi.", rack_id="r")
    context.advance(10)
    for member_id in ("b", "c"):
        context.beat(member_id, -1)
    log = DiskLog(tmp_path)
    written = BatchBuilder(NOW_MS)
    written.add(context.log)
    log.log.append_as_leader(written.build(), 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.log.close()
    text = dump(log.files(".log"), "--offsets-decoder")
    assert "isvalid: false" not in text
    printed = re.findall(r'key: {"type":"(\d+)","data":{"groupId":"group".*payload: (.*)', text)
    assert len(printed) == len(context.log)
    assert {int(record_type) for record_type, _ in printed} == {3, 5, 6, 7, 8, 16}
    for part in (
        '"instanceId":"i","rackId":null,"clientId":"client","clientHost":"/127.0.0.1"',
        '"subscribedTopicNames":["topic"],"subscribedTopicRegex":"","rebalanceTimeoutMs":60000',
        '"classicMemberMetadata":{"sessionTimeoutMs":10000,"supportedProtocols":[',
        '"subscribedTopicRegex":"topi."',
        '{"topics":["topic"],"version":',
        '"state":1,"assignedPartitions":[{"topicId":',
        '"assignmentEpochs":[2,2]',
        f'"metadataHash":{context.consumer_group.metadata_hash}',
    ):
        assert part in text, part
    assert any(payload == "<DELETE>" for _, payload in printed)


def test_records_of_share_groups(tmp_path: Path, dump: Dump) -> None:
    """The decoder for groups prints them, too, with the states of their partitions by topic."""
    context = ShareContext()
    context.add_topic("topic", 4)
    context.share_join("a", "topic", "missing")
    context.share_beat("b", 0, ["topic"], rack_id="r")
    context.advance(2)
    for member_id in ("a", "b"):
        context.share_beat(member_id, -1)
    metadata_hash = context.share_group.metadata_hash
    log = DiskLog(tmp_path)
    written = BatchBuilder(NOW_MS)
    written.add(context.log)
    log.log.append_as_leader(written.build(), 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.log.close()
    text = dump(log.files(".log"), "--offsets-decoder")
    assert "isvalid: false" not in text
    printed = re.findall(r'key: {"type":"(\d+)","data":{"groupId":"group".*payload: (.*)', text)
    assert len(printed) == len(context.log)
    assert {int(record_type) for record_type, _ in printed} == {10, 11, 12, 13, 14, 15}
    for part in (
        '"rackId":null,"clientId":"client","clientHost":"/127.0.0.1"',
        '"subscribedTopicNames":["missing","topic"]',
        '"initializingTopics":[{"topicId":',
        '"initializedTopics":[{"topicId":',
        '"topicName":"topic","partitions":[0,1,2,3]}]',
        '"memberEpoch":2',
        f'"metadataHash":{metadata_hash}',
    ):
        assert part in text, part
    assert any(payload == "<DELETE>" for _, payload in printed)


def test_records_of_share_states(tmp_path: Path, dump: Dump) -> None:
    """The decoder of the share coordinator prints snapshots, updates and tombstones."""
    share = ShareStandIn()
    share.initialize(state_epoch=2, start_offset=5)
    share.read(leader_epoch=4)
    for step in range(3):
        share.write(
            (10 + step, 19, 2 * (step % 2), 1 + step),
            state_epoch=2, leader_epoch=4, start_offset=8, delivery_complete_count=step,
        )  # fmt: skip
    share.delete()
    log = DiskLog(tmp_path)
    for one in share.log.batches:
        log.log.append_as_leader(bytearray(one), 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.log.close()
    text = dump(log.files(".log"), "--share-group-state-decoder")
    assert "isvalid: false" not in text
    printed = re.findall(r'key: {"type":"(\d+)","data":{"groupId":"g",.*payload: (.*)', text)
    assert [record_type for record_type, _ in printed] == ["0", "1", "1", "1", "0", "0"]
    snapshot, read, *_, last, deleted = (payload for _, payload in printed)
    assert '"snapshotEpoch":0,"stateEpoch":2,"leaderEpoch":0,"startOffset":5' in snapshot
    assert '"snapshotEpoch":0,"leaderEpoch":4,"startOffset":5' in read
    assert '"snapshotEpoch":1,"stateEpoch":2,"leaderEpoch":4,"startOffset":8' in last
    assert '{"firstOffset":12,"lastOffset":19,"deliveryState":0,"deliveryCount":3}' in last
    assert deleted == "<DELETE>"


def test_missing_max_timestamp_is_stored_right(tmp_path: Path, dump: Dump) -> None:
    """A producer that leaves it at -1 gets the true one into its header."""
    import struct

    from crc32c import crc32c

    log = DiskLog(tmp_path)
    data = batch(b"a", b"b", timestamps=[NOW_MS, NOW_MS + 5])
    struct.pack_into(">q", data, 35, -1)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    log.log.append_as_leader(data, 0, NOW_MS)
    log.log.close()
    text = dump(log.files(".log"))
    assert f"CreateTime: {NOW_MS + 5}" in text
    assert "isvalid: true" in text
