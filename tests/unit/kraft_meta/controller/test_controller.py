"""The controller core as a whole: activation, replay, determinism."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import encode_record
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.unit.kraft_meta.controller.context import ControllerContext, topic

ROOT = Path(__file__).resolve().parents[4]


def test_handling_a_request_changes_nothing() -> None:
    """Only replay moves the uncommitted image."""
    context = ControllerContext()
    context.start_brokers(1)
    controller, before = context.controller, context.controller.image
    request = CreateTopicsRequest(topics=[topic("a", 1, 1)])
    result = controller.handle(request, api_version=7, next_offset=99, now_ms=0)
    assert len(result.records) == 2
    assert controller.image is before


def test_lost_leadership_drops_what_was_not_committed() -> None:
    """The next activation starts from the committed image."""
    context = ControllerContext()
    context.start_brokers(1)
    controller, committed = context.controller, context.committed
    request = CreateTopicsRequest(topics=[topic("a", 1, 1)])
    offset = committed.offset
    result = controller.handle(request, api_version=7, next_offset=offset + 1, now_ms=0)
    controller.replay(result.records, offset + len(result.records), 1)
    assert controller.image.topic("a") is not None
    controller.deactivate()
    assert not controller.is_active
    assert controller.next_deadline_ms() is None
    assert controller.activate(committed, 0) == []
    assert controller.image is committed


def history(seed: int) -> ControllerContext:
    """Live through a random but seeded life of a cluster."""
    context = ControllerContext(seed)
    rng = random.Random(seed)
    context.start_brokers(1, 2, 3, 4, racks="abab")
    for step in range(80):
        names = sorted(context.image.topics_by_name)
        name = rng.choice(names) if names else ""
        match rng.randrange(12):
            case 0 | 1:
                new = topic(f"t{step}", rng.randrange(1, 4), rng.randrange(1, 4))
                context.send(CreateTopicsRequest(topics=[new]), 7)
            case 2 if name:
                context.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
            case 3:
                context.fence(rng.randrange(1, 5))
            case 4:
                context.heartbeat(rng.randrange(1, 5))
            case 5 if name and context.partition(name).leader >= 0:
                partition = context.partition(name)
                others = [r for r in partition.replicas if rng.random() < 0.5]
                isr = [partition.leader, *(r for r in others if r != partition.leader)]
                context.alter_isr(name, isr)
            case 6:
                context.try_register(broker := rng.randrange(1, 5), incarnation=step)
                context.heartbeat(broker)
            case 7 if name:
                config = IncrementalAlterableConfig(name="retention.ms", value=str(step))
                resource = IncrementalAlterConfigsResource(
                    resource_type=2, resource_name=name, configs=[config]
                )
                context.send(IncrementalAlterConfigsRequest(resources=[resource]))
            case 8 | 9 if name:
                replicas = rng.sample(range(1, 5), rng.randrange(1, 4))
                moved = ReassignablePartition(
                    partition_index=0, replicas=replicas if rng.random() < 0.8 else None
                )
                context.send(
                    AlterPartitionReassignmentsRequest(
                        topics=[ReassignableTopic(name=name, partitions=[moved])]
                    ),
                    1,
                )
            case 10:
                context.heartbeat(rng.randrange(1, 5), want_shut_down=True)
            case 11:
                broker = rng.randrange(1, 5)
                broker_epoch = context.image.brokers[broker].broker_epoch
                context.commit(
                    context.controller.broker_connection_lost(broker, broker_epoch, context.now_ms)
                )
        context.sleep(rng.randrange(2000))
        if rng.random() < 0.05:
            context.fail_over()
    return context


def digest(seed: int) -> str:
    return hashlib.sha256(b"".join(encode_record(r) for r in history(seed).log)).hexdigest()


@pytest.mark.parametrize("seed", range(5))
def test_laws_of_a_random_life(seed: int) -> None:
    """Replaying the log gives the image, in one delta or record by record; partitions are sane."""
    context = history(seed)
    whole = MetadataDelta(MetadataImage())
    stepwise = MetadataImage()
    for offset, record in enumerate(context.log):
        whole.replay(record)
        single = MetadataDelta(stepwise)
        single.replay(record)
        stepwise = single.apply(offset, 1)
    assert whole.apply(context.image.offset, 1) == stepwise == context.image
    snapshot = MetadataDelta(MetadataImage())
    for record in context.image.to_records():
        snapshot.replay(record)
    assert snapshot.apply(context.image.offset, 1) == context.image
    for image in context.image.topics_by_name.values():
        for partition in image.partitions.values():
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas)
            moving = {*partition.adding_replicas, *partition.removing_replicas}
            assert moving <= set(partition.replicas)
            assert set(partition.removing_replicas) != set(partition.replicas)
            if partition.leader >= 0:
                assert partition.leader in partition.isr
                assert context.image.brokers[partition.leader].is_active
            else:
                assert not any(context.image.brokers[r].is_active for r in partition.isr)


def test_the_log_depends_on_the_seed_alone() -> None:
    """Not on the hash seed: no decision iterates over a set of strings."""
    digests = []
    for hash_seed in ("1", "2"):
        code = (
            "from tests.unit.kraft_meta.controller.test_controller import digest; print(digest(3))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(result.stdout)
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64
