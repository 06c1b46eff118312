"""Turns the description of a message into Python source for one version, and compiles it.

Owns the two code writers. ``codec/message`` is the only caller; everybody else uses
``codec/message``. The rules of the encoding are those of the protocol guide ("Protocol Primitive
Types") and of KIP-482 (compact types, tagged fields).

Rules of the generated code:

1. A run of fixed-size fields, together with the length that follows it, is one ``struct`` call.
   A single-byte unsigned varint is part of the run; longer ones take a slow path.
2. Nested structs are inlined, so one message is one function without calls to others of ours.
3. No slice is taken before its end was compared with the end of the buffer: slices silently
   truncate. An array's count may not exceed what the bytes left could hold.
4. Decoders raise ``struct.error``, ``IndexError``, ``UnicodeDecodeError`` for what ends too early
   or is no UTF-8; ``codec.decode`` turns them into ``RemoteProtocolError``. Encoders raise the
   usual errors of wrong values; ``codec.encode`` turns them into ``LocalProtocolError``.
"""

from __future__ import annotations

import functools
import linecache
import struct
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, TypeAlias

from kraftrio.wire.codec.schema import (
    ARRAY,
    BYTES,
    RECORDS,
    STRING,
    STRUCT,
    UUID,
    Field,
    Kind,
    StructSpec,
    least_size_bytes,
    spec_of,
)
from kraftrio.wire.errors import LocalProtocolError, MissingFieldError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, encode_uvarint, read_uvarint
from kraftrio.wire.stored_bytes import Piece, StoredBytes

LARGE_RECORDS_BYTES = 8192
"""From this size on, records are handed to the socket as they are instead of being copied."""

Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, list[Buffer], list[int]], None]

_MAX_STRING_BYTES = 0x7FFF
_KEPT_COUNTS = 64


def compile_decoder(cls: type[Any], version: int) -> Decoder:
    """Build ``decode(buf, pos) -> (message, pos)`` for one version."""
    flexible = version in message_spec(cls, version, RemoteProtocolError).flexible
    run: Decoder = DecoderWriter(version, flexible).build(cls)
    return run


def compile_encoder(cls: type[Any], version: int) -> Encoder:
    """Build ``encode(message, out, large)``.

    It appends the pieces to ``out``, and to ``large`` the positions in ``out`` of those pieces
    that are not worth copying.
    """
    spec = message_spec(cls, version, LocalProtocolError)
    run: Encoder = EncoderWriter(version, version in spec.flexible).build(spec)
    return run


def message_spec(cls: type[Any], version: int, refusal: type[Exception]) -> StructSpec:
    """Return the description of a message; raise ``refusal`` when it has no such version."""
    spec = spec_of(cls)
    if spec.versions is None:
        raise LocalProtocolError(f"{spec.name} is a part of messages, not a message")
    if version not in spec.versions:
        raise refusal(f"{spec.name} has no version {version}")
    return spec


class Source:
    """Lines of source, the names they use, and fresh local names."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def local(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        """Return a global name for ``value``, the same one when it is the same object."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, method: str, code: str) -> str:
        name = f"{method}_{code.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + code), method)
        return name

    def compile(self, head: str, what: str) -> Any:
        source = "\n".join([head, *self._lines]) + "\n"
        filename = f"<kraftrio.wire {what}>"
        # In linecache a traceback shows the generated lines.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names["run"]

    def is_compact(self, field: Field) -> bool:
        if field.flexible is not None:
            return self.version in field.flexible
        return self.flexible


