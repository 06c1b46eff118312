"""The producer's core: how records become batches, and when those are sent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kraftrio.clients.errors import (
    RecordTooLargeError,
)
from kraftrio.clients.producer.partitioner import partition_for_key
from kraftrio.wire.records.batch import parse_header
from tests.unit.clients.producer.producing import Core, records_of


def test_a_batch_lingers_until_it_is_due() -> None:
    """Records of one partition share a batch, which goes linger_ms after its first record."""
    core = Core(linger_ms=5)
    first = core.accept(b"a")
    assert core.poll() == core.now_ms + 5
    assert core.drain() == []
    core.wait(3)
    second = core.accept(b"b")
    assert core.wait(1.9) == core.now_ms + 0.1
    assert core.drain() == []
    core.wait(0.1)
    batch = core.drain_one()
    assert [record.value for record in records_of(batch)] == [b"a", b"b"]
    assert not first.done
    core.deliver(batch, 70)
    assert first.result() == ("orders", 0, 70, 5000)
    assert second.result().offset == 71


def test_a_full_batch_does_not_linger() -> None:
    """The record that does not fit opens the next batch; the full one goes at once, not larger
    than batch_size."""
    core = Core(linger_ms=1000, batch_size=1000)
    core.fill(batches=2)
    assert core.accumulator.schedule.wants_sender
    batch = core.drain_one()
    assert len(batch.data) <= 1000
    assert len(core.drain_one().data) <= 1000
    assert core.drain() == []
    core.wait(1000)
    assert core.drain_one().record_count == 1


def test_without_lingering_a_record_goes_at_once() -> None:
    """linger_ms=0: the first record is sent alone, what comes meanwhile together."""
    core = Core(linger_ms=0)
    core.accept(b"a")
    assert core.drain_one().record_count == 1
    core.accept(b"b")
    core.accept(b"c")
    assert core.drain_one().record_count == 2


def test_a_batch_that_waited_behind_another_lingers_from_its_own_first_record() -> None:
    """Once the full batch is gone, the open one behind it is due by its own age."""
    core = Core(linger_ms=50, batch_size=1000)
    core.fill(batches=1)
    core.wait(20)
    assert core.drain_one().record_count == 2
    assert core.drain() == []
    assert core.wait(29.9) == pytest.approx(core.now_ms + 0.1)
    core.wait(0.2)
    assert core.drain_one().record_count == 1


def test_everything_about_a_record_arrives() -> None:
    """Keys, nulls, headers and timestamps are in the bytes as they were given."""
    core = Core()
    core.accept(None, b"k", timestamp_ms=77, headers=(("h", b"1"), ("h", None)))
    core.accept(b"", b"", partition=0, timestamp_ms=12)
    core.accept(b"v", None, timestamp_ms=10**12)
    core.flush()
    assert [record[1:] for record in records_of(core.drain_one())] == [
        (77, b"k", None, (("h", b"1"), ("h", None))),
        (12, b"", b"", ()),
        (10**12, None, b"v", ()),
    ]


def test_sequences_count_records() -> None:
    """Each batch begins where the last one ended; partitions count for themselves."""
    core = Core(partitions=2, batch_size=1000)
    core.fill(batches=2, partition=0)
    core.fill(batches=1, partition=1)
    core.flush()
    seen: dict[Any, Any] = {}
    while batches := core.drain():
        for batch in batches:
            header = parse_header(batch.data)
            assert (header.producer_id, header.producer_epoch) == (4000, 0)
            seen.setdefault(batch.partition, []).append(
                (header.base_sequence, header.last_sequence)
            )
    assert seen == {0: [(0, 1), (2, 3), (4, 4)], 1: [(0, 1), (2, 2)]}


def test_a_request_has_one_batch_of_each_partition_and_a_size() -> None:
    """Requests stay below max_request_size; who had to wait comes first the next time."""
    core = Core(partitions=3, batch_size=1000, max_request_size=2100)
    for partition in range(3):
        core.fill(batches=2, partition=partition)
    order = []
    while batches := core.drain():
        assert sum(len(batch.data) for batch in batches) <= 2100
        order.append([batch.partition for batch in batches])
    assert order == [[0, 1], [2, 0], [1, 2]]


def test_without_a_producer_id_nothing_goes() -> None:
    """An idempotent producer sends nothing before it has its id."""
    core = Core(producer_id=None)
    core.accept(b"a")
    core.flush()
    assert core.drain() == []
    assert core.accumulator.sequences is not None
    core.accumulator.sequences.set_producer_id(9, 3)
    header = parse_header(core.drain_one().data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)


def test_a_producer_that_is_not_idempotent_needs_no_id() -> None:
    """Its batches carry no sequence."""
    core = Core(enable_idempotence=False)
    core.accept(b"a")
    core.flush()
    assert parse_header(core.drain_one().data).base_sequence == -1


# Partitions


def test_a_key_has_its_partition() -> None:
    """Records with a key go where the hash says, whatever happens elsewhere."""
    core = Core(partitions=12)
    for key in (b"a", b"b", b"", b"N14228"):
        assert core.accept(b"v", key).partition == partition_for_key(key, 12)


def test_records_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    """One partition gets full batches of batch_size together, then another; over time all get the
    same."""
    core = Core(partitions=4, batch_size=1000)
    partitions = []
    for _ in range(4000):
        partitions.append(core.accept(b"x" * 90).partition)
        while core.accumulator.schedule.wants_sender:
            for batch in core.drain():
                core.deliver(batch)
            core.poll()
            core.accumulator.schedule.nodes()
    runs = [1]
    for before, after in pairwise(partitions):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs[:-1]) <= {18, 36, 54, 72}  # 9 records of 90 B fill a batch of 1000
    shares = [partitions.count(partition) for partition in range(4)]
    assert max(shares) < 1.4 * min(shares)


def test_partitions_without_a_leader_are_left_out() -> None:
    """Records without a key avoid partitions that nobody leads, while there are others."""
    core = Core(partitions=3, batch_size=200)
    core.lead(1, -1, 1)
    assert {core.accept(b"x" * 90).partition for _ in range(200)} == {0, 2}


def test_slow_partitions_get_fewer_records() -> None:
    """What waits for a partition speaks against it (adaptive partitioning)."""
    core = Core(partitions=2, batch_size=500)
    core.lead(1, 2, 1)  # node 2 takes nothing
    counts = [0, 0]
    for _ in range(3000):
        counts[core.accept(b"x" * 90).partition] += 1
        if core.accumulator.schedule.wants_sender:
            for batch in core.drain(1):
                core.deliver(batch)
            core.accumulator.schedule.nodes()
    assert counts[0] > 5 * counts[1]


def test_keys_may_be_ignored() -> None:
    """partitioner_ignore_keys: a key does not decide."""
    core = Core(partitions=12, partitioner_ignore_keys=True)
    assert len({core.accept(b"v", b"%d" % index).partition for index in range(50)}) == 1


# Memory


def test_memory_is_bounded_and_comes_back() -> None:
    """A batch holds memory from its first record to its end; without memory nothing is taken."""
    core = Core(batch_size=1000, buffer_memory=3000)
    accepted = 0
    while core.send(b"x" * 400) is not None:
        accepted += 1
    assert accepted == 6
    assert core.accumulator.memory.free_bytes < 1000
    for _ in range(2):
        core.deliver(core.drain_one())
    core.flush()
    core.deliver(core.drain_one())
    assert core.accumulator.memory.free_bytes == 3000
    assert not core.accumulator.incomplete


def test_a_small_batch_gives_back_what_it_does_not_need() -> None:
    """Once a batch is sent it holds no more than its records take."""
    core = Core(batch_size=1000, buffer_memory=3000)
    core.accept(b"x" * 100)
    assert core.accumulator.memory.free_bytes == 2000
    core.flush()
    batch = core.drain_one()
    assert core.accumulator.memory.free_bytes > 2800
    core.deliver(batch)
    assert core.accumulator.memory.free_bytes == 3000


def test_who_waits_for_memory_ends_the_lingering() -> None:
    """While a sender waits, batches go as they are, and nobody overtakes."""
    core = Core(linger_ms=10_000, batch_size=1000, buffer_memory=2000)
    core.accept(b"x")
    core.accumulator.on_memory_waiters(1)
    assert not core.accumulator.memory.reserve(100)
    assert core.drain_one().record_count == 1
    assert core.accumulator.memory.grant(1500)
    core.accumulator.on_memory_waiters(0)
    assert not core.accumulator.memory.reserve(900)
    assert core.accumulator.memory.reserve(100)


@pytest.mark.parametrize("limit", ["max_request_size", "buffer_memory"])
def test_a_record_that_can_never_go_is_refused(limit: str) -> None:
    """The error names the limit; nothing is accepted."""
    settings: dict[str, Any] = {limit: 5000}
    core = Core(**settings)
    with pytest.raises(RecordTooLargeError, match=limit):
        core.send(b"x" * 5000)
    assert not core.accumulator.incomplete
    assert core.accept(b"x" * 4800).partition == 0


def test_compressible_records_make_larger_batches() -> None:
    """How well a topic's records compress decides how many go into a batch."""
    core = Core(batch_size=1000, compression_type="zstd", linger_ms=0)
    counts = []
    for _ in range(400):
        core.accept(b"the same again and again" * 4)
        for batch in core.drain():
            counts.append(batch.record_count)
            assert len(batch.data) <= 1000
            core.deliver(batch)
    core = Core(batch_size=1000, compression_type="zstd")
    for _ in range(3000):
        core.accept(b"the same again and again" * 4)
        for batch in core.drain():
            counts.append(batch.record_count)
            assert len(batch.data) <= 1000
            core.deliver(batch)
    assert counts[0] == 1
    assert max(counts) >= 50
