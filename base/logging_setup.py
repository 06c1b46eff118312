"""Logging: one line an event, in fixed columns, to standard error.

    2026-11-28T10:00:00.123Z INFO  server       listening address=localhost:9092

Time in UTC, level in 5 columns, component (the last part of the logger's name) in 12, the message,
then key=value pairs. A traceback follows on indented lines. At INFO the broker says little: its
start, its stop, and what an operator should look at.

What comes over and over is logged now and then, with how often it came (`line_limits`); a logger
that is set to DEBUG logs everything. Standard error that cannot be written costs lines and
nothing else (`line_output`).

Owns the format, Kafka's level names, and `ProcessLoggers`, through which DescribeConfigs and
IncrementalAlterConfigs see the loggers of the process (resource type 8). Called by the command
line and by `api/configs`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import IO, Final

from kraftrio.base.line_limits import LineLimits
from kraftrio.base.line_output import STANDARD_ERROR, LineOutput

TRACE = 5

# Kafka's level names, the most verbose first.
LEVELS: Final[dict[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_PACKAGE = "kraftrio"
_FIELDS = "kraftrio_fields"
_LEFT_OUT = "kraftrio_left_out"
_STACK = "kraftrio_stack"


def level_name(level: int) -> str:
    """Give Kafka's name of a level: the nearest that is not above it."""
    name = "TRACE"
    for candidate, value in LEVELS.items():
        if level >= value:
            name = candidate
    return name


def _printable(text: str) -> str:
    """Escape what would break the line or the terminal: clients choose parts of what is logged."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def _show(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(sign in text for sign in ' "='):
        return text
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def event_text(record: logging.LogRecord) -> str:
    """Return a record's message with the key=value pairs of `log_event` after it, on one line."""
    fields: Mapping[str, object] = getattr(record, _FIELDS, {})
    pairs = [f" {key}={_show(value)}" for key, value in fields.items()]
    return _printable(record.getMessage()) + "".join(pairs)


class LineFormatter(logging.Formatter):
    """Writes a record as one line in fixed columns."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        component = record.name.rpartition(".")[2]
        line = (
            f"{seconds}.{int(record.msecs):03d}Z {level_name(record.levelno):5} "
            f"{component:12} {event_text(record)}"
        )
        if left_out := getattr(record, _LEFT_OUT, 0):
            line += f" left_out={left_out}"
        if record.exc_info:
            line += _indented(self.formatException(record.exc_info))
        if stack := getattr(record, _STACK, ""):
            line += _indented(stack)
        return line


def _indented(text: str) -> str:
    return "".join(f"\n    {one}" for one in text.splitlines())


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object on a line, for log collectors.

    `time`, `level`, `component` and `message` are always there; what else is known of the event has
    its own keys beside them (those that clash end with an underscore), a traceback or the stack
    of another thread is `stack`.
    """

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        shown: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": level_name(record.levelno),
            "component": record.name.rpartition(".")[2],
            "message": record.getMessage(),
        }
        fields: Mapping[str, object] = getattr(record, _FIELDS, {})
        for key, value in fields.items():
            is_plain = isinstance(value, bool | int | float | str)
            shown[f"{key}_" if key in shown else key] = value if is_plain else str(value)
        if left_out := getattr(record, _LEFT_OUT, 0):
            shown["left_out"] = left_out
        stack = getattr(record, _STACK, "")
        if record.exc_info:
            stack = self.formatException(record.exc_info)
        if stack:
            shown["stack"] = stack
        return json.dumps(shown, ensure_ascii=False)


class LimitedLines(logging.Filter):
    """Leaves out what comes over and over, unless its logger is set to DEBUG."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._limits = LineLimits()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or logging.getLogger(record.name).isEnabledFor(
            logging.DEBUG
        ):
            return True
        left_out = self._limits.admit(
            (record.name, record.msg),
            lambda: f"{record.getMessage()} {getattr(record, _FIELDS, '')}",
            self._now_s(),
        )
        setattr(record, _LEFT_OUT, left_out)
        return left_out is not None


def log_event(logger: logging.Logger, level: int, message: str, /, **fields: object) -> None:
    """Log a message with key=value pairs after it."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={_FIELDS: fields})


def log_with_stack(
    logger: logging.Logger, level: int, message: str, stack: str, /, **fields: object
) -> None:
    """Log a message with key=value pairs, and the stack of another thread on lines of its own."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={_FIELDS: fields, _STACK: stack})


LOG_FORMATS: Final[dict[str, Callable[[], logging.Formatter]]] = {
    "text": LineFormatter,
    "json": JsonFormatter,
}


def setup_logging(
    level: str, stream: IO[str] | None = None, log_format: str = "text"
) -> logging.Handler:
    """Send every logger's records from `level` on to a stream (standard error).

    Args:
        log_format: one of LOG_FORMATS.

    Returns:
        the handler, so that a test can take it away again.

    Raises:
        ValueError: no such level; the text names those there are.
    """
    number = parse_level(level)
    logging.addLevelName(TRACE, "TRACE")
    output = LineOutput(STANDARD_ERROR) if stream is None else stream
    handler = logging.StreamHandler(output)
    handler.setFormatter(LOG_FORMATS[log_format]())
    handler.addFilter(LimitedLines())
    _leave_out_what_is_not_shown()
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(number)
    return handler


def _leave_out_what_is_not_shown() -> None:
    """Spare each record what no format here shows (Python's Logging HOWTO, "Optimization")."""
    logging._srcfile = None  # which line of code logs
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def parse_level(name: str) -> int:
    """Give the number of one of Kafka's level names, or Python's; ValueError if unknown."""
    upper = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(name.upper(), name.upper())
    if upper not in LEVELS:
        raise ValueError(f"{name} is not a log level: it must be one of {', '.join(LEVELS)}")
    return LEVELS[upper]


class ProcessLoggers:
    """The loggers of this process, by name; the root logger is called `root`."""

    def levels(self) -> dict[str, str]:
        """Give the level in force of the root logger and of each of ours."""
        found = {"root": level_name(logging.getLogger().getEffectiveLevel())}
        for name in sorted(logging.Logger.manager.loggerDict):
            if name == _PACKAGE or name.startswith(_PACKAGE + "."):
                found[name] = level_name(logging.getLogger(name).getEffectiveLevel())
        return found

    def set_level(self, name: str, level: str | None) -> None:
        """Set a logger's level; None makes it follow its parent."""
        logger = logging.getLogger() if name == "root" else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
