"""Hostile and broken clients: the broker refuses them cleanly and serves the others.

`test_200_000_fuzzed_frames` sends mutated and unusual requests to a broker over many pipelined
connections, while a well-behaved client goes on producing and consuming. Nothing may crash, leak or
stall. The other tests are about bytes that are no requests at all.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kraftrio.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from kraftrio.wire.messages.configs import DescribeUserScramCredentialsRequest, UserName
from kraftrio.wire.messages.groups import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from kraftrio.wire.messages.quorum import FeatureUpdateKey, UpdateFeaturesRequest
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.broker_process import Broker
from tests.integration.fuzz_frames import NODE_ID, FrameMaker
from tests.integration.wire_client import WireClient, frame_of

FRAMES = 200_000
CONNECTIONS = 96
BURST = 12
ANSWER_S = 0.2  # a request that parks is given up after this
MAX_PARTITIONS = 20
KEPT = ("fuzz-", "well-behaved", "__consumer_offsets", "__transaction_state", "__share_group_state")
MAX_RSS_MB = 150
MAX_ROUND_TRIP_S = 5.0


def rss_mb(broker: Broker) -> float:
    """The resident set of the broker's process."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found, "the process is gone"
    return int(found.group(1)) / 1024


def create_targets(client: WireClient) -> None:
    """Create the topics that fuzzed frames name, unless they exist."""
    for name, policy in (("fuzz-a", "delete"), ("fuzz-b", "compact")):
        code = client.create_topic(name, 2, cleanup_policy=policy)
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def tidy(client: WireClient) -> None:
    """Delete what fuzzed frames made too large or too many of, and create what they deleted."""
    metadata = client.call(MetadataRequest(topics=None))
    excess = [
        topic.name
        for topic in metadata.topics
        if len(topic.partitions) > MAX_PARTITIONS or not topic.name.startswith(KEPT)
    ]
    if excess:
        topics = [DeleteTopicState(name=name) for name in excess]
        client.call(DeleteTopicsRequest(topics=topics, timeout_ms=20_000))
    create_targets(client)


class WellBehaved(threading.Thread):
    """A client that writes and reads back numbered records until told to stop."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.address = (broker.host, broker.port)
        self.stopping = threading.Event()
        self.count = 0
        self.slowest_s = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        with WireClient(self.address, timeout_s=MAX_ROUND_TRIP_S) as client:
            assert client.create_topic("well-behaved", retention_ms=-1) is ErrorCode.NONE
            producer_id, epoch = client.init_producer()
            while not self.stopping.is_set():
                begin = time.monotonic()
                n = self.count
                batch = build_batch(
                    [Record(0, 1_700_000_000_000, None, b"%d" % n)],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=n,
                )
                assert client.produce("well-behaved", 0, batch) == (ErrorCode.NONE, n)
                code, records, _ = client.fetch("well-behaved", 0, n)
                assert code is ErrorCode.NONE
                assert [(r.offset, r.value) for r in records] == [(n, b"%d" % n)]
                self.count += 1
                if self.count % 25 == 0:
                    tidy(client)
                self.slowest_s = max(self.slowest_s, time.monotonic() - begin)


class Attack:
    """Counts of one fuzzing run."""

    def __init__(self, maker: FrameMaker, address: tuple[str, int], frames: int) -> None:
        self.maker = maker
        self.address = address
        self.left = frames
        self.answered = 0
        self.closed = 0
        self.given_up = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self.attack)

    async def attack(self) -> None:
        """Send bursts; connect again whenever the broker closes the connection."""
        while self.left > 0:
            stream = await trio.open_tcp_stream(*self.address)
            async with stream:
                while self.left > 0 and await self.burst(stream):
                    pass

    async def burst(self, stream: trio.SocketStream) -> bool:
        """Send frames in one piece and read the answers; False when the connection is over."""
        count = self.maker.rng.randint(1, BURST)
        frames = self.maker.burst(count)
        seen = 0
        buffer = bytearray()
        with trio.move_on_after(ANSWER_S) as scope:
            try:
                await stream.send_all(b"".join(frames))
                while seen < count:
                    data = await stream.receive_some()
                    if not data:
                        self.closed += 1
                        seen += 1
                        break
                    buffer += data
                    seen += take_answers(buffer)
            except trio.BrokenResourceError:
                self.closed += 1
                seen += 1
        self.answered += seen
        self.left -= max(seen, 1)
        self.given_up += scope.cancelled_caught
        return seen >= count and not scope.cancelled_caught


def take_answers(buffer: bytearray) -> int:
    """Remove the whole responses from a buffer and count them."""
    count = position = 0
    while len(buffer) - position >= 4:
        end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
        if end > len(buffer):
            break
        position = end
        count += 1
    del buffer[:position]
    return count


def served_apis(broker: Broker) -> set[int]:
    with WireClient((broker.host, broker.port)) as client:
        response = client.call(ApiVersionsRequest(), 0)
    return {api.api_key for api in response.api_keys} | {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}


@pytest.mark.measures
@pytest.mark.timeout(300)
def test_200_000_fuzzed_frames(make_broker: Callable[..., Broker]) -> None:
    """No frame causes a traceback, memory stays bounded, and others are served meanwhile."""
    seed = int(os.environ.get("FAULT_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    frames = int(os.environ.get("FAULT_TEST_FRAMES", FRAMES))
    print(f"FAULT_TEST_SEED={seed}")
    broker = make_broker(
        node_id=NODE_ID,
        controller_quorum_voters=f"{NODE_ID}@localhost:9093",
        auto_create_topics_enable="false",
    )
    address = (broker.host, broker.port)
    with WireClient(address) as client:
        create_targets(client)
    maker = FrameMaker(random.Random(seed), served_apis(broker))
    neighbour = WellBehaved(broker)
    neighbour.start()
    attack = Attack(maker, address, frames)
    begin = time.monotonic()
    try:
        trio.run(attack.run)
    finally:
        neighbour.stopping.set()
        neighbour.join(MAX_ROUND_TRIP_S)
    print(
        f"{attack.answered} seen in {time.monotonic() - begin:.1f} s, {attack.closed} closed,"
        f" {attack.given_up} given up; neighbour {neighbour.count} round trips, slowest"
        f" {neighbour.slowest_s:.2f} s; {rss_mb(broker):.0f} MB"
    )
    broker.check_log()
    assert " ERROR " not in broker.log_text(), broker.log_tail()
    if neighbour.error is not None:
        raise neighbour.error
    assert neighbour.count > 100
    assert neighbour.slowest_s < MAX_ROUND_TRIP_S
    assert rss_mb(broker) < MAX_RSS_MB
    # What the fuzzed frames wrote to the disk does not hinder the next start either.
    broker.kill9()
    broker.start()
    with WireClient((broker.host, broker.port)) as client:
        records = client.fetch_all("well-behaved", 0)
        assert [record.value for record in records] == [b"%d" % n for n in range(neighbour.count)]
        tidy(client)
        assert client.call(MetadataRequest(topics=None)).topics


# -- bytes that are no requests -------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all of these tests, which must be alive and well when they end."""
    with Broker(tmp_path_factory.mktemp("broker")) as shared:
        yield shared


