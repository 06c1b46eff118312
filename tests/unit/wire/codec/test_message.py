"""Declarations, the compiled codec and its limits: `codec.message` and its helpers."""

from __future__ import annotations

import linecache
import random
import struct as _struct
import traceback
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.codec.message import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    boolean,
    bytes_,
    decode,
    encode,
    encode_parts,
    encode_pieces,
    error,
    explanation,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    records_view,
    spec_of,
    string,
    struct,
    struct_field,
    uint16,
    uint32,
    uuid,
)
from kraftrio.wire.codec.schema import Versions
from kraftrio.wire.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from kraftrio.wire.stored_bytes import StoredBytes
from tests.unit.wire.random_messages import MESSAGES, random_message, versions_of


@struct
class Inner:
    index: int = int32()
    names: list[str] = array(STRING)
    numbers: list[int] = array(INT64)
    since_2: int = int16("2+", default=-1, ignorable=True)


@struct
class Pair:
    left: int = int32(default=-1)
    right: str = string()


@message("0-3", flexible="2+")
class Everything:
    flag: bool = boolean()
    a: int = int8()
    b: int = int16()
    c: int = uint16()
    d: int = int32()
    e: int = uint32()
    f: int = int64()
    g: float = float64()
    h: bytes = uuid()
    i: str = string()
    j: str | None = string(nullable="1+")
    k: bytes = bytes_()
    m: bytes | None = bytes_(nullable="1+", default=None)
    n: memoryview | None = records(nullable="0+")
    o: list[int] = array(INT32)
    p: list[int] | None = array(INT16, nullable="1+")
    q: list[str] = array(STRING)
    r: list[bytes] = array(UUID)
    s: list[bytes] = array(BYTES)
    t: list[bool] = array(BOOL)
    inners: list[Inner] = array(Inner)
    pair: Pair = struct_field(Pair)
    maybe: Pair | None = struct_field(Pair, "1+", nullable="1+", default=None, ignorable=True)
    old_style: str = string(flexible="none")
    tagged_number: int = int32("2+", tag=0, default=7, ignorable=True)
    tagged_pair: Pair = struct_field(Pair, "2+", tag=1, ignorable=True)
    tagged_names: list[str] = array(STRING, "2+", tag=2, ignorable=True)
    absent_pair: Pair | None = struct_field(Pair, "2+", tag=3, default=None, ignorable=True)
    later_tagged: int = int16("2+", tagged="3+", tag=4, ignorable=True)
    u: ErrorCode = error()
    since_1: ErrorCode = error("1+", default=ErrorCode.NOT_CONTROLLER, ignorable=True)
    tagged_error: ErrorCode = error("2+", tag=5, default=ErrorCode.NOT_CONTROLLER, ignorable=True)


@message("0-2", flexible="2+")
class Strict:
    name: str = string()
    since_1: int = int32("1+", default=5)
    names: list[str] | None = array(STRING, "2+", nullable="2+")


@message("0-1", flexible="1+")
class Refusal:
    error_message: str | None = explanation(nullable="0+")
    name: str = string()


@message("0", flexible="0+")
class Old:
    """What a reader knows that is older than ``Strict``'s successor."""

    name: str = string()


@message("0", flexible="0+")
class New:
    name: str = string()
    extra: str = string(tag=3)
    more: int = int64(tag=200)


ALL_VERSIONS = range(4)

pairs = st.builds(Pair, left=st.integers(-(1 << 31), (1 << 31) - 1), right=st.text(max_size=150))
bytes_16 = st.binary(min_size=16, max_size=16)
inners = st.builds(
    Inner,
    index=st.integers(-100, 100),
    names=st.lists(st.text(max_size=5), max_size=3),
    numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=140),
)
everything = st.builds(
    Everything,
    flag=st.booleans(),
    a=st.integers(-128, 127),
    b=st.integers(-(1 << 15), (1 << 15) - 1),
    c=st.integers(0, 0xFFFF),
    d=st.integers(-(1 << 31), (1 << 31) - 1),
    e=st.integers(0, 0xFFFF_FFFF),
    f=st.integers(-(1 << 63), (1 << 63) - 1),
    g=st.floats(allow_nan=False),
    h=bytes_16,
    i=st.text(max_size=200),
    j=st.text(max_size=5),
    k=st.binary(max_size=200),
    m=st.binary(max_size=5),
    n=st.none() | st.binary(max_size=300).map(lambda data: memoryview(data)),
    o=st.lists(st.integers(-5, 5), max_size=200),
    p=st.lists(st.integers(-5, 5), max_size=5),
    q=st.lists(st.text(max_size=5), max_size=4),
    r=st.lists(bytes_16, max_size=3),
    s=st.lists(st.binary(max_size=4), max_size=3),
    t=st.lists(st.booleans(), max_size=4),
    inners=st.lists(inners, max_size=3),
    pair=pairs,
    old_style=st.text(max_size=5),
    u=st.integers(-(1 << 15), (1 << 15) - 1).map(ErrorCode.of_peer),
)


