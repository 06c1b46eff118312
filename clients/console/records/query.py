"""What a user wants to see of a topic's records: where to begin, which ones, and how many.

Owns `Query`, made from a page's fields by `read_query`, and `RecordFilter`, the test of a record.

Pure. Called by: the pages of records, and `reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from kraftrio.clients.cli.times import parse_moment_ms
from kraftrio.clients.console.records.shown import Form
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord

E = TypeVar("E", bound=Enum)

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200  # as many as are shown in one step


class Begin(Enum):
    """Where to begin."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


class QueryError(ValueError):
    """A page was asked for something impossible; says what is wanted."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are wanted: those that pass each test that is not None.

    Attributes:
        key: the whole key.
        part: bytes that the key, the value or a header must contain.
    """

    key: bytes | None = None
    part: bytes | None = None

    @property
    def is_everything(self) -> bool:
        """Whether there is no test."""
        return self.key is None and self.part is None

    def may_be_in(self, batch: ConsumerBatch) -> bool:
        """Return whether a batch may have such records; it is not decoded for that."""
        return all(
            batch.may_contain(needle) for needle in (self.key, self.part) if needle is not None
        )

    def __call__(self, record: ConsumerRecord) -> bool:
        """Return whether a record is wanted."""
        if self.key is not None and record.key != self.key:
            return False
        part = self.part
        if part is None:
            return True
        if record.value is not None and part in record.value:
            return True
        if record.key is not None and part in record.key:
            return True
        return any(
            part in name.encode() or (value is not None and part in value)
            for name, value in record.headers
        )


EVERYTHING: Final = RecordFilter()


@dataclass(frozen=True, slots=True)
class Query:
    """What is wanted of a topic.

    Attributes:
        partition: None: all.
        offset: with OFFSET the first one of each partition.
        at_ms: with TIME the first record that is not older.
        until_ms: the end is the first record that is not older; None: the end.
        limit: how many records.
    """

    topic: str
    partition: int | None
    begin: Begin
    offset: int | None
    at_ms: int | None
    until_ms: int | None
    wanted: RecordFilter
    limit: int
    form: Form


def read_query(fields: Mapping[str, str], now_ms: int) -> Query:
    """Read the fields of a page.

    Raises:
        QueryError: one is wrong.
    """
    begin = _choice(Begin, fields, "begin", Begin.NEWEST)
    at = fields.get("at", "").strip()
    if begin in (Begin.OFFSET, Begin.TIME) and not at:
        kind = "an offset such as 1200" if begin is Begin.OFFSET else "a time such as 5m ago"
        raise QueryError(f"beginning at an offset or a time needs it in the field beside: {kind}")
    key, part = fields.get("key", ""), fields.get("text", "")
    return Query(
        fields.get("topic", ""),
        _number(fields, "partition", None, 0, 1 << 31),
        begin,
        _number(fields, "at", None, 0, 1 << 62) if begin is Begin.OFFSET else None,
        _moment(at, now_ms) if begin is Begin.TIME else None,
        _moment(until, now_ms) if (until := fields.get("until", "").strip()) else None,
        RecordFilter(_content(key) if key else None, _content(part) if part else None),
        _number(fields, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT,
        _choice(Form, fields, "form", Form.AUTO),
    )


def _content(text: str) -> bytes:
    """Return the bytes of a text, or of hexadecimal digits after 0x."""
    if not text.lower().startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        raise QueryError(
            f"{text!r}: bytes after 0x are pairs of hexadecimal digits, such as 0x00ff"
        ) from None


def _moment(text: str, now_ms: int) -> int:
    try:
        return parse_moment_ms(text, now_ms)
    except ValueError as error:
        raise QueryError(str(error)) from None


def _number(
    fields: Mapping[str, str], name: str, default: int | None, least: int, most: int
) -> int | None:
    text = fields.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
        raise QueryError(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _choice(kind: type[E], fields: Mapping[str, str], name: str, default: E) -> E:
    text = fields.get(name, "")
    try:
        return kind(text) if text else default
    except ValueError:
        names = ", ".join(str(each.value) for each in kind)
        raise QueryError(f"{name} must be one of {names}, not {text!r}") from None
