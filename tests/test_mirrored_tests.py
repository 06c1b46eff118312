"""Every module of the product has its test module in the mirrored place, or a line here.

`broker/log/files.py` is tested by `tests/unit/broker/log/test_files.py`. A line of TESTED_IN names
another test and what is tested there besides: parts of a larger one, or whole nodes. BY_PROCESS are
those that only a process of its own runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.import_laws import import_graph

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "base",
    "wire",
    "net",
    "kraft_meta",
    "clients",
    "broker",
    "kraftrio/commands",
    "kraftrio/testing",
)

# test: folder/ module module ...
TESTED_IN = """
conformance/cli/test_transcripts: clients/cli/ names partitions session
conformance/cli/test_transcripts: clients/cli/access/ commands
conformance/cli/test_transcripts: clients/cli/cluster/ commands reassign
conformance/cli/test_transcripts: clients/cli/perf/ commands measuring
conformance/cli/test_transcripts: clients/cli/transactions/ commands
conformance/cli/test_transcripts: clients/cli/doctor/ commands examination machine probe
conformance/cli/test_transcripts: clients/cli/configs/ commands
conformance/cli/test_transcripts: clients/cli/groups/ commands
conformance/cli/test_transcripts: clients/cli/records/ commands consuming producing progress starts
conformance/cli/test_transcripts: clients/cli/topics/ commands offsets
conformance/clients_trio/test_programs: clients/admin/ lag
unit/kraftrio/testing/explaining/test_explain: kraftrio/testing/explaining/ evidence gathering
unit/kraftrio/testing/explaining/test_rereads: kraftrio/testing/explaining/ requests
sim/test_disk: kraftrio/testing/simulation/ damage disk disk_image file_tree survival
sim/test_disk_scenarios: kraftrio/testing/simulation/ disk_calls
unit/kraftrio/testing/faults/test_player: kraftrio/testing/simulation/ in_sync
unit/kraftrio/testing/explaining/test_exchanges: kraftrio/testing/traffic/ frames simulated traffic
unit/kraftrio/testing/faults/test_on_sockets: kraftrio/testing/traffic/ tapped
unit/kraftrio/testing/faults/test_on_sockets: kraftrio/testing/faults/ refusals
sim/test_network: kraftrio/testing/simulation/ network
sim/test_work: kraftrio/testing/simulation/ work
sim/test_world: kraftrio/testing/simulation/ cluster incarnation run_queue world
integration/test_asyncio: clients/aio/ admin consumer producer share
unit/clients/console/test_app: clients/console/ console settings
unit/clients/console/test_app: clients/console/history/ sampler
unit/clients/console/test_app: clients/console/pages/ configs groups overview produce records topics
unit/clients/console/test_app: clients/console/records/ reading
unit/clients/console/test_command: clients/console/ extra
sim/test_scenarios: broker/node/wiring/ broker_handlers coordination replication services
    share_groups
