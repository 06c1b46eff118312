"""Nothing lost: a cluster whose nodes and links fail at random, under load all the time.

Two idempotent producers (Apache's verifiable producer and confluent-kafka) with acks=all, and a
group of four consumers. At the end every acknowledged record is read back once and in order, the
group has read every record, no commit has gone back, and the replicas are identical to the byte.
CHAOS_ROUNDS=30 is the long run, FAULT_TEST_SEED repeats one; seed and faults are printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.cluster_load import (
    ConfluentLoad,
    JavaLoad,
    check_log,
    check_replicas,
    wait_for_more,
)
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.integration.cluster_chaos import FAULTS, Chaos, GroupNotes, GroupReader
from tests.integration.cluster_links import Links

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
PARTITIONS = 6
RATE = 300
TOPIC, GROUP = "chaos", "readers"
READERS = 4
DRAIN_S = 60.0


@pytest.mark.timeout(120 + 40 * ROUNDS)
def test_nothing_is_lost(cluster: Cluster, links: Links, tmp_path: Path) -> None:
    """Kills, stops and cut links under load lose, double and reorder nothing."""
    seed = int(os.environ.get("FAULT_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"FAULT_TEST_SEED={seed}")
    rng = random.Random(seed)
    runner = ToolRunner()
    tools = KafkaTools(cluster.bootstrap, runner)
    try:
        tools.create_topic(TOPIC, PARTITIONS, min_insync_replicas=2, segment_bytes=1 << 20)
    finally:
        runner.close()
    cluster.wait_healthy(TOPIC)
    notes = GroupNotes()
    readers = [
        GroupReader(f"reader-{number}", cluster.bootstrap, TOPIC, GROUP, notes)
        for number in range(READERS)
    ]
    with (
        JavaLoad(tools, TOPIC, tmp_path, RATE) as java,
        ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS, RATE, padding_bytes=400) as confluent,
    ):
        loads = [java.acknowledged, confluent.acknowledged]
        for reader in readers:
            reader.start()
        wait_for_more(cluster, loads, 100)
        chaos = Chaos(cluster, links, rng, TOPIC, PARTITIONS)
        for fault in plan(rng):
            chaos.round(fault, loads)
            assert not notes.faults, notes.faults
        chaos.wait_ready()
        java.stop()
        confluent.stop()
    found = check_log(cluster, TOPIC, PARTITIONS, *loads)
    drain(cluster, readers, notes, found)
    missed = sorted(set(found) - notes.read)
    assert not missed, f"the group never read {missed[:10]}"
    assert not notes.faults, notes.faults
    check_replicas(cluster, TOPIC, PARTITIONS)
    print(
        f"{len(found)} records, longest wait for an acknowledgement: "
        + ", ".join(f"{load.longest_gap_s:.1f} s" for load in loads)
        + f"; {notes.assignments} assignments"
    )


def plan(rng: random.Random) -> list[str]:
    """Draw the faults of all rounds: each kind comes before one comes again."""
    faults: list[str] = []
    while len(faults) < ROUNDS:
        faults += rng.sample(FAULTS, len(FAULTS))
    return faults[:ROUNDS]


def drain(
    cluster: Cluster,
    readers: list[GroupReader],
    notes: GroupNotes,
    found: dict[tuple[int, int], str],
) -> None:
    """Wait until the group has committed all that is there, and stop it."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in found:
        ends[partition] = max(ends[partition], offset + 1)

    def done() -> bool:
        return bool(notes.faults) or all(
            notes.committed.get(partition, 0) >= end for partition, end in ends.items()
        )

    check: Callable[[], bool] = done
    cluster.wait_until(check, f"the group has committed {ends}; {notes.committed}", DRAIN_S)
    for reader in readers:
        reader.stopping.set()
    for reader in readers:
        reader.join(DRAIN_S)
        assert not reader.is_alive()
