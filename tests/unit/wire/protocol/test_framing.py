"""Requests come out of a connection whole, in order, however their bytes arrive."""

from __future__ import annotations

import random
import struct

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.protocol.framing import (
    ClientConnection,
    FrameReader,
    RequestStart,
    ServerConnection,
    parse_request_start,
)


def receive(connection: FrameReader, data: bytes) -> list[bytes]:
    """Play the kernel: copy as much as fits into the offered buffers, until all is delivered."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        buffers = connection.receive_buffers()
        count = 0
        for buffer in buffers:
            piece = data[position + count : position + count + len(buffer)]
            buffer[: len(piece)] = piece
            count += len(piece)
        position += count
        frames += [bytes(frame) for frame in connection.bytes_received(count, buffers)]
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.mark.parametrize("seed", range(20))
def test_frames_survive_any_fragmentation(seed: int) -> None:
    """Random frames cut at random places come out unchanged, through a small scratch buffer."""
    rng = random.Random(seed)
    bodies = [rng.randbytes(rng.choice([0, 1, 3, 4, 10, 100, 5000, 40_000])) for _ in range(30)]
    connection = ServerConnection(1 << 20, bytearray(rng.choice([16, 300, 65536])))
    stream = framed(*bodies)
    frames: list[bytes] = []
    while stream:
        cut = rng.randint(1, 9000)
        frames += receive(connection, stream[:cut])
        stream = stream[cut:]
    assert frames == bodies


def test_large_frame_gets_memory_only_as_it_arrives() -> None:
    """A peer that announces 100 MB and sends nothing costs about a megabyte."""
    connection = ServerConnection(100 << 20, bytearray(1024))
    assert receive(connection, struct.pack(">i", 100 << 20) + b"x") == []
    assert sum(len(buffer) for buffer in connection.receive_buffers()) <= (1 << 20) + 1024


def test_a_peer_that_speaks_tls_is_recognized() -> None:
    """Its first bytes would be the length of a frame beyond all bounds."""
    for head in ("16030100f5010000", "1503030002020a00"):
        connection = ServerConnection(100 << 20, bytearray(1024))
        with pytest.raises(RemoteProtocolError, match="the peer speaks TLS, and this side does"):
            receive(connection, bytes.fromhex(head))


def test_large_frame_arrives_whole() -> None:
    body = random.Random(1).randbytes(5 << 20)
    connection = ServerConnection(100 << 20, bytearray(65536))
    assert receive(connection, framed(body, b"next")) == [body, b"next"]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_impossible_frame_lengths_are_refused(length: int) -> None:
    connection = ServerConnection(1000, bytearray(1024))
    with pytest.raises(RemoteProtocolError):
        receive(connection, struct.pack(">i", length) + b"GET / HTTP/1.1")


def test_frames_are_writable_and_independent() -> None:
    """Offsets are stamped into a request while the next bytes are already being received."""
    connection = ServerConnection(1000, bytearray(64))
    buffers = connection.receive_buffers()
    data = framed(b"aaaa", b"bbbb")
    buffers[0][: len(data)] = data
    first, second = connection.bytes_received(len(data), buffers)
    first[:] = b"AAAA"
    receive(connection, framed(b"cccc"))
    assert bytes(first) == b"AAAA"
    assert bytes(second) == b"bbbb"


START = RequestStart(0, 0, 0, None, 0)


def test_responses_leave_in_request_order() -> None:
    connection = ServerConnection(1000, bytearray(64))
    first, second = connection.open_slot(START), connection.open_slot(START)
    second.encode = lambda: [b"2"]
    assert connection.take_ready() is None
    assert not connection.has_ready_response
    first.encode = lambda: [b"1"]
    assert connection.take_ready() is first
    assert connection.take_ready() is second
    assert not connection.slots


def flexible_from_3(_: int) -> int:
    return 3


def test_header_with_client_id_and_tagged_fields() -> None:
    frame = struct.pack(">hhih", 18, 3, 7, 2) + b"me" + b"\x01\x05\x02ab" + b"body"
    start = parse_request_start(memoryview(frame), flexible_from_3)
    assert start == RequestStart(18, 3, 7, "me", 17)
    assert frame[start.body_position :] == b"body"


def test_header_before_flexible_versions_has_no_tagged_fields() -> None:
    frame = struct.pack(">hhih", 18, 2, 7, -1)
    assert parse_request_start(memoryview(frame), flexible_from_3) == (18, 2, 7, None, 10)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x12\0\3\0\0\0",
        struct.pack(">hhih", 18, 3, 7, 50) + b"short",
        struct.pack(">hhih", 18, 3, 7, 2) + b"\xff\xfe\0",
        struct.pack(">hhih", 18, 3, 7, -1),
        struct.pack(">hhih", 18, 3, 7, -1) + b"\x01\x05\x7f",
        struct.pack(">hhih", 18, 3, 7, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_malformed_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_request_start(memoryview(frame), flexible_from_3)


# -- the client's half --------------------------------------------------------------------------


def client(client_id: str | None = "me") -> ClientConnection[str]:
    return ClientConnection(1000, bytearray(64), client_id)


@pytest.mark.parametrize("client_id", [None, "", "ich-äöü"])
@pytest.mark.parametrize("flexible", [False, True])
def test_a_framed_request_is_what_a_server_understands(
    client_id: str | None, flexible: bool
) -> None:
    connection = client(client_id)
    large = bytes(100_000)
    for number, body in enumerate(([b"body"], [b"bo", b"dy"], [large])):
        correlation_id, parts = connection.frame_request(18, 3, [*body], flexible=flexible)
        [frame] = receive(ServerConnection(1 << 20, bytearray(64)), b"".join(parts))
        start = parse_request_start(memoryview(frame), lambda _: 3 if flexible else None)
        assert start[:4] == (18, 3, number, client_id)
        assert correlation_id == number
        assert frame[start.body_position :] == b"".join(body)
    assert parts[-1] is large, "what is large is not copied"


def test_responses_are_matched_in_request_order() -> None:
    connection = client()
    connection.expect_response(5, "first", flexible=True)
    connection.expect_response(6, "second", flexible=False)
    assert connection.waiting() == ["first", "second"]
    tagged = struct.pack(">i", 5) + b"\x01\x07\x02ab" + b"body"
    assert connection.match_response(memoryview(tagged)) == ("first", 9)
    assert connection.match_response(memoryview(struct.pack(">i", 6) + b"body")) == ("second", 4)
    assert connection.requests_in_flight == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        struct.pack(">i", 6) + b"\0",
        struct.pack(">i", -1) + b"\0",
        struct.pack(">i", 5),
        struct.pack(">i", 5) + b"\x01\x05\x7f",
    ],
)
def test_responses_out_of_turn_or_cut_short_are_refused(frame: bytes) -> None:
    connection = client()
    connection.expect_response(5, "first", flexible=True)
    with pytest.raises(RemoteProtocolError):
        connection.match_response(memoryview(frame))
    assert connection.waiting() == ["first"]


def test_a_response_that_nothing_asked_for_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        client().match_response(memoryview(bytes(8)))


def test_correlation_ids_start_again_after_the_largest() -> None:
    connection = client()
    connection._next_correlation_id = 2**31 - 1
    ids = [connection.frame_request(18, 0, [b""], flexible=False)[0] for _ in range(2)]
    assert ids == [2**31 - 1, 0]


def test_a_connection_knows_that_it_ended_within_a_frame() -> None:
    connection = client()
    assert not connection.is_within_frame
    for sent, within in ((b"\0\0", True), (b"\0\x02", True), (b"a", True), (b"b", False)):
        receive(connection, sent)
        assert connection.is_within_frame is within
        assert connection.is_between_frames is not within


def test_what_is_no_frame_counts_as_begun() -> None:
    """It came with the frame before it, and is found wrong with the next read."""
    connection = client()
    receive(connection, b"\0\0\0\x01a" + b"\xff" * 4)
    assert not connection.is_between_frames


@pytest.mark.parametrize("growth", [0, 1000, -1000], ids=["same size", "larger", "smaller"])
def test_memory_of_large_frames_is_used_again(growth: int) -> None:
    """A frame of which nobody has a view any more gives its memory to the next one of its kind,
    whose bytes are right; one that is looked at stays what it was."""
    connection: ClientConnection[None] = ClientConnection(
        1 << 24, bytearray(1 << 16), None, spare_frames=2
    )

    def receive(content: bytes) -> memoryview:
        sent = struct.pack(">i", len(content)) + content
        frames: list[memoryview] = []
        while sent:
            buffers = connection.receive_buffers()
            count = 0
            for buffer in buffers:
                take = min(len(buffer), len(sent))
                buffer[:take] = sent[:take]
                sent = sent[take:]
                count += take
            frames += connection.bytes_received(count, buffers)
        (frame,) = frames
        return frame

    sizes = [400_000 + growth * turn for turn in range(6)]
    kept = [receive(bytes([turn]) * size) for turn, size in enumerate(sizes[:2])]
    memories = {id(frame.obj) for frame in kept}
    third = receive(b"\x02" * sizes[2])
    assert id(third.obj) not in memories, "both are looked at"
    assert [bytes(frame) for frame in kept] == [bytes([turn]) * sizes[turn] for turn in range(2)]
    memories.add(id(third.obj))
    del third
    part = kept[1][1000:1010]
    kept.clear()
    for turn in range(3, 6):
        frame = receive(bytes([turn]) * sizes[turn])
        assert id(frame.obj) in memories
        assert bytes(frame) == bytes([turn]) * sizes[turn]
        assert bytes(part) == b"\x01" * 10, "a part is a view, too"
        del frame


def test_a_large_frame_asks_before_it_grows() -> None:
    """Its memory comes in steps, each of which is announced before it is taken."""
    connection = ServerConnection(100 << 20, bytearray(1 << 16))
    data = memoryview(struct.pack(">i", 20 << 20) + bytes(20 << 20))
    steps: list[int] = []
    frames: list[memoryview] = []
    while data:
        if connection.growth_bytes:
            before = connection.unfinished_bytes
            steps.append(connection.growth_bytes)
            connection.receive_buffers()
            assert connection.unfinished_bytes == before + steps[-1]
        buffers = connection.receive_buffers()
        count = 0
        for buffer in buffers:
            piece = data[count : count + len(buffer)]
            buffer[: len(piece)] = piece
            count += len(piece)
        frames += connection.bytes_received(count, buffers)
        data = data[count:]
    assert [len(frame) for frame in frames] == [20 << 20]
    assert connection.unfinished_bytes == connection.growth_bytes == 0
    assert max(steps) == 4 << 20
    assert len(steps) < 15


def test_frames_before_a_bad_length_come_first() -> None:
    connection = ServerConnection(100, bytearray(1 << 16))
    assert receive(connection, framed(b"good") + struct.pack(">i", 101)) == [b"good"]
    with pytest.raises(RemoteProtocolError):
        connection.receive_buffers()
