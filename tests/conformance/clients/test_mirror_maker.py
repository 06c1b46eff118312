"""MirrorMaker 2 as it is, between two brokers, exactly once, killed in the middle of its work.

It has consumers, transactional producers and an admin client in each cluster, keeps its own state
in compacted topics, and translates what groups have committed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kraftrio.wire.errors import ErrorCode
from tests.conformance.broker_process import Broker, free_port_pair
from tests.conformance.cases.calls import append, create_topic, describe_topic, wait_for_coordinator
from tests.conformance.cases.members import commit_code, commit_request, fetch_offset
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    committed,
    committed_records,
    wait_for_transactions,
)
from tests.conformance.clients import scenarios
from tests.conformance.clients.streams_programs import running, wait_for

pytestmark = scenarios.MARKS

PARTITIONS = 2
SETTINGS = """
clusters = here, there
here.bootstrap.servers = {here}
there.bootstrap.servers = {there}
here->there.enabled = true
here->there.topics = {topic}
here->there.groups = {group}
there->here.enabled = false
exactly.once.source.support = enabled
there.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
offset.flush.interval.ms = 100
offset.lag.max = 0
refresh.groups.interval.seconds = 1
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.replication.factor = 1
status.storage.partitions = 1
config.storage.replication.factor = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.heartbeats.enabled = false
sync.topic.acls.enabled = false
session.timeout.ms = 6000
heartbeat.interval.ms = 500
scheduled.rebalance.max.delay.ms = 0
"""


def test_topics_and_groups_are_mirrored(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """Each record once and in order over a kill -9; a group goes on over there where it was."""
    here, there = make_broker(), make_broker()
    topic, mirrored, group, log = "orders", "here.orders", "readers", tmp_path / "log"
    settings = tmp_path / "mirror.properties"
    port = free_port_pair()
    settings.write_text(
        SETTINGS.format(here=here.address, there=there.address, topic=topic, group=group, port=port)
    )
    command = ["org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
    wanted = {at: [b"%d-%d" % (at, n) for n in range(600)] for at in range(PARTITIONS)}
    with RawClient(here.address) as source, RawClient(there.address) as target:
        wait_for_transactions(target)
        create_topic(source, topic, PARTITIONS, retention_ms=86_400_000)

        def extend(first: int, end: int) -> None:
            for partition, values in wanted.items():
                append(source, topic, *values[first:end], partition=partition)

        def found() -> dict[int, list[bytes | None]]:
            if describe_topic(target, mirrored).error_code != ErrorCode.NONE:
                return {}
            return {each: committed(target, mirrored, each) for each in range(PARTITIONS)}

        def count() -> int:
            return sum(map(len, found().values()))

        extend(0, 300)
        with running(log, *command) as process:
            wait_for(process, log, lambda: count() == 300 * PARTITIONS)
            extend(300, 500)
            process.kill()
        with running(log, *command) as process:
            wait_for(process, log, lambda: count() == 500 * PARTITIONS)
            extend(500, 600)
            wait_for(process, log, lambda: count() == 600 * PARTITIONS)
            wait_for_coordinator(source, group)
            request = commit_request(group, topic, 600)
            assert commit_code(source, request) == ErrorCode.NONE
            wait_for_coordinator(target, group)
            wait_for(
                process,
                log,
                lambda: _records_before(target, group, mirrored) == 600,
            )
        assert found() == wanted


def _records_before(raw: RawClient, group: str, topic: str) -> int:
    """How many records are before what a group has committed of partition 0; markers are none."""
    offset = fetch_offset(raw, group, topic).committed_offset
    return sum(record.offset < offset for record in committed_records(raw, topic))
