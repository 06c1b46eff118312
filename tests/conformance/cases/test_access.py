"""Who may send what: each request by somebody without rights, by somebody who may describe
everything it is about, and by somebody with just the rights that it takes.

The answers are in `access.txt`: they are those of Apache Kafka, with its StandardAuthorizer. With
TEST_BROKER=apache they are checked against it, and with TEST_REWRITE=1 besides recorded again.

Clients of a listener without authentication are all the same user, but ACLs distinguish the
addresses that they come from: each sender of each request has one of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kraftrio.broker.security.api_access import API_ACCESS, OPEN
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import ARRAY
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.security import AclCreation, CreateAclsRequest, DescribeAclsRequest
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cases.access.requests import CASES, CONTROLLER_CASES
from tests.conformance.cases.access.things import (
    Case,
    Right,
    Things,
)
from tests.conformance.cases.calls import (
    SETTLE_DEADLINE_S,
    wait_for_coordinator,
    wait_for_leaders,
)
from tests.conformance.cases.raw_client import ConnectionClosed, RawClient
from tests.conformance.cases.transactional import wait_for_transactions
from tests.conformance.cluster_process import Cluster
from tests.support.golden import check

TABLE = Path(__file__).with_name("access.txt")
CONTROLLER_TABLE = Path(__file__).with_name("access_controller.txt")
CLUSTER_NAME = "kafka-cluster"
ADMINISTRATOR = "127.0.0.1"  # the broker's own connections come from there, too
SENDERS = ("nobody", "describer", "permitted")
DESCRIBER: tuple[Right, ...] = tuple(
    (kind, AclOperation.DESCRIBE)
    for kind in (
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.CLUSTER,
        ResourceType.TRANSACTIONAL_ID,
    )
)
# Their answers are the business of who authenticates clients.
ELSEWHERE = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
_ACLS_AT_ONCE = 200


def test_every_api_has_its_case() -> None:
    """Of those that brokers serve, and not to everybody."""
    guarded = {
        key
        for key, access in API_ACCESS.items()
        if access != OPEN and "broker" in APIS[key].listeners
    }
    assert guarded - ELSEWHERE <= {case.key for case in CASES.values()}


class Senders:
    """A broker with everything that the requests are about, and the rights of their senders.

    Args:
        asked: the address of the listener that the requests go to, if it is another one.
    """

    def __init__(self, broker: Broker, cases: Mapping[str, Case], asked: str = "") -> None:
        self.broker = broker
        self.cases = cases
        self._asked = asked or broker.address
        self.hosts: dict[tuple[str, str], str] = {}
        self.things: dict[tuple[str, str], Things] = {}

    def prepare(self) -> None:
        """Make topics and coordinators first, and then shut everybody else out of the broker."""
        numbers = itertools.count(1)
        for name in self.cases:
            for sender in SENDERS:
                number = next(numbers)
                self.hosts[name, sender] = f"127.0.{1 + number // 200}.{1 + number % 200}"
                self.things[name, sender] = Things(
                    f"{name.replace(' ', '-').replace(',', '')}-{sender}"
                )
        with RawClient(self.broker.address) as administrator:
            self._make_topics(administrator)
            wait_for_coordinator(administrator)
            wait_for_transactions(administrator)
            _wait_for_share_coordinator(administrator)
            _wait_for_producer_ids(administrator)
            self._make_acls(administrator)
        self._wait_closed()

    def _make_topics(self, client: RawClient) -> None:
        names = [topic for one in self.things.values() for topic in one.topics[:2]]
        for first in range(0, len(names), 100):
            made = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in names[first : first + 100]
            ]
            response = client.call(CreateTopicsRequest(topics=made, timeout_ms=30_000), None, 60)
            assert {one.error_code for one in response.topics} == {ErrorCode.NONE}
        for name in names:
            wait_for_leaders(client, name)
        response = client.call(
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        )
        ids = {one.name: one.topic_id for one in response.topics}
        for key, things in self.things.items():
            own, hidden, _ = things.topics
            self.things[key] = Things(things.name, ids[own], ids[hidden])

    def _make_acls(self, client: RawClient) -> None:
        acls = [
            _acl(
                kind,
                "*" if kind is not ResourceType.CLUSTER else CLUSTER_NAME,
                AclOperation.ALL,
                ADMINISTRATOR,
            )
            for kind in (
                ResourceType.CLUSTER,
                ResourceType.TOPIC,
                ResourceType.GROUP,
                ResourceType.TRANSACTIONAL_ID,
            )
        ]
        for (name, sender), host in self.hosts.items():
            rights = {"nobody": (), "describer": DESCRIBER, "permitted": self.cases[name].rights}
            for kind, operation in rights[sender]:
                owned = _own(self.things[name, sender], kind)
                acls += [_acl(kind, resource, operation, host) for resource in owned]
        for first in range(0, len(acls), _ACLS_AT_ONCE):
            some = acls[first : first + _ACLS_AT_ONCE]
            response = client.call(CreateAclsRequest(creations=some))
            assert {one.error_code for one in response.results} == {ErrorCode.NONE}

    def _wait_closed(self) -> None:
        """Wait until the node enforces the ACLs, which reach it with the metadata."""
        nobody = self.hosts[next(iter(self.cases)), "nobody"]
        asked = DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        with RawClient(self._asked, from_host=nobody) as client:
            while client.call(asked).error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                assert time.monotonic() < deadline, "still open to everybody"
                time.sleep(0.02)

    def answer(self, name: str, sender: str) -> str:
        """Send a request, and return what its answer says about who may do what."""
        case, things = self.cases[name], self.things[name, sender]
        with RawClient(self._asked, from_host=self.hosts[name, sender]) as client:
            try:
                response = client.call(case.request(things), case.version)
            except ConnectionClosed:
                return "the connection is closed"
        version = APIS[case.key].max_version if case.version is None else case.version
        answer = shown(response, version, Names(things))
        return answer if case.is_answer_compared or "AUTHORIZATION_FAILED" in answer else "let in"


def _own(things: Things, kind: ResourceType) -> list[str]:
    """What a sender has rights on, including a topic that does not exist and may be created."""
    return {
        ResourceType.TOPIC: [things.topics[0], f"{things.topics[0]}-new"],
        ResourceType.GROUP: [things.groups[0]],
        ResourceType.CLUSTER: [CLUSTER_NAME],
        ResourceType.TRANSACTIONAL_ID: [things.transactional_ids[0]],
    }[kind]


def _acl(kind: ResourceType, name: str, operation: AclOperation, host: str) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )


def _wait_for_share_coordinator(client: RawClient) -> None:
    keys = [f"probe-{number}:AQEBAQEBAQEBAQEBAQEBAQ:0" for number in range(20)]
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        found = client.call(FindCoordinatorRequest(key_type=2, coordinator_keys=keys))
        if {one.error_code for one in found.coordinators} == {ErrorCode.NONE}:
            return
        assert time.monotonic() < deadline, "no share coordinator"
        time.sleep(0.05)


def _wait_for_producer_ids(client: RawClient) -> None:
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while client.call(InitProducerIdRequest(transactional_id=None)).error_code:
        assert time.monotonic() < deadline, "no producer ids"
        time.sleep(0.05)


# -- what an answer shows ------------------------------------------------------------------------


class Names:
    """Short names for what a request is about, the same for every sender."""

    def __init__(self, things: Things) -> None:
        ids = ("the id of own", "the id of hidden", "the id of absent")
        own = ("own", "hidden", "absent")
        self._name = things.name
        self._names: dict[str | bytes, str] = {
            **dict(zip(things.topics, own, strict=True)),
            **dict(zip(things.ids, ids, strict=True)),
            **dict(zip(things.groups, own, strict=False)),
            **dict(zip(things.transactional_ids, own, strict=False)),
            f"{things.topics[0]}-new": "new",
            things.name: "the case",
            bytes(16): "no id",
        }

    def __getitem__(self, value: object) -> str:
        if isinstance(value, bytes):
            return self._names.get(value, "an id")
        if not isinstance(value, str):
            return str(value)
        return self._names.get(value) or repr(value.replace(self._name, "case"))


_NAMES = {
    *("name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "key"),
    *("resource_name", "resource_type", "is_internal"),
}
_OPERATIONS = {
    "authorized_operations",
    "topic_authorized_operations",
    "cluster_authorized_operations",
}
_LEFT_OUT = {"brokers", "nodes", "voters", "observers", "node_endpoints", "log_dirs"}
# Lists whose length means something by itself.
_COUNTED = {"configs", "matching_acls", "resources", "config_resources"}


def shown(message: Any, version: int, names: Names) -> str:
    """Return error codes, names and rights in a message, entry by entry in the order of names."""
    parts = []
    for field in spec_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name in _LEFT_OUT or version not in field.versions:
            continue
        if field.name.endswith("error_code"):
            parts.append(f"{field.name.removesuffix('_code')}={ErrorCode(value).name}")
        elif field.name in _NAMES:
            parts.append(f"{field.name}={names[value]}")
        elif field.name in _OPERATIONS:
            parts.append(f"{field.name}={_operations(value)}")
        elif field.name in _COUNTED and value is not None:
            parts.append(f"{field.name}={'some' if len(value) else 'none'}")
        elif field.kind is ARRAY and isinstance(field.element, type) and value:
            entries = sorted(filter(None, (shown(one, version, names) for one in value)))
            parts.append(" ".join(f"({entry})" for entry in entries))
    return ", ".join(filter(None, parts))


def _operations(bits: int) -> str:
    if bits < 0:
        return "not asked"
    return "+".join(one.name for one in AclOperation if bits >> one & 1) or "none"


# -- the table -------------------------------------------------------------------------------------


AUTHORIZER: dict[str, Any] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",  # until there are ACLs
}


def check_table(table: Path, senders: Senders) -> None:
    """Compare the answers with those in a table, or record them."""

    def interpret(command: str) -> Iterable[str]:
        for sender in SENDERS:
            yield f"{sender}: {senders.answer(command, sender)}"

    commands = [line[2:] for line in table.read_text().splitlines() if line.startswith("> ")]
    assert commands == list(senders.cases)
    check(table, interpret)


def test_every_answer_is_that_of_apache_kafka(tmp_path: Path) -> None:
    """Error codes, the names that are shown, authorized operations."""
    broker = start_broker(tmp_path, **AUTHORIZER)
    with contextlib.ExitStack() as ending:
        ending.callback(broker.close)
        senders = Senders(broker, CASES)
        senders.prepare()
        check_table(TABLE, senders)


def test_controllers_answer_as_those_of_apache_kafka(tmp_path: Path) -> None:
    """Whether an administrator asks or a node, and whoever else tries."""
    with Cluster(tmp_path, 1, **AUTHORIZER) as cluster:
        node = cluster.node(1)
        senders = Senders(node, CONTROLLER_CASES, node.controller_address)
        senders.prepare()
        check_table(CONTROLLER_TABLE, senders)