sim/test_scenarios: broker/node/ broker_role context controller_role node
sim/test_served_apis: broker/api/ unserved_apis
spark/test_arrow: clients/spark/ arrow schema
spark/test_filters: clients/spark/ filters
spark/test_log: clients/spark/ log_source
spark/test_reading: clients/spark/ fetch planning source
spark/test_sink: clients/spark/ sink
spark/test_workers: clients/spark/ workers
unit/clients/spark/test_options: clients/spark/ kafka_names
unit/clients/errors/test_codes: clients/errors/ broker kinds local
unit/base/patterns/test_pattern: base/patterns/ charsets scripts syntax
unit/broker/api/fetch/test_long_fetch: broker/api/fetch/ answers reads
unit/broker/api/fetch/test_parked_fetch: broker/server/ limits
unit/broker/api/groups/test_consumer_groups: broker/coordinator/groups/consumer/ description
unit/broker/api/groups/test_streams_groups: broker/api/groups/ streams_requests
unit/broker/api/groups/test_streams_groups: wire/messages/ streams_groups
unit/broker/api/groups/test_consumer_groups: broker/api/groups/ modern_groups
unit/broker/api/groups/test_groups: broker/api/groups/ offset_requests
unit/broker/api/produce/test_produce: broker/api/produce/ long_produce
unit/broker/api/produce/test_refused_batches: broker/replica/ append_gate
unit/broker/api/groups/test_share_group_offsets: broker/api/groups/ share_states
unit/broker/api/groups/test_share_groups: wire/messages/ share_groups
unit/broker/api/share/test_share_state: wire/messages/ share_state
unit/broker/api/shared/test_decision_parts: broker/server/slices/ request_parts
unit/broker/api/test_configs: wire/messages/ configs
unit/broker/api/test_controller: broker/api/shared/ authorized_operations
unit/broker/api/test_controller: wire/messages/ admin
unit/broker/api/test_log_dirs: broker/ ports
unit/broker/api/test_metadata: broker/metadata/ auto_topics topic_descriptions
unit/broker/api/transactions/test_coordination: broker/coordinator/ transaction_coordinator
unit/broker/node/watch/test_observation: broker/metrics/ endpoint
unit/clients/test_public_names: base/ version
unit/broker/config/test_config: broker/config/ attributes broker_table checks extra_table
    group_table types
unit/broker/config/test_settings_in_force: broker/config/ without_effect
unit/broker/config/test_topic_config: broker/config/ describe group_config validator
unit/broker/controller/test_quorum_peers: broker/controller/ other_clusters snapshot_download
    voter_lane
unit/broker/coordinator/groups/assignors/test_range_assignor: broker/coordinator/groups/assignors/
    spec
unit/broker/coordinator/groups/assignors/test_recorded_vectors: broker/coordinator/groups/assignors/
    builtin
unit/broker/coordinator/groups/assignors/test_uniform_assignor: broker/coordinator/groups/assignors/
    mixed_subscriptions
unit/broker/coordinator/groups/classic/test_groups: broker/coordinator/groups/classic/ group_state
    records
unit/broker/coordinator/groups/classic/test_rebalances: broker/coordinator/groups/classic/
    member_sessions replies
unit/broker/coordinator/groups/consumer/test_classic_members: broker/coordinator/groups/shard/
    classic_requests
unit/broker/coordinator/groups/consumer/test_heartbeats: broker/coordinator/groups/consumer/ checks
    departures groups member_timers member_updates parts
unit/broker/coordinator/groups/consumer/test_heartbeats: broker/coordinator/groups/consumer/state/
    group member partition_epochs
unit/broker/coordinator/groups/consumer/test_heartbeats: broker/coordinator/groups/modern/
    member_state metadata_refresh target_assignment
unit/broker/coordinator/groups/shard/test_recorded_groups: broker/coordinator/groups/consumer/
    records
unit/broker/coordinator/groups/shard/test_recorded_groups: wire/messages/group_records/ consumer
    values
unit/broker/coordinator/groups/shard/test_offset_expiry: broker/coordinator/groups/shard/
    expiry_schedule
unit/broker/coordinator/groups/shard/test_recorded_groups: broker/coordinator/groups/shard/
    group_shard
unit/broker/coordinator/groups/streams/assignors/test_sticky:
    broker/coordinator/groups/streams/assignors/ java_order process_load spec
unit/broker/coordinator/groups/streams/test_group_properties: broker/coordinator/groups/streams/
    reconciliation task_owners tasks
unit/broker/coordinator/groups/streams/test_replay: broker/coordinator/groups/modern/ replay
unit/broker/coordinator/groups/streams/test_replay: broker/coordinator/groups/streams/ records
unit/broker/coordinator/groups/streams/test_replay: wire/messages/group_records/ streams
unit/broker/coordinator/groups/streams/test_streams_traces: broker/coordinator/groups/streams/
    descriptions endpoints group_state groups member member_checks request_checks target_assignment
