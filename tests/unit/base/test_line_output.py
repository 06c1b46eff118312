"""Lines to outputs that are full, gone, or not read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from kraftrio.base.line_output import LineOutput

DEADLINE_S = 5.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe."""
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        with contextlib.suppress(OSError):  # the test may have closed it
            os.close(end)


def read_until(reading: int, end: bytes) -> bytes:
    """Read what comes up to a text."""
    got = b""
    deadline = time.monotonic() + DEADLINE_S
    while not got.endswith(end):
        assert time.monotonic() < deadline
        got += os.read(reading, 1 << 16)
    return got


def test_lines_arrive(pipe: tuple[int, int]) -> None:
    """At once, signs that have no encoding escaped."""
    output = LineOutput(pipe[1])
    output.write("one\n")
    output.write("two \ud800\n")
    assert output.failure is None
    assert os.read(pipe[0], 100) == b"one\ntwo \\ud800\n"


def test_full_disk() -> None:
    """Costs the line and says so; the next one may be written again."""
    with open("/dev/full", "wb", buffering=0) as full:
        output = LineOutput(full.fileno())
        output.write("lost\n")
        assert output.failure == "No space left on device"


def test_reader_gone(pipe: tuple[int, int]) -> None:
    """A broken pipe raises nothing."""
    os.close(pipe[0])
    output = LineOutput(pipe[1])
    output.write("lost\n")
    assert output.failure == "Broken pipe"


def test_reader_that_stopped_reading(pipe: tuple[int, int]) -> None:
    """Writes do not wait; what fits into the bound arrives in order once it is read again."""
    output = LineOutput(pipe[1])
    lines = [f"{number:099}\n" for number in range(5000)]
    begin = time.monotonic()
    for line in lines:
        output.write(line)
    assert time.monotonic() - begin < DEADLINE_S / 2
    assert output.failure is None
    assert read_until(pipe[0], lines[-1].encode()) == "".join(lines).encode()
    output.close()
    output.write("on\n")
    assert read_until(pipe[0], b"on\n") == b"on\n"


def test_what_waits_is_bounded(pipe: tuple[int, int]) -> None:
    """Beyond it lines are lost, and that is known."""
    output = LineOutput(pipe[1])
    for _ in range(200):
        output.write("x" * 9999 + "\n")
    assert output.failure == "nobody reads it"
    assert output._waiting_bytes <= 1 << 20
    os.close(pipe[0])  # frees the thread