# Values to bytes and back


@settings(derandomize=True, deadline=None, max_examples=60)
@given(everything, st.sampled_from(ALL_VERSIONS), st.integers(0, 3))
def test_round_trip(value: Everything, version: int, before: int) -> None:
    """What was encoded decodes to the same value, wherever in the buffer it stands."""
    data = encode(value, version)
    assert decode(Everything, version, data) == (value, len(data))
    shifted = bytearray(before) + data + b"rest"
    assert decode(Everything, version, shifted, before) == (value, before + len(data))
    assert b"".join(encode_parts(value, version)) == data


def test_null_and_tagged_values_round_trip() -> None:
    """Null, and every kind of tagged field."""
    value = Everything(
        m=None,
        j=None,
        p=None,
        maybe=Pair(left=2, right="x"),
        old_style="old",
        tagged_number=-9,
        tagged_pair=Pair(left=3),
        tagged_names=["a", "b" * 200],
        absent_pair=Pair(),
        later_tagged=5,
        tagged_error=ErrorCode.of_peer(-999),
    )
    for version in (2, 3):
        assert decode(Everything, version, encode(value, version))[0] == value


def test_errors_are_error_codes() -> None:
    """Ours are decoded as the members they are; those of a newer Kafka keep their number."""
    for version in ALL_VERSIONS:
        for number in (0, 3, -1, 999, -999):
            value = Everything(u=ErrorCode.of_peer(number), m=b"")
            decoded = decode(Everything, version, encode(value, version))[0].u
            assert isinstance(decoded, ErrorCode)
            assert decoded == number
            assert not decoded.is_known or decoded is ErrorCode(number)
    old = decode(Everything, 0, encode(Everything(since_1=ErrorCode.NONE, m=b""), 0))[0]
    assert old.since_1 is ErrorCode.NOT_CONTROLLER
    assert Everything().u is ErrorCode.NONE


def test_default_values() -> None:
    """Without arguments a message has Kafka's defaults, and no default is shared."""
    value = Everything()
    assert (value.a, value.i, value.h, value.k, value.o) == (0, "", bytes(16), b"", [])
    assert (value.m, value.n, value.maybe, value.absent_pair) == (None, None, None, None)
    assert value.pair == Pair(left=-1, right="")
    value.pair.left = 8
    value.o.append(1)
    assert Everything().pair.left == -1
    assert Everything().o == []


def test_decoded_types() -> None:
    """Strings are str, bytes are bytes, records a view of the input without a copy."""
    frame = bytearray(encode(Everything(i="text", k=b"bytes", n=memoryview(b"records")), 1))
    for buf in (frame, memoryview(frame)):
        value, _ = decode(Everything, 1, buf)
        assert type(value.i) is str
        assert type(value.k) is bytes
        assert type(value.h) is bytes
        assert type(value.n) is memoryview
    position = frame.index(b"records")
    frame[position : position + 1] = b"R"
    assert value.n == b"Records"


def test_decoded_fields_outside_the_version_have_their_defaults() -> None:
    """A field that the version does not have is its default, not missing."""
    value, _ = decode(Everything, 0, encode(Everything(m=b""), 0))
    assert value.tagged_number == 7
    assert value.tagged_pair == Pair()
    assert value.tagged_names == []
    assert value.maybe is None


# The bytes themselves


def test_bytes_of_both_styles() -> None:
    """Lengths are int16/int32 before flexible versions, compact and with tags from then on."""
    value = Strict(name="ab", since_1=1)
    assert encode(value, 1).hex() == "0002" + "6162" + "00000001"
    assert encode(Strict(name="ab", since_1=1, names=["c"]), 2).hex() == (
        "03" + "6162" + "00000001" + "02" + "02" + "63" + "00"
    )
    assert encode(Strict(name="ab", since_1=1, names=None), 2).hex() == (
        "03" + "6162" + "00000001" + "00" + "00"
    )


