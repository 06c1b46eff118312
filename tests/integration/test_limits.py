"""Limits of connections, requests and memory, as a process keeps them."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import ApiVersionsRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.records.batch import Compression, Record, build_batch
from kraftrio.wire.records.compression import compress
from tests.conformance.broker_process import Broker
from tests.integration.wire_client import (
    WireClient,
    fetch_request,
    frame_of,
    produce_request,
    wait_until,
)
from tests.unit.wire.batches import batch_of


def connect(broker: Broker, timeout_s: float = 5.0) -> WireClient:
    return WireClient((broker.host, broker.port), timeout_s=timeout_s)


def answers(client: WireClient) -> bool:
    """Whether the broker serves a connection."""
    try:
        return bool(client.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE)
    except (OSError, EOFError):
        return False


def is_closed(client: WireClient) -> bool:
    """Wait until the broker closes a connection on which nothing is asked."""
    try:
        return client.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def rss_mb(broker: Broker, field: str = "VmRSS") -> float:
    """The resident set of the broker's process; with VmHWM its peak."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found, "the process is gone"
    return int(found.group(1)) / 1024


def test_connections_of_an_address(make_broker: Callable[..., Broker]) -> None:
    """max.connections.per.ip: one more is closed at once, until another has left."""
    broker = make_broker(max_connections_per_ip=3)
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(connect(broker)) for _ in range(3)]
        assert all(answers(client) for client in kept)
        refused = stack.enter_context(connect(broker))
        assert is_closed(refused)
        assert all(answers(client) for client in kept)
        kept[0].close()

        def is_accepted() -> bool:
            with connect(broker) as client:
                return answers(client)

        wait_until(is_accepted, "room for one more")


def test_connections_in_all(make_broker: Callable[..., Broker]) -> None:
    """max.connections: one more waits until another leaves, then it is served."""
    broker = make_broker(max_connections=2)
    with connect(broker) as first, connect(broker) as second, connect(broker) as third:
        assert answers(first)
        assert answers(second)
        third.socket.settimeout(0.3)
        third.send(ApiVersionsRequest(), 0)
        with pytest.raises(TimeoutError):
            third.receive()
        first.close()
        third.socket.settimeout(5)
        assert third.receive().error_code == ErrorCode.NONE
        assert answers(second)


@pytest.mark.measures
def test_idle_connections_are_closed(make_broker: Callable[..., Broker]) -> None:
    """connections.max.idle.ms: one with a long poll under way is not idle."""
    broker = make_broker(connections_max_idle_ms=500)
    with connect(broker) as idle, connect(broker) as waiting:
        assert waiting.create_topic("t") is ErrorCode.NONE
        waiting.send(fetch_request("t", {0: 0}, max_wait_ms=1500))
        begin = time.monotonic()
        assert is_closed(idle)
        assert time.monotonic() - begin < 1.5
        assert waiting.receive().responses[0].partitions[0].error_code == ErrorCode.NONE


def test_requests_in_flight(make_broker: Callable[..., Broker]) -> None:
    """Beyond the limit of a connection nothing more is read until a response leaves."""
    broker = make_broker(kraftrio_max_inflight_requests_per_connection=5)
    with connect(broker) as client, connect(broker) as other:
        assert other.create_topic("t") is ErrorCode.NONE
        client.send(fetch_request("t", {0: 0}, max_wait_ms=1000))
        for _ in range(4):
            client.send(fetch_request("t", {0: 0}, max_wait_ms=0))
        batch = build_batch([Record(0, 1, None, b"sixth")])
        client.send(produce_request("t", 0, batch))
        # The sixth is not served before the first is answered, at the end of its long poll.
        assert other.fetch("t", 0, 0)[1] == []
        for _ in range(5):
            client.receive()
        produced = client.receive().responses[0].partition_responses[0]
        assert produced.error_code == ErrorCode.NONE


def test_request_size(make_broker: Callable[..., Broker]) -> None:
    """socket.request.max.bytes ends the connection that announces more, others go on."""
    broker = make_broker(socket_request_max_bytes=10_000)
    with connect(broker) as client, connect(broker) as large:
        frame, _, _ = frame_of(ApiVersionsRequest(), 0, client_id="x" * 9_000)
        large.socket.sendall(frame)
        assert large.receive_frame()
        large.socket.sendall(struct.pack(">i", 10_001))
        assert is_closed(large)
        assert answers(client)
    assert "a frame of 10001 bytes" in broker.log_text()