unit/broker/coordinator/groups/streams/test_streams_traces:
    broker/coordinator/groups/streams/topology/ configured_topology partition_counts
    topic_problem topics topology
unit/broker/coordinator/groups/test_offset_layers: broker/coordinator/groups/ offset_commit
unit/broker/coordinator/groups/shard/test_kind_table: broker/coordinator/groups/ kind
unit/broker/coordinator/test_idle_shards: broker/coordinator/groups/shard/ kinds
unit/broker/coordinator/groups/test_offset_state: broker/coordinator/groups/ offset_table
    properties
unit/broker/coordinator/test_runtime: broker/coordinator/ loading outcome outcome_runner ports
    settings shard
unit/broker/coordinator/groups/share/test_heartbeats: broker/coordinator/groups/share/ description
    group groups member parts ports records
unit/broker/coordinator/groups/share/test_heartbeats: wire/messages/group_records/ share
unit/broker/coordinator/groups/share/test_states: broker/coordinator/groups/share/ state_progress
unit/broker/coordinator/share_state/test_shard: broker/coordinator/ share_coordinator
unit/broker/coordinator/share_state/test_shard: broker/coordinator/share_state/ ports state
unit/broker/coordinator/transactions/test_shard: broker/coordinator/transactions/ ports requests
unit/broker/log/cleaner/test_cleaner: broker/log/cleaner/ cleaned_transactions pace
unit/broker/log/cleaner/test_plan: broker/log/ log_config
unit/broker/log/cleaner/test_plan: broker/log/cleaner/ offset_map
unit/broker/log/manager/test_duplicate_logs: broker/log/manager/ log_dir
unit/broker/log/manager/test_flush_schedule: broker/log/manager/ offset_checkpoints
unit/broker/log/manager/test_log_factory: broker/log/manager/ removed_logs
unit/broker/log/manager/test_log_manager_failures: base/ no_room
unit/broker/log/metadata/test_metadata_log: broker/log/metadata/ metadata_segment names
    recent_batches snapshot_files
unit/broker/log/partition/test_partition_log: broker/log/partition/ follower_batches log_flush
    log_reads results roll_policy
unit/broker/log/partition/test_partition_log: broker/log/producers/ replay
unit/broker/log/partition/test_pending_truncation: broker/log/partition/ partition_files
unit/broker/log/partition/test_recovery: broker/log/partition/ log_parts segment_list
unit/broker/log/producers/test_log_producers: broker/log/producers/ snapshots
unit/broker/api/share/test_share_fetch: broker/api/share/ acknowledgements ongoing_share_fetch
    share_requests
unit/broker/api/share/test_share_fetch: broker/share/ led_share_partition ports share_partitions
unit/broker/replica/verification/test_verification: broker/replica/verification/ client_support
    end_waits
