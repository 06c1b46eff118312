"""The root of the tree, for all but the commands that run nodes; those are here by name.

Called by: `tree`.
"""

from __future__ import annotations

import click

from kraftrio import __version__
from kraftrio.clients.cli.lazy_group import Entry, LazyGroup

_CLIENTS = "kraftrio.clients.cli"

ENTRIES = {
    "start": Entry("kraftrio.commands.node_options:start", "Run one node in the foreground."),
    "cluster": Entry(
        "kraftrio.commands.cluster:cluster", "Run several nodes; describe or check a cluster."
    ),
    "recover-quorum": Entry(
        "kraftrio.commands.node_options:recover_quorum",
        "Let a controller vote whose quorum lost a majority for good.",
    ),
    "security": Entry(
        "kraftrio.commands.security:security", "Make keys, certificates and users for a node."
    ),
    "topic": Entry(
        f"{_CLIENTS}.topics.commands:topic", "Topics: list, describe, create, change, delete."
    ),
    "produce": Entry(f"{_CLIENTS}.records.commands:produce", "Write lines into a topic."),
    "consume": Entry(f"{_CLIENTS}.records.commands:consume", "Print the records of topics."),
    "group": Entry(
        f"{_CLIENTS}.groups.commands:group", "Groups of consumers: lag, members, offsets."
    ),
    "config": Entry(f"{_CLIENTS}.configs.commands:config", "Settings of everything."),
    "reassign": Entry(f"{_CLIENTS}.cluster.reassign:reassign", "Move replicas between brokers."),
    "transaction": Entry(
        f"{_CLIENTS}.transactions.commands:transaction", "Transactions and their producers."
    ),
    "acl": Entry(f"{_CLIENTS}.access.commands:acl", "Who may do what."),
    "user": Entry(f"{_CLIENTS}.access.commands:user", "Users who log in with SCRAM."),
    "quota": Entry(f"{_CLIENTS}.access.commands:quota", "How much clients may use."),
    "doctor": Entry(
        f"{_CLIENTS}.doctor.commands:doctor", "Why this machine cannot use that cluster."
    ),
    "console": Entry("kraftrio.clients.console.command:console", "A cluster in a browser."),
    "perf": Entry(f"{_CLIENTS}.perf.commands:perf", "How fast a cluster is."),
    "log": Entry("kraftrio.commands.logs:log", "Log directories: verify, stats, dump."),
    "test-broker": Entry(
        "kraftrio.commands.brokers_for_tests:test_broker", "Run brokers for a test, until it ends."
    ),
    "completion": Entry(
        "kraftrio.commands.completion:completion", "Completion for bash, zsh and fish."
    ),
}


@click.group(
    cls=LazyGroup,
    entries=ENTRIES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: kraftrio topic create orders --partitions 3",
)
@click.version_option(__version__, message="kraftrio %(version)s")
def root() -> None:
    """A Kafka-compatible message broker, and the tools for it and for Apache Kafka."""
