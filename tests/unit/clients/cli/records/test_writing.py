"""Bytes to a pipe: all of them in order, beside other tasks, and an error where nobody reads."""

from __future__ import annotations

import os

import pytest
import trio

from kraftrio.clients.cli.records.writing import open_writer


async def test_everything_is_written_in_order() -> None:
    ours, theirs = os.pipe()
    async with open_writer(theirs) as writer:
        await writer.write(b"one ")
        await writer.write(b"two")
    os.close(theirs)
    assert os.read(ours, 100) == b"one two"
    os.close(ours)


async def test_a_reader_that_pauses_blocks_no_other_task() -> None:
    """The pipe is full, and other tasks run; once it is read the writer goes on."""
    ours, theirs = os.pipe()
    data = b"x" * (4 << 20)
    with trio.fail_after(10):
        async with open_writer(theirs) as writer:
            await writer.write(data)
            await trio.lowlevel.checkpoint()
            found = bytearray()
            while len(found) < len(data):
                found += await trio.to_thread.run_sync(os.read, ours, 1 << 20)
    assert found == data
    os.close(ours)
    os.close(theirs)


async def test_the_reader_has_closed_the_pipe() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with pytest.raises(BrokenPipeError), trio.fail_after(10):
        async with open_writer(theirs) as writer:
            while True:
                with trio.CancelScope(shield=True):
                    await writer.write(b"x" * 1_000)
    os.close(theirs)


async def test_the_reader_closed_the_pipe_before_the_last_write() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with pytest.raises(BrokenPipeError):
        async with open_writer(theirs) as writer:
            await writer.write(b"x")
    os.close(theirs)
