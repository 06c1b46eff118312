"""Lines from files and pipes: all of them, however they are cut, and at once when they come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kraftrio.clients.cli.records.lines import LineSource


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


async def all_lines(source: LineSource) -> list[bytes]:
    found: list[bytes] = []
    async for lines in source.chunks():
        found += lines
    return found


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"x" * 3_000_000 + b"\nshort\n", [b"x" * 3_000_000, b"short"]),
    ],
)
async def test_lines_of_a_file(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    source = LineSource(descriptor)
    assert await all_lines(source) == lines
    assert source.read_bytes == source.size_bytes == len(content)
    os.close(descriptor)


async def test_lines_are_taken_when_they_come(pipe: tuple[int, int]) -> None:
    """A writer that pauses is not waited for, also in the middle of a line."""
    ours, theirs = pipe
    chunks = LineSource(ours).chunks()
    with trio.fail_after(10):
        os.write(theirs, b"one\ntw")
        assert await anext(chunks) == [b"one"]
        os.write(theirs, b"o\n")
        assert await anext(chunks) == [b"two"]
        os.close(theirs)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_waiting_can_be_cancelled(pipe: tuple[int, int]) -> None:
    """Nobody has to type another line for it."""
    source = LineSource(pipe[0])
    with trio.move_on_after(0.01) as scope:
        await anext(source.chunks())
    assert scope.cancelled_caught
