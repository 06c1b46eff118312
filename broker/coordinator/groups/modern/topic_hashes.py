"""Hashes of topics, by which a group sees that what it subscribes to has changed (KIP-1101).

A topic's hash is over its id, name and partitions, and the racks of their replicas; a group's over
those of its topics in the order of their names. Both equal Apache Kafka's, which compares them with
those in its records. Called by groups before they bump their epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from xxhash import xxh3_64_intdigest

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import MetadataImage, TopicImage

_MAGIC = b"\0"
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_MAX_KEPT = 10_000  # topics


class TopicHashes:
    """See the module. Keeps the hash of a topic as long as the topic's image is the same."""

    __slots__ = ("_kept", "_metadata")

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._kept: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, topic_names: Iterable[str]) -> int:
        """Return the hash of the existing ones of some topics; 0 if there are none."""
        topics = self._metadata.image.topics_by_name
        kept, hashes, racks = self._kept, [], None
        for name in sorted(topic_names):
            topic = topics.get(name)
            if topic is None:
                continue
            found = kept.get(name)
            if found is None or found[0] is not topic:
                if racks is None:
                    racks = racks_of(self._metadata.image)
                if len(kept) >= _MAX_KEPT:
                    kept.clear()
                found = kept[name] = topic, hash_topic(topic, racks)
            hashes.append(found[1])
        if not hashes:
            return 0
        return _signed(xxh3_64_intdigest(struct.pack(f"<{len(hashes)}q", *hashes)))


def racks_of(image: MetadataImage) -> dict[int, str]:
    """Return the racks of the brokers that have one."""
    return {broker.broker_id: broker.rack for broker in image.brokers.values() if broker.rack}


def hash_topic(topic: TopicImage, racks: Mapping[int, str]) -> int:
    """Return the hash of one topic."""
    parts = [
        _MAGIC,
        topic.topic_id[7::-1],
        topic.topic_id[:7:-1],
        _string(topic.name),
        _INT32.pack(topic.partition_count),
    ]
    if not racks:
        parts.append(struct.pack(f"<{topic.partition_count}i", *range(topic.partition_count)))
        return _signed(xxh3_64_intdigest(b"".join(parts)))
    texts: dict[tuple[int, ...], bytes] = {(): b""}  # by the replicas: few of them are different
    for index in range(topic.partition_count):
        partition = topic.partitions.get(index)
        replicas = () if partition is None else partition.replicas
        text = texts.get(replicas)
        if text is None:
            names = sorted(racks[replica] for replica in replicas if replica in racks)
            text = texts[replicas] = b"".join(map(_rack, names))
        parts += (_INT32.pack(index), text)
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def _rack(name: str) -> bytes:
    text = _string(name)
    return text[-_INT32.size :] + text


def _string(text: str) -> bytes:
    """A string as it is hashed: UTF-16 units, and then how many."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _signed(value: int) -> int:
    signed: int = _INT64.unpack(value.to_bytes(8, "little"))[0]
    return signed
