"""Each contract of imports breaks when an import is added that it forbids, one for each layer."""

from __future__ import annotations

import pytest

from tests.support.import_laws import CONTRACTS, broken_by

# Contract -> imports that it forbids, one for each of its layers.
WRONG_IMPORTS = {
    "folders": [
        "broker.node.node -> __main__",
        "commands.tree -> __main__",
        "testing.simulation.world -> commands.tree",
        "errors -> testing.simulation.world",
        "clients.node -> errors",
        "clients.cluster -> broker.server.server",
        "broker.node.node -> clients.cluster",
        "kraft_meta.quorum.service -> broker.ports",
        "kraft_meta.quorum.service -> clients.cluster",
        "net.connection -> kraft_meta.metadata.image",
        "wire.errors -> net.connection",
        "base.timers -> net.connection",
        "base.timers -> wire.errors",
        "wire.errors -> base.timers",
    ],
    "clients": ["clients.cluster -> kraft_meta.metadata.image"],
    "circles": [
        "wire.errors -> wire.primitives",
        "broker.coordinator.outcome -> broker.coordinator.runtime",
        "broker.log.files -> broker.log.segment.segment",
        "base.line_limits -> base.logging_setup",
    ],
    "testing": [
        "testing.cluster -> testing.plugin",
        "testing.kafka_world -> testing.cluster",
        "testing.story -> testing.kafka_world",
        "testing.subjects -> testing.story",
        "testing.faults.plan -> testing.strategies",
        "testing.faults.moves -> testing.story",
        "testing.waiting -> testing.subjects",
        "testing.contents -> testing.waiting",
        "testing.loop_thread -> testing.contents",
        "testing.local_nodes -> testing.loop_thread",
        "testing.snapshots.snapshot -> testing.local_nodes",
        "testing.simulation.disk -> testing.snapshots.snapshot",
        "testing.simulation.disk -> testing.node_settings",
    ],
    "wire": [
        "wire.messages.data -> wire.protocol.api",
        "wire.codec.message -> wire.messages.data",
        "wire.records.batch -> wire.messages.data",
        "wire.records.batch -> wire.codec.message",
        "wire.stored_bytes -> wire.records.batch",
        "wire.primitives -> wire.topic_names",
        "wire.errors -> wire.primitives",
    ],
    "kraft_meta": [
        "kraft_meta.controller.controller -> kraft_meta.quorum.service",
        "kraft_meta.raft.raft -> kraft_meta.controller.controller",
        "kraft_meta.metadata.image -> kraft_meta.raft.messages",
    ],
    "clients-inside": [
        "clients.cli.session -> clients.console.settings",
        "clients.spark.source -> clients.pipeline.cli",
        "clients.producer.producer -> clients.cli.output",
        "clients.consumer.consumer -> clients.spark.source",
        "clients.consumer.consumer -> clients.producer.batch",
        "clients.cluster -> clients.admin.calls",
        "clients.node -> clients.cluster",
        "clients.metadata -> clients.node",
        "clients.errors.kinds -> clients.metadata",
    ],
    "cli": [
        "clients.cli.topics.offsets -> clients.cli.cluster.health",
        "clients.cli.cluster.health -> clients.cli.doctor.probe",
        "clients.cli.records.starts -> clients.cli.topics.offsets",
        "clients.cli.session -> clients.cli.topics.offsets",
        "clients.cli.partitions -> clients.cli.session",
        "clients.cli.output -> clients.cli.partitions",
        "clients.cli.failures -> clients.cli.output",
    ],
    "console": [
        "clients.console.extra -> clients.console.command",
        "clients.console.server -> clients.console.extra",
        "clients.console.app -> clients.console.server",
        "clients.console.pages.view -> clients.console.app",
        "clients.console.guard -> clients.console.pages.view",
        "clients.console.console -> clients.console.guard",
        "clients.console.history.sampler -> clients.console.console",
        "clients.console.settings -> clients.console.records.query",
    ],
    "broker": [
        "broker.api.configs -> broker.node.node",
        "broker.replica.manager -> broker.api.fetch.fetch",
        "broker.replica.manager -> broker.coordinator.runtime",
        "broker.metadata.cache -> broker.replica.manager",
        "broker.server.server -> broker.metadata.cache",
        "broker.config.types -> broker.server.server",
        "broker.security.authorizer -> broker.server.context",
        "broker.log.files -> broker.config.types",
        "broker.ports -> broker.config.types",
    ],
    "handlers": [
        "broker.api.configs -> broker.api.admin",
        "broker.api.fetch.fetch -> broker.api.produce.produce",
        "broker.api.shared.decisions -> broker.api.admin",
    ],
    "log": [
        "broker.log.manager.log_manager -> broker.log.inspection.findings",
        "broker.log.partition.recovery -> broker.log.manager.log_manager",
        "broker.log.cleaner.cleaner -> broker.log.metadata.metadata_log",
        "broker.log.producers.replay -> broker.log.partition.recovery",
        "broker.log.segment.segment -> broker.log.producers.replay",
        "broker.log.checkpoints -> broker.log.segment.segment",
        "broker.log.files -> broker.log.checkpoints",
    ],
    "coordinator": [
        "broker.coordinator.runtime -> broker.coordinator.groups.classic.group_state",
        "broker.coordinator.outcome_runner -> broker.coordinator.groups.offset_state",
        "broker.coordinator.groups.shard.group_shard -> broker.coordinator.runtime",
        "broker.coordinator.loading -> broker.coordinator.outcome_runner",
    ],
    "groups": [
        "broker.coordinator.groups.classic.groups -> broker.coordinator.groups.shard.group_shard",
        "broker.coordinator.groups.group -> broker.coordinator.groups.classic.group_state",
        "broker.coordinator.groups.offset_state -> broker.coordinator.groups.classic.groups",
    ],
    "transactions": [
        "broker.coordinator.transactions.requests -> broker.coordinator.transactions.shard",
        "broker.coordinator.transactions.records -> broker.coordinator.transactions.schedule",
        "broker.coordinator.transactions.producer_epochs -> broker.coordinator.transactions.state",
    ],
    "share_state": [
        "broker.coordinator.share_state.batches -> broker.coordinator.share_state.state",
        "broker.coordinator.share_state.records -> broker.coordinator.share_state.shard",
    ],
    "pure": [
        "wire.records.batch -> time",
        "broker.security.authorizer -> time",
        "wire.records.batch -> base.clock",
        "kraft_meta.raft.raft -> trio",
        "kraft_meta.raft.raft -> base.clock",
        "kraft_meta.controller.controller -> socket",
        "kraft_meta.metadata.image -> threading",
        "broker.coordinator.groups.shard.group_shard -> logging",
        "broker.coordinator.transactions.shard -> logging",
    ],
    "waiting": [
        "base.line_limits -> trio",
        "net.send_queue -> trio",
        "kraft_meta.quorum.description -> trio",
        "broker.replica.state.partition_state -> trio",
        "broker.log.files -> trio",
    ],
    "log-lines": [
        "broker.replica.state.partition_state -> logging",
        "kraft_meta.quorum.raft_wire -> logging",
    ],
    "system": [
        "broker.log.segment.segment -> os",
        "broker.log.manager.log_manager -> shutil",
        "broker.replica.manager -> time",
        "broker.server.server -> socket",
        "kraft_meta.quorum.service -> threading",
        "base.timers -> time",
        "net.connection -> ssl",
    ],
}


@pytest.mark.parametrize(
    ("name", "arrow"), [(name, arrow) for name in CONTRACTS for arrow in WRONG_IMPORTS[name]]
)
def test_contract_forbids(name: str, arrow: str) -> None:
    """One wrong import breaks the contract."""
    assert broken_by(CONTRACTS[name], arrow)


@pytest.mark.parametrize("name", CONTRACTS)
def test_no_exemption_is_left_over(name: str) -> None:
    """Without any one of its exemptions the contract is broken."""
    contract = CONTRACTS[name]
    exemptions = contract.get("ignore_imports", [])
    for exemption in exemptions:
        others = [other for other in exemptions if other != exemption]
        assert broken_by({**contract, "ignore_imports": others}), f"{exemption} is not needed"
