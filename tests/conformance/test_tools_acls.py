"""kafka-acls, at brokers and at controllers: what it makes, shows and removes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import Completed, KafkaTools, ToolRunner

AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with an authorizer, whose super user the tools are."""
    broker = start_broker(tmp_path_factory.mktemp("acls"), **AUTHORIZER)
    yield broker
    broker.close()


@pytest.fixture
def acls(guarded: Broker, tool_runner: ToolRunner) -> Callable[..., Completed]:
    """Run kafka-acls with some arguments."""
    tools = KafkaTools(guarded.address, tool_runner)
    return lambda *arguments, **options: tools.run("kafka-acls", *arguments, **options)


def shown(listed: Completed) -> dict[str, set[str]]:
    """The ACLs that were listed, by pattern, as the tool writes them."""
    found: dict[str, set[str]] = {}
    entries: set[str] = set()
    for line in listed.lines:
        if line.startswith("Current ACLs for resource"):
            entries = found.setdefault(line.split("`")[1], set())
        elif line.startswith("("):
            entries.add(line)
    return found


def entry(principal: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return (
        f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"
    )


def pattern(kind: str, name: str, pattern_type: str = "LITERAL") -> str:
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern_type})"


def test_what_producers_and_consumers_need(acls: Callable[..., Completed]) -> None:
    """By the tool's short options; listed by topic, by principal, and removed again."""
    topic, group = pattern("TOPIC", "orders"), pattern("GROUP", "billing")
    acls("--add", "--allow-principal", "User:p", "--producer", "--topic", "orders")
    acls(
        *("--add", "--allow-principal", "User:c", "--consumer"),
        *("--topic", "orders", "--group", "billing"),
    )
    everything = shown(acls("--list"))
    assert everything[topic] == {
        entry("User:p", "WRITE"),
        entry("User:p", "DESCRIBE"),
        entry("User:p", "CREATE"),
        entry("User:c", "READ"),
        entry("User:c", "DESCRIBE"),
    }
    assert everything[group] == {entry("User:c", "READ")}
    mine = shown(acls("--list", "--principal", "User:c"))
    assert mine == {
        topic: {entry("User:c", "READ"), entry("User:c", "DESCRIBE")},
        group: {entry("User:c", "READ")},
    }
    acls(
        *("--remove", "--force", "--allow-principal", "User:c", "--consumer"),
        *("--topic", "orders", "--group", "billing"),
    )
    assert shown(acls("--list", "--principal", "User:c")) == {}
    acls("--remove", "--force", "--topic", "orders")
    assert topic not in shown(acls("--list"))


def test_patterns_hosts_and_denials(acls: Callable[..., Completed]) -> None:
    """A name finds the ACLs that apply to it, and no others."""
    acls(
        *("--add", "--allow-principal", "User:a", "--operation", "All"),
        *("--topic", "log-", "--resource-pattern-type", "prefixed"),
    )
    acls(
        *("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9"),
        *("--operation", "Read", "--topic", "log-secret"),
    )
    acls("--add", "--allow-principal", "User:b", "--operation", "Describe", "--topic", "*")
    prefixed = pattern("TOPIC", "log-", "PREFIXED")
    literal, wildcard = pattern("TOPIC", "log-secret"), pattern("TOPIC", "*")
    applying = shown(acls("--list", "--topic", "log-secret", "--resource-pattern-type", "match"))
    assert applying == {
        prefixed: {entry("User:a", "ALL")},
        literal: {entry("User:*", "READ", "DENY", "10.0.0.9")},
        wildcard: {entry("User:b", "DESCRIBE")},
    }
    any_type = ("--resource-pattern-type", "any")
    assert shown(acls("--list", "--topic", "log-", *any_type)) == {
        prefixed: {entry("User:a", "ALL")}
    }
    acls("--remove", "--force", "--topic", "log-secret", "--resource-pattern-type", "match")
    assert shown(acls("--list", "--topic", "log-secret", "--resource-pattern-type", "match")) == {}


def test_every_type_of_resource(acls: Callable[..., Completed]) -> None:
    add = ("--add", "--allow-principal", "User:t")
    acls(*add, "--operation", "Alter", "--cluster")
    acls(*add, "--operation", "Write", "--transactional-id", "tx")
    acls(*add, "--operation", "Describe", "--delegation-token", "token")
    acls(*add, "--operation", "CreateTokens", "--user-principal", "User:other")
    assert shown(acls("--list", "--principal", "User:t")) == {
        pattern("CLUSTER", "kafka-cluster"): {entry("User:t", "ALTER")},
        pattern("TRANSACTIONAL_ID", "tx"): {entry("User:t", "WRITE")},
        pattern("DELEGATION_TOKEN", "token"): {entry("User:t", "DESCRIBE")},
        pattern("USER", "User:other"): {entry("User:t", "CREATE_TOKENS")},
    }


def test_a_principal_without_a_type_is_refused(acls: Callable[..., Completed]) -> None:
    refused = acls(
        *("--add", "--allow-principal", "nobody", "--operation", "Read", "--topic", "t"),
        check=False,
    )
    assert refused.exit_code != 0
    assert shown(acls("--list", "--topic", "t")) == {}


def test_acls_made_at_a_controller_are_seen_at_every_broker(
    make_cluster: Callable[..., Cluster], tool_runner: ToolRunner
) -> None:
    """And the other way round, with any leader of the quorum."""
    cluster = make_cluster(3, **AUTHORIZER)
    tools = KafkaTools(cluster.bootstrap, tool_runner)
    controllers = ["--bootstrap-controller", cluster.controllers]
    add = ("--add", "--allow-principal", "User:a", "--operation", "Read")
    tools.run("kafka-acls", *controllers, *add, "--topic", "t")
    tools.run("kafka-acls", *add, "--topic", "u")
    expected = {pattern("TOPIC", name): {entry("User:a", "READ")} for name in ("t", "u")}
    assert shown(tools.run("kafka-acls", "--list")) == expected
    assert shown(tools.run("kafka-acls", *controllers, "--list")) == expected
    tools.run("kafka-acls", *controllers, "--remove", "--force", "--topic", "u")
    assert shown(tools.run("kafka-acls", *controllers, "--list", "--topic", "u")) == {}
