"""Why a record is visible to consumers, or is not.

Whether it is visible is read from the log of the partition's leader; the cause, from the trace.

Called by: `explain`.
"""

from __future__ import annotations

import re

from kraftrio.broker.replica.partition import Partition
from kraftrio.testing.explaining.evidence import (
    Answer,
    Evidence,
    Place,
    Reason,
    batch_at,
    may_be_same,
)
from kraftrio.testing.explaining.requests import Send, deletions, sends
from kraftrio.testing.story import Event
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import BatchHeader, Record, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker

_NODE_IS_GONE = "crash|pause|term|end|stop"
_ANY_NODE_IS_GONE = rf"^n\d+ ({_NODE_IS_GONE}) "


def of_place(evidence: Evidence, place: Place, wanted: Record | None = None) -> Answer:
    """Explain whether the record that is, or was, at an offset is visible.

    Args:
        wanted: the record that was there; None: whichever.
    """
    found = evidence.best_replica(place.topic_partition)
    if found is None:
        return _no_partition(evidence, place)
    node_id, partition = found
    log = partition.log
    sent = _sent_to(evidence, place)
    if place.offset < log.log_start_offset:
        return _deleted(evidence, place, log.log_start_offset)
    if place.offset >= log.log_end_offset:
        return _beyond_the_end(evidence, place, sent, log.log_end_offset)
    header, records = batch_at(partition, place.offset) or (None, [])
    record = next((one for one in records if one.offset == place.offset), None)
    if header is None or record is None:
        expected = wanted or (sent[-1].record if sent else None)
        return _compacted(evidence, place, partition, expected)
    if header.is_control:
        text = f"offset {place.offset} holds the marker of a transaction's end"
        return Answer(Reason.CONTROL_RECORD, text)
    if wanted is not None and (record.key, record.value) != (wanted.key, wanted.value):
        return _truncated(evidence, place, f"another record is at offset {place.offset} now")
    if place.offset >= log.high_watermark:
        return _above_high_watermark(evidence, place, node_id, partition)
    if header.is_transactional:
        return _in_transaction(evidence, place, partition, header)
    return Answer(Reason.VISIBLE, f"it is below the high watermark, {log.high_watermark}")


def of_record(
    evidence: Evidence, topic: str, key: bytes | None, value: bytes | None
) -> tuple[Answer, Send | None, Place | None]:
    """Explain the fate of a record that a program sent, or should have sent.

    Args:
        key, value: None: any.

    Returns:
        the answer, the last request with the record, and where that put it.
    """
    found = [
        send
        for send in sends(evidence, topic)
        if value in (None, send.record.value) and key in (None, send.record.key)
    ]
    if not found:
        text = f"no Produce request to {topic} had such a record"
        if evidence.gap:
            text = f"{text}, as far as is known: {evidence.gap}"
            return Answer(Reason.UNKNOWN, text), None, None
        return Answer(Reason.NOT_SENT, text), None, None
    written = [send for send in found if send.offset >= 0] or [
        send for send in found if _offset_in_log(evidence, send) >= 0
    ]
    if not written:
        return _not_written(evidence, found[-1]), found[-1], None
    send = written[-1]
    offset = send.offset if send.offset >= 0 else _offset_in_log(evidence, send)
    place = Place(*send.topic_partition, offset)
    answer = of_place(evidence, place, send.record)
    if send.exchange.arrived_s is None and send.exchange.request.acks:
        text = f"{answer.text}; its producer never got the answer that it was written"
        event = answer.event or evidence.line_of(send.exchange)
        return Answer(answer.reason, text, event), send, place
    return answer, send, place


def _offset_in_log(evidence: Evidence, send: Send) -> int:
    """The offset of a record that was written without an acknowledgement; -1: there is none."""
    found = evidence.best_replica(send.topic_partition)
    if found is None:
        return -1
    sent = send.header
    for scanned in found[1].log.batches(found[1].log.log_start_offset):
        header = scanned.header
        if header.is_control or not may_be_same(header, sent):
            continue
        for record in iter_records(scanned.buffer, header):
            if (record.key, record.value) == (send.record.key, send.record.value):
                return record.offset
    return -1


def _not_written(evidence: Evidence, send: Send) -> Answer:
    exchange, line = send.exchange, evidence.line_of(send.exchange)
    if send.error:
        return Answer(Reason.REFUSED, f"{exchange.node} refused it: {send.error.name}", line)
    if exchange.reached_s is None:
        what = f"the request of {exchange.machine} never reached {exchange.node}"
    else:
        what = f"{exchange.node} got it and never answered, and it is not in the log"
    cause = _cause(evidence, exchange.node, exchange.machine, exchange.sent_s)
    return Answer(Reason.NOT_ACKNOWLEDGED, what, cause or line)


