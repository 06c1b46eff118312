"""Declares messages and converts them to and from bytes.

A message is a class with one line per field, in wire order, under Kafka's names in snake_case::

    @message("4-18", flexible="12+", api_key=1)
    class FetchRequest:
        cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
        max_wait_ms: int = int32()
        topics: list[FetchTopic] = array(FetchTopic)

Versions are written as in Kafka's definitions: ``3+``, ``0-8``, ``5``, ``none``. The class becomes
a dataclass with slots whose arguments are all optional and given by name. For each version the
decoder and the encoder are compiled on first use (``codec/decoder``, ``codec/encoder``).

Rules: decoded strings are ``str``, bytes are ``bytes``, uuids 16 ``bytes``, errors are
``ErrorCode``, also those that only a newer Kafka knows, records are memoryview slices of the input.
A field outside of its versions has its default; encoding another value
there is a ``LocalProtocolError`` unless the field is ``ignorable``. Tagged fields are written when
they differ from their default, unknown ones are skipped.

Everything that speaks the protocol uses this module. See KIP-482 and the protocol guide.
"""

from __future__ import annotations

import inspect
import struct as _struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform

from kraftrio.wire.codec.classes import make_class
from kraftrio.wire.codec.decoder import Decoder, compile_decoder
from kraftrio.wire.codec.encoder import Encoder, compile_encoder
from kraftrio.wire.codec.schema import (
    ARRAY,
    BOOL,
    BYTES,
    ERROR,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    SPECS,
    STRING,
    STRUCT,
    UINT16,
    UINT32,
    UUID,
    Field,
    StructSpec,
    Versions,
    WireType,
    spec_of,
)
from kraftrio.wire.errors import LocalProtocolError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import Piece, StoredBytes, joined_pieces

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "Records",
    "StructSpec",
    "array",
    "boolean",
    "bytes_",
    "decode",
    "decoder",
    "encode",
    "encode_parts",
    "encode_pieces",
    "error",
    "explanation",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "message",
    "records",
    "records_view",
    "spec_of",
    "string",
    "struct",
    "struct_field",
    "uint16",
    "uint32",
    "uuid",
]

M = TypeVar("M")

Records: TypeAlias = Buffer | list[Buffer] | StoredBytes
"""What a records field may hold to be encoded; a decoded one is a memoryview."""

_UNSET: Any = object()


# Field functions. They are not registered as field specifiers of the dataclass transform: a type
# checker then takes each as a default value, and every argument of the constructor is optional.


def _field(
    kind: WireType,
    versions: str,
    nullable: str | None,
    default: Any,
    tag: int | None,
    tagged: str | None,
    ignorable: bool,
    flexible: str | None,
    element: WireType | type[Any] | None = None,
) -> Any:
    return Field(
        kind=kind,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        tagged=Versions.parse(tagged or versions),
        default=kind.zero if default is _UNSET else default,
        ignorable=ignorable,
        flexible=None if flexible is None else Versions.parse(flexible),
        element=element,
    )


def _fixed(kind: WireType) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        default: Any = _UNSET,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
    ) -> Any:
        return _field(kind, versions, None, default, tag, tagged, ignorable, None)

    declare.__name__ = declare.__qualname__ = kind.name
    declare.__doc__ = f"Declare a field of type {kind.name}."
    return declare


def _variable(kind: WireType) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        nullable: str | None = None,
        default: Any = _UNSET,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
        flexible: str | None = None,
    ) -> Any:
        return _field(kind, versions, nullable, default, tag, tagged, ignorable, flexible)

    declare.__name__ = declare.__qualname__ = kind.name
    declare.__doc__ = f"Declare a field of type {kind.name}."
    return declare


boolean = _fixed(BOOL)
int8 = _fixed(INT8)
int16 = _fixed(INT16)
uint16 = _fixed(UINT16)
int32 = _fixed(INT32)
uint32 = _fixed(UINT32)
int64 = _fixed(INT64)
float64 = _fixed(FLOAT64)
error = _fixed(ERROR)
uuid = _fixed(UUID)
string = _variable(STRING)
bytes_ = _variable(BYTES)
records = _variable(RECORDS)


