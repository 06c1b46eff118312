"""Types of settings: how a text becomes a typed value, which values are allowed, and how a value
is written back.

Owns the definition of one setting (`ConfigKey`), the sheets they are read from, and the rules of
parsing, which are those of Kafka's ConfigDef. Pure: no files, no environment. Used by the broker's
table (`config/broker_table`), the topics' and groups' (`topic_config`, `group_config`).

A sheet is a text with two lines a setting, easy to read and to compare with Kafka's documentation:

    name | type | default | allowed | importance | mode
        What it does.

`default` is `null` for none; `allowed` is a list of words (`~` before it: any case), a range `1..`
or `0..1`, or alternatives `-1,1..9`; `mode` is `cluster` or `broker` for settings that may change
while the broker runs, `internal` for those never shown; a topic's sheet holds the broker's
property there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum

ConfigValue = bool | int | float | str | list[str] | None
Validator = Callable[[str, ConfigValue], None]


class PropertyError(Exception):
    """A setting that cannot be used; the text is one sentence for the person who wrote it."""


class ConfigType(IntEnum):
    """Kafka's types, by their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """When a broker's setting may change."""

    READ_ONLY = "read-only"  # only by a restart
    PER_BROKER = "per-broker"  # on one broker while it runs
    CLUSTER_WIDE = "cluster-wide"  # on one broker, or on all by the default resource


class Importance(Enum):
    """How important a setting is to users."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: its name, type, default, allowed values and documentation."""

    name: str
    type: ConfigType
    default: ConfigValue
    check: Validator
    doc: str
    importance: Importance = Importance.MEDIUM
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    synonym: str = ""  # the broker's property that gives a topic's or group's default

    @property
    def sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def attribute(self) -> str:
        """Name of the attribute that holds it."""
        return self.name.replace(".", "_")

    def parse(self, text: str | None) -> ConfigValue:
        """Parse and check a text; PropertyError when it is not allowed."""
        value = None if text is None else parse_value(self.type, self.name, text)
        if isinstance(value, list):  # what it names again is ignored, as in Kafka
            value = list(dict.fromkeys(value))
        self.check(self.name, value)
        return value


_INT_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_JAVA_INT = re.compile(r"[+-]?[0-9]+\Z")
_JAVA_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?\Z")


def invalid(name: str, value: object, reason: str) -> PropertyError:
    """The error for a value that is not allowed, worded as Kafka's clients know it."""
    return PropertyError(f"Invalid value {value} for configuration {name}: {reason}")


def parse_value(kind: ConfigType, name: str, text: str) -> ConfigValue:
    """Turn a text into a value of its type."""
    text = text.strip()
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind in _INT_BITS:
        limit = 1 << (_INT_BITS[kind] - 1)
        if not _JAVA_INT.match(text) or not -limit <= int(text) < limit:
            raise invalid(name, text, f"Not a number of type {kind.name}")
        return int(text)
    if kind is ConfigType.DOUBLE:
        if not _JAVA_DOUBLE.match(text):
            raise invalid(name, text, "Not a number of type DOUBLE")
        return float(text.rstrip("dDfF"))
    if kind is ConfigType.LIST:
        return [item.strip() for item in text.split(",")] if text else []
    return text


def format_value(value: ConfigValue) -> str | None:
    """Write a value as Kafka shows it; what `parse_value` reads back."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).upper().replace("E+", "E")
    return str(value)


def _no_check(name: str, value: ConfigValue) -> None:
    """Any value of the type is allowed."""


def _number(text: str) -> float:
    return float(text) if "." in text.strip(".") else int(text)


def range_check(low_text: str, high_text: str) -> Validator:
    """Allow numbers from low to high, both included; no upper bound when it is empty."""
    low, high = _number(low_text), _number(high_text) if high_text else None

    def check(name: str, value: ConfigValue) -> None:
        if value is None:
            return
        assert isinstance(value, (int, float))
        if value < low:
            raise invalid(name, format_value(value), f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, format_value(value), f"Value must be no more than {high}")

    return check


def alternatives_check(allowed: str) -> Validator:
    """Allow single numbers and one range, as in `-1,1..9`."""
    singles = {int(item) for item in allowed.split(",") if ".." not in item}
    low, high = next(item for item in allowed.split(",") if ".." in item).split("..")

    def check(name: str, value: ConfigValue) -> None:
        if value is None or value in singles:
            return
        assert isinstance(value, int)
        if not int(low) <= value <= int(high):
            wanted = [f"between {low} and {high}", *(f"equal to {n}" for n in sorted(singles))]
            raise invalid(name, value, f"Value must be {' or '.join(wanted)}")

    return check


def _items_check(name: str, value: ConfigValue) -> None:
    """Allow lists without empty items."""
    if isinstance(value, list) and "" in value:
        raise _empty_item(name)


def _empty_item(name: str) -> PropertyError:
    return PropertyError(f"Configuration '{name}' values must not be empty.")


def words_check(words: list[str], *, any_case: bool = False) -> Validator:
    """Allow the words given: one of them, or a list of them."""

    def check(name: str, value: ConfigValue) -> None:
        if value is None:
            return
        items = value if isinstance(value, list) else [str(value)]
        for item in items:
            if not item and isinstance(value, list):
                raise _empty_item(name)
            if (item.lower() if any_case else item) not in words:
                raise invalid(name, item, f"String must be one of: {', '.join(words)}")

    return check


def _validator(kind: ConfigType, allowed: str) -> Validator:
    if not allowed:
        return _items_check if kind is ConfigType.LIST else _no_check
    if ".." in allowed:
        if "," in allowed:
            return alternatives_check(allowed)
        low, high = allowed.split("..")
        return range_check(low, high)
    if allowed.startswith("~"):
        return words_check(allowed[1:].split(","), any_case=True)
    return words_check(allowed.split(","))


_MODES = {"broker": UpdateMode.PER_BROKER, "cluster": UpdateMode.CLUSTER_WIDE}


def _read_key(line: str, doc: str) -> ConfigKey:
    columns = [column.strip() for column in re.split(r"\s*\|\s*", line)]
    name, type_name, default, allowed, importance = columns[:5]
    last = columns[5] if len(columns) > 5 else ""
    kind = ConfigType[type_name.upper()]
    return ConfigKey(
        name=name,
        type=kind,
        default=None if default == "null" else parse_value(kind, name, default),
        check=_validator(kind, allowed),
        doc=doc,
        importance=Importance(importance),
        update_mode=_MODES.get(last, UpdateMode.READ_ONLY),
        internal=last == "internal",
        synonym=last if last not in _MODES and last != "internal" else "",
    )


def read_sheet(sheet: str) -> Iterator[ConfigKey]:
    """Read the settings of a sheet; see the module's docstring for its form."""
    lines = [line for line in sheet.splitlines() if line and not line.startswith("#")]
    assert len(lines) % 2 == 0, "a sheet has two lines a setting"
    for line, doc in zip(lines[::2], lines[1::2], strict=True):
        assert doc.startswith("    "), f"no documentation under {line!r}"
        yield _read_key(line, doc.strip())
