"""What waits for a socket: order, few calls, and bytes that stay in files until it takes them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftrio.net.send_queue import Push, SendQueue
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import StoredBytes, StoredBytesGone


class Taker:
    """A socket, and a sender of files, that takes up to `room` bytes in all."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.taken = bytearray()
        self.calls: list[str] = []
        self.files: dict[int, bytes] = {}

    def _take(self, call: str, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        self.calls.append(call)
        data = data[: self.room]
        self.room -= len(data)
        self.taken += data
        return len(data)

    def send(self, data: Buffer, /) -> int:
        return self._take("send", bytes(data))

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        return self._take("sendmsg", b"".join(buffers))

    def send_before_file(self, data: Buffer, /) -> int:
        return self._take("send_before_file", bytes(data))

    def send_file(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        return self._take("send_file", self.files[descriptor][position : position + size_bytes])

    def recv_into(self, buffer: object, /) -> int:
        raise AssertionError("nothing is received")

    def recvmsg_into(self, buffers: Iterable[object], /) -> tuple[int, object, int, object]:
        raise AssertionError("nothing is received")

    def close(self) -> None:
        """Nothing to close."""


class Stored(StoredBytes):
    """Bytes that lie elsewhere: cold until loaded, gone when told so."""

    def __init__(self, data: bytes, descriptor: int | None = None, cold: bool = False) -> None:
        self.data = data
        self.descriptor = descriptor
        self.cold = cold
        self.loaded: list[tuple[int, int]] = []
        self.reads: list[int] = []
        self.positions: list[int] = []
        self.ahead: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def file_range(self, start: int) -> tuple[int, int] | None:
        return None if self.descriptor is None else (self.descriptor, start)

    def read(self, start: int, size_bytes: int) -> bytes:
        self.reads.append(size_bytes)
        return self.data[start : start + size_bytes]

    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        return not self.cold

    def load(self, start: int, size_bytes: int) -> None:
        self.loaded.append((start, size_bytes))

    def loading_ahead(self, start: int) -> Callable[[], None] | None:
        self.positions.append(start)
        ahead, self.ahead = self.ahead, None
        return ahead


def numbers(size: int, first: int = 0) -> bytes:
    cycle = bytes(range(251))
    return (cycle * (size // 251 + 2))[first % 251 :][:size]


def test_small_pieces_are_joined_and_large_ones_are_not_copied() -> None:
    taker = Taker()
    queue = SendQueue(taker)
    queue.append([b"a" * 10, b"b" * 10])
    assert queue.push() is Push.DONE
    queue.append([b"c" * 10, b"d" * 100_000])
    assert queue.push() is Push.DONE
    assert taker.calls == ["send", "sendmsg"]
    assert taker.taken == b"a" * 10 + b"b" * 10 + b"c" * 10 + b"d" * 100_000


@pytest.mark.parametrize("by_file", [False, True])
def test_everything_leaves_in_order_however_little_a_socket_takes(by_file: bool) -> None:
    """Pieces in memory and stored ones, taken 777 bytes at a time."""
    taker = Taker(0)
    queue = SendQueue(taker, taker if by_file else None)
    whole = b""
    for number in range(12):
        data = numbers(1000 * number + 1, number)
        whole += data
        if number % 3:
            queue.append([Stored(data, descriptor=number if by_file else None)])
            taker.files[number] = data
        else:
            queue.append([data])
        assert queue.size_bytes == len(whole)
    pushes = 0
    while queue.size_bytes:
        taker.room = 777
        assert queue.push() in (Push.BLOCKED, Push.DONE)
        assert queue.size_bytes == len(whole) - len(taker.taken)
        pushes += 1
    assert pushes == -(-len(whole) // 777)
    assert taker.taken == whole
    assert queue.held_bytes == 0
    assert ("send_file" in taker.calls) is by_file


def test_stored_bytes_are_not_held() -> None:
    """They count as waiting, not as memory; they are read in portions that nobody keeps."""
    taker = Taker(100)
    queue = SendQueue(taker)
    stored = Stored(numbers(10 << 20))
    queue.append([b"head", stored, b"tail"])
    assert (queue.size_bytes, queue.held_bytes) == ((10 << 20) + 8, 8)
    assert queue.push() is Push.BLOCKED
    assert queue.held_bytes == 4
    taker.room = 1 << 40
    assert queue.push() is Push.DONE
    assert max(stored.reads) <= 128 << 10
    assert taker.taken == b"head" + stored.data + b"tail"


def test_what_precedes_a_file_is_announced_as_such() -> None:
    """So that both may leave in one packet."""
    taker = Taker()
    taker.files[5] = b"records"
    queue = SendQueue(taker, taker)
    queue.append([b"head", Stored(b"records", descriptor=5), b"next"])
    assert queue.push() is Push.DONE
    assert taker.calls == ["send_before_file", "send_file", "send"]
    assert taker.taken == b"headrecordsnext"


def test_a_push_ends_at_its_limit() -> None:
    taker = Taker()
    queue = SendQueue(taker)
    queue.append([Stored(numbers(10 << 20))])
    assert queue.push(1 << 20) is Push.PAUSED
    assert 1 << 20 <= len(taker.taken) < 2 << 20
    assert queue.push() is Push.DONE


def test_cold_bytes_are_loaded_before_they_are_sent() -> None:
    taker = Taker()
    queue = SendQueue(taker)
    stored = Stored(numbers(3 << 20), cold=True)
    queue.append([b"head", stored])
    loads = 0
    while (end := queue.push()) is Push.COLD:
        assert len(taker.taken) == 4 + loads * (1 << 20), "only what was loaded is sent"
        queue.loading()()
        loads += 1
    assert end is Push.DONE
    assert stored.loaded == [(n << 20, 1 << 20) for n in range(3)]
    assert taker.taken == b"head" + stored.data


def test_what_to_load_ahead_is_known_before_the_sender_waits_for_the_disk() -> None:
    taker = Taker()
    queue = SendQueue(taker)
    stored = Stored(numbers(3 << 20), cold=True)
    stored.ahead = ahead = taker.close  # anything
    queue.append([b"head", stored])
    assert queue.push() is Push.COLD
    assert queue.take_loading_ahead() is ahead
    assert queue.take_loading_ahead() is None
    queue.loading()()
    assert queue.push() is Push.COLD
    assert stored.positions == [0, *range(0, (1 << 20) + 1, 128 << 10)], "of each portion"


def test_a_queue_that_is_cleared_is_empty() -> None:
    taker = Taker(10)
    queue = SendQueue(taker)
    queue.append([Stored(numbers(100)), b"x"])
    queue.push()
    queue.clear()
    assert (queue.size_bytes, queue.held_bytes) == (0, 0)
    queue.append([b"new"])
    taker.room = 100
    assert queue.push() is Push.DONE
    assert taker.taken.endswith(b"new")


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), 5) as client,
        listener.accept()[0] as server,
    ):
        server.setblocking(False)
        yield server, client


def test_the_system_sends_from_files(tmp_path: Path) -> None:
    """sendfile(2): the bytes arrive, a socket that is full blocks, a cut file is an error."""
    data = numbers(5 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    with connected() as (server, client), path.open("r+b") as file:
        queue = SendQueue(server, SystemNetwork().file_sender(server))
        stored = Stored(data, descriptor=file.fileno())
        queue.append([b"head", stored, b"tail"])
        received = b""
        while (end := queue.push()) is Push.BLOCKED:
            received += client.recv(1 << 20)
        assert end is Push.DONE
        while len(received) < len(data) + 8:
            received += client.recv(1 << 20)
        assert received == b"head" + data + b"tail"
        assert not stored.reads
        file.truncate(0)
        queue.append([Stored(data, descriptor=file.fileno())])
        with pytest.raises(StoredBytesGone):
            queue.push()