class DecoderWriter(Source):
    """Writes ``run(buf, pos)``.

    Values go straight into the attributes of the object that is being made. Those of fixed size
    wait in ``_run`` until something of variable size or the end of a struct comes.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._run: list[tuple[str, int, str]] = []
        self.names.update(
            RemoteProtocolError=RemoteProtocolError,
            new=object.__new__,
            read_uvarint=read_uvarint,
            read_string_uvarint=_read_string_uvarint,
            skip_tags=_skip_tags,
        )

    def build(self, element: Kind | type[Any]) -> Any:
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

    def _uvarint(self, stem: str, reader: str = "read_uvarint") -> str:
        name = self.local(stem)
        self._fixed("B", 1, name)
        self._flush()
        self.line(f"if {name} > 127:")
        self.line(f"    {name}, pos = {reader}(buf, pos - 1)")
        return name

    def _length(self, kind: Kind, compact: bool) -> str:
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
        if field.kind.code:
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
            self.line(f"if {present} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent()
        var = self.local("m")
        self.line(f"{target} = {var} = new({self.constant('C', field.element)})")
        self._struct(spec_of(field.element), var, path)
        if nullable:
            self._flush()
            self.dedent()

    def _variable(self, kind: Kind, compact: bool, nullable: bool, target: str, path: str) -> None:
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
        self, element: Kind | type[Any], compact: bool, nullable: bool, target: str, path: str
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

    def _elements(self, element: Kind | type[Any], count: str, target: str, path: str) -> None:
        if isinstance(element, Kind) and element.code and element is not UUID:
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

    def _element(self, element: Kind | type[Any], item: str, path: str) -> None:
        """Write the reading of one element into the local ``item``."""
        if isinstance(element, type):
            self.line(f"{item} = new({self.constant('C', element)})")
            self._struct(spec_of(element), item, path)
        elif element.code:
            self._fixed(element.code, element.size_bytes, item)
        else:
            self._variable(element, self.flexible, False, item, path)


class EncoderWriter(Source):
    """Writes ``run(m, out, large)``; packed values wait in ``_run`` until they are flushed."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._run: list[tuple[str, str]] = []
        self._append = "append"
        self.names.update(
            LocalProtocolError=LocalProtocolError,
            uvarint=encode_uvarint,
            add_records=_add_records,
            add_tag=_add_tag,
            refuse=_refuse,
        )

    def build(self, spec: StructSpec) -> Any:
        self.line("append = out.append")
        self._struct(spec, "m")
        self._flush()
        return self.compile("def run(m, out, large):", f"encode {spec.name} v{self.version}")

    # Runs

    def _fixed(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def _packed(self) -> str:
        """Empty the run; return the expression of its bytes."""
        run, self._run = self._run, []
        arguments = ", ".join(expression for code, expression in run if code != "x")
        if not arguments:
            return repr(bytes(len(run)))
        return f"{self.packer('pack', ''.join(code for code, _ in run))}({arguments})"

    def _flush(self) -> None:
        if self._run:
            self.line(f"{self._append}({self._packed()})")

    def _uvarint(self, name: str) -> None:
        """Write the local ``name``; with the run in one call while it fits a byte."""
        if not self._run:
            self.line(f"{self._append}(uvarint({name}))")
            return
        before = list(self._run)
        long_form = f"{self._packed()} + uvarint({name})"
        self._run = [*before, ("B", name)]
        self.line(f"{self._append}({self._packed()} if {name} < 128 else {long_form})")

    def _length(self, kind: Kind, compact: bool, length: str) -> None:
        if compact:
            name = self.local("n")
            self.line(f"{name} = {length} + 1")
            if kind is STRING:
                self.line(f"if {name} > {_MAX_STRING_BYTES + 1}:")
                self.line("    raise LocalProtocolError('string longer than 32767 bytes')")
            self._uvarint(name)
        else:
            self._fixed("h" if kind is STRING else "i", length)

    def _null(self, kind: Kind, compact: bool) -> None:
        if compact:
            self._fixed("x", "")
        else:
            self._fixed("h" if kind is STRING else "i", "-1")

    # Structs and tags

    def _struct(self, spec: StructSpec, var: str) -> None:
        version = self.version
        outside = [f for f in spec.fields if version not in f.versions and not f.ignorable]
        if outside:
            conditions = " or ".join(self._is_set(field, var) for field in outside)
            fields = self.constant("F", tuple(outside))
            self.line(f"if {conditions}:")
            self.line(f"    refuse({var}, {fields}, {version})")
        tagged: list[Field] = []
        for field in spec.fields:
            if version not in field.versions:
                continue
            if field.is_tagged(version):
                tagged.append(field)
            else:
                self._field(field, f"{var}.{field.name}")
        if self.flexible:
            if tagged:
                tagged.sort(key=lambda field: field.tag or 0)
                self._tags(tagged, var)
            else:
                self._fixed("x", "")

    def _is_set(self, field: Field, var: str) -> str:
        """Return the condition that the field does not have its default value."""
        value = f"{var}.{field.name}"
        default = field.default
        if default is None:
            return f"{value} is not None"
        if field.kind is STRUCT:
            return f"{value} != {self.constant('D', default)}"
        if isinstance(default, list) or default == b"":
            return f"({value} or {value} is None)"
        if default == 0:
            return value
        return f"{value} != {default!r}"

    def _tags(self, tagged: list[Field], var: str) -> None:
        self._flush()
        self.line(f"if {' or '.join(self._is_set(field, var) for field in tagged)}:")
        self.indent()
        tags = self.local("tags")
        self.line(f"{tags} = []")
        outer_append = self._append
        for field in tagged:
            self.line(f"if {self._is_set(field, var)}:")
            self.indent()
            pieces = self.local("pieces")
            self._append = self.local("append")
            self.line(f"{pieces} = []")
            self.line(f"{self._append} = {pieces}.append")
            self._field(field, f"{var}.{field.name}")
            self._flush()
            self.line(f"add_tag({tags}, {field.tag}, {pieces})")
            self.dedent()
        self._append = outer_append
        self.line(f"{self._append}(uvarint(len({tags})))")
        self.line(f"{self._append}(b''.join({tags}))")
        self.dedent()
        self.line("else:")
        self.line(f"    {self._append}(b'\\x00')")

    # Fields

    def _field(self, field: Field, value: str) -> None:
        nullable = self.version in field.nullable
        if field.kind.code:
            self._number(field.kind, value)
        elif field.kind is STRUCT:
            self._struct_field(field, nullable, value)
        else:
            self._variable(field, self.is_compact(field), nullable, value)

    def _number(self, kind: Kind, value: str) -> None:
        """Write a value of fixed size; ``struct`` checks all of them but the length of uuids."""
        if kind is UUID:
            self.line(f"if len({value}) != 16:")
            self.line("    raise LocalProtocolError('a uuid has 16 bytes')")
        self._fixed(kind.code, value)

    def _struct_field(self, field: Field, nullable: bool, value: str) -> None:
        assert isinstance(field.element, type)
        var = self.local("m")
        self.line(f"{var} = {value}")
        if not nullable:
            self._struct(spec_of(field.element), var)
            return
        self._flush()
        self.line(f"if {var} is None:")
        self.line(f"    {self._append}(b'\\xff')")
        self.line("else:")
        self.indent()
        self._fixed("b", "1")
        self._struct(spec_of(field.element), var)
        self._flush()
        self.dedent()

    def _variable(self, field: Field, compact: bool, nullable: bool, value: str) -> None:
        """Write a string, bytes, records or an array: a length or null, and the content."""
        var = self.local("x")
        self.line(f"{var} = {value}")
        if not nullable:
            self._content(field.kind, field.element, compact, var)
            return
        # Both branches start with the run, so that it is packed with the length or the null.
        before = list(self._run)
        self.line(f"if {var} is None:")
        self.indent()
        self._null(field.kind, compact)
        self._flush()
        self.dedent()
        self._run = before
        self.line("else:")
        self.indent()
        self._content(field.kind, field.element, compact, var)
        self._flush()
        self.dedent()

    def _content(
        self, kind: Kind, element: Kind | type[Any] | None, compact: bool, var: str
    ) -> None:
        if kind is RECORDS:
            self._records(compact, var)
        elif kind is ARRAY:
            assert element is not None
            if isinstance(element, Kind) and element.code and element is not UUID:
                self._numbers(element, compact, var)
            else:
                self._length(kind, compact, f"len({var})")
                self._elements(element, var)
        else:
            if kind is STRING:
                self.line(f"{var} = {var}.encode()")
            self._length(kind, compact, f"len({var})")
            self._flush()
            self.line(f"{self._append}({var})")

    def _records(self, compact: bool, var: str) -> None:
        size = self.local("size")
        self.line(f"{size} = sum(map(len, {var})) if type({var}) is list else len({var})")
        self._length(RECORDS, compact, size)
        self._flush()
        self.line(f"add_records(out, large, {var})")

    def _numbers(self, element: Kind, compact: bool, var: str) -> None:
        """Write an array of fixed-size elements in one call, with the run before it."""
        run, self._run = self._run, []
        count = self.local("n")
        self.line(f"{count} = len({var})")
        packers = self.constant(
            "packers", _packers("".join(code for code, _ in run), compact, element.code)
        )
        arguments = [expression for code, expression in run if code != "x"]
        arguments += [f"{count} + 1" if compact else count, f"*{var}"]
        self.line(f"{self._append}({packers}[{count}]({', '.join(arguments)}))")

    def _elements(self, element: Kind | type[Any], var: str) -> None:
        self._flush()
        item = self.local("m")
        self.line(f"for {item} in {var}:")
        self.indent()
        if isinstance(element, type):
            self._struct(spec_of(element), item)
        elif element.code:
            self._number(element, item)
        else:
            self._content(element, None, self.flexible, item)
        self._flush()
        self._after_element()
        if not least_size_bytes(element, self.version, self.flexible):
            self.line("continue")  # the body may be empty
        self.dedent()

    def _after_element(self) -> None:
        """Write what is done after each element; a place for subclasses."""


# Arrays of fixed-size elements: one compiled struct for each count that occurs


class _Unpackers(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Count of elements -> function that unpacks that many."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = Struct(f">{count}{self._code}").unpack_from
        if count <= _KEPT_COUNTS:
            self[count] = unpack
        return unpack


class _Packers(dict[int, Callable[..., bytes]]):
    """Count of elements -> function that packs what is before, the length, and the elements."""

    def __init__(self, before: str, compact: bool, code: str) -> None:
        self._before = before
        self._compact = compact
        self._code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        elements = f"{count}{self._code}"
        if self._compact and count >= 127:
            return partial(_pack_long, ">" + self._before, ">" + elements, count)
        pack = Struct(f">{self._before}{'B' if self._compact else 'i'}{elements}").pack
        if count <= _KEPT_COUNTS:
            self[count] = pack
        return pack


def _pack_long(before: str, elements: str, count: int, *values: Any) -> bytes:
    """Pack like ``_Packers``, where the compact length has more than one byte."""
    head = values[: len(values) - count - 1]
    return (
        struct.pack(before, *head)
        + encode_uvarint(count + 1)
        + struct.pack(elements, *values[len(values) - count :])
    )


_unpackers = functools.cache(_Unpackers)
_packers = functools.cache(_Packers)


# What the generated code calls on its slow paths


def _read_string_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    value, pos = read_uvarint(buf, pos)
    if value > _MAX_STRING_BYTES + 1:
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


def _add_tag(tags: list[Buffer], tag: int, pieces: list[Buffer]) -> None:
    content = b"".join(pieces)
    tags.append(encode_uvarint(tag) + encode_uvarint(len(content)) + content)


def _add_records(out: list[Piece], large: list[int], records: Piece | list[Buffer]) -> None:
    for piece in records if isinstance(records, list) else (records,):
        if len(piece) >= LARGE_RECORDS_BYTES or isinstance(piece, StoredBytes):
            large.append(len(out))
        out.append(piece)


def _refuse(message: object, fields: tuple[Field, ...], version: int) -> None:
    """Raise for the field that has a value although ``version`` does not have the field."""
    for field in fields:
        value = getattr(message, field.name)
        if value != field.default:
            raise MissingFieldError(
                f"{type(message).__name__}.{field.name} = {value!r}, "
                f"but version {version} does not have this field"
            )
