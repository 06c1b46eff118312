"""Frames that no well-behaved client sends, for the fuzzing tests.

Three kinds, all from one seeded generator:
- recorded requests of real clients with some bytes changed, removed, doubled or inserted;
- messages of every served API with legal but unusual values: huge and negative numbers, empty
  names, unknown ids, empty and null lists, and now and then the names of things that exist;
- noise behind a request header.

The node id of the broker under test must not be among `NUMBERS`, so that no frame can remove the
broker itself (UnregisterBroker); `NAMES` are topics and groups that frames may delete or change.
"""

from __future__ import annotations

import json
import lzma
import random
import struct
from pathlib import Path
from typing import Any

from kraftrio.wire.codec.message import encode, spec_of
from kraftrio.wire.codec.schema import (
    ARRAY,
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    STRUCT,
    UUID,
    WireType,
)
from kraftrio.wire.codec.schema import Field as FieldSpec
from kraftrio.wire.messages.headers import RequestHeader
from kraftrio.wire.protocol.api import APIS, Api, ApiKey, request_header_version
from kraftrio.wire.records.batch import Compression, Record, build_batch

RECORDED = Path(__file__).resolve().parents[1] / "data" / "frames.jsonl.xz"

NODE_ID = 7_777
NAMES = ("fuzz-a", "fuzz-b", "__consumer_offsets", "fuzz-group", "consumer", "range")
DISTINCT_REQUESTS = 30_000  # making one costs more than sending it
# Real requests for quotas, in a changed form, may hold all clients of the test back for good.
LIMITING = {ApiKey.ALTER_CLIENT_QUOTAS}
DESTRUCTIVE = {ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.DELETE_GROUPS}
NUMBERS = (
    -(2**63), -(2**31), -(2**31) - 1, -32768, -129, -128, -2, -1, 0, 1, 2, 3, 5, 127, 128, 255,
    1000, 32767, 65536, 10**6, 2**31 - 2, 2**31 - 1, 2**32, 1_700_000_000_000, 2**63 - 1,
)  # fmt: skip
TEXTS = ("", " ", ".", "..", "/", "a" * 249, "a" * 250, "a" * 20_000, "\0", "é漢😀", "-1", "*")


def recorded_requests(served: set[int]) -> list[bytes]:
    """The requests of real clients, header included, without the length."""
    frames = []
    with lzma.open(RECORDED, "rt") as file:
        for line in file:
            entry = json.loads(line)
            if entry["direction"] == "request" and entry["key"] in served - LIMITING:
                frames.append(bytes.fromhex(entry["hex"]))
    return frames


