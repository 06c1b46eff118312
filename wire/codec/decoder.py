"""Writes the decoder of a message in one version, as Python source, and compiles it.

The rules of the encoding are those of the protocol guide ("Protocol Primitive Types") and of
KIP-482 (compact types, tagged fields); those of the code stand in `source`. `message` calls it;
`slices` extends the writer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from kraftrio.wire.codec.schema import (
    ARRAY,
    BYTES,
    ERROR,
    STRING,
    STRUCT,
    UUID,
    Field,
    StructSpec,
    WireType,
    least_size_bytes,
    message_spec,
    spec_of,
)
from kraftrio.wire.codec.source import KEPT_COUNTS, MAX_STRING_BYTES, Source
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, read_uvarint

Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]


def compile_decoder(cls: type[Any], version: int) -> Decoder:
    """Build ``decode(buf, pos) -> (message, pos)`` for one version."""
    flexible = version in message_spec(cls, version, RemoteProtocolError).flexible
    run: Decoder = DecoderWriter(version, flexible).build(cls)
    return run


class DecoderWriter(Source):
    """Writes ``run(buf, pos)``.

    Values go straight into the attributes of the object that is being made. Those of fixed size
    wait in ``_run`` until something of variable size or the end of a struct comes.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._run: list[tuple[str, int, str]] = []
        self._conversions: list[str] = []
        self.names.update(
            NONE=ErrorCode.NONE,
            RemoteProtocolError=RemoteProtocolError,
            error_codes=_ERROR_CODES,
            new=object.__new__,
            read_uvarint=read_uvarint,
            read_string_uvarint=_read_string_uvarint,
            skip_tags=_skip_tags,
        )

    def build(self, element: WireType | type[Any]) -> Any:
        """Build the decoder of a message, of a struct in it, or of another value."""
        name = element.__name__ if isinstance(element, type) else element.name
        self.line("end = len(buf)")
        self.line("view = memoryview(buf)")
        self._element(element, "m", name)
        self._flush()
        self.line("return m, pos")
        return self.compile("def run(buf, pos):", f"decode {name} v{self.version}")

    # Runs

    def _fixed(self, code: str, size_bytes: int, target: str) -> None:
        self._run.append((code, size_bytes, target))

    def _error(self, target: str) -> None:
        """Read an error code; most are NONE, which needs no look-up."""
        number = self.local("e")
        self._fixed(ERROR.code, ERROR.size_bytes, number)
        self._conversions.append(f"{target} = error_codes[{number}] if {number} else NONE")

    def _flush(self) -> None:
        if not self._run:
            return
        if len(self._run) == 1 and self._run[0][0] == "B":
            self.line(f"{self._run[0][2]} = buf[pos]")
        else:
            targets = ", ".join(name for _, _, name in self._run)
            comma = "," if len(self._run) == 1 else ""
            unpack = self.packer("unpack_from", "".join(code for code, _, _ in self._run))
            self.line(f"{targets}{comma} = {unpack}(buf, pos)")
        self.line(f"pos += {sum(size for _, size, _ in self._run)}")
        self._run.clear()
        for conversion in self._conversions:
            self.line(conversion)
        self._conversions.clear()

    def _uvarint(self, stem: str, reader: str = "read_uvarint") -> str:
        name = self.local(stem)
        self._fixed("B", 1, name)
        self._flush()
        self.line(f"if {name} > 127:")
        self.line(f"    {name}, pos = {reader}(buf, pos - 1)")
        return name

    def _length(self, kind: WireType, compact: bool) -> str:
        """Read a length; in compact form it is one more than the length, and 0 means null."""
        if compact:
            return self._uvarint("n", "read_string_uvarint" if kind is STRING else "read_uvarint")
        name = self.local("n")
        self._fixed(*(("h", 2) if kind is STRING else ("i", 4)), name)
        self._flush()
        return name

    # Structs and tags

    def _struct(self, spec: StructSpec, var: str, path: str) -> None:
        """Write the reading of a struct into the attributes of the object ``var``."""
        tagged: list[Field] = []
        for field in spec.fields:
            target = f"{var}.{field.name}"
            if self.version not in field.versions:
                self.line(f"{target} = {self._default(field)}")
            elif field.is_tagged(self.version):
                self.line(f"{target} = {self._default(field)}")
                tagged.append(field)
            else:
                self._field(field, target, f"{path}.{field.name}")
        if self.flexible:
            self._tags(tagged, var, path)

    def _default(self, field: Field) -> str:
        """Return an expression that makes the field's default value."""
        if field.kind is STRUCT and field.default is not None:
            return f"{self.constant('C', field.element)}()"
        if field.kind is ERROR:
            return self.constant("NONE", field.default)
        return "[]" if isinstance(field.default, list) else repr(field.default)

    def _tags(self, tagged: list[Field], var: str, path: str) -> None:
        count = self.local("n")
        self._fixed("B", 1, count)
        self._flush()
        self.line(f"if {count}:")
        self.indent()
        if tagged:
            self._known_tags(count, tagged, var, path)
        else:
            self.line(f"pos = skip_tags(buf, pos, {count})")
        self.dedent()

    def _known_tags(self, count: str, tagged: list[Field], var: str, path: str) -> None:
        self.line(f"if {count} > 127:")
        self.line(f"    {count}, pos = read_uvarint(buf, pos - 1)")
        self.line(f"for _ in range({count}):")
        self.indent()
        tag = self._uvarint("tag")
        size = self._uvarint("size")
        tag_end = self.local("end")
        self.line(f"{tag_end} = pos + {size}")
        self.line(f"if {tag_end} > end:")
        self._raise(path, "a tagged field ends after the message")
        branch = "if"
        for field in tagged:
            self.line(f"{branch} {tag} == {field.tag}:")
            self.indent()
            self._field(field, f"{var}.{field.name}", f"{path}.{field.name}")
            self._flush()
            self.dedent()
            branch = "elif"
        self.line("else:")
        self.line(f"    pos = {tag_end}")
        self.line(f"if pos != {tag_end}:")
        self._raise(path, "the size of a tagged field is wrong")
        self.dedent()

    def _raise(self, path: str, what: str) -> None:
        self.line(f"    raise RemoteProtocolError({f'{path}: {what}'!r})")

    # Fields

    def _field(self, field: Field, target: str, path: str) -> None:
        nullable = self.version in field.nullable
        if field.kind is ERROR:
            self._error(target)
        elif field.kind.code:
            self._fixed(field.kind.code, field.kind.size_bytes, target)
        elif field.kind is STRUCT:
            self._struct_field(field, nullable, target, path)
        elif field.kind is ARRAY:
            assert field.element is not None
            self._array(field.element, self.is_compact(field), nullable, target, path)
        else:
            self._variable(field.kind, self.is_compact(field), nullable, target, path)

    def _struct_field(self, field: Field, nullable: bool, target: str, path: str) -> None:
        assert isinstance(field.element, type)
        if nullable:
            present = self.local("n")
            self._fixed("b", 1, present)
            self._flush()
            highest_absent = 0 if field.is_tagged(self.version) else -1
            self.line(f"if {present} <= {highest_absent}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent()
        var = self.local("m")
        self.line(f"{target} = {var} = new({self.constant('C', field.element)})")
        self._struct(spec_of(field.element), var, path)
        if nullable:
            self._flush()
            self.dedent()

    def _variable(
        self, kind: WireType, compact: bool, nullable: bool, target: str, path: str
    ) -> None:
        """Read a string, bytes or records: a length, and that many bytes."""
        length = self._length(kind, compact)
        end = self.local("end")
        if nullable:
            self.line(f"if {length}:" if compact else f"if {length} >= 0:")
            self.indent()
        self.line(f"{end} = pos + {length}" + (" - 1" if compact else ""))
        self.line(f"if {end} > end:" if nullable else f"if {end} > end or {end} < pos:")
        self._raise(path, "truncated" if nullable else "truncated, or null where it must not be")
        value = f"view[pos:{end}]"
        if kind is STRING:
            value += ".tobytes().decode()"
        elif kind is BYTES:
            value += ".tobytes()"
        self.line(f"{target} = {value}")
        self.line(f"pos = {end}")
        if nullable:
            self.dedent()
            self.line("else:")
            self.line(f"    {target} = None")

    def _array(
        self, element: WireType | type[Any], compact: bool, nullable: bool, target: str, path: str
    ) -> None:
        count = self._length(ARRAY, compact)
        if nullable:
            self.line(f"if {count}:" if compact else f"if {count} >= 0:")
            self.indent()
        if compact:
            self.line(f"{count} -= 1")
        # An element without bytes counts as one, or a count of 2**31 would cost nothing.
        least = max(1, least_size_bytes(element, self.version, self.flexible))
        need = count if least == 1 else f"{count} * {least}"
        self.line(
            f"if {need} > end - pos:" if nullable else f"if {need} > end - pos or {count} < 0:"
        )
        self._raise(path, "an array with more elements than the message has bytes, or none")
        self._elements(element, count, target, path)
        if nullable:
            self.dedent()
            self.line("else:")
            self.line(f"    {target} = None")

    def _elements(self, element: WireType | type[Any], count: str, target: str, path: str) -> None:
        if isinstance(element, WireType) and element.code and element is not UUID:
            unpackers = self.constant("unpackers", _unpackers(element.code))
            self.line(f"{target} = list({unpackers}[{count}](buf, pos))")
            self.line(f"pos += {count} * {element.size_bytes}")
            return
        values = self.local("v")
        self.line(f"{target} = {values} = []")
        self.line(f"for _ in range({count}):")
        self.indent()
        item = self.local("m")
        self._element(element, item, path)
        self._flush()
        self.line(f"{values}.append({item})")
        self.dedent()

    def _element(self, element: WireType | type[Any], item: str, path: str) -> None:
        """Write the reading of one element into the local ``item``."""
        if isinstance(element, type):
            self.line(f"{item} = new({self.constant('C', element)})")
            self._struct(spec_of(element), item, path)
        elif element.code:
            self._fixed(element.code, element.size_bytes, item)
        else:
            self._variable(element, self.flexible, False, item, path)


class _Unpackers(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Count of elements -> function that unpacks that many."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = Struct(f">{count}{self._code}").unpack_from
        if count <= KEPT_COUNTS:
            self[count] = unpack
        return unpack


_unpackers = functools.cache(_Unpackers)


# What the generated code calls on its slow paths


class _ErrorCodes(dict[int, ErrorCode]):
    """Number -> error code; also of those that only a newer Kafka knows."""

    def __missing__(self, number: int) -> ErrorCode:
        return ErrorCode.of_peer(number)


_ERROR_CODES = _ErrorCodes({code.value: code for code in ErrorCode})


def _read_string_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    value, pos = read_uvarint(buf, pos)
    if value > MAX_STRING_BYTES + 1:
        raise RemoteProtocolError("string longer than 32767 bytes")
    return value, pos


def _skip_tags(buf: Buffer, pos: int, count: int) -> int:
    """Step over ``count`` tagged fields, none of which we know."""
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise RemoteProtocolError("a tagged field ends after the message")
    return pos
