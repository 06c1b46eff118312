"""Lines that come over and over: which of them are written."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from functools import partial

import pytest

from kraftrio.base.line_limits import KIND_LINES, LineLimits
from tests.support.logged import logged


def written(limits: LineLimits, text: str, every_s: float, until_s: float) -> list[float]:
    """When a line is written that comes every so many seconds."""
    times, now_s = [], 0.0
    while now_s < until_s:
        if limits.admit("kind", lambda: text, now_s) is not None:
            times.append(round(now_s, 3))
        now_s += every_s
    return times


def test_a_line_that_goes_on_is_written_ever_more_rarely() -> None:
    """36 times a second for ten minutes: seven lines."""
    times = written(LineLimits(), "refused", 1 / 36, 600)
    assert [round(one) for one in times] == [0, 10, 30, 70, 150, 310]


def test_a_line_that_stayed_away_is_news_again() -> None:
    """Once a minute is not over and over."""
    assert written(LineLimits(), "t", 60, 300) == [0, 60, 120, 180, 240]


def test_left_out_lines_are_counted() -> None:
    """With the next line of the kind that is written."""
    limits = LineLimits()
    assert limits.admit("kind", lambda: "a", 0) == 0
    assert [limits.admit("kind", lambda: "a", 1) for _ in range(7)] == [None] * 7
    assert limits.admit("kind", lambda: "b", 2) == 7
    assert limits.admit("kind", lambda: "b", 99) == 0


def test_many_lines_of_a_kind_are_few() -> None:
    """Peers choose their ports; other kinds of lines are not held back by it."""
    limits = LineLimits()
    lines = [f"closed client=h:{port}" for port in range(500)]
    admitted = [limits.admit("closed", partial(str, line), 0.5) for line in lines]
    assert [one for one in admitted if one is not None] == [0] * KIND_LINES
    assert limits.admit("other", lambda: "something else", 0.5) == 0
    assert limits.admit("closed", lambda: "closed client=h:500", 11) == 500 - KIND_LINES


def test_what_is_remembered_is_bounded() -> None:
    """However many lines there are."""
    limits = LineLimits()
    for number in range(5000):
        limits.admit(number, partial(str, number), 0)
    assert max(len(limits._lines), len(limits._kinds)) == 1000


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged at INFO."""
    with logged() as stream:
        yield stream


def test_every_logger_is_limited(log: io.StringIO) -> None:
    """A loop of any part, with values in its lines or without, is one line."""
    logger = logging.getLogger("kraftrio.test_line_limits")
    for _ in range(100):
        logger.info("isr proposal refused partition=%s-%d reason=%s", "t", 0, "INELIGIBLE_REPLICA")
        logger.warning("no luck")
    lines = log.getvalue().splitlines()
    assert len(lines) == 2
    logger.warning("no luck this %s", "time")
    logger.info("isr proposal refused partition=%s-%d reason=%s", "t", 1, "INELIGIBLE_REPLICA")
    assert log.getvalue().splitlines()[-1].endswith("partition=t-1 reason=INELIGIBLE_REPLICA"
                                                    " left_out=99")  # fmt: skip


def test_debug_is_not_limited(log: io.StringIO) -> None:
    """A logger that was set to DEBUG is not limited."""
    logger = logging.getLogger("kraftrio.test_line_limits.debug")
    logger.setLevel(logging.DEBUG)
    try:
        for _ in range(100):
            logger.info("again")
    finally:
        logger.setLevel(logging.NOTSET)
    assert log.getvalue().count("\n") == 100
