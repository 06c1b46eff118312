"""Lack of room is waited out, whatever else fails is not."""

from __future__ import annotations

import errno

import pytest

from kraftrio.base.no_room import NO_ROOM
from kraftrio.kraft_meta.quorum.room import once_there_is_room
from tests.unit.kraft_meta.quorum.service_nodes import virtually


class Disk:
    """Fails with each of some errors, and then no more."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    async def write(self) -> str:
        if self.codes:
            raise OSError(self.codes.pop(0), "injected")
        return "written"


def test_a_lack_of_room_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and so is the end of it."""

    async def main() -> None:
        assert await once_there_is_room(Disk(*NO_ROOM).write) == "written"

    caplog.set_level("INFO", "kraftrio.metadata")
    virtually(main)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_fault_of_the_disk_propagates() -> None:
    """Also after a lack of room."""

    async def main() -> None:
        with pytest.raises(OSError, match="injected") as raised:
            await once_there_is_room(Disk(errno.ENOSPC, errno.EIO).write)
        assert raised.value.errno == errno.EIO

    virtually(main)
