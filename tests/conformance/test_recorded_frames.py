"""Frames that real clients and Apache Kafka 4.3.1 exchanged, through our codec.

`tests/data/frames.jsonl.xz` holds one frame a line: its bytes without the length, and what Kafka's
own classes read from it (records are shown empty there). Every frame of an API that we declare
must decode to that and encode to the same bytes again; the exceptions are listed here.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.codec.schema import ARRAY, BYTES, RECORDS, UUID, Field
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.headers import RequestHeader, ResponseHeader
from kraftrio.wire.primitives import uuid_from_text
from kraftrio.wire.protocol.api import APIS, request_header_version, response_header_version

PATH = Path(__file__).resolve().parents[1] / "data" / "frames.jsonl.xz"
FRAMES: list[dict[str, Any]] = [
    json.loads(line) for line in lzma.decompress(PATH.read_bytes()).splitlines()
]

# Requests that cannot be decoded, as in Kafka 4.3.1: (api, version) and what becomes of them.
REFUSED_VERSIONS = {
    ("Produce", 0): "advertised, then the connection is closed (KIP-896)",
    ("Produce", 1): "advertised, then the connection is closed (KIP-896)",
    ("Produce", 2): "advertised, then the connection is closed (KIP-896)",
    ("ListOffsets", 0): "not offered since Kafka 4.0; the connection is closed",
    ("ApiVersions", 5): "newer than ours; answered by version 0 with error 35 (KIP-511)",
}

# Requests with bytes after their end, which are ignored: (api, version) and how many.
LEFTOVER_BYTES = {
    ("Metadata", 13): 3,
    ("AlterUserScramCredentials", 0): 1,
}


def frame_id(frame: dict[str, Any]) -> str:
    return f"{frame['api']}-{frame['version']}-{frame['direction']}"


def is_refused(frame: dict[str, Any]) -> bool:
    return frame["direction"] == "request" and (frame["api"], frame["version"]) in REFUSED_VERSIONS


OFFERED = [frame for frame in FRAMES if frame["key"] in APIS]
READABLE = [frame for frame in OFFERED if not is_refused(frame)]
REFUSED = [frame for frame in OFFERED if is_refused(frame)]


def parts_of(frame: dict[str, Any]) -> tuple[bytes, type[Any], int, type[Any], int]:
    """Return the bytes, and class and version of the header and of the body."""
    api = APIS[frame["key"]]
    version = frame["version"]
    data = bytes.fromhex(frame["hex"])
    if frame["direction"] == "request":
        header_version = request_header_version(frame["key"], version)
        return data, RequestHeader, header_version, api.request, version
    # The answer to an ApiVersions request that is too new is one of version 0.
    header_version = response_header_version(frame["key"], version)
    return data, ResponseHeader, header_version, api.response, frame.get("bodyVersion", version)


def expected_value(field: Field, shown: Any) -> Any:
    """Turn a value of Kafka's JSON form into ours, except for structs and records."""
    if field.kind is UUID or (field.kind is ARRAY and field.element is UUID):
        convert: Callable[[str], bytes] = uuid_from_text
    elif field.kind is BYTES or (field.kind is ARRAY and field.element is BYTES):
        convert = base64.b64decode
    else:
        return shown
    if isinstance(shown, list):
        return [convert(item) for item in shown]
    return None if shown is None else convert(shown)


def check_shown(message: Any, shown: dict[str, Any], version: int, path: str) -> None:
    """Compare an object with Kafka's JSON form, which leaves out tagged fields not sent."""
    left = {name.lower(): value for name, value in shown.items()}
    for field in spec_of(type(message)).fields:
        here = f"{path}.{field.name}"
        value = getattr(message, field.name)
        name = field.name.replace("_", "")
        if name not in left:
            assert version not in field.versions or field.is_tagged(version), here
            assert value == field.default, here
            continue
        other = left.pop(name)
        if field.kind is RECORDS:
            continue
        if isinstance(field.element, type) and other is not None:
            items = zip(value, other, strict=True) if field.kind is ARRAY else [(value, other)]
            for item, other_item in items:
                check_shown(item, other_item, version, here)
        else:
            assert value == expected_value(field, other), here
    assert not left, f"{path}: Kafka also shows {left}"


@pytest.mark.parametrize("frame", READABLE, ids=frame_id)
def test_frame_decodes_to_what_kafka_read(frame: dict[str, Any]) -> None:
    """Header and body have the values that Kafka's own classes read, down to the last byte."""
    data, header_class, header_version, body_class, version = parts_of(frame)
    assert header_version == frame["headerVersion"]
    header, pos = decode(header_class, header_version, data)
    if "header" in frame:
        check_shown(header, frame["header"], header_version, "header")
    body, end = decode(body_class, version, data, pos)
    leftover = LEFTOVER_BYTES.get((frame["api"], version), 0) if "leftoverBytes" in frame else 0
    assert len(data) - end == leftover == frame.get("leftoverBytes", 0)
    check_shown(body, frame["decoded"], version, body_class.__name__)


@pytest.mark.parametrize("frame", READABLE, ids=frame_id)
def test_frame_encodes_to_the_same_bytes(frame: dict[str, Any]) -> None:
    """What was decoded encodes to the same bytes, without those left over."""
    data, header_class, header_version, body_class, version = parts_of(frame)
    header, pos = decode(header_class, header_version, data)
    body, end = decode(body_class, version, data, pos)
    assert encode(header, header_version) + encode(body, version) == data[:end]


@pytest.mark.parametrize("frame", REFUSED, ids=frame_id)
def test_refused_version_is_a_protocol_error(frame: dict[str, Any]) -> None:
    """A version that we do not decode is the peer's error, whether advertised or not."""
    data, header_class, header_version, body_class, version = parts_of(frame)
    _, pos = decode(header_class, header_version, data)
    with pytest.raises(RemoteProtocolError, match=f"no version {version}"):
        decode(body_class, version, data, pos)


def test_every_exception_is_needed() -> None:
    """The lists of exceptions name exactly what the frames hold."""
    assert not {frame["api"] for frame in FRAMES if frame["key"] not in APIS}
    assert {(frame["api"], frame["version"]) for frame in REFUSED} == set(REFUSED_VERSIONS)
    with_leftovers = {
        (frame["api"], frame["version"]) for frame in READABLE if "leftoverBytes" in frame
    }
    assert with_leftovers == set(LEFTOVER_BYTES)
    assert len(READABLE) > 300
