"""Decoding and encoding in slices: values and bytes as at once, with pauses and few objects."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest

from kraftrio.wire.codec import slices as codec_slices
from kraftrio.wire.codec.lazy_arrays import (
    KEPT_ENTRIES,
    Entries,
    LazyArray,
    Numbers,
    each,
    is_little,
)
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.codec.slices import decode_slices, encode_slices
from kraftrio.wire.errors import LocalProtocolError, RemoteProtocolError
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.messages.data import ListOffsetsRequest
from kraftrio.wire.messages.groups import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.sliced import finish_counting as finish
from tests.support.sliced import joined
from tests.unit.wire.random_messages import MESSAGES, random_message, versions_of


def many_topics(count: int) -> bytes:
    """Return a Metadata v9 request for that many topics."""
    topics = b"".join(b"\x08t%06d\0" % i for i in range(count))
    return _uvarint(count + 1) + topics + b"\1\0\1\0"


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every array of two entries or more be a long one."""
    monkeypatch.setattr(codec_slices, "KEPT_ENTRIES", 1)
    monkeypatch.setattr(codec_slices, "_DECODERS", {})
    monkeypatch.setattr(codec_slices, "_READERS", {})


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_slices_are_the_same_as_at_once(cls: type[Any], everything_is_long: None) -> None:
    """Every message in every version, with lazy arrays at every depth, in both directions."""
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        value = random_message(cls, version, rng)
        data = encode(value, version)
        sliced, _ = finish(decode_slices(cls, version, memoryview(data)))
        assert sliced == decode(cls, version, data)[0]
        assert joined(finish(encode_slices(sliced, version))[0]) == data


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_what_ends_too_early_is_refused(cls: type[Any], everything_is_long: None) -> None:
    """A sliced decoder reads all before its value is there, and refuses what `decode` refuses."""
    rng = random.Random(cls.__name__)
    version = versions_of(cls)[-1]
    data = encode(random_message(cls, version, rng), version)
    for end in sorted({rng.randrange(len(data) + 1) for _ in range(8)}):
        try:
            expected = decode(cls, version, data[:end])[0]
        except RemoteProtocolError:
            with pytest.raises(RemoteProtocolError):
                finish(decode_slices(cls, version, memoryview(data)[:end]))
        else:
            assert finish(decode_slices(cls, version, memoryview(data)[:end]))[0] == expected


def test_few_entries_are_a_list() -> None:
    request, _ = finish(decode_slices(MetadataRequest, 9, many_topics(KEPT_ENTRIES)))
    assert type(request.topics) is list


def test_a_long_array_pauses_and_holds_no_entries() -> None:
    """Many pauses, and memory that does not grow with the entries."""
    count = 20_000
    data = memoryview(many_topics(count))
    tracemalloc.start()
    try:
        request, pauses = finish(decode_slices(MetadataRequest, 9, data))
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(request.topics, Entries)
    assert pauses >= count / 20
    assert peak_bytes < 200_000, "the request has 180,000 bytes"
    assert held_bytes < 100_000
    assert request.topics is not None
    names = [topic.name for topic in request.topics]
    assert names == [f"t{i:06d}" for i in range(count)]


def test_a_long_array_within_an_array_is_stepped_over_once() -> None:
    """The outer entries that have long arrays are held, the others are not."""
    topics = [
        OffsetFetchRequestTopic(name=f"t{i}", partition_indexes=list(range(i % 600)))
        for i in range(1200)
    ]
    wanted = OffsetFetchRequest(group_id="g", topics=topics)
    request, _ = finish(decode_slices(OffsetFetchRequest, 7, encode(wanted, 7)))
    assert isinstance(request.topics, Entries)
    assert request == wanted
    assert isinstance(
        next(t for t in request.topics if t.name == "t599").partition_indexes, Numbers
    )


def test_long_arrays_of_numbers_and_strings() -> None:
    data = struct.pack(">ibi", -1, 0, 1) + b"\0\1t" + struct.pack(">i", 3000)
    data += b"".join(struct.pack(">iq", i, -1) for i in range(3000))
    request, _ = finish(decode_slices(ListOffsetsRequest, 2, data))
    (topic,) = request.topics
    assert [one.partition_index for one in topic.partitions] == list(range(3000))
    keys = FindCoordinatorRequest(coordinator_keys=[f"g{i}" for i in range(1000)])
    found, _ = finish(decode_slices(FindCoordinatorRequest, 4, encode(keys, 4)))
    assert isinstance(found.coordinator_keys, LazyArray)
    assert found == keys


def test_entries_are_made_while_they_are_encoded() -> None:
    """One at a time, in order; nothing is made before the encoder comes to it."""
    made: list[int] = []

    def topic(index: int) -> MetadataResponseTopic:
        made.append(index)
        return MetadataResponseTopic(name=f"t{index}", partitions=[])

    response = MetadataResponse(topics=each(topic, range(1000)))
    work = encode_slices(response, 9)
    while len(made) < 10:
        next(work)
    assert made == list(range(10))
    parts, _ = finish(work)
    plain = MetadataResponse(
        topics=[MetadataResponseTopic(name=f"t{i}", partitions=[]) for i in range(1000)]
    )
    assert joined(parts) == encode(plain, 9)


def test_few_entries_are_made_at_once() -> None:
    assert type(each(str, range(5))) is list
    assert type(each(str, range(50))) is not list
    assert each(str, range(50)) == [str(i) for i in range(50)]


def test_a_value_that_does_not_fit_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        finish(encode_slices(MetadataRequest(topics=5), 9))  # type: ignore[arg-type]


def test_a_small_message_is_recognized_by_its_arrays() -> None:
    """Those within entries count, too, and an array that is not made yet is not little."""

    def topic(partitions: int) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name="t", partitions=[MetadataResponsePartition() for _ in range(partitions)]
        )

    assert is_little(MetadataResponse())
    assert is_little(MetadataResponse(topics=[topic(3)] * 10))
    assert not is_little(MetadataResponse(topics=[topic(0)] * 1000))
    assert not is_little(MetadataResponse(topics=[topic(1), topic(1000)]))
    assert not is_little(MetadataResponse(topics=each(topic, range(50))))


def test_entries_without_arrays_of_their_own_count_for_less() -> None:
    """The answer to ApiVersions is little, however many APIs there are."""
    assert is_little(ApiVersionsResponse(api_keys=[ApiVersion()] * 100))
    assert not is_little(ApiVersionsResponse(api_keys=[ApiVersion()] * 1000))