def _cause(evidence: Evidence, node: str, machine: str, at_s: float | None = None) -> Event | None:
    """What keeps a node, or the way between it and a machine, from working.

    Args:
        at_s: what did so then, or next after that; None: what still does.
    """
    node, machine = re.escape(node), re.escape(machine)
    way = f"({machine}>{node}|{node}>{machine})$"
    begins = re.compile(rf"^{node} ({_NODE_IS_GONE}) |^net (hang|cut) {way}")
    ends = re.compile(rf"^{node} (start|ready|resume) |^net mend {way}")
    found = None
    for event in evidence.events:
        if found is not None and at_s is not None and float(event.time) > at_s:
            break
        text = f"{event.who} {event.kind} {event.text}"
        if begins.search(text):
            found = event
        elif ends.search(text):
            found = None
    return found


def _sent_to(evidence: Evidence, place: Place) -> list[Send]:
    """The requests whose answers said that a record was written there."""
    return [
        send
        for send in sends(evidence, place.topic)
        if send.topic_partition == place.topic_partition and send.offset == place.offset
    ]


def _no_partition(evidence: Evidence, place: Place) -> Answer:
    name = place.topic_partition
    if evidence.partition(name) is not None:
        event = evidence.last_event(_ANY_NODE_IS_GONE)
        return Answer(Reason.UNKNOWN, f"no node that has {name} runs", event)
    event = evidence.last_event(r"topic deleted", rf"topic={re.escape(place.topic)}\b")
    text = f"there is no {name}" + (" any more" if event is not None else "")
    return Answer(Reason.NO_PARTITION, text, event)


def _deleted(evidence: Evidence, place: Place, start: int) -> Answer:
    name = place.topic_partition
    retention = evidence.last_event(
        rf"retention deleted segments partition={re.escape(str(name))} "
    )
    requests = [each for each in deletions(evidence, place) if each.answered_s is not None]
    text = f"{name} begins at offset {start} now"
    if requests:
        return Answer(Reason.DELETED_BY_REQUEST, text, evidence.line_of(requests[0]))
    if retention is not None:
        return Answer(Reason.DELETED_BY_RETENTION, text, retention)
    return Answer(Reason.UNKNOWN, evidence.unknown(f"it was deleted, {text}"))


def _beyond_the_end(evidence: Evidence, place: Place, sent: list[Send], end: int) -> Answer:
    text = f"{place.topic_partition} ends at offset {end}"
    lost = _loss(evidence, place)
    if sent or lost is not None:
        return _truncated(evidence, place, f"{text} now")
    if evidence.gap:
        text = f"{text}; whether a record was ever there is not known: {evidence.gap}"
        return Answer(Reason.UNKNOWN, text)
    return Answer(Reason.NOT_WRITTEN, f"{text}, and no record was written there")


def _loss(evidence: Evidence, place: Place) -> Event | None:
    """The truncation that took an offset away."""
    name = place.topic_partition
    for event in reversed(evidence.events):
        _, found, tail = event.text.partition(f"truncate partition={name} offset=")
        if found and int(tail.split()[0]) <= place.offset:
            return event
    return None


def _truncated(evidence: Evidence, place: Place, text: str) -> Answer:
    name = place.topic_partition
    event = _loss(evidence, place)
    if event is None:
        event = evidence.last_event(
            "(leaders moved|leader election|a leader again).*"
            rf"(?<![\w.-]){re.escape(str(name))}\b|crash power cut"
        )
    if event is None:
        return Answer(Reason.TRUNCATED, evidence.unknown(f"it was lost, {text}"))
    return Answer(Reason.TRUNCATED, f"it was lost after its leader was, {text}", event)


def _compacted(
    evidence: Evidence, place: Place, partition: Partition, expected: Record | None
) -> Answer:
    name = place.topic_partition
    event = evidence.last_event(rf"cleaned partition={re.escape(str(name))} ")
    text = f"the log has a gap at offset {place.offset}"
    if expected is not None and expected.key is not None:
        newer = _newest_of_key(partition, expected.key)
        if newer > place.offset:
            text = f"offset {newer} has a newer record of its key, {expected.key!r}"
    if event is None:
        return Answer(Reason.UNKNOWN, evidence.unknown(text))
    return Answer(Reason.COMPACTED, text, event)