def test_tagged_fields_are_written_only_when_set() -> None:
    """The tag section is one zero byte while everything in it is default."""
    assert encode(New(name="x"), 0).hex() == "0278" + "00"
    assert encode(New(name="x", extra="y"), 0).hex() == "0278" + "01" + "03" + "02" + "0279"
    both = encode(New(name="x", extra="y", more=1), 0)
    assert both.hex() == "0278" + "02" + "03020279" + "c801" + "08" + "0000000000000001"


def test_unknown_tagged_fields_are_skipped() -> None:
    """An older reader steps over what a newer writer adds."""
    data = encode(New(name="x", extra="y" * 300, more=1), 0)
    assert decode(Old, 0, data) == (Old(name="x"), len(data))


def test_known_tags_may_come_among_unknown_ones() -> None:
    """Only the tags that are known are read."""
    data = bytes.fromhex("0278" + "03" + "0101ff" + "03020279" + "7f00")
    assert decode(New, 0, data) == (New(name="x", extra="y"), len(data))


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 20000])
def test_long_arrays_and_strings(count: int) -> None:
    """Lengths of one, two and three varint bytes."""
    value = Everything(o=list(range(count)), q=["x"] * count, i="y" * count)
    for version in (1, 2):
        data = encode(value, version)
        assert decode(Everything, version, data) == (value, len(data))


# Records


def test_large_records_are_not_copied() -> None:
    """From 8 KiB on a piece is handed on as it is; small ones are joined with what is around."""
    large = memoryview(bytes(8192))
    parts = encode_parts(Everything(n=large), 2)
    assert len(parts) == 3
    assert parts[1] is large
    assert len(encode_parts(Everything(n=memoryview(bytes(8191))), 2)) == 1


def test_records_may_be_given_in_pieces() -> None:
    """A list of pieces is written as one field."""
    pieces: Any = [b"abc", memoryview(bytes(9000)), b"", bytearray(b"xyz")]
    value = Everything(n=pieces)
    parts = encode_parts(value, 3)
    assert parts[1] is pieces[1]
    data = b"".join(parts)
    assert data == encode(value, 3)
    assert decode(Everything, 3, data)[0].n == b"".join(pieces)


class Elsewhere(StoredBytes):
    """Bytes that must not be read here."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def file_range(self, start: int) -> tuple[int, int] | None:
        raise AssertionError

    read = is_at_hand = load = file_range  # type: ignore[assignment]


@pytest.mark.parametrize("size", [1, 9000, 1 << 30])
def test_stored_records_are_handed_on_unread(size: int) -> None:
    """Their length is written, however few or many they are."""
    stored = Elsewhere(size)
    pieces = encode_pieces(Everything(n=cast(Any, stored)), 2)
    assert pieces[1] is stored
    around = [bytes(piece) for piece in pieces if not isinstance(piece, StoredBytes)]
    with_bytes = encode_parts(Everything(n=memoryview(bytes(9000))), 2)
    if size == 9000:
        assert around == [with_bytes[0], with_bytes[2]]
    assert len(pieces) == 3


def test_records_view() -> None:
    """Records in any form can be read as one view."""
    assert records_view(None) == b""
    assert records_view([b"ab", b"c"]) == b"abc"
    view = memoryview(b"abc")
    assert records_view(view) == view


# What cannot be encoded


@pytest.mark.parametrize(
    ("value", "version", "text"),
    [
        (Strict(since_1=6), 0, "since_1 = 6"),
        (Strict(names=["x"]), 1, "names"),
        (Strict(names=None), 1, "names"),
        (Strict(name=None), 1, "Strict version 1"),  # type: ignore[arg-type]
        (Strict(name="x" * 32768), 1, "Strict version 1"),
        (Strict(name="x" * 32768), 2, "longer than 32767"),
        (Strict(name="\ud800"), 2, "surrogates"),
        (Strict(since_1=1 << 31), 2, "Strict version 2"),
        (Strict(), 3, "no version 3"),
        (Everything(h=b"short"), 0, "16 bytes"),
        (Everything(r=[b"short"]), 2, "16 bytes"),
        (Everything(pair=None), 0, "Everything version 0"),  # type: ignore[arg-type]
        (Everything(j=None), 0, "Everything version 0"),
        (Everything(o=[1 << 40]), 2, "Everything version 2"),
        (Pair(), 0, "part of messages"),
        (object(), 0, "not declared"),
    ],
)
def test_values_that_cannot_be_encoded(value: object, version: int, text: str) -> None:
    """They are our error, with the field or the reason in the text."""
    with pytest.raises(LocalProtocolError, match=text):
        encode(value, version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}"])
def test_a_long_explanation_is_cut(version: int, character: str) -> None:
    """What it quotes of a client may fill a string by itself; it says how long it was."""
    text = f"no such topic: {character * 32_767}"
    data = encode(Refusal(error_message=text, name="n"), version)
    decoded, _ = decode(Refusal, version, data)
    assert decoded.name == "n"
    assert decoded.error_message is not None
    assert decoded.error_message.startswith(text[:8000])
    assert decoded.error_message.endswith(f"... ({len(text)} characters)")


@pytest.mark.parametrize("text", [None, "", "no such topic", "x" * 8000])
def test_an_explanation_that_fits_is_kept(text: str | None) -> None:
    """Null and short ones are as they were."""
    refusal = Refusal(error_message=text)
    for version in (0, 1):
        assert decode(Refusal, version, encode(refusal, version))[0] == refusal


@pytest.mark.parametrize("cls", MESSAGES)
def test_every_error_message_is_an_explanation(cls: type[Any]) -> None:
    """A field of that name may quote what a client sent."""
    pending = [cls]
    while pending:
        for field in spec_of(pending.pop()).fields:
            assert field.is_explanation == field.name.endswith("error_message"), field.name
            if isinstance(field.element, type):
                pending.append(field.element)


def test_ignorable_field_outside_its_version_is_dropped() -> None:
    """Kafka's ignorable fields are left out silently."""
    value = Everything(m=b"", tagged_number=1, maybe=Pair(), inners=[Inner(since_2=4)])
    decoded, _ = decode(Everything, 0, encode(value, 0))
    assert decoded == Everything(m=b"", inners=[Inner(since_2=-1)])


