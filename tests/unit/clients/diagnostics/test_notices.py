"""Warnings of what lasts: each once a minute, and at once when it begins again."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from kraftrio.clients.diagnostics.notices import EVERY_S, Notices


async def test_a_warning_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """Each by its key; what ended is logged at once when it comes again."""
    notices = Notices(logging.getLogger("kraftrio.test"))
    for _ in range(3):
        notices.warn("a", "a is %s", "missing")
        notices.warn("b", "b is missing")
        await trio.sleep(EVERY_S / 3 + 1)
    assert caplog.messages == ["a is missing", "b is missing"]
    notices.warn("a", "a is still missing")
    notices.forget("a")
    notices.forget("never noticed")
    notices.warn("a", "a is missing again")
    assert caplog.messages[2:] == ["a is still missing", "a is missing again"]
