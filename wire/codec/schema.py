"""The description of messages: what a declaration says, as data.

Owns the wire types (``WireType``), ``Versions``, ``Field`` and ``StructSpec``, and the registry of
everything that is declared. ``codec/message`` makes the descriptions, ``codec/decoder`` and
``codec/encoder`` turn them into code, and the conformance tests compare them with Kafka's
definitions.

Rule: a description does not change after its declaration, except that ``message`` adds the
versions to the struct it declares. Terms are those of Kafka's definitions (KIP-482).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kraftrio.wire.errors import ErrorCode, LocalProtocolError

_FOREVER = 0x7FFF


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when ``last < first``."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @property
    def is_empty(self) -> bool:
        """Whether there is no version in the range."""
        return self.last < self.first

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Parse Kafka's notation: ``3+``, ``0-8``, ``5``, ``none``."""
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _FOREVER)
        first, dash, last = text.partition("-")
        return cls(int(first), int(last) if dash else int(first))


@dataclass(frozen=True, slots=True)
class WireType:
    """A wire type; ``code`` is its ``struct`` character when its size is fixed."""

    name: str
    code: str
    size_bytes: int
    zero: object


BOOL = WireType("bool", "?", 1, False)
INT8 = WireType("int8", "b", 1, 0)
INT16 = WireType("int16", "h", 2, 0)
UINT16 = WireType("uint16", "H", 2, 0)
INT32 = WireType("int32", "i", 4, 0)
UINT32 = WireType("uint32", "I", 4, 0)
INT64 = WireType("int64", "q", 8, 0)
FLOAT64 = WireType("float64", "d", 8, 0.0)
ERROR = WireType("int16", "h", 2, ErrorCode.NONE)
UUID = WireType("uuid", "16s", 16, bytes(16))
STRING = WireType("string", "", 0, "")
BYTES = WireType("bytes", "", 0, b"")
RECORDS = WireType("records", "", 0, None)
ARRAY = WireType("array", "", 0, None)
STRUCT = WireType("struct", "", 0, None)


@dataclass(slots=True)
class Field:
    """One declared field.

    Attributes:
        element: of arrays their element, of structs the class.
        is_explanation: a text for people, which is cut rather than refused when it is too long.
    """

    kind: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    ignorable: bool
    flexible: Versions | None
    element: WireType | type[Any] | None
    is_explanation: bool = False
    name: str = ""

    def is_tagged(self, version: int) -> bool:
        """Whether the field is in the tag section in ``version``."""
        return self.tag is not None and version in self.tagged

    @property
    def is_absent_by_default(self) -> bool:
        """Whether None means "not sent": a tagged struct declared with ``default=None``."""
        return self.kind is STRUCT and self.default is None and self.tag is not None


@dataclass(slots=True)
class StructSpec:
    """The description of a class; only messages have ``versions`` and ``flexible``."""

    name: str
    cls: type[Any]
    fields: tuple[Field, ...]
    versions: Versions | None = None
    flexible: Versions = Versions(0, -1)
    api_key: int | None = None


SPECS: dict[type[Any], StructSpec] = {}


def spec_of(cls: type[Any]) -> StructSpec:
    """Return the description of a declared class."""
    try:
        return SPECS[cls]
    except KeyError:
        raise LocalProtocolError(f"{cls.__name__} is not declared as a message") from None


def message_spec(cls: type[Any], version: int, refusal: type[Exception]) -> StructSpec:
    """Return the description of a message; raise ``refusal`` when it has no such version."""
    spec = spec_of(cls)
    if spec.versions is None:
        raise LocalProtocolError(f"{spec.name} is a part of messages, not a message")
    if version not in spec.versions:
        raise refusal(f"{spec.name} has no version {version}")
    return spec


def least_size_bytes(element: WireType | type[Any], version: int, flexible: bool) -> int:
    """Return how many bytes the smallest possible element has."""
    if isinstance(element, WireType):
        if element.code:
            return element.size_bytes
        return 1 if flexible else 2 if element is STRING else 4
    total = 1 if flexible else 0
    for field in spec_of(element).fields:
        if version not in field.versions or field.is_tagged(version):
            continue
        if field.kind is STRUCT:
            assert isinstance(field.element, type)
            nullable = version in field.nullable
            total += 1 if nullable else least_size_bytes(field.element, version, flexible)
        else:
            compact = flexible if field.flexible is None else version in field.flexible
            total += least_size_bytes(field.kind, version, compact)
    return total
