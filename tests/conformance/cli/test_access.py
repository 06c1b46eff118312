"""`kraftrio acl` on a broker with an authorizer; a transaction that hangs, ended by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import trio

from kraftrio import Producer
from tests.conformance.broker_process import Broker
from tests.conformance.cli.terminal import run


def test_acls(make_broker: Callable[..., Broker]) -> None:
    """They are allowed, denied, listed by filters, and removed."""
    broker = make_broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    run("topic", "create", "orders", bootstrap=broker.address)

    def acl(*arguments: str) -> list[str]:
        ended = run("acl", *arguments, bootstrap=broker.address)
        assert ended.status == 0, ended.everything
        return ended.output.splitlines()

    assert acl("allow", "User:alice", "read", "write", "--on", "topic/orders") == [
        "User:alice may read on topic/orders",
        "User:alice may write on topic/orders",
    ]
    acl("deny", "User:bob", "all", "--on", "topic/or", "--prefixed", "--host", "10.0.0.1")
    acl("allow", "User:alice", "describe", "--on", "cluster")
    rows = [json.loads(line) for line in acl("list", "--on", "topic/orders", "--json")]
    assert sorted(row["operation"] for row in rows) == ["read", "write"]
    (row,) = map(json.loads, acl("list", "--principal", "User:bob", "--json"))
    assert row == {
        "principal": "User:bob",
        "host": "10.0.0.1",
        "permission": "deny",
        "operation": "all",
        "resource": "topic/or",
        "pattern": "prefixed",
    }
    for width in (40, 160):
        shown = run("acl", "list", bootstrap=broker.address, width=width).output
        assert "kafka-cluster" in shown
    assert len(acl("remove", "--principal", "User:alice")) == 3
    assert len(acl("list", "--json")) == 1


def test_a_transaction_that_is_open(bootstrap: str, unique_topic: Callable[[], str]) -> None:
    """Seen by its id and in its partition, and aborted there by hand."""
    topic = unique_topic()
    run("topic", "create", topic, "--partitions", "1", bootstrap=bootstrap)

    async def hang() -> None:
        """Send a record, and have the transaction open meanwhile."""
        async with (
            Producer(bootstrap, transactional_id=topic) as producer,
            producer.transaction(),
        ):
            await (await producer.send(topic, b"open"))
            await trio.to_thread.run_sync(look)

    def look() -> None:
        (row,) = map(
            json.loads,
            run(
                "transaction", "describe", topic, "--json", bootstrap=bootstrap
            ).output.splitlines(),
        )
        assert (row["state"], row["partitions"]) == ("Ongoing", [f"{topic}-0"])
        listed = run("transaction", "list", "--state", "Ongoing", "--json", bootstrap=bootstrap)
        assert topic in listed.output
        shown = run("transaction", "producers", topic, "--open", "--json", bootstrap=bootstrap)
        (state,) = map(json.loads, shown.output.splitlines())
        assert state["open_since_offset"] == 0
        abort = ("transaction", "abort", topic, "--partition", "0", "--producer-id")
        ended = run(*abort, str(state["producer_id"]), bootstrap=bootstrap)
        assert ended.status == 0, ended.everything
        assert (
            run("transaction", "producers", topic, "--open", "--json", bootstrap=bootstrap).output
            == ""
        )

    trio.run(hang)
    read = run("consume", topic, "--read-committed", bootstrap=bootstrap)
    assert read.output == ""
