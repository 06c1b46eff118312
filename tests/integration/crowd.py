"""Clients that cost a broker memory or time, any number of them, in a process of their own.

    python -m tests.integration.crowd HOST PORT TOPIC PARTITIONS SLOW PIPELINING HOSTILE

- slow: consumers that fetch all there is, up to 50 MB, and read 16 KiB of it four times a second
- pipelining: the same, with 64 fetches sent at once
- hostile, by turns: a request of 100 MB that is begun and not ended; 64 Metadata requests for all
  topics whose answers are never read; 64 fetches whose answers are never read; 20 connections that
  send nothing

It prints a line once all are connected, and runs until its standard input ends. A connection that
the broker closes is made again a second later.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftrio.wire.messages.cluster import MetadataRequest
from tests.integration.wire_client import fetch_request, frame_of

READ_BYTES = 16 << 10
READ_INTERVAL_S = 0.25
PIPELINED = 64
FETCH_BYTES = 50 << 20
FRAME_BYTES = 100 << 20
SILENT = 20
_ZEROS = bytes(256 << 10)
_ROOT = Path(__file__).resolve().parent.parent.parent


class Member:
    """One connection.

    Args:
        sends: what it sends first.
        zeros: how many bytes of zeros it sends after that, as far as the broker reads them.
        answers: after how many answers it sends the same again; 0: it reads nothing.
    """

    def __init__(
        self, address: tuple[str, int], sends: bytes = b"", zeros: int = 0, answers: int = 0
    ) -> None:
        self._address = address
        self._sends = sends
        self._zeros = zeros
        self._answers = answers
        self._sock: socket.socket | None = None
        self._again_at = 0.0

    def step(self, now: float) -> None:
        """Connect if need be, send what the socket takes, and read a little."""
        try:
            if self._sock is None:
                if now < self._again_at:
                    return
                self._connect()
            self._send()
            if self._answers:
                self._read()
        except BlockingIOError:
            return
        except OSError:
            if self._sock is not None:
                self._sock.close()
            self._sock = None
            self._again_at = now + 1.0

    def _connect(self) -> None:
        self._sock = sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
        sock.connect(self._address)
        sock.setblocking(False)
        self._unsent, self._zeros_left = memoryview(self._sends), self._zeros
        self._to_come = self._answers
        self._unread = 0  # of the present answer
        self._head = b""

    def _send(self) -> None:
        assert self._sock is not None
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        while self._zeros_left:
            self._zeros_left -= self._sock.send(_ZEROS[: self._zeros_left])

    def _read(self) -> None:
        assert self._sock is not None
        data = self._sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError
        while data:
            if not self._unread:
                missing = 4 - len(self._head)
                self._head, data = self._head + data[:missing], data[missing:]
                if len(self._head) == 4:
                    self._unread = int.from_bytes(self._head, "big")
                    self._head = b""
                continue
            taken = min(self._unread, len(data))
            self._unread, data = self._unread - taken, data[taken:]
            if not self._unread:
                self._to_come -= 1
                if not self._to_come:
                    self._unsent, self._to_come = memoryview(self._sends), self._answers


def crowd_of(
    address: tuple[str, int], topic: str, partitions: int, slow: int, pipelining: int, hostile: int
) -> list[Member]:
    """All members of a crowd (see the module)."""
    fetch, _, _ = frame_of(
        fetch_request(topic, dict.fromkeys(range(partitions), 0), max_bytes=FETCH_BYTES)
    )
    metadata, _, _ = frame_of(MetadataRequest(topics=None), 12)
    begun = FRAME_BYTES.to_bytes(4, "big")
    crowd = [Member(address, fetch, answers=1) for _ in range(slow)]
    crowd += [Member(address, fetch * PIPELINED, answers=PIPELINED) for _ in range(pipelining)]
    for number in range(hostile):
        kind = number % 4
        if kind == 0:
            crowd.append(Member(address, begun, zeros=FRAME_BYTES - 1))
        elif kind == 1:
            crowd.append(Member(address, metadata * PIPELINED))
        elif kind == 2:
            crowd.append(Member(address, fetch * PIPELINED))
        else:
            crowd += [Member(address) for _ in range(SILENT)]
    return crowd


@contextmanager
def crowding(address: tuple[str, int], topic: str, partitions: int, *counts: int) -> Iterator[None]:
    """A crowd in a process of its own, once all of it is there: slow, pipelining, hostile."""
    arguments = [*address, topic, partitions, *counts]
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, *map(str, arguments)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline(), "the crowd has ended"
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(20)


def main() -> None:
    host, port, topic = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    crowd = crowd_of((host, port), topic, *map(int, sys.argv[4:]))
    is_announced = False
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            begin = time.monotonic()
            for member in crowd:
                member.step(time.monotonic())
            if not is_announced:
                print("crowded", flush=True)
                is_announced = True
            if selector.select(max(0.0, begin + READ_INTERVAL_S - time.monotonic())):
                return


if __name__ == "__main__":
    main()
