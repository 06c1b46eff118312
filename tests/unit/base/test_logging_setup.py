"""The form of log lines, and the loggers of the process as settings."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kraftrio.base.logging_setup import (
    JsonFormatter,
    LineFormatter,
    ProcessLoggers,
    log_event,
    log_with_stack,
    parse_level,
)
from tests.support.logged import logged


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged at INFO."""
    with logged() as stream:
        yield stream


def formatted(name: str, level: int, message: str, *args: object) -> str:
    """One line at a fixed time."""
    record = logging.LogRecord(name, level, "f", 1, message, args, None)
    record.created, record.msecs = 1795860000.123, 123.0
    return LineFormatter().format(record)


def test_line_has_fixed_columns() -> None:
    """Time in UTC, level, component, message."""
    assert formatted("kraftrio.broker.server.server", logging.INFO, "up on %d", 9092) == (
        "2026-11-28T10:00:00.123Z INFO  server       up on 9092"
    )
    assert formatted("x", logging.WARNING, "m").startswith("2026-11-28T10:00:00.123Z WARN  x  ")


def test_one_event_is_one_line() -> None:
    """A client cannot forge lines by line breaks in a name."""
    assert "\n" not in formatted("x", logging.INFO, "name %s", "a\nb\rc")


def test_fields_follow_as_pairs(lines: io.StringIO) -> None:
    """Values with blanks are quoted; nothing below the level is written."""
    logger = logging.getLogger("kraftrio.test_logging")
    log_event(logger, logging.INFO, "topic made", topic="t", reason='a "b"', empty="", line="a\nb")
    log_event(logger, logging.DEBUG, "hidden")
    text = lines.getvalue()
    assert text.endswith('topic made topic=t reason="a \\"b\\"" empty="" line="a\\nb"\n')
    assert text.count("\n") == 1


def test_traceback_is_indented(lines: io.StringIO) -> None:
    """The lines of a traceback cannot be taken for events."""
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("kraftrio.test_logging").exception("failed")
    first, *others = lines.getvalue().splitlines()
    assert first.endswith("failed")
    assert others and all(line.startswith("    ") for line in others)
    assert "ValueError: broken" in others[-1]


def test_levels_by_name() -> None:
    """Kafka's and Python's names are known, others are refused by name."""
    assert (parse_level("trace"), parse_level("WARNING")) == (5, logging.WARNING)
    assert parse_level("fatal") == logging.CRITICAL
    with pytest.raises(ValueError, match="loud is not a log level: it must be one of TRACE"):
        parse_level("loud")


def test_loggers_of_the_process(lines: io.StringIO) -> None:
    """Our loggers and the root are shown; a level that is removed follows the parent again."""
    logging.getLogger("kraftrio.test_loggers")
    loggers = ProcessLoggers()
    assert loggers.levels()["root"] == "INFO"
    assert loggers.levels()["kraftrio.test_loggers"] == "INFO"
    loggers.set_level("kraftrio.test_loggers", "TRACE")
    assert loggers.levels()["kraftrio.test_loggers"] == "TRACE"
    assert logging.getLogger("kraftrio.test_loggers").isEnabledFor(5)
    loggers.set_level("kraftrio.test_loggers", None)
    assert loggers.levels()["kraftrio.test_loggers"] == "INFO"
    assert not any(name.startswith("trio") for name in loggers.levels())


def test_json_has_an_object_for_each_line(lines: io.StringIO) -> None:
    """With the fields of the event beside what is always there."""
    handlers = logging.getLogger().handlers
    (handler,) = [one for one in handlers if getattr(one, "stream", None) is lines]
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("kraftrio.server")
    log_event(logger, logging.WARNING, 'of "t"\n', topic="a b", count=3, level="x", ids=(1, 2))
    log_with_stack(logger, logging.INFO, "held", "line 1\nline 2", ms=5)
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARN",
        "component": "server",
        "message": 'of "t"\n',
        "topic": "a b",
        "count": 3,
        "level_": "x",
        "ids": "(1, 2)",
    }
    assert (second["stack"], second["ms"]) == ("line 1\nline 2", 5)


def test_a_stack_is_indented(lines: io.StringIO) -> None:
    """As a traceback is, below its line."""
    log_with_stack(logging.getLogger("kraftrio.node"), logging.INFO, "held", "one\ntwo", ms=5)
    assert lines.getvalue().endswith("held ms=5\n    one\n    two\n")