def explanation(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Any:
    """Declare a string that says to people what went wrong.

    Such a text quotes what a client sent, which may fill a string by itself, so it is cut to fit:
    an answer that cannot be sent would say less.
    """
    field = string(versions, nullable=nullable, default=default, ignorable=ignorable)
    field.is_explanation = True
    return field


def array(
    element: WireType | type[Any],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: Any = _UNSET,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare an array of a struct class or of a primitive (``INT32``, ``STRING``...)."""
    value = [] if default is _UNSET else default
    return _field(ARRAY, versions, nullable, value, tag, tagged, ignorable, flexible, element)


def struct_field(
    element: type[Any],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: Any = _UNSET,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field that is a struct.

    The default is a struct of defaults. With ``default=None`` a tagged struct that is not on the
    wire is None instead, which spares making one per element of a large array.
    """
    value = element() if default is _UNSET else default
    return _field(STRUCT, versions, nullable, value, tag, tagged, ignorable, None, element)


# Class decorators


def _declare(cls: type[M]) -> tuple[type[M], StructSpec]:
    fields = []
    for name in inspect.get_annotations(cls):
        field = cls.__dict__[name]
        assert isinstance(field, Field), (
            f"{cls.__name__}.{name} is not declared by a field function"
        )
        field.name = name
        fields.append(field)
    made = make_class(cls, tuple(fields))
    spec = StructSpec(made.__name__, made, tuple(fields))
    SPECS[made] = spec
    return made, spec


@dataclass_transform(kw_only_default=True)
def struct(cls: type[M]) -> type[M]:
    """Declare a struct that messages contain; the versions are those of the message."""
    return _declare(cls)[0]


@dataclass_transform(kw_only_default=True)
def message(
    versions: str, *, flexible: str = "none", api_key: int | None = None
) -> Callable[[type[M]], type[M]]:
    """Declare a message: its versions, which of them are flexible, and the API it belongs to."""

    def declare(cls: type[M]) -> type[M]:
        made, spec = _declare(cls)
        spec.versions = Versions.parse(versions)
        spec.flexible = Versions.parse(flexible)
        spec.api_key = api_key
        return made

    return declare


# Bytes to values and back

_DECODERS: dict[tuple[type[Any], int], Decoder] = {}
_ENCODERS: dict[tuple[type[Any], int], Encoder] = {}

_MALFORMED = (_struct.error, IndexError, UnicodeDecodeError)
_UNENCODABLE = (_struct.error, AttributeError, TypeError, ValueError, OverflowError)


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """Return the compiled decoder, which raises more than ``decode`` does (see `source`)."""
    found = _DECODERS.get((cls, version))
    if found is None:
        found = _DECODERS[cls, version] = compile_decoder(cls, version)
    return found


def decode(
    cls: type[M], version: int, buf: Buffer, pos: int = 0, end: int | None = None
) -> tuple[M, int]:
    """Decode one message from ``buf[pos:end]``; return it and the position after it.

    Raises:
        RemoteProtocolError: the bytes are not a message of that class and version.
    """
    try:
        run = _DECODERS[cls, version]
    except KeyError:
        run = decoder(cls, version)
    if end is not None and end < len(buf):
        buf = memoryview(buf)[:end]
    try:
        return run(buf, pos)
    except _MALFORMED as exc:
        raise RemoteProtocolError(f"malformed {cls.__name__} version {version}: {exc}") from exc


def records_view(value: Records | None) -> memoryview:
    """Return the bytes of a records field as one memoryview, empty for null."""
    assert not isinstance(value, StoredBytes), "a decoded message holds its bytes"
    if isinstance(value, list):
        value = b"".join(value)
    return memoryview(value or b"")


def encode(msg: object, version: int) -> bytes:
    """Encode a message.

    Raises:
        LocalProtocolError: it has a value that this version cannot hold.
    """
    out: list[Buffer] = []
    _encode_into(msg, version, out, [])
    return b"".join(out)


def encode_parts(msg: object, version: int) -> list[Buffer]:
    """Encode a message into few pieces, with large records among them as they were given."""
    return cast("list[Buffer]", encode_pieces(msg, version))


def encode_pieces(msg: object, version: int) -> list[Piece]:
    """As `encode_parts`, for a message whose records may be stored elsewhere."""
    out: list[Piece] = []
    large: list[int] = []
    _encode_into(msg, version, out, large)
    return joined_pieces(out, large)


def _encode_into(msg: object, version: int, out: list[Any], large: list[int]) -> None:
    cls = type(msg)
    try:
        run = _ENCODERS[cls, version]
    except KeyError:
        run = _ENCODERS[cls, version] = compile_encoder(cls, version)
    try:
        run(msg, out, large)
    except _UNENCODABLE as exc:
        raise LocalProtocolError(f"{cls.__name__} version {version}: {exc}") from exc
