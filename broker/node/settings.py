"""What a node's configuration means to its quorum, its controller and its listeners.

Called by: `node`.
"""

from __future__ import annotations

import logging
import platform
import resource
from collections.abc import Mapping

from kraftrio.base.logging_setup import log_event
from kraftrio.base.secret import Secret
from kraftrio.base.start_errors import StartError
from kraftrio.base.version import VERSION
from kraftrio.broker.config.checks import super_users
from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig
from kraftrio.broker.config.listener_settings import settings_of
from kraftrio.broker.controller.client import ControllerClientConfig
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.admission.connection_quotas import ConnectionLimits, ConnectionQuotas
from kraftrio.broker.server.limits import ServerLimits
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.resources import ServerResources
from kraftrio.kraft_meta.controller.control import ControllerConfig, TokenSettings
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.kraft_meta.quorum.settings import QuorumConfig
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet

_FILES_FOR_LOGS = 200
_MAX_CONNECTIONS = "max.connections"
_MAX_CREATION_RATE = "max.connection.creation.rate"
_FEW_FILES = 4096
_FEWEST_FILES = 64
_log = logging.getLogger("kraftrio.node")


def quorum_config(config: BrokerConfig) -> QuorumConfig:
    """The quorum's members and timeouts."""
    return QuorumConfig(
        node_id=config.node_id,
        voters=voter_set(config),
        raft=RaftConfig(
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
            snapshot_chunk_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        ),
        metadata_log_max_record_bytes_between_snapshots=(
            config.metadata_log_max_record_bytes_between_snapshots
        ),
        metadata_log_max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )


def voter_set(config: BrokerConfig) -> VoterSet:
    """The voters, and where they listen; a node alone may have no controller listener."""
    names = config.controller_listener_names
    listener_name = names[0] if names else "CONTROLLER"
    return VoterSet(
        tuple(
            Voter(
                voter.node_id,
                (VoterEndpoint(listener_name, voter.host, voter.port),) if voter.port else (),
            )
            for voter in config.controller_quorum_voters
        )
    )


def node_authorizer(config: BrokerConfig) -> StandardAuthorizer | None:
    """What decides who may do what; None: everybody may do everything."""
    if not config.authorizer_class_name:
        return None
    return StandardAuthorizer(
        [KafkaPrincipal.parse(text) for text in super_users(config.super_users)],
        allow_everyone=config.allow_everyone_if_no_acl_found,
    )


def controller_client_config(config: BrokerConfig) -> ControllerClientConfig:
    """The times of the broker's requests to the controller."""
    return ControllerClientConfig(
        client_id=f"kraftrio-broker-{config.node_id}",
        request_timeout_ms=config.request_timeout_ms,
        own_timeout_ms=config.broker_session_timeout_ms / 2,
        connect_timeout_ms=config.socket_connection_setup_timeout_ms,
    )


def token_settings(config: BrokerConfig) -> TokenSettings:
    """What delegation tokens live by."""
    secret_key = config.value("delegation.token.secret.key")
    return TokenSettings(
        secret_key=None if secret_key is None else Secret(str(secret_key)),
        max_lifetime_ms=_number(config, "delegation.token.max.lifetime.ms"),
        expiry_time_ms=_number(config, "delegation.token.expiry.time.ms"),
        check_interval_ms=_number(config, "delegation.token.expiry.check.interval.ms"),
    )


def _number(config: BrokerConfig, name: str) -> int:
    value = config.value(name)
    assert isinstance(value, int), "its type is one of a number"
    return value


def controller_config(
    config: BrokerConfig,
    cluster_id: str,
    first_credentials: tuple[UserScramCredentialRecord, ...] = (),
) -> ControllerConfig:
    """What the controller decides by."""
    return ControllerConfig(
        cluster_id=cluster_id,
        node_id=config.node_id,
        controller_ids=tuple(sorted(voter.node_id for voter in config.controller_quorum_voters)),
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
        first_credentials=first_credentials,
        tokens=token_settings(config),
        quota_window_num=config.controller_quota_window_num,
        quota_window_size_seconds=config.controller_quota_window_size_seconds,
    )


def server_limits(config: BrokerConfig) -> ServerLimits:
    """What a listener grants its clients."""
    return ServerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_in_flight_requests=config.kraftrio_max_inflight_requests_per_connection,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """How many connections a broker grants, and how fast they may come."""
    # Clients may not take the files that logs need: above this they wait as above max.connections.
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for_clients = config.max_connections
    if open_files != resource.RLIM_INFINITY:
        for_clients = max(open_files - max(_FILES_FOR_LOGS, open_files // 4), 1)
    own = {one.name: settings_of(config, one.name) for one in config.broker_listeners}
    return ConnectionLimits(
        max_connections=min(config.max_connections, for_clients),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connection_creation_rate=config.max_connection_creation_rate,
        of_listener=_numbers(own, _MAX_CONNECTIONS),
        rate_of_listener=_numbers(own, _MAX_CREATION_RATE),
        protected_listener=config.inter_broker_listener_name if len(own) > 1 else None,
    )


def controller_connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """How many connections a controller grants."""
    limits = connection_limits(config)
    return ConnectionLimits(
        max_connections=limits.max_connections,
        max_connections_per_ip=limits.max_connections_per_ip,
        max_connections_per_ip_overrides=limits.max_connections_per_ip_overrides,
    )


def _numbers(settings: Mapping[str, Mapping[str, str]], name: str) -> dict[str, int]:
    """Return what a setting is for each listener for which it is set."""
    key = BROKER_KEYS[name]
    numbers = {}
    for listener, texts in settings.items():
        if name in texts:
            value = key.parse(texts[name])
            assert isinstance(value, int)
            numbers[listener] = value
    return numbers


def quota_windows(config: BrokerConfig) -> RateWindows:
    """What client quotas are measured over."""
    return RateWindows(config.quota_window_num, config.quota_window_size_seconds * 1000.0)


def server_resources(config: BrokerConfig, environment: Environment) -> ServerResources:
    """What all listeners of a node share."""
    return ServerResources(
        request_memory=MemoryBudget(config.queued_max_request_bytes),
        response_memory=MemoryBudget(config.kraftrio_queued_max_response_bytes),
        run_in_thread=environment.run_in_thread,
        connections=ConnectionQuotas(connection_limits(config), quota_windows(config)),
        ticks_ns=environment.clock.ticks_ns,
    )


def log_start(config: BrokerConfig) -> None:
    """Say which release starts, and with which settings; secrets are not shown."""
    shown: dict[str, object] = {}
    for name, text in sorted(config.originals.items()):
        key = BROKER_KEYS.get(name)
        shown[name] = "(hidden)" if key is None or key.sensitive else text
    log_event(
        _log,
        logging.INFO,
        "starting",
        version=VERSION,
        python=platform.python_version(),
        node=config.node_id,
        roles=",".join(config.process_roles),
        **shown,
    )


def raise_open_files_limit() -> None:
    """Every partition keeps a file open and every client a socket: take what the system grants.

    Raises:
        StartError: that is not enough for a node without any partition.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FEWEST_FILES:
        raise StartError(f"only {hard} files may be open: raise it to {_FEWEST_FILES} at least"
                         " (ulimit -n)")  # fmt: skip
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _FEW_FILES:
        _log.warning(
            "few files may be open limit=%d: every partition and every client takes one, raise it"
            " (ulimit -n)",
            hard,
        )