unit/broker/log/segment/test_batch_locator: broker/log/segment/ batch_search
unit/broker/log/segment/test_indexes: broker/log/segment/ index_file offset_index time_index
unit/broker/log/segment/test_log_file: broker/log/segment/ batch_scan
unit/broker/log/segment/test_segment_indexes: broker/log/segment/ txn_index_file
unit/broker/metadata/test_leader_hints: broker/metadata/ cache
unit/broker/node/wiring/test_metadata_publisher: broker/config/ dynamic_config
unit/broker/node/test_quorum_recovery: base/ start_errors
unit/broker/node/test_quorum_recovery: broker/log/metadata/ quorum_state_file
unit/broker/node/test_storage: broker/log/metadata/ foreign_records
unit/broker/node/test_storage: broker/node/ environment
unit/broker/peers/test_broker_links: broker/peers/ local_calls
unit/broker/replica/follower/test_fetch: broker/replica/follower/ partition
unit/broker/replica/follower/test_fetcher: broker/replica/ settings
unit/broker/replica/follower/test_fetcher: broker/replica/follower/ leader_fetcher
unit/broker/replica/test_led_partitions: broker/replica/ replica_reads
unit/broker/replica/test_metadata_changes: broker/replica/ partition
unit/broker/replica/test_moves: broker/log/manager/ future_logs
unit/broker/replica/test_moves: broker/replica/ ports
unit/broker/replica/waiting/test_offset_waiters: broker/replica/waiting/ waiters
unit/broker/security/test_authorizer: broker/security/ principal
unit/broker/server/test_guard: broker/server/ audit
unit/broker/server/test_client_connection: broker/server/ response_queue
unit/broker/server/test_dispatch: broker/server/ context
unit/broker/server/test_server: broker/server/ resources
unit/broker/upkeep/test_log_cleaner: base/ clock threads
unit/broker/upkeep/test_maintenance: base/ statistics
unit/clients/admin/test_admin: clients/admin/ cluster configs topics types
unit/clients/consumer/membership/test_assignors: clients/consumer/membership/ sticky_assignment
unit/clients/consumer/membership/test_membership: clients/consumer/membership/ steps
unit/clients/consumer/test_assigned_partitions: clients/consumer/ config partition
unit/clients/consumer/test_commits: clients/consumer/ offsets
unit/clients/consumer/test_consumer: clients/consumer/ fetcher polling subscription
unit/clients/consumer/test_consumer: clients/consumer/members/ classic_member
unit/clients/consumer/test_consumer_groups: clients/consumer/members/ classic_standing
unit/clients/consumer/members/test_epoch_member: clients/ group_coordinator
unit/clients/consumer/members/test_epoch_member: clients/consumer/ ports
unit/clients/heartbeat_member/test_member: clients/heartbeat_member/ ports
unit/clients/pipeline/test_pipeline: clients/pipeline/ batches cli dataset display failures folders
    ingest parsing plan query results resume schemas session topics
unit/clients/pipeline/test_pipeline: clients/pipeline/report/ charts page report
unit/clients/producer/test_producer: clients/producer/ sender
unit/clients/producer/test_queues: clients/producer/ sequences
unit/broker/api/test_sasl: net/sasl/ login
unit/broker/security/sasl/test_scram: broker/security/sasl/ exchange
unit/clients/producer/transactions/test_manager: clients/producer/ transactional_sequences
unit/clients/producer/transactions/test_manager: clients/producer/transactions/ error_meanings
    requests transaction
unit/clients/producer/transactions/test_manager: clients/ group_offsets
unit/clients/share/test_consumer: clients/share/ fetcher member
unit/clients/test_nodes: clients/ node versions
unit/kraft_meta/controller/security/test_acl_control: wire/protocol/ acls
unit/kraft_meta/controller/test_directory_control: kraft_meta/metadata/ directories
unit/kraft_meta/controller/test_replication_control: kraft_meta/controller/ control partition_index
unit/kraft_meta/metadata/test_acl_image: kraft_meta/metadata/ image_parts security_records
unit/kraft_meta/quorum/test_service: kraft_meta/quorum/ active_controller description
    leadership_transfer peer_messages ready_writer settings
unit/kraft_meta/raft/test_election_pace: kraft_meta/raft/ ready
unit/kraft_meta/raft/test_epoch_starts: kraft_meta/raft/ values
unit/kraft_meta/raft/test_raft: kraft_meta/raft/ elections epoch_announcements fetch_requests
    leader_loss messages ports role_transitions
unit/broker/log/inspection/test_planted_damage: broker/log/inspection/ batches directory_check
    findings folders partition_check segment_check
unit/kraftrio/commands/test_logs: broker/log/inspection/ dump stats
unit/kraftrio/testing/test_cluster: kraftrio/testing/ contents node_process
    node_settings