def is_closed(sock: socket.socket) -> bool:
    """Wait until the broker closes the connection; what it sends before does not matter."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def serves(broker: Broker) -> bool:
    with WireClient((broker.host, broker.port), timeout_s=5) as client:
        return bool(client.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /topics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # a TLS hello
        b"SSH-2.0-OpenSSH_9.6\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, -1, -1, -1, -1),
        struct.pack(">ihhih", 10, 0, 32767, -1, -1),
    ],
    ids=[
        "http get", "http post", "tls", "ssh", "length -1", "least length", "greatest length",
        "length above the limit", "empty frame", "key -1", "version 32767",
    ],
)  # fmt: skip
def test_what_is_no_request_ends_its_connection_only(broker: Broker, data: bytes) -> None:
    with (
        WireClient((broker.host, broker.port)) as other,
        socket.create_connection((broker.host, broker.port), 5) as sock,
    ):
        assert other.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        sock.sendall(data)
        sock.settimeout(5)
        assert is_closed(sock)
        assert other.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert serves(broker)


def test_random_bytes(broker: Broker) -> None:
    """Garbage of all lengths, the connection left open or shut or reset by the peer."""
    rng = random.Random(20)
    for _ in range(300):
        with socket.create_connection((broker.host, broker.port), 5) as sock:
            try:
                sock.sendall(rng.randbytes(rng.choice((1, 3, 4, 5, 20, 1000, 100_000))))
                if rng.random() < 0.3:
                    sock.shutdown(socket.SHUT_WR)
                elif rng.random() < 0.5:  # a reset instead of an end
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                continue  # the broker was faster
    assert serves(broker)


@pytest.mark.parametrize(
    "request_",
    [
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="x" * 32_767)]),
        CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32_767, num_partitions=1)]),
        DescribeUserScramCredentialsRequest(users=[UserName(name="x" * 32_767)]),
        ConsumerGroupDescribeRequest(group_ids=["x" * 32_767]),
        DescribeGroupsRequest(groups=["x" * 32_767]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_the_longest_names_are_refused_by_a_response(broker: Broker, request_: Any) -> None:
    """What the refusal quotes of them never makes it too long to be sent."""
    with WireClient((broker.host, broker.port), timeout_s=5) as client:
        client.call(request_)
        assert serves(broker)


def test_half_frames_of_many_peers_cost_little(broker: Broker) -> None:
    """Peers that announce the largest request and send only its beginning cost no more memory.

    Meanwhile a request that comes byte by byte is served.
    """
    before_mb = rss_mb(broker)
    peers = []
    try:
        for _ in range(200):
            sock = socket.create_connection((broker.host, broker.port), 5)
            peers.append(sock)
            sock.sendall(struct.pack(">ihhih", 100 * 1024 * 1024, 0, 9, 1, -1) + b"\0" * 100)
        with WireClient((broker.host, broker.port), timeout_s=5) as slow:
            frame, _, _ = frame_of(ApiVersionsRequest(), 0)
            slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(len(frame)):
                slow.socket.sendall(frame[at : at + 1])
                if at % 5 == 0:
                    assert serves(broker)
            assert slow.receive_frame()[:4] == struct.pack(">i", 1)
        assert rss_mb(broker) - before_mb < 60
    finally:
        for sock in peers:
            sock.close()
    assert serves(broker)


def test_peers_that_never_read(broker: Broker) -> None:
    """The broker stops reading from a peer that does not take its answers."""
    frame, _, _ = frame_of(ApiVersionsRequest(), 0)
    before_mb = rss_mb(broker)
    peers = []
    try:
        for _ in range(10):
            sock = socket.create_connection((broker.host, broker.port), 5)
            peers.append(sock)
            sock.settimeout(0.3)
            try:
                for _ in range(200):
                    sock.sendall(frame * 2000)
            except TimeoutError:
                continue  # it reads no more, as it should
        assert serves(broker)
        assert rss_mb(broker) - before_mb < 100
    finally:
        for sock in peers:
            sock.close()
    assert serves(broker)