# What is malformed


def test_every_truncation_is_malformed() -> None:
    """No proper beginning of a message is a message, in a buffer that ends or one that goes on."""
    value = Everything(
        i="text",
        k=b"bytes",
        m=b"",
        n=memoryview(b"records"),
        o=[1, 2],
        q=["a"],
        r=[bytes(16)],
        s=[b"b"],
        inners=[Inner(names=["c"], numbers=[3])],
        maybe=Pair(right="d"),
        tagged_names=["e"],
    )
    for version in ALL_VERSIONS:
        data = encode(value, version)
        for size in range(len(data)):
            with pytest.raises(RemoteProtocolError):
                decode(Everything, version, data[:size])
            with pytest.raises(RemoteProtocolError):
                decode(Everything, version, data, 0, size)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ffff" + "00000001", "null where it must not be"),
        ("0003" + "6162", "truncated"),
        ("0002" + "ff62" + "00000001", "utf-8"),
        ("0002" + "c3", "truncated"),
    ],
)
def test_malformed_old_style(data: str, text: str) -> None:
    """Lengths that are wrong, and text that is no UTF-8."""
    with pytest.raises(RemoteProtocolError, match=text):
        decode(Strict, 1, bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("00" + "00000001" + "0000", "null where it must not be"),
        ("0361", "truncated"),
        ("8080808010", "null where it must not be"),
        ("ffffffffff01", "5 bytes"),
        ("818002" + "61", "32767"),
        ("0161" + "00000001" + "0500", "more elements"),
        ("0161" + "00000001" + "ffffffff0f" + "00", "more elements"),
        ("0161" + "00000001" + "00" + "02" + "0005" + "00", "tagged field ends after"),
        ("0161" + "00000001" + "00" + "ffffffff0f", "truncated"),
    ],
)
def test_malformed_flexible(data: str, text: str) -> None:
    """Lengths, counts and tag sections that are wrong."""
    with pytest.raises(RemoteProtocolError, match=text):
        decode(Strict, 2, bytes.fromhex(data.replace("0161", "0261")))


def test_tagged_field_of_the_wrong_size() -> None:
    """The size of a tagged field has to be the size of its content."""
    with pytest.raises(RemoteProtocolError, match="size of a tagged field is wrong"):
        decode(New, 0, bytes.fromhex("0278" + "01" + "03" + "03" + "0279" + "00"))


def test_unknown_version_is_the_peers_error() -> None:
    """Versions come from the peer, so a message of a version we lack is malformed."""
    with pytest.raises(RemoteProtocolError, match="no version 9"):
        decode(Strict, 9, b"")