def _newest_of_key(partition: Partition, key: bytes) -> int:
    log, newest = partition.log, -1
    for scanned in log.batches(log.log_start_offset):
        if not scanned.header.is_control:
            for record in iter_records(scanned.buffer, scanned.header):
                newest = record.offset if record.key == key else newest
    return newest


def _above_high_watermark(
    evidence: Evidence, place: Place, node_id: int, partition: Partition
) -> Answer:
    log, state = partition.log, partition.state
    text = f"the high watermark of {place.topic_partition} is {log.high_watermark}"
    if state.leader_id != node_id:
        event = evidence.last_event(_ANY_NODE_IS_GONE)
        return Answer(Reason.ABOVE_HIGH_WATERMARK, f"{text}, and it has no leader that runs", event)
    behind = state.members_behind(place.offset + 1)
    if not behind:
        few = f"{text}; ISR {' '.join(map(str, sorted(state.isr.committed)))}, "
        few += f"min.insync.replicas {state.min_insync_replicas}"
        return Answer(Reason.ABOVE_HIGH_WATERMARK, few, evidence.last_event(_ANY_NODE_IS_GONE))
    names = ", ".join(f"n{each}" for each in behind)
    text += f": {names} of the ISR {'does' if len(behind) == 1 else 'do'} not have the record yet"
    causes = [_cause(evidence, f"n{each}", f"n{node_id}") for each in behind]
    event = max((one for one in causes if one), key=lambda one: float(one.time), default=None)
    return Answer(Reason.ABOVE_HIGH_WATERMARK, text if event else evidence.unknown(text), event)


def _in_transaction(
    evidence: Evidence, place: Place, partition: Partition, header: BatchHeader
) -> Answer:
    log = partition.log
    marker_offset, is_commit = -1, False
    for scanned in log.batches(place.offset + 1):
        marker = read_end_transaction_marker(scanned.buffer, scanned.header)
        if marker is not None and scanned.header.producer_id == header.producer_id:
            marker_offset, is_commit = scanned.header.base_offset, marker.commit
            break
    name = _transactional_id(evidence, header.producer_id)
    who = f"the transaction of {name or f'producer id {header.producer_id}'}"
    if marker_offset < 0:
        text = f"{who} has not ended"
        event = _last_of_producer(evidence, header.producer_id)
        if event is None:
            text = evidence.unknown(text)
        return Answer(Reason.OPEN_TRANSACTION, f"{text}; read_committed waits for it", event)
    if not is_commit:
        text = f"{who} was aborted, its marker is at offset {marker_offset}"
        sent = _sent_to(evidence, place)
        written_s = sent[-1].exchange.sent_s if sent else 0.0
        event = _abort(evidence, header.producer_id, written_s)
        return Answer(Reason.ABORTED, text if event else evidence.unknown(text), event)
    stable = log.last_stable_offset
    if place.offset >= stable:
        text = f"{who} was committed, but read_committed ends at offset {stable}, where another"
        return Answer(Reason.OPEN_TRANSACTION, f"{text} transaction is open")
    return Answer(Reason.VISIBLE, f"{who} was committed, its marker is at offset {marker_offset}")


def _transactional_id(evidence: Evidence, producer_id: int) -> str:
    for exchange in evidence.exchanges:
        is_answered = exchange.api_key == ApiKey.INIT_PRODUCER_ID and exchange.answer is not None
        if is_answered and exchange.answer.producer_id == producer_id:
            return exchange.request.transactional_id or ""
    return ""


def _last_of_producer(evidence: Evidence, producer_id: int) -> Event | None:
    """The last thing that a producer with an open transaction asked for."""
    name = _transactional_id(evidence, producer_id)
    found = [
        exchange
        for exchange in evidence.exchanges
        if exchange.api_key in (ApiKey.PRODUCE, ApiKey.END_TXN)
        and name
        and exchange.request.transactional_id == name
    ]
    return evidence.line_of(found[-1]) if found else None


def _abort(evidence: Evidence, producer_id: int, written_s: float) -> Event | None:
    """What first aborted a transaction of a producer after a time: its coordinator, or itself."""
    aborted = [
        event
        for event in evidence.events
        if "transaction aborted" in event.text and f"producer_id={producer_id} " in event.text
    ]
    aborted += [
        evidence.line_of(exchange)
        for exchange in evidence.exchanges
        if exchange.api_key == ApiKey.END_TXN
        and exchange.request.producer_id == producer_id
        and not exchange.request.committed
    ]
    later = [event for event in aborted if float(event.time) >= written_s]
    return min(later, key=lambda event: float(event.time), default=None)
