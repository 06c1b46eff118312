"""Waits out a lack of room under the metadata log: `once_there_is_room`.

A node that cannot write changes nothing and votes for nobody meanwhile, so that another one leads,
and goes on by itself once there is room: it has broken nothing, and its data may be on other disks.

Called by: quorum/ready_writer.py, quorum/snapshots.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from kraftrio.base.no_room import NO_ROOM

T = TypeVar("T")

_log = logging.getLogger("kraftrio.metadata")

_RETRY_S = 0.5


async def once_there_is_room(write: Callable[[], Awaitable[T]]) -> T:
    """Write, again and again while there is no room. Raises every other OSError."""
    is_waiting = False
    while True:
        try:
            written = await write()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not is_waiting:
                _log.error("metadata log cannot be written now, changes wait reason=%s", error)
                is_waiting = True
            await trio.sleep(_RETRY_S)
            continue
        if is_waiting:
            _log.info("metadata log can be written again")
        return written
