"""kafka-get-offsets, kafka-delete-records, kafka-log-dirs and kafka-dump-log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.broker_process import GROUP_PROTOCOLS, Broker
from tests.conformance.java_tools import KafkaTools


def offsets(kafka: KafkaTools, topic: str, time: str) -> list[str]:
    """Return the lines that kafka-get-offsets prints, TOPIC:PARTITION:OFFSET."""
    return kafka.run("kafka-get-offsets", "--topic", topic, "--time", time).lines


def test_offsets_by_kind(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Each special time is answered by name and by number; an empty partition has 0 to 0."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    kafka.produce(topic, [f"k\t{i}" for i in range(10)], "--reader-property", "parse.key=true")
    ends = offsets(kafka, topic, "latest")
    assert sorted(line.split(":")[2] for line in ends) == ["0", "10"]
    assert offsets(kafka, topic, "-1") == ends
    starts = [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets(kafka, topic, "earliest") == offsets(kafka, topic, "-2") == starts
    assert offsets(kafka, topic, "-4") == starts, "nothing is tiered: local is all"
    assert offsets(kafka, topic, "-5") == [], "nothing is tiered"
    newest = offsets(kafka, topic, "max-timestamp")
    assert len(newest) == 1, "an empty partition has no newest record"
    assert 0 <= int(newest[0].split(":")[2]) <= 9
    assert offsets(kafka, topic, "-3") == newest


def test_offsets_by_timestamp(kafka: KafkaTools, topic: str) -> None:
    """A timestamp gives the first record at or after it, or none."""
    for value in ("a", "b", "c"):
        kafka.produce(topic, [value])
    shown = kafka.consume(topic, "--formatter-property", "print.timestamp=true", count=3)
    times = [int(re.match(r"CreateTime:(\d+)\t", line).group(1)) for line in shown]  # type: ignore[union-attr]
    assert times[0] < times[1] < times[2]
    for offset, timestamp in enumerate(times):
        assert offsets(kafka, topic, str(timestamp)) == [f"{topic}:0:{offset}"]
        assert offsets(kafka, topic, str(timestamp - 1)) == [f"{topic}:0:{offset}"]
    assert offsets(kafka, topic, str(times[2] + 1)) == []


def test_offsets_of_chosen_partitions(
    kafka: KafkaTools, unique_topic: Callable[[], str], topic: str
) -> None:
    """Partitions can be chosen by topic pattern and range; an unknown topic is an error."""
    wide = kafka.create_topic(unique_topic(), partitions=4)
    chosen = kafka.run("kafka-get-offsets", "--topic-partitions", f"{wide}:1-3,{topic}:0").lines
    assert chosen == sorted([f"{wide}:1:0", f"{wide}:2:0", f"{topic}:0:0"])
    missing = kafka.run("kafka-get-offsets", "--topic", unique_topic(), check=False)
    assert missing.exit_code == 1
    assert "Could not match any topic-partitions" in missing.output


def delete_records(kafka: KafkaTools, folder: Path, topic: str, offset: int) -> list[str]:
    """Delete records before an offset and return what the tool says of the partition."""
    file = folder / "offsets.json"
    wanted = [{"topic": topic, "partition": 0, "offset": offset}]
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    done = kafka.run("kafka-delete-records", "--offset-json-file", str(file))
    return [line for line in done.lines if line.startswith("partition:")]


def test_delete_records(kafka: KafkaTools, topic: str, tmp_path: Path) -> None:
    """Records before an offset go, those after stay; past the end is refused; -1 is all."""
    kafka.produce(topic, [str(i) for i in range(10)])
    assert delete_records(kafka, tmp_path, topic, 4) == [f"partition: {topic}-0\tlow_watermark: 4"]
    assert offsets(kafka, topic, "earliest") == [f"{topic}:0:4"]
    assert kafka.consume(topic, count=6) == ["4", "5", "6", "7", "8", "9"]
    refused = delete_records(kafka, tmp_path, topic, 99)
    assert "OffsetOutOfRangeException" in refused[0]
    assert delete_records(kafka, tmp_path, topic, -1) == [
        f"partition: {topic}-0\tlow_watermark: 10"
    ]
    assert offsets(kafka, topic, "latest") == offsets(kafka, topic, "earliest")
    kafka.produce(topic, ["next"])
    shown = kafka.consume(topic, "--formatter-property", "print.offset=true", count=1)
    assert shown == ["Offset:10\tnext"]


def test_log_dirs(kafka: KafkaTools, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """kafka-log-dirs shows the folder and the size in bytes of each partition."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    kafka.produce(topic, ["k\tvalue"], "--reader-property", "parse.key=true")
    done = kafka.run("kafka-log-dirs", "--describe", "--topic-list", topic)
    answer = json.loads(done.lines[-1])
    (node,) = answer["brokers"]
    (folder,) = node["logDirs"]
    assert node["broker"] == 1
    assert folder["error"] is None
    sizes = {entry["partition"]: entry["size"] for entry in folder["partitions"]}
    on_disk = {
        name: sum(file.stat().st_size for file in (Path(folder["logDir"]) / name).glob("*.log"))
        for name in (f"{topic}-0", f"{topic}-1")
    }
    assert sizes == on_disk
    assert max(sizes.values()) > 61
    assert broker.data_directory.resolve() in [
        Path(folder["logDir"]).resolve(),
        *Path(folder["logDir"]).resolve().parents,
    ]


