"""What one small request costs a broker.

Called by `bench.py --requests`. One client sends each kind of request over one connection: twenty
at a time, and one after the other. Measured is the processor time of the broker per request. To
compare two versions of this broker, run it in a checkout of each, by turns.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from bench import Metrics, RunningBroker, running

from kraftrio.wire.codec.message import encode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
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
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.walk import Record

_TOPIC = "requests"
_PIPELINED = 20
_COUNT = 10_000


def measure_requests(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with running(kind, metrics) as broker, closing(_connect(broker)) as sock:
        topic = CreatableTopic(name=_TOPIC, num_partitions=3, replication_factor=1)
        _ask(sock, _frame(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]), 5), 1)
        time.sleep(2)
        for name, frame in _requests():
            _ask(sock, frame * _PIPELINED, _PIPELINED)
            for in_flight, count in ((_PIPELINED, _COUNT), (1, _COUNT // 4)):
                turns = max(1, int(count * scale) // in_flight)
                began_s = broker.cpu_s()
                for _ in range(turns):
                    _ask(sock, frame * in_flight, in_flight)
                cost_us = (broker.cpu_s() - began_s) * 1e6 / (turns * in_flight)
                metrics.add(f"{name}, {in_flight} in flight, broker CPU us", cost_us)


def _requests() -> Iterator[tuple[str, bytes]]:
    """Each kind of request with its bytes, those that append before those that read."""
    yield "Metadata", _frame(MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)]), 12)
    records = memoryview(build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)]))
    for name, acks in (("acks=1", 1), ("acks=all", -1)):
        data = TopicProduceData(
            name=_TOPIC, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        produce = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])
        yield f"Produce {name}", _frame(produce, 9)
    for name, partition in (("a batch", 0), ("nothing", 1)):
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=200)
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=_TOPIC, partitions=[asked])],
        )
        yield f"Fetch {name}", _frame(fetch, 12)
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name=_TOPIC, partitions=[latest])])
    yield "ListOffsets", _frame(offsets, 7)


def _frame(request: Any, version: int) -> bytes:
    api = next(api for api in APIS.values() if api.request is type(request))
    header = struct.pack(">hhih", api.key, version, 1, 5) + b"bench"
    if api.flexible_from is not None and version >= api.flexible_from:
        header += b"\0"
    body = header + encode(request, version)
    return struct.pack(">i", len(body)) + body


def _connect(broker: RunningBroker) -> socket.socket:
    host, port = broker.address.split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _ask(sock: socket.socket, frames: bytes, count: int) -> None:
    """Send requests, and wait for as many responses."""
    sock.sendall(frames)
    received = b""
    while count:
        data = sock.recv(1 << 20)
        if not data:
            raise SystemExit("the broker closed the connection")
        received += data
        while len(received) >= 4 and len(received) >= 4 + _size(received):
            received = received[4 + _size(received) :]
            count -= 1


def _size(response: bytes) -> int:
    return int.from_bytes(response[:4], "big")
