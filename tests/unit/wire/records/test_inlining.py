"""Functions with short varints read in place do what they say without."""

from __future__ import annotations

import linecache
import random
import traceback
from types import FunctionType

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import encode_uvarint, read_uvarint, read_uvarlong
from kraftrio.wire.records import walk
from kraftrio.wire.records.inlining import inlined


def read_all(data: bytes, count: int) -> list[int]:
    found = []
    pos = 0
    for _ in range(count):
        raw, pos = read_uvarint(data, pos)
        found.append(raw)
        raw, pos = read_uvarlong(data, pos + 1)
        found.append(raw)
    if pos != len(data):
        raise ValueError("something is left")
    return found


def test_same_values() -> None:
    """Varints of every length, some after a byte that is skipped."""
    rng = random.Random(1)
    numbers = [rng.getrandbits(rng.randrange(1, 32)) for _ in range(2000)]
    pieces = [encode_uvarint(number) for number in numbers]
    data = b"".join(a + b"x" + b for a, b in zip(pieces[::2], pieces[1::2], strict=True))
    assert {len(piece) for piece in pieces} == {1, 2, 3, 4, 5}
    assert inlined(read_all)(data, 1000) == read_all(data, 1000) == numbers


def test_short_varints_cost_no_call() -> None:
    """The function is another one, in which one and two bytes are read in place."""
    faster = inlined(read_all)
    assert "high" in faster.__code__.co_varnames
    assert "high" not in read_all.__code__.co_varnames


def test_tracebacks_show_the_source() -> None:
    """A failure has the line where it stands in the file."""
    with pytest.raises(ValueError) as caught:
        inlined(read_all)(b"\x01x\x01more", 1)
    (line,) = [frame.line for frame in traceback.extract_tb(caught.tb) if frame.name == "read_all"]
    assert line == 'raise ValueError("something is left")'


def test_what_ends_too_early() -> None:
    """The two errors of reading by hand and by call."""
    for data in (b"", b"\x80", b"\x80\x80", b"\x01"):
        with pytest.raises((IndexError, RemoteProtocolError)):
            inlined(read_all)(data, 1)


def test_without_its_source_a_function_stays_as_it_is() -> None:
    """Nor is it made of a source that is not its own, such as a file that was replaced."""
    names: dict[str, object] = {"read_uvarint": read_uvarint}
    source = "def head(data, pos):\n    raw, pos = read_uvarint(data, pos)\n    return raw\n"
    exec(compile(source, "<nowhere>", "exec"), names)
    head = names["head"]
    assert isinstance(head, FunctionType)
    assert inlined(head) is head
    linecache.cache["<nowhere>"] = (0, None, source.replace("raw\n", "pos\n").splitlines(True), "")
    inlined.cache_clear()
    assert inlined(head)(b"\x05", 0) == 5


@pytest.mark.parametrize("name", ["_check_each", "_decode_each"])
def test_the_loops_over_records_are_compiled_so(name: str) -> None:
    """Their source is found, and it is theirs."""
    loop = getattr(walk, name)
    assert "read_uvarint" in loop.__code__.co_names
    assert "high" in inlined(loop).__code__.co_varnames
