"""A small synchronous client over the project's own codec, for tests of a broker's process.

It sends what a test asks for and hides nothing: no retries, no metadata, no buffering. It uses
versions that name topics by name. A connection that ends is `ConnectionError` or `EOFError`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.messages.headers import RequestHeader, ResponseHeader
from kraftrio.wire.protocol.api import APIS, Api, request_header_version, response_header_version
from kraftrio.wire.records.batch import Record, iter_headers, iter_records, verify_crc

API_OF: dict[type, Api] = {api.request: api for api in APIS.values()}

# The newest versions that name topics by name, where later ones go by id.
_NAMED = {"ProduceRequest": 12, "FetchRequest": 12, "OffsetCommitRequest": 9, "MetadataRequest": 12}


class WireClient:
    """One connection; requests may be pipelined, responses come in their order."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 20.0) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending: deque[tuple[Api, int, int]] = deque()
        self._buffer = bytearray()
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    @property
    def in_flight(self) -> int:
        """How many responses have not come yet."""
        return len(self._pending)

    def send(self, request: Any, version: int | None = None) -> None:
        """Send a request without waiting for its response."""
        self._correlation_id += 1
        frame, api, version = frame_of(request, version, self._correlation_id)
        self._pending.append((api, version, self._correlation_id))
        self.socket.sendall(frame)

    def receive(self) -> Any:
        """Return the response to the oldest request that has none yet."""
        frame = self.receive_frame()
        api, version, correlation_id = self._pending.popleft()
        header, position = decode(ResponseHeader, response_header_version(api.key, version), frame)
        assert header.correlation_id == correlation_id, "responses come in request order"
        return decode(api.response, version, frame, position)[0]

    def receive_frame(self) -> bytes:
        """Return the bytes of the next response."""
        buffer = self._buffer
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            data = self.socket.recv(1 << 18)
            if not data:
                raise EOFError("the broker closed the connection")
            buffer += data
        end = 4 + int.from_bytes(buffer[:4], "big")
        frame = bytes(buffer[4:end])
        del buffer[:end]
        return frame

    def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        assert not self._pending, "use send and receive to pipeline"
        self.send(request, version)
        return self.receive()

    # -- what most tests need ---------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, *, timeout_ms: int = 20_000, **configs: object
    ) -> ErrorCode:
        """Create a topic; config keys have _ for Kafka's dots."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        topic.configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        response = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms))
        return ErrorCode(response.topics[0].error_code)

    def init_producer(self) -> tuple[int, int]:
        """Ask for a producer id and its epoch."""
        response = self.call(InitProducerIdRequest(transactional_id=None, producer_id=-1), 4)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response.producer_id, response.producer_epoch

    def produce(
        self, topic: str, partition: int, batch: bytes | bytearray, acks: int = -1
    ) -> tuple[ErrorCode, int]:
        """Produce one batch; return the error code and the base offset."""
        response = self.call(produce_request(topic, partition, batch, acks))
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0
    ) -> tuple[ErrorCode, list[Record], int]:
        """Fetch from an offset on; return error code, records and high watermark."""
        response = self.call(fetch_request(topic, {partition: offset}, max_wait_ms=max_wait_ms))
        answer = response.responses[0].partitions[0]
        return (
            ErrorCode(answer.error_code),
            records_of(answer.records, offset),
            answer.high_watermark,
        )

    def fetch_all(self, topic: str, partition: int, offset: int = 0) -> list[Record]:
        """Fetch everything from an offset to the high watermark."""
        found: list[Record] = []
        while True:
            code, records, high_watermark = self.fetch(topic, partition, offset)
            assert code is ErrorCode.NONE, code
            found += records
            if not records:
                assert offset == high_watermark, (offset, high_watermark)
                return found
            offset = records[-1].offset + 1


def frame_of(
    request: Any,
    version: int | None = None,
    correlation_id: int = 1,
    client_id: str | None = "fault-test",
) -> tuple[bytes, Api, int]:
    """Encode a request with header and length; return it with its API and version."""
    api = API_OF[type(request)]
    if version is None:
        version = _NAMED.get(type(request).__name__, api.max_version)
    header = RequestHeader(
        request_api_key=api.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    body = encode(header, request_header_version(api.key, version)) + encode(request, version)
    return struct.pack(">i", len(body)) + body, api, version


def produce_request(
    topic: str, partition: int, batch: bytes | bytearray, acks: int = -1
) -> ProduceRequest:
    """A Produce of one batch."""
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=20_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    topic: str, offsets: dict[int, int], *, max_wait_ms: int = 0, max_bytes: int = 8 << 20
) -> FetchRequest:
    """A full fetch (no session) of partitions of one topic."""
    partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )


def records_of(data: memoryview | None, offset: int) -> list[Record]:
    """The records of fetched batches from an offset on, after a check of every CRC."""
    found: list[Record] = []
    for header in iter_headers(data or b"", allow_partial=True):
        assert data is not None
        verify_crc(data, header)
        found += [record for record in iter_records(data, header) if record.offset >= offset]
    return found


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = 20.0) -> Any:
    """Poll a condition until it is true; fail with its name at the deadline."""
    deadline = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"not in {deadline_s:g} s: {what}"
        time.sleep(0.005)


def values(records: Iterable[Record]) -> list[bytes | None]:
    """The values of records."""
    return [record.value for record in records]
