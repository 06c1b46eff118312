"""The reader of committed data, given answers of Fetch that a script makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.walk import Record
from tests.sim.client import SimClient, Unavailable
from tests.sim.transaction_model import TransactionHistory
from tests.sim.transactional_readers import TransactionalReader

TP = TopicPartition("t", 0)


class _Client:
    """Answers every fetch with the same bytes."""

    name = "reader"

    def __init__(self, records: bytes) -> None:
        self._records = records
        self.world = SimpleNamespace(tolerates=lambda _text: True)
        self.rng = SimpleNamespace(choice=lambda options: options[0])

    async def leader(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 1, 0

    async def call_node(self, _node_id: int, _request: Any) -> Any:
        answer = SimpleNamespace(
            error_code=0,
            last_stable_offset=9,
            high_watermark=9,
            records=self._records,
            aborted_transactions=None,
        )
        return SimpleNamespace(throttle_time_ms=0, responses=[SimpleNamespace(partitions=[answer])])


def _batch(history: TransactionHistory, base_offset: int) -> bytes:
    """A batch of one record whose transaction is committed."""
    attempt = history.attempt(history.begin_life("id", 1, base_offset, base_offset - 1))
    value = history.new_record(attempt, TP).encode()
    history.send(attempt, [0])
    history.ask_commit(attempt)
    return bytes(build_batch([Record(0, 0, None, value)], base_offset=base_offset))


async def test_records_before_damage_are_returned_and_the_damage_met_next() -> None:
    """A reader that counted them as read, and lost them, would seem to have left them out."""
    history = TransactionHistory()
    whole, damaged = _batch(history, 0), bytearray(_batch(history, 1))
    damaged[-1] ^= 1
    client = cast("SimClient", _Client(whole + bytes(damaged)))
    reader = TransactionalReader(client, history, TP, committed_only=True)
    assert (await reader.read(), reader.position) == ([0], 1)
    with pytest.raises(Unavailable, match="CRC"):
        await reader.read()
    assert reader.position == 1