def partition_folder(broker: Broker, name: str) -> Path:
    """Return the folder of a partition, wherever below the data folder it is."""
    (found,) = (path for path in broker.data_directory.rglob(name) if path.is_dir())
    return found


def dump(kafka: KafkaTools, *arguments: str) -> list[str]:
    """Run kafka-dump-log and return its lines; it must not complain."""
    done = kafka.run("kafka-dump-log", *arguments)
    for complaint in ("Mismatches", "non-monotonic", "Exception", "Found timestamp mismatch"):
        assert complaint not in done.output, done.describe()
    return done.lines


def test_dump_log_reads_our_files(
    make_broker: Callable[..., Broker],
    tools_for: Callable[[Broker], KafkaTools],
    unique_topic: Callable[[], str],
) -> None:
    """After a stop, Apache's reader finds every batch, index entry and record as written."""
    broker = make_broker()
    kafka = tools_for(broker)
    topic = kafka.create_topic(unique_topic(), segment_bytes=1_100_000, index_interval_bytes=512)
    lines = [f"{i:05} " + "v" * 1000 for i in range(2500)]
    for codec, part in zip(("none", "gzip", "snappy", "lz4", "zstd"), range(5), strict=True):
        chunk = lines[part * 500 : part * 500 + 500]
        kafka.produce(topic, chunk, "--compression-codec", codec, "--batch-size", "20000")
    assert kafka.consume(topic, count=2500) == lines
    broker.terminate()
    folder = partition_folder(broker, f"{topic}-0")
    logs = sorted(folder.glob("*.log"))
    shown: list[str] = []
    for log in logs:
        shown += dump(kafka, "--files", str(log), "--print-data-log", "--deep-iteration")
    payloads = [line.split(" payload: ", 1)[1] for line in shown if " payload: " in line]
    assert payloads == lines
    found = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", "\n".join(shown), re.M)]
    assert found == list(range(2500))
    batches = [line for line in shown if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line and "partitionLeaderEpoch: 0" in line for line in batches)
    codecs = {match for line in batches for match in re.findall(r"compresscodec: (\w+)", line)}
    assert {codec.lower() for codec in codecs} == {"none", "gzip", "snappy", "lz4", "zstd"}
    for log in logs:
        index = f"{log.with_suffix('.index')},{log.with_suffix('.timeindex')}"
        checked = dump(kafka, "--files", index, "--index-sanity-check")
        assert sum("passed sanity check" in line for line in checked) == 2, checked
        dump(kafka, "--files", index, "--verify-index-only")
        dump(kafka, "--files", index)


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_dump_offsets_topic(
    make_broker: Callable[..., Broker],
    tools_for: Callable[[Broker], KafkaTools],
    unique_topic: Callable[[], str],
    protocol: str,
) -> None:
    """Apache's decoder reads the offsets topic: commits and groups of each protocol."""
    broker = make_broker(offsets_topic_num_partitions=1)
    kafka = tools_for(broker)
    topic = kafka.create_topic(unique_topic())
    kafka.produce(topic, ["a", "b", "c"])
    chosen = ["--command-property", f"group.protocol={protocol}", "--from-beginning"]
    kafka.consume(topic, "--group", "dumped", *chosen, count=3)
    broker.terminate()
    log = partition_folder(broker, "__consumer_offsets-0") / f"{0:020}.log"
    shown = "\n".join(dump(kafka, "--files", str(log), "--offsets-decoder"))
    assert re.search(
        rf'"group":"dumped","topic":"{topic}","partition":0.*payload: .*"offset":3', shown
    ), shown
    kind = "protocolType" if protocol == "classic" else "assignmentEpoch"
    assert kind in shown, shown
    assert "isvalid: false" not in shown
