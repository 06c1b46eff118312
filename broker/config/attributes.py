"""The broker's settings as typed attributes, so that a misspelt one fails in mypy and not at night.

`BrokerProperties` only declares; `config.BrokerConfig` fills the attributes in. A test holds them
against the table. Settings of parts that kraftrio does not have (TLS, SASL, tiered storage, share
and streams groups) have no attribute: `BrokerConfig.value(name)` gives them.
Settings with several names hold their resolved value under the finest one: `log_retention_ms`
also follows log.retention.minutes and log.retention.hours.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


def address_text(host: str, port: int) -> str:
    """Write an address as host:port; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ip_version(host: str) -> int | None:
    """4 or 6 for an address; None for a name, or for every address of the machine."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def plain_host(host: str) -> str:
    """Return a host without brackets, an address in its shortest form."""
    host = host.removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


class HostPort(NamedTuple):
    """An address."""

    host: str
    port: int


class ListenerAddress(NamedTuple):
    """A named address with its security protocol."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"


class VoterAddress(NamedTuple):
    """A voter of the metadata quorum; port 0: this node alone, without a controller listener."""

    node_id: int
    host: str
    port: int


class BrokerProperties:
    """Declares one attribute for each property, named as the property with underscores."""

    process_roles: list[str]
    node_id: int
    broker_id: int
    broker_rack: str | None
    initial_broker_registration_timeout_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controlled_shutdown_enable: bool
    request_timeout_ms: int
    listeners: list[ListenerAddress]
    advertised_listeners: list[ListenerAddress]
    listener_security_protocol_map: dict[str, str]
    inter_broker_listener_name: str
    security_inter_broker_protocol: str
    controller_listener_names: list[str]
    early_start_listeners: list[str] | None
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    max_connection_creation_rate: int
    num_network_threads: int
    num_io_threads: int
    background_threads: int
    queued_max_requests: int
    queued_max_request_bytes: int
    kraftrio_queued_max_response_bytes: int
    max_request_partition_size_limit: int
    kraftrio_max_inflight_requests_per_connection: int
    kraftrio_max_decompressed_batch_bytes: int
    kraftrio_shutdown_timeout_ms: int
    kraftrio_cluster_id: str
    kraftrio_first_users_file: str
    controller_quorum_voters: list[VoterAddress]
    controller_quorum_bootstrap_servers: list[HostPort]
    controller_quorum_election_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_append_linger_ms: int
    controller_quorum_auto_join_enable: bool
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_socket_timeout_ms: int
    metadata_log_dir: str
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    log_dir: list[str]
    log_dirs: list[str]
    cordoned_log_dirs: list[str]
    log_dir_failure_timeout_ms: int
    log_segment_bytes: int
    log_roll_ms: int
    log_roll_hours: int
    log_roll_jitter_ms: int
    log_roll_jitter_hours: int
    log_retention_ms: int
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_initial_task_delay_ms: int
    log_cleanup_policy: list[str]
    log_segment_delete_delay_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_preallocate: bool
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    log_local_retention_ms: int
    log_local_retention_bytes: int
    message_max_bytes: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_delete_retention_ms: int
    num_recovery_threads_per_data_dir: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    create_topic_policy_class_name: str | None
    alter_config_policy_class_name: str | None
    num_replica_fetchers: int
    replica_fetch_min_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None
    num_replica_alter_log_dirs_threads: int | None
    producer_purgatory_purge_interval_requests: int
    fetch_purgatory_purge_interval_requests: int
    delete_records_purgatory_purge_interval_requests: int
    follower_fetch_last_tiered_offset_enable: bool
    group_coordinator_rebalance_protocols: list[str]
    group_coordinator_threads: int
    group_coordinator_background_threads: int
    group_coordinator_append_linger_ms: int
    group_coordinator_cached_buffer_max_bytes: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_assignors: list[str]
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_share_assignors: list[str]
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_delivery_count_limit: int
    group_share_min_delivery_count_limit: int
    group_share_max_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_max_record_lock_duration_ms: int
    group_share_partition_max_record_locks: int
    group_share_min_partition_max_record_locks: int
    group_share_max_partition_max_record_locks: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_initialize_retry_interval_ms: int
    group_share_persister_class_name: str
    share_coordinator_append_linger_ms: int
    share_coordinator_cached_buffer_max_bytes: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_load_buffer_size: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_threads: int
    share_coordinator_write_timeout_ms: int
    share_fetch_purgatory_purge_interval_requests: int
    group_streams_assignment_interval_ms: int
    group_streams_min_assignment_interval_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_session_timeout_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_size: int
    group_streams_num_standby_replicas: int
    group_streams_max_standby_replicas: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    transaction_two_phase_commit_enable: bool
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    client_quota_callback_class: str | None
    metric_reporters: list[str]
    metrics_num_samples: int
    metrics_recording_level: str
    metrics_sample_window_ms: int
    kafka_metrics_polling_interval_secs: int
    kafka_metrics_reporters: list[str]
    telemetry_max_bytes: int
    metrics_listener: HostPort | None
    metrics_max_series: int
    console_listener: HostPort | None
    console_writable: bool
    console_allowed_hosts: list[str]
    console_client_config: str
    slow_request_ms: int
    event_loop_stall_ms: int
    log_dirs_free_bytes_warning: int
    config_providers: list[str]
    principal_builder_class: str | None
    security_providers: str | None
    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