def test_batch_size(make_broker: Callable[..., Broker]) -> None:
    """max.message.bytes of the topic, and a batch that is larger than a whole segment."""
    broker = make_broker()
    with connect(broker) as client:
        assert client.create_topic("small", max_message_bytes=1000) is ErrorCode.NONE
        assert client.create_topic("large", max_message_bytes=50 << 20) is ErrorCode.NONE
        assert client.create_topic("t", segment_bytes=1 << 20, max_message_bytes=50 << 20) == 0
        batch = build_batch([Record(0, 1, None, bytes(2000))])
        assert client.produce("small", 0, batch)[0] is ErrorCode.MESSAGE_TOO_LARGE
        assert client.produce("large", 0, batch) == (ErrorCode.NONE, 0)
        whole = build_batch([Record(0, 1, None, bytes(2 << 20))])
        assert client.produce("t", 0, whole)[0] is ErrorCode.RECORD_LIST_TOO_LARGE
        assert client.produce("t", 0, batch) == (ErrorCode.NONE, 0)
        huge = build_batch([Record(0, 1, None, bytes(40 << 20))])
        assert client.produce("large", 0, huge) == (ErrorCode.NONE, 1)
        code, records, _ = client.fetch("large", 0, 1)
        assert (code, len(records[0].value or b"")) == (ErrorCode.NONE, 40 << 20)


@pytest.mark.parametrize("codec", ["GZIP", "SNAPPY", "LZ4", "ZSTD"])
def test_decompression_bombs(make_broker: Callable[..., Broker], codec: str) -> None:
    """A small batch that decompresses to 100 MB is refused, with bounded memory.

    Both as one large record and as garbage behind a record.
    """
    broker = make_broker()
    compression = Compression[codec]
    size = 100 << 20
    with connect(broker, timeout_s=30) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        before_mb = rss_mb(broker, "VmHWM")
        for bomb in (bomb_of_one(size, compression), bomb_of_many(size, compression)):
            if len(bomb) > 1 << 20:
                continue  # snappy does not squeeze that well: refused for its size already
            code, offset = client.produce("t", 0, bomb)
            assert code in (
                ErrorCode.MESSAGE_TOO_LARGE,
                ErrorCode.INVALID_RECORD,
                ErrorCode.CORRUPT_MESSAGE,
            )
            assert offset == -1
        assert rss_mb(broker, "VmHWM") - before_mb < 170
        good = build_batch([Record(0, 1, None, bytes(100_000))], compression=compression)
        assert client.produce("t", 0, good) == (ErrorCode.NONE, 0)


def bomb_of_one(size: int, compression: Compression) -> bytearray:
    """A batch of one record whose value is zeros."""
    return build_batch([Record(0, 1, None, bytes(size))], compression=compression)


def bomb_of_many(size: int, compression: Compression) -> bytearray:
    """A batch that says it has one record, with zeros behind it."""
    record = (
        b"\x0e\0\0\0\x01\x02v\0"  # 7 bytes: attributes, deltas, null key, value "v", no headers
    )
    payload = compress(compression, record + bytes(size))
    return batch_of(payload, 1, attributes=int(compression))


def test_limits_can_be_changed_while_running(make_broker: Callable[..., Broker]) -> None:
    """The largest batch is a dynamic setting of the cluster."""
    broker = make_broker()
    with connect(broker) as client:
        change = IncrementalAlterableConfig(
            name="message.max.bytes", config_operation=0, value="2000"
        )
        resource = IncrementalAlterConfigsResource(
            resource_type=4, resource_name="", configs=[change]
        )
        response = client.call(IncrementalAlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code == ErrorCode.NONE
        assert client.create_topic("t") is ErrorCode.NONE
        batch = build_batch([Record(0, 1, None, bytes(3000))])
        assert client.produce("t", 0, batch)[0] is ErrorCode.MESSAGE_TOO_LARGE


def test_thousands_of_connections(make_broker: Callable[..., Broker]) -> None:
    """They cost little memory, and the broker goes on accepting and serving."""
    broker = make_broker()
    before_mb = rss_mb(broker)
    with contextlib.ExitStack() as stack:
        for _ in range(2000):
            sock = socket.create_connection((broker.host, broker.port), 5)
            stack.callback(sock.close)
        with connect(broker) as client:
            assert answers(client)
        assert rss_mb(broker) - before_mb < 80

    def are_gone() -> bool:
        assert broker.process is not None
        return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir())) < 100

    wait_until(are_gone, "all connections closed")


class FewFilesBroker(Broker):
    """A broker that may open few files, and cannot grant itself more."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 400; exec "$@"', "sh", *super().command()]


def test_clients_cannot_take_the_files_of_the_logs(tmp_path: Path) -> None:
    """With more connections than files may be open, some wait, but topics are made and written."""
    with (
        FewFilesBroker(tmp_path / "broker") as broker,
        connect(broker) as client,
        contextlib.ExitStack() as stack,
    ):
        assert client.create_topic("first") is ErrorCode.NONE
        for _ in range(600):
            sock = socket.create_connection((broker.host, broker.port), 5)
            stack.callback(sock.close)
        batch = build_batch([Record(0, 1, None, b"v")])
        for n in range(20):
            assert client.create_topic(f"t{n}") is ErrorCode.NONE
            assert client.produce(f"t{n}", 0, bytearray(batch)) == (ErrorCode.NONE, 0)
        stack.close()

        def is_served() -> bool:
            with connect(broker) as other:
                return answers(other)

        wait_until(is_served, "others are served again")
        assert " ERROR " not in broker.log_text()
