"""An ordinary producer and consumer, timed beside whatever else a broker has to do.

The producer sends a record of 1 KB with acks=1 now and then and waits for its acknowledgement; the
consumer waits for it at the end of the log. Each is a thread with a connection of its own.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import Record, build_batch
from tests.integration.wire_client import WireClient, wait_until

TOPIC = "normal"
_RECORD_BYTES = 1000
_PAUSE_S = 0.005


class Times(NamedTuple):
    """How long records took, in milliseconds, in rising order."""

    acknowledged_ms: list[float]
    received_ms: list[float]

    def percentile(self, part: float) -> tuple[float, float]:
        """The time within which that part of them was acknowledged, and received."""
        first, second = (times[int(part * (len(times) - 1))] for times in self)
        return first, second


def measure_normal_clients(address: tuple[str, int], seconds: float) -> Times:
    """Send and receive for some time."""
    sent_at: dict[int, float] = {}
    acknowledged_ms: list[float] = []
    received_ms: list[float] = []
    is_over = threading.Event()
    with WireClient(address) as consumer, WireClient(address) as producer:
        consumer.create_topic(TOPIC)
        wait_until(lambda: consumer.fetch(TOPIC, 0, 0)[0] is ErrorCode.NONE, "a leader")
        offset = end = consumer.fetch(TOPIC, 0, 0)[2]

        def consume() -> None:
            nonlocal offset
            while not is_over.is_set() or offset < end:
                code, records, _ = consumer.fetch(TOPIC, 0, offset, max_wait_ms=100)
                now = time.perf_counter()
                assert code is ErrorCode.NONE
                for record in records:
                    received_ms.append(1000 * (now - sent_at[int(record.key or b"")]))
                    offset = record.offset + 1

        thread = threading.Thread(target=consume)
        thread.start()
        try:
            until = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < until:
                sent_at[end] = begin
                record = Record(0, 1, b"%d" % end, bytes(_RECORD_BYTES))
                code, _ = producer.produce(TOPIC, 0, build_batch([record]), acks=1)
                acknowledged_ms.append(1000 * (time.perf_counter() - begin))
                assert code is ErrorCode.NONE
                end += 1
                time.sleep(_PAUSE_S)
        finally:
            is_over.set()
            thread.join()
    return Times(sorted(acknowledged_ms), sorted(received_ms))
