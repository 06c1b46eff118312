"""Writes the encoder of a message in one version, as Python source, and compiles it.

The rules of the encoding are those of the protocol guide ("Protocol Primitive Types") and of
KIP-482 (compact types, tagged fields); those of the code stand in `source`. `message` calls it;
`slices` extends the writer.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, TypeAlias

from kraftrio.wire.codec.schema import (
    ARRAY,
    ERROR,
    RECORDS,
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
from kraftrio.wire.errors import LocalProtocolError, MissingFieldError
from kraftrio.wire.primitives import Buffer, encode_uvarint
from kraftrio.wire.stored_bytes import Piece, StoredBytes

LARGE_RECORDS_BYTES = 8192
"""From this size on, records are handed to the socket as they are instead of being copied."""

_MAX_EXPLANATION_CHARACTERS = 8000  # of at most four bytes each, so that they fit into a string

_SHORT_UVARINTS = tuple(bytes((value,)) for value in range(128))

Encoder: TypeAlias = Callable[[Any, list[Buffer], list[int]], None]


def compile_encoder(cls: type[Any], version: int) -> Encoder:
    """Build ``encode(message, out, large)``.

    It appends the pieces to ``out``, and to ``large`` the positions in ``out`` of those pieces
    that are not worth copying.
    """
    spec = message_spec(cls, version, LocalProtocolError)
    run: Encoder = EncoderWriter(version, version in spec.flexible).build(spec)
    return run


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
            short=_SHORT_UVARINTS,
            shortened=_shortened,
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
            self.line(f"{self._append}(short[{name}] if {name} < 128 else uvarint({name}))")
            return
        before = list(self._run)
        long_form = f"{self._packed()} + uvarint({name})"
        self._run = [*before, ("B", name)]
        self.line(f"{self._append}({self._packed()} if {name} < 128 else {long_form})")

    def _length(self, kind: WireType, compact: bool, length: str) -> None:
        if compact:
            name = self.local("n")
            self.line(f"{name} = {length} + 1")
            if kind is STRING:
                self.line(f"if {name} > {MAX_STRING_BYTES + 1}:")
                self.line("    raise LocalProtocolError('string longer than 32767 bytes')")
            self._uvarint(name)
        else:
            self._fixed("h" if kind is STRING else "i", length)

    def _null(self, kind: WireType, compact: bool) -> None:
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
        if isinstance(default, list) or default == b"":
            return f"({value} or {value} is None)"
        if default == 0:
            return value
        is_object = field.kind in (STRUCT, ERROR)
        return f"{value} != {self.constant('D', default) if is_object else repr(default)}"

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

    def _number(self, kind: WireType, value: str) -> None:
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
        absent = b"\0" if field.is_tagged(self.version) else b"\xff"
        self.line(f"if {var} is None:")
        self.line(f"    {self._append}({absent!r})")
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
        if field.is_explanation:
            self.line(f"if {var} and len({var}) > {_MAX_EXPLANATION_CHARACTERS}:")
            self.line(f"    {var} = shortened({var})")
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
        self, kind: WireType, element: WireType | type[Any] | None, compact: bool, var: str
    ) -> None:
        if kind is RECORDS:
            self._records(compact, var)
        elif kind is ARRAY:
            assert element is not None
            if isinstance(element, WireType) and element.code and element is not UUID:
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

    def _numbers(self, element: WireType, compact: bool, var: str) -> None:
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

    def _elements(self, element: WireType | type[Any], var: str) -> None:
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
        if count <= KEPT_COUNTS:
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


_packers = functools.cache(_Packers)


# What the generated code calls on its slow paths


def _add_tag(tags: list[Buffer], tag: int, pieces: list[Buffer]) -> None:
    content = b"".join(pieces)
    tags.append(encode_uvarint(tag) + encode_uvarint(len(content)) + content)


def _add_records(out: list[Piece], large: list[int], records: Piece | list[Buffer]) -> None:
    for piece in records if isinstance(records, list) else (records,):
        if len(piece) >= LARGE_RECORDS_BYTES or isinstance(piece, StoredBytes):
            large.append(len(out))
        out.append(piece)


def _shortened(text: str) -> str:
    return f"{text[:_MAX_EXPLANATION_CHARACTERS]}... ({len(text)} characters)"


def _refuse(message: object, fields: tuple[Field, ...], version: int) -> None:
    """Raise for the field that has a value although ``version`` does not have the field."""
    for field in fields:
        value = getattr(message, field.name)
        if value != field.default:
            raise MissingFieldError(
                f"{type(message).__name__}.{field.name} = {value!r}, "
                f"but version {version} does not have this field"
            )