unit/kraftrio/testing/test_kafka_world: kraftrio/testing/ subjects waiting world_cluster
unit/kraftrio/testing/test_kafka_world: clients/ surroundings
unit/kraftrio/testing/test_leftovers: clients/diagnostics/ open_clients
unit/kraftrio/testing/snapshots/test_archive: kraftrio/testing/snapshots/ errors
unit/kraftrio/commands/test_tree: clients/cli/ lazy_group
unit/kraftrio/commands/test_tree: kraftrio/commands/ cluster completion node node_options root
unit/broker/node/local/secure_setup/test_secure_setup: broker/node/local/secure_setup/ new_files
    property_files
unit/broker/security/tls/test_principal_rules: broker/security/tls/ distinguished_name
unit/broker/server/admission/test_tls_admission: net/tls/ client
unit/broker/node/security/test_secured_listeners: broker/node/security/ tls_listener
unit/net/test_secured_network: net/ security_errors security_protocol
unit/net/tls/test_key_stores: net/tls/ jks
unit/net/tls/test_socket: net/tls/ contexts
unit/wire/codec/test_message: wire/ stored_bytes
unit/wire/codec/test_message: wire/codec/ classes decoder encoder schema source
unit/wire/codec/test_slices: wire/codec/ lazy_arrays
unit/wire/messages/test_groups: wire/messages/group_records/ classic keys
"""

BY_PROCESS = {
    "broker/node/local/local_cluster": "integration/test_cluster_command",
    "clients/pipeline/__main__": "pipeline/test_whole_data_set",
}


def lines() -> Iterator[tuple[str, str]]:
    """Yield (module, test) of the table, both as paths without `.py`."""
    for line in TESTED_IN.replace("\n    ", " ").strip().splitlines():
        test, _, tested = line.partition(": ")
        folder, *names = tested.split()
        for name in names:
            yield folder + name, test


def modules() -> set[str]:
    """Return all modules of the product."""
    paths = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    return {
        str(path.relative_to(ROOT).with_suffix("")) for path in paths if path.stem != "__init__"
    }


def mirrored(module: str) -> Path:
    """Return where the test of a module belongs."""
    path = Path(module)
    return ROOT / "tests" / "unit" / path.parent / f"test_{path.name}.py"


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def imported(test: Path) -> set[str]:
    """Return what a test imports of ours, itself or through what tests share."""
    found: set[str] = set()
    seen = {test}
    ahead = [test]
    while ahead:
        for name in names_in(ahead.pop()):
            shared = ROOT / Path(*name.split(".")).with_suffix(".py")
            if name in import_graph().modules:
                found.add(name)
            elif name.startswith("tests.") and shared.exists() and shared not in seen:
                seen.add(shared)
                ahead.append(shared)
    return found


@cache
def led_to(name: str) -> frozenset[str]:
    """Return a module of ours and all that it imports, itself or through others."""
    return frozenset({name, *import_graph().find_upstream_modules(name)})


def test_each_module_has_its_test() -> None:
    """In the mirrored place, or named here."""
    known = {module for module, _ in lines()} | set(BY_PROCESS)
    missing = {module for module in modules() - known if not mirrored(module).exists()}
    assert not missing, "neither a test in the mirrored place nor a line in TESTED_IN"


def test_no_line_is_left_over() -> None:
    """What has a test of its own, or is gone, stands here no more; nothing stands here twice."""
    known = [*(module for module, _ in lines()), *BY_PROCESS]
    assert len(known) == len(set(known))
    assert not set(known) - modules()
    assert not [module for module in known if mirrored(module).exists()]


def test_each_line_is_true() -> None:
    """The test exists, and what it imports leads to the module."""
    for module, test in lines():
        path = ROOT / "tests" / f"{test}.py"
        assert path.exists(), test
        name = "kraftrio." + module.removeprefix("kraftrio/").replace("/", ".")
        assert any(name in led_to(one) for one in imported(path)), f"{test} has no {module}"
    assert all((ROOT / "tests" / f"{test}.py").exists() for test in BY_PROCESS.values())
