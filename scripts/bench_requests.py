"""What one small request costs a broker.

Called by `bench.py --requests`. One client sends each kind of request over one connection: twenty
at a time, and one after the other. Measured is the processor time of the broker per request. To
compare two versions of this broker, run it in a checkout of each, by turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, running

from kraftrio.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.walk import Record
from tests.integration.wire_client import WireClient, frame_of

TOPIC = "requests"
_PIPELINED = 20
_COUNT = 10_000


def measure_requests(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with running(kind, metrics) as broker:
        host, port = broker.address.split(":")
        with WireClient((host, int(port))) as client:
            client.create_topic(TOPIC, 3)
            time.sleep(2)
            for name, frame in requests():
                ask(client, frame * _PIPELINED, _PIPELINED)
                for in_flight, count in ((_PIPELINED, _COUNT), (1, _COUNT // 4)):
                    turns = max(1, int(count * scale) // in_flight)
                    cost = cost_us(client, broker, frame * in_flight, in_flight, turns)
                    metrics.add(f"{name}, {in_flight} in flight, broker CPU us", cost)


def cost_us(
    client: WireClient, broker: RunningBroker, frames: bytes, in_flight: int, turns: int
) -> float:
    """The broker's processor time per request."""
    began_s = broker.cpu_s()
    for _ in range(turns):
        ask(client, frames, in_flight)
    return (broker.cpu_s() - began_s) * 1e6 / (turns * in_flight)


def requests() -> Iterator[tuple[str, bytes]]:
    """Each kind of request with its bytes, those that append before those that read."""
    yield "Metadata", _frame(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    for name, acks in (("acks=1", 1), ("acks=all", -1)):
        yield f"Produce {name}", produce_frame(acks)
    for name, partition in (("a batch", 0), ("nothing", 1)):
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=200)
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        yield f"Fetch {name}", _frame(fetch, 12)
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[latest])])
    yield "ListOffsets", _frame(offsets, 7)


def produce_frame(acks: int, record_count: int = 1) -> bytes:
    """A request with a batch of records of 100 bytes."""
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(at, now_ms, None, b"x" * 100) for at in range(record_count)])
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))]
    )
    return _frame(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), 9)


def _frame(request: Any, version: int) -> bytes:
    return frame_of(request, version, client_id="bench")[0]


def ask(client: WireClient, frames: bytes, count: int) -> None:
    """Send requests, and wait for as many responses."""
    client.socket.sendall(frames)
    for _ in range(count):
        client.receive_frame()