def test_end_bounds_what_is_read() -> None:
    """Bytes after `end` are not there."""
    data = encode(Strict(name="ab"), 1)
    assert decode(Strict, 1, data + b"zz", 0, len(data)) == (Strict(name="ab"), len(data))
    with pytest.raises(RemoteProtocolError):
        decode(Strict, 1, data + b"zz", 0, len(data) - 1)


@message("0", flexible="0+")
class Counts:
    numbers: list[int] = array(INT64)


@struct
class Empty:
    late: int = int32("1+")


@message("0-1")
class Empties:
    empties: list[Empty] = array(Empty)


def test_huge_counts_cost_nothing() -> None:
    """A count is compared with the bytes left before anything is made for it."""
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more elements"):
            decode(Counts, 0, b"\xff\xff\xff\xff\x0f" + bytes(1000))
        with pytest.raises(RemoteProtocolError, match="more elements"):
            decode(Empties, 0, b"\x7f\xff\xff\xff" + bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_structs_without_bytes_round_trip() -> None:
    """An array of structs that have no field in the version is only its count."""
    with pytest.raises(RemoteProtocolError, match="more elements"):
        decode(Empties, 0, encode(Empties(empties=[Empty()]), 0))
    assert decode(Empties, 0, b"\0\0\0\1\0") == (Empties(empties=[Empty()]), 4)


# Hostile bytes for every message


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes cut, with other bytes in them, or with a piece repeated."""
    out = bytearray(data)
    kind = rng.randrange(4)
    if not out or kind == 0:
        return bytes(out[: rng.randrange(len(out) + 1)])
    position = rng.randrange(len(out))
    if kind == 1:
        out[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 2:
        out[position : position + 4] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"))
    else:
        out[position:position] = out[position : position + rng.randrange(20)]
    return bytes(out)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_hostile_bytes_are_only_protocol_errors(cls: type[Any]) -> None:
    """Random and damaged bytes decode to a message or raise RemoteProtocolError, nothing else."""
    refused = 0
    for version in versions_of(cls):
        rng = random.Random(f"{cls.__name__} {version}")
        valid = encode(random_message(cls, version, rng), version)
        samples = [rng.randbytes(rng.randrange(60)) for _ in range(15)]
        samples += [bytes([byte]) * 40 for byte in (0, 1, 2, 0x7F, 0x80, 0xFF)]
        samples += [damaged(valid, rng) for _ in range(25)]
        for data in samples:
            try:
                _, end = decode(cls, version, memoryview(data))
            except RemoteProtocolError:
                refused += 1
            else:
                assert end <= len(data)
    assert refused


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from(ALL_VERSIONS))
def test_random_bytes_are_only_protocol_errors(data: bytes, version: int) -> None:
    """The same for a message that has every kind of field."""
    try:
        value, end = decode(Everything, version, data)
    except RemoteProtocolError:
        return
    assert end <= len(data)
    assert decode(Everything, version, encode(value, version))[0] == value


# Declarations


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3+", (3, 4, 99), (2, -1)),
        ("0-8", (0, 8), (9,)),
        ("5", (5,), (4, 6)),
        ("none", (), (0, 1)),
        (None, (), (0,)),
    ],
)
def test_version_ranges(
    text: str | None, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    """Versions are written as in Kafka's definitions."""
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert versions.is_empty is (not inside)


def test_declared_classes_are_slots_dataclasses() -> None:
    """Misspelt attributes do not pass, equality is by value, the repr shows all fields."""
    value = Pair(left=1)
    assert value == Pair(left=1, right="")
    assert repr(value) == "Pair(left=1, right='')"
    with pytest.raises(AttributeError):
        value.middle = 3  # type: ignore[attr-defined]


def test_field_without_a_declaration_is_refused() -> None:
    """A forgotten field function shows when the class is made."""
    with pytest.raises(AssertionError, match="not declared by a field function"):

        @struct
        class Wrong:
            number: int = 3


def test_spec_keeps_what_was_declared() -> None:
    """The description can be compared with Kafka's definition."""
    spec = spec_of(Strict)
    assert [field.name for field in spec.fields] == ["name", "since_1", "names"]
    assert spec.versions == Versions(0, 2)
    assert 2 in spec.flexible


def test_generated_source_is_in_tracebacks() -> None:
    """A traceback through generated code shows its lines."""
    try:
        decode(Strict, 1, b"\x00")
    except RemoteProtocolError as exc:
        assert isinstance(exc.__cause__, _struct.error)
        shown = "".join(traceback.format_exception(exc.__cause__))
        assert "unpack_from_h(buf, pos)" in shown
    assert any("decode Strict v1" in name for name in linecache.cache)
