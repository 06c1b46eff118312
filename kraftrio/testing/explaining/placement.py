"""Why a record went to its partition.

A request shows the key and the partition, not who chose it. A key whose hash gives the partition is
taken to have decided. Without a key, our producer notes in the trace to which partition it sends
the next ones; what went elsewhere was sent there by name, or by the program's own partitioner.

Called by: `explain`.
"""

from __future__ import annotations

import re

from kraftrio.clients.producer.partitioner import partition_for_key
from kraftrio.testing.explaining.evidence import (
    Answer,
    Evidence,
    Place,
    Reason,
    batch_at,
    may_be_same,
)
from kraftrio.testing.explaining.requests import Send, partition_count, sends


def send_of(evidence: Evidence, place: Place) -> Send | None:
    """The request that brought the record there; None: the trace has none."""
    found = [
        send
        for send in sends(evidence, place.topic)
        if send.topic_partition == place.topic_partition
    ]
    for send in reversed(found):
        if send.offset == place.offset:
            return send
    best = evidence.best_replica(place.topic_partition)
    batch = None if best is None else batch_at(best[1], place.offset)
    if batch is None or not batch[0].has_producer_id:
        return None
    header = batch[0]
    for send in found:
        sent = send.header
        delta = send.record.offset - sent.base_offset
        if delta == place.offset - header.base_offset and may_be_same(header, sent):
            return send
    return None


def of_send(evidence: Evidence, send: Send | None) -> Answer:
    """Explain why a record was sent to its partition."""
    if send is None:
        return Answer(Reason.UNKNOWN, evidence.unknown("no request that brought it there is known"))
    exchange, (topic, number) = send.exchange, send.topic_partition
    line = evidence.line_of(exchange)
    key = send.record.key
    count = partition_count(evidence, topic, exchange.machine, exchange.sent_s)
    if key is not None and count is not None:
        hashed = partition_for_key(key, count)
        known = (
            f"the hash of its key {key!r} gives {hashed} of {count} partitions, as they were then"
        )
        if hashed == number:
            return Answer(Reason.BY_KEY, known, line)
        text = f"{known}, and not {number}: the program named it, or has a partitioner of its own"
        return Answer(Reason.EXPLICIT, text, line)
    if key is not None:
        text = f"its key is {key!r}, and how many partitions {topic} had then is not known"
        return Answer(Reason.UNKNOWN, evidence.unknown(text), line)
    place = re.escape(f"{topic}-{number}")
    drawn = evidence.last_event(
        rf"^{re.escape(exchange.machine)} .*records without a key go to partition={place}$",
        before_s=exchange.sent_s,
    )
    if drawn is not None:
        text = f"{exchange.machine} sent records without a key to {topic}-{number} at that time"
        return Answer(Reason.STICKY, text, drawn)
    if evidence.gap:
        return Answer(Reason.UNKNOWN, evidence.unknown("it has no key"), line)
    if evidence.gap_of_choices:
        text = f"it has no key, and {evidence.gap_of_choices}"
        return Answer(Reason.UNKNOWN, text, line)
    text = "it has no key, and its producer had not chosen this partition by itself: the program"
    return Answer(Reason.EXPLICIT, f"{text} named it, or has a partitioner of its own", line)
