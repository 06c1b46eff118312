"""Decodes and encodes in slices: generators that pause between entries.

The caller that drives such a generator decides how long it works before others run; its value is
the outcome. The code is that of `decoder` and `encoder` with pauses between the entries of arrays,
and it leaves long arrays where they are: see `lazy_arrays`. A decoder has read every byte before
its value is there, so that a malformed request is refused as a whole.

Called by the dispatcher for large requests, and for all responses that may be large.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from kraftrio.wire.codec.decoder import DecoderWriter
from kraftrio.wire.codec.encoder import EncoderWriter
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES, Entries, EntryReader, Numbers
from kraftrio.wire.codec.schema import UUID, StructSpec, WireType, message_spec
from kraftrio.wire.errors import LocalProtocolError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import Piece, joined_pieces

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]
"""Work with pauses; its value is a T."""

_JOINED_PIECES = 4096
_DECODED_AT_ONCE = 16  # a pause costs about as much as an entry

_MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
_UNENCODABLE = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def decode_slices(cls: type[T], version: int, buf: Buffer, pos: int = 0) -> Slices[T]:
    """Decode one message, as `codec.decode` does.

    Raises:
        RemoteProtocolError: the bytes are not a message of that class and version.
    """
    run = _decoder(cls, version)
    try:
        message: T = (yield from run(buf, pos))[0]
    except _MALFORMED as exc:
        raise RemoteProtocolError(f"malformed {cls.__name__} version {version}: {exc}") from exc
    return message


def encode_slices(message: object, version: int) -> Slices[list[Piece]]:
    """Encode one message into few pieces, as `codec.encode_pieces` does.

    Raises:
        LocalProtocolError: it has a value that this version cannot hold.
    """
    cls = type(message)
    out: list[Piece] = []
    large: list[int] = []
    parts: list[Piece] = []
    try:
        for _ in _encoder(cls, version)(message, out, large):
            if len(out) >= _JOINED_PIECES:
                parts += joined_pieces(out, large)
                out.clear()
                large.clear()
            yield
    except _UNENCODABLE as exc:
        raise LocalProtocolError(f"{cls.__name__} version {version}: {exc}") from exc
    return parts + joined_pieces(out, large)


_DECODERS: dict[tuple[type[Any], int], Callable[[Buffer, int], Slices[tuple[Any, int]]]] = {}
_ENCODERS: dict[tuple[type[Any], int], Callable[[Any, list[Piece], list[int]], Slices[None]]] = {}
_READERS: dict[tuple[WireType | type[Any], int, bool], EntryReader] = {}


def _decoder(cls: type[Any], version: int) -> Callable[[Buffer, int], Slices[tuple[Any, int]]]:
    found = _DECODERS.get((cls, version))
    if found is None:
        flexible = version in message_spec(cls, version, RemoteProtocolError).flexible
        found = _DECODERS[cls, version] = _SlicedDecoderWriter(version, flexible).build(cls)
    return found


def _encoder(cls: type[Any], version: int) -> Callable[[Any, list[Piece], list[int]], Slices[None]]:
    found = _ENCODERS.get((cls, version))
    if found is None:
        spec = message_spec(cls, version, LocalProtocolError)
        writer = _SlicedEncoderWriter(version, version in spec.flexible)
        found = _ENCODERS[cls, version] = writer.build(spec)
    return found


def _entry_reader(element: WireType | type[Any], version: int, flexible: bool) -> EntryReader:
    """Compile the decoder of one entry by itself."""
    key = element, version, flexible
    found = _READERS.get(key)
    if found is None:
        found = _READERS[key] = DecoderWriter(version, flexible).build(element)
    return found


class _SlicedDecoderWriter(DecoderWriter):
    """Writes a generator; `lazy` counts the arrays that were left where they are."""

    def build(self, element: WireType | type[Any]) -> Any:
        self.names.update(Entries=Entries, Numbers=Numbers)
        self.line("yield")
        self.line("lazy = 0")
        return super().build(element)

    def _elements(self, element: WireType | type[Any], count: str, target: str, path: str) -> None:
        if isinstance(element, WireType) and element.code and element is not UUID:
            self.line(f"if {count} > {KEPT_ENTRIES}:")
            self.line(f"    {target} = Numbers(buf, pos, {count}, {element.code!r})")
            self.line(f"    pos += {count} * {element.size_bytes}")
            self.line("    lazy += 1")
            self.line("else:")
            self.indent()
            super()._elements(element, count, target, path)
            self.dedent()
            return
        reader = self.constant("read", _entry_reader(element, self.version, self.flexible))
        values, is_long, before = self.local("v"), self.local("is_long"), self.local("before")
        self.line(f"{is_long} = {count} > {KEPT_ENTRIES}")
        self.line(f"{target} = {values} = Entries(buf, pos, {reader}) if {is_long} else []")
        index = self.local("i")
        self.line(f"for {index} in range({count}):")
        self.indent()
        self.line(f"{before} = lazy")
        item = self.local("m")
        self._element(element, item, path)
        self._flush()
        self.line(f"if {is_long}:")
        self.line(f"    {values}.add({item}, pos, is_held=lazy != {before})")
        self.line("else:")
        self.line(f"    {values}.append({item})")
        self.line(f"if {index} % {_DECODED_AT_ONCE} == 0:")
        self.line("    yield")
        self.dedent()
        self.line(f"if {is_long}:")
        self.line(f"    {values}.complete()")
        self.line("    lazy += 1")


class _SlicedEncoderWriter(EncoderWriter):
    """Writes a generator."""

    def build(self, spec: StructSpec) -> Any:
        self.line("yield")
        return super().build(spec)

    def _after_element(self) -> None:
        self.line("yield")
