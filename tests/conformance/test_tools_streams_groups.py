"""kafka-streams-groups: list, describe in each form, reset, delete offsets, delete with topics."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest

from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.conformance.broker_process import TEST_CONFIG, Broker
from tests.conformance.cases.calls import append
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.test_streams_traces import WireScript
from tests.conformance.java_tools import KafkaTools, ToolRunner

TOOL = "kafka-streams-groups"
EPOCH_VERSION = 9  # of OffsetCommit, by member epoch


class Application(WireScript):
    """A member of a group with a repartition and a changelog topic; three records to be read."""

    def __init__(self, client: RawClient, group_id: str) -> None:
        super().__init__(client)
        self._name = group_id
        self._raw = client
        self.do("group", "topic in 2", "join a counting", "settle", "beat a", "beat a owns=all")
        append(client, f"{group_id}-in", b"x", b"y", b"z")

    def new_group_id(self) -> str:
        return self._name

    def do(self, *commands: str) -> None:
        """Run commands, whatever comes of them."""
        for command in commands:
            list(self.run(command))

    def wait_for(self, command: str, answer: str) -> bool:
        """Repeat a command until it has this answer; False if it never has."""
        deadline = time.monotonic() + 20
        while list(self.run(command)) != [answer]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def commit(self, offset: int, member_epoch: int) -> ErrorCode:
        """Commit an offset of the first partition as the member."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=f"{self._name}-in", partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self._name,
            member_id="a",
            generation_id_or_member_epoch=member_epoch,
            topics=[topic],
        )
        answer = self._raw.call(request, EPOCH_VERSION)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code


@pytest.fixture
def application(bootstrap: str, unique_group: Callable[[], str]) -> Iterator[Application]:
    """A group whose one member has all tasks, and has committed one record."""
    with RawClient(bootstrap) as client:
        made = Application(client, unique_group())
        assert made.commit(1, 3) is ErrorCode.NONE
        yield made


def test_describe(kafka: KafkaTools, application: Application) -> None:
    """Each form: what the member has, how far the group is, and the target assignment."""
    group = application.group_id
    states = kafka.run(TOOL, "--list", "--state").rows("GROUP")
    assert {"GROUP": group, "STATE": "Stable"} in states
    assert group in kafka.run(TOOL, "--list").lines
    asked = ("--describe", "--group", group)
    rows = kafka.run(TOOL, *asked).rows("GROUP")
    lags = {(row["TOPIC"], row["PARTITION"]): row["OFFSET-LAG"] for row in rows}
    assert lags == {
        (f"{group}-in", "0"): "2",
        (f"{group}-in", "1"): "0",
        (f"{group}-repartition", "0"): "0",
        (f"{group}-repartition", "1"): "0",
    }
    (state,) = kafka.run(TOOL, *asked, "--state", "--verbose").lines[1:]
    assert state.split()[3:] == ["Stable", "3", "3", "1"]
    (member,) = kafka.run(TOOL, *asked, "--members", "--verbose").lines[1:]
    assert member.split(maxsplit=8)[1:] == [
        "3", "0", "a", "streams", "3", "process-a", "raw",
        "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];",
    ]  # fmt: skip
    missing = kafka.run(TOOL, "--describe", "--group", f"no-{group}", check=False)
    assert missing.exit_code == 1
    assert f"Group no-{group} not found." in missing.output


def test_a_group_at_work_is_left_alone(kafka: KafkaTools, application: Application) -> None:
    """Offsets are reset, and groups deleted, only while there are no members."""
    group = application.group_id
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--all-input-topics")
    refused = kafka.run(TOOL, *reset, "--group", group, check=False)
    assert f"Assignments can only be reset if the group '{group}' is inactive" in refused.output
    refused = kafka.run(TOOL, "--delete", "--group", group, check=False)
    assert f"Streams group '{group}' is not EMPTY." in refused.output


