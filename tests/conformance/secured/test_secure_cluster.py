"""`kraftrio cluster --secure`: three nodes, all secured, do what they do in plaintext.

Its own properties files are what Apache's tools and our clients get in with.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from kraftrio import Admin, Consumer, NewTopic, Producer
from kraftrio.base.properties import parse_properties
from kraftrio.clients.admin.security.acls import Acl, AclOperation, ResourceType
from kraftrio.clients.admin.security.scram_users import ScramPassword
from kraftrio.clients.security import SecuritySettings, security_settings
from kraftrio.errors import NetworkError, TimedOutError, TopicAuthorizationError
from tests.conformance.broker_process import KIND
from tests.conformance.clients_trio.consuming import make_topic
from tests.conformance.java_tools import KafkaTools, ToolRunner

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(KIND == "apache", reason="a command of kraftrio"),
]

DEADLINE_S = 60.0
READY = re.compile(r"kraftrio ready (\S+):(\d+) node=(\d+) pid=(\d+) data=(\S+)")


class SecureCluster:
    """The command, and its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self._output = folder.with_suffix(".out")
        command = [sys.executable, "-P", "-m", "kraftrio", "cluster", "--secure"]
        command += ["--base-port", "0", "--data", str(folder)]
        with self.log.open("w") as log, self._output.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=log, process_group=0)
        self.pids: dict[int, int] = {}

    def wait_ready(self) -> None:
        """Wait for the ready lines of three nodes."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := READY.findall(self._output.read_text())) < 3:
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        self.pids = {int(node_id): int(pid) for _, _, node_id, pid, _ in found}

    def properties(self, name: str = "client.properties") -> dict[str, str]:
        """Return what a file says."""
        return parse_properties((self.folder / name).read_text())

    @property
    def servers(self) -> str:
        return self.properties()["bootstrap.servers"]

    @property
    def security(self) -> SecuritySettings:
        """How the administrator gets in, for our clients."""
        return security_settings(self.properties())

    def close(self) -> None:
        """Stop, and check that nothing crashed."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)
        assert "Traceback" not in self.log.read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    made = SecureCluster(tmp_path_factory.mktemp("secure") / "cluster")
    try:
        made.wait_ready()
        yield made
    except BaseException:
        os.killpg(made.process.pid, signal.SIGKILL)
        raise
    made.close()


@pytest.mark.parametrize("file", ["client.properties", "client-certificate.properties"])
def test_apaches_tools_take_the_files_as_they_are(
    cluster: SecureCluster, tool_runner: ToolRunner, file: str
) -> None:
    tools = KafkaTools(cluster.properties(file)["bootstrap.servers"], tool_runner)
    topic = file.partition(".")[0]
    config = ("--command-config", str(cluster.folder / file))
    tools.run("kafka-topics", "--create", "--topic", topic, "--partitions", "3", *config)
    tools.produce(topic, ["a", "b", "c"], *config)
    assert sorted(tools.consume(topic, *config, count=3)) == ["a", "b", "c"]
    described = tools.run("kafka-topics", "--describe", "--topic", topic, *config)
    assert len(re.findall(r"Isr: \d,\d,\d", described.stdout)) == 3, described.stdout
    quorum = tools.run("kafka-metadata-quorum", *config, "describe", "--status")
    assert "LeaderId" in quorum.stdout


def test_everybody_else_does_what_acls_allow(cluster: SecureCluster) -> None:
    """A new user logs in with its password, and may write once an ACL says so."""

    async def run() -> None:
        others: SecuritySettings = security_settings(
            cluster.properties()
            | {
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
                ' required username="bob" password="bobs";'
            }
        )
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(cluster.servers, **cluster.security))
            await admin.create_topics([NewTopic("guarded", 1)])
            await admin.scram_users.alter([ScramPassword("bob", "bobs")])
            async with Producer(cluster.servers, **others) as producer:
                with pytest.raises(TopicAuthorizationError):
                    await (await producer.send("guarded", b"no"))
            await admin.acls.create(
                [Acl(ResourceType.TOPIC, "guarded", "User:bob", AclOperation.WRITE)]
            )
            with trio.fail_after(DEADLINE_S):
                while True:
                    try:
                        async with Producer(cluster.servers, **others) as producer:
                            await (await producer.send("guarded", b"yes"))
                        break
                    except TopicAuthorizationError:
                        await trio.sleep(0.05)  # the node has not applied the ACL yet
            (found,) = await admin.acls.describe()
            assert (found.principal, found.resource_name) == ("User:bob", "guarded")

    trio.run(run)


def test_the_kill_of_a_leader_loses_nothing(cluster: SecureCluster) -> None:
    """What was acknowledged is there afterwards, and the killed node comes back by its own file."""

    async def run() -> None:
        async with (
            Admin(cluster.servers, **cluster.security) as admin,
            Producer(cluster.servers, **cluster.security) as producer,
        ):
            leader = (await make_topic(admin, "kept")).partitions[0].leader_id
            acknowledged = 0
            for number in range(300):
                if number == 100:
                    os.kill(cluster.pids[leader], signal.SIGKILL)
                delivery = await producer.send("kept", b"%d" % number)
                with trio.fail_after(DEADLINE_S):
                    await delivery
                acknowledged += 1
            async with Consumer(
                cluster.servers, auto_offset_reset="earliest", group_id="g", **cluster.security
            ) as consumer:
                await consumer.subscribe("kept")
                found: set[bytes | None] = set()
                with trio.fail_after(DEADLINE_S):
                    while len(found) < acknowledged:
                        found |= {record.value for record in await consumer.poll()}
            assert found == {b"%d" % number for number in range(acknowledged)}
            await _come_back(cluster, admin, leader)

    trio.run(run)


async def _come_back(cluster: SecureCluster, admin: Admin, node_id: int) -> None:
    """Start a killed node alone, by its own file, until it is in sync; then stop it."""
    file = cluster.folder / f"node-{node_id}" / "server.properties"
    command = [sys.executable, "-P", "-m", "kraftrio", "start", "--config", str(file)]
    with cluster.log.open("a") as log:
        process = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        with trio.fail_after(DEADLINE_S):
            while True:
                try:
                    described = await admin.describe_topics(["kept"])
                    if node_id in described["kept"].partitions[0].isr:
                        return
                except (NetworkError, TimedOutError):
                    pass  # it was asked while it went
                await trio.sleep(0.1)
    finally:
        process.terminate()
        await process.wait()