class FrameMaker:
    """Makes frames (length included)."""

    def __init__(self, rng: random.Random, served: set[int]) -> None:
        self.rng = rng
        self.recorded = recorded_requests(served)
        self.apis = [api for key, api in APIS.items() if key in served]
        self.batches = good_and_bad_batches(rng)
        self.requests: list[bytes] = []

    def burst(self, count: int) -> list[bytes]:
        """Frames to send in one piece; what probably closes the connection comes last."""
        bodies = [self.unusual_request() for _ in range(count - 1)]
        choice = self.rng.random()
        if choice < 0.4:
            bodies.append(self.mutate(self.rng.choice(self.recorded)))
        elif choice < 0.6:
            bodies.append(self.mutate(self.unusual_request()))
        elif choice < 0.7:
            bodies.append(self.noise())
        else:
            bodies.append(self.unusual_request())
        return [struct.pack(">i", len(body)) + body for body in bodies]

    def mutate(self, frame: bytes) -> bytes:
        """Change a few bytes, mostly behind the header."""
        rng, data = self.rng, bytearray(frame)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            at = rng.randrange(rng.choice((0, 8, 16, 16)), max(len(data), 17))
            match rng.randrange(7):
                case 0 | 1 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case 2 if at < len(data):
                    data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 3:
                    data[at : at + 4] = struct.pack(">i", rng.choice((-1, 0, 2**31 - 1, -(2**31))))
                case 4:
                    del data[at : at + rng.randint(1, 8)]
                case 5:
                    data[at:at] = rng.randbytes(rng.randint(1, 8))
                case 6:
                    data[at:at] = data[at : at + rng.randint(1, 30)]
        return bytes(data)

    def noise(self) -> bytes:
        """Random bytes, most of them behind the header of a served API."""
        rng = self.rng
        size = rng.choice((0, 1, 4, 9, 10, 30, 200, 3000))
        if rng.random() < 0.3:
            return rng.randbytes(size)
        api = rng.choice(self.apis)
        return self.header(api, rng.randint(api.min_version, api.max_version)) + rng.randbytes(size)

    def unusual_request(self) -> bytes:
        """A well-formed request with unusual values; now and then an earlier one again."""
        if len(self.requests) >= DISTINCT_REQUESTS:
            return self.rng.choice(self.requests)
        request = self.new_request()
        self.requests.append(request)
        return request

    def new_request(self) -> bytes:
        api = self.rng.choice(self.apis)
        if api.key in DESTRUCTIVE and self.rng.random() < 0.9:
            api = self.rng.choice(self.apis)
        spec = spec_of(api.request)
        assert spec.versions is not None
        version = self.rng.randint(spec.versions.first, api.max_version)
        message = self.unusual_message(api.request, version)
        return self.header(api, version) + encode(message, version)

    def header(self, api: Api, version: int) -> bytes:
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self.rng.randrange(-(2**31), 2**31),
            client_id=self.rng.choice((None, "", "fuzz", "é")),
        )
        return encode(header, request_header_version(api.key, version))

    def unusual_message(self, cls: type[Any], version: int) -> Any:
        message = cls()
        for spec in spec_of(cls).fields:
            if version in spec.versions and self.rng.random() < 0.9:
                setattr(message, spec.name, self.unusual_field(spec, version))
        return message

    def unusual_field(self, spec: FieldSpec, version: int) -> Any:
        rng = self.rng
        if version in spec.nullable and rng.random() < 0.15:
            return None
        if spec.kind is ARRAY:
            assert spec.element is not None
            count = rng.choice((0, 1, 1, 1, 2, 3, 40 if rng.random() < 0.02 else 1))
            return [self.unusual_value(spec.element, version) for _ in range(count)]
        kind = spec.element if spec.kind is STRUCT else spec.kind
        assert kind is not None
        return self.unusual_value(kind, version)

    def unusual_value(self, kind: WireType | type[Any], version: int) -> Any:
        rng = self.rng
        if isinstance(kind, type):
            return self.unusual_message(kind, version)
        if kind is BOOL:
            return rng.random() < 0.5
        if kind is FLOAT64:
            return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e308))
        if kind is UUID:
            return rng.choice((bytes(16), bytes(15) + b"\x01", b"\xff" * 16, rng.randbytes(16)))
        if kind is STRING:
            return rng.choice(NAMES if rng.random() < 0.7 else TEXTS)
        if kind is BYTES:
            return rng.choice((b"", b"\0", b"\0\0\0\0\0\0", rng.randbytes(60)))
        if kind is RECORDS:
            return memoryview(rng.choice(self.batches))
        bits = 8 * kind.size_bytes
        low, high = (-(1 << bits - 1), 1 << bits - 1) if kind.code.islower() else (0, 1 << bits)
        return rng.choice([number for number in NUMBERS if low <= number < high])


def good_and_bad_batches(rng: random.Random) -> list[bytes]:
    """Record batches good and bad: every codec, wrong sums, wrong counts, impossible producers."""
    records = [Record(n, 1_700_000_000_000, b"k", b"v" * 50) for n in range(5)]
    batches = [bytes(build_batch(records, compression=codec)) for codec in Compression]
    batches.append(bytes(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0)))
    batches.append(
        bytes(
            build_batch(records, producer_id=2**62, producer_epoch=32767, base_sequence=2**31 - 2)
        )
    )
    batches.append(
        bytes(
            build_batch(
                records, producer_id=9, producer_epoch=3, base_sequence=0, transactional=True
            )
        )
    )
    batches.append(bytes(build_batch(records, control=True)))
    for _ in range(30):
        damaged = bytearray(rng.choice(batches[:6]))
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        batches.append(bytes(damaged))
    batches += [b"", b"\0", batches[0][:61], batches[0] + batches[1], batches[0][:-1]]
    return batches
