"""Warnings of what keeps a client from going on, logged once a minute at most.

Nothing that lasts stays silent, and nothing fills a log: each warning has a key, such as the topic
it is about, and is logged again after EVERY_S if it still holds; what ended is forgotten, so that
the next time is logged at once. The texts say what to do.

Called by: `cluster` and the metadata fetcher, `subscription`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

import trio

EVERY_S: Final = 60.0


class Notices:
    """The warnings of one client.

    Args:
        logger: to which they go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged_at: dict[Hashable, float] = {}

    def warn(self, key: Hashable, text: str, *arguments: object) -> None:
        """Warn of something, unless that was done a short while ago."""
        now = trio.current_time()
        if now - self._logged_at.get(key, float("-inf")) >= EVERY_S:
            self._logged_at[key] = now
            self._logger.warning(text, *arguments)

    def forget(self, key: Hashable) -> None:
        """It no longer holds."""
        self._logged_at.pop(key, None)