def test_reset_and_delete(kafka: KafkaTools, application: Application) -> None:
    """Of an empty group; its internal topics go with it, those of others stay."""
    group = application.group_id
    application.do("leave a")
    reset = ("--reset-offsets", "--group", group, "--to-latest", "--all-input-topics")
    for how in ("--dry-run", "--execute"):
        (row,) = kafka.run(TOOL, *reset, how).rows("GROUP")
        assert (row["TOPIC"], row["PARTITION"], row["NEW-OFFSET"]) == (f"{group}-in", "0", "3")
    deleted = kafka.run(TOOL, "--delete-offsets", "--group", group, "--input-topic", f"{group}-in")
    assert [row["STATUS"] for row in deleted.rows("TOPIC")] == ["Successful", "Successful"]
    topics = kafka.run("kafka-topics", "--list").lines
    assert {f"{group}-in", f"{group}-changelog", f"{group}-repartition"} <= set(topics)
    done = kafka.run(TOOL, "--delete", "--group", group, "--delete-all-internal-topics")
    assert f"Deletion of requested streams groups ('{group}') was successful." in done.output
    left = set(kafka.run("kafka-topics", "--list").lines)
    assert {one for one in left if one.startswith(group)} == {f"{group}-in"}
    assert group not in kafka.run(TOOL, "--list").lines


def test_commits_are_fenced_by_epoch(application: Application) -> None:
    """A member in an earlier epoch commits only for tasks that it has had since then."""
    assert application.commit(2, 4) is ErrorCode.STALE_MEMBER_EPOCH
    assert application.commit(2, 2) is ErrorCode.STALE_MEMBER_EPOCH
    application.do("beat a rack=r1")  # to epoch 4, with the tasks of epoch 3
    assert application.commit(2, 3) is ErrorCode.NONE
    assert application.commit(3, 4) is ErrorCode.NONE
    assert application.commit(3, 2) is ErrorCode.STALE_MEMBER_EPOCH
    application.do("leave a")
    assert application.commit(3, 4) is ErrorCode.UNKNOWN_MEMBER_ID


def test_dump_log(make_broker: Callable[[], Broker], tool_runner: ToolRunner) -> None:
    """kafka-dump-log decodes each kind of record that is written of a streams group."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        application = Application(client, "dumped")
        application.do("leave a")
    partition = partition_for("dumped", int(TEST_CONFIG["offsets.topic.num.partitions"]))
    files = sorted(broker.directory.rglob(f"__consumer_offsets-{partition}/*.log"))
    dumped = KafkaTools("", tool_runner).run(
        "kafka-dump-log", "--offsets-decoder", "--files", ",".join(map(str, files))
    )
    records = re.findall(r'key: (\{"type":.*?\}) payload: (.*)', dumped.output)
    types = {json.loads(key)["type"] for key, _ in records}
    assert {"17", "19", "20", "21", "22", "23"} <= types
    values = [json.loads(value) for key, value in records if value.startswith("{")]
    tombstones = [key for key, value in records if not value.startswith("{")]
    assert len(tombstones) == 3
    (topology,) = [one for one in values if "subtopologies" in one["data"]]
    assert [one["subtopologyId"] for one in topology["data"]["subtopologies"]] == ["0", "1"]


def test_the_feature_may_be_off(
    make_broker: Callable[[], Broker], tools_for: Callable[[Broker], KafkaTools]
) -> None:
    """Members are refused while the cluster's feature is off; the group is there again after."""
    broker = make_broker()
    tools = tools_for(broker)
    with RawClient(broker.address) as client:
        application = Application(client, "switched")
        tools.run("kafka-features", "downgrade", "--feature", "streams.version=0")
        assert application.wait_for("beat a", "UNSUPPORTED_VERSION: None")
        assert application.wait_for("describe", "UNSUPPORTED_VERSION: None")
        tools.run("kafka-features", "upgrade", "--feature", "streams.version=1")
        assert application.wait_for("beat a", "epoch 3 endpoints 0 interval 5000")
