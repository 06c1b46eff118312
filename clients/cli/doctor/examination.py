"""The steps of an examination: from a name to the leaders, in the order of a client.

Owns `examine`. Rules:
1. Steps that depend on a failed one are left out; all others are taken, so that one run names every
   cause.
2. Each address is tried by an `Admin` of its own, with the settings of the command; only if that
   fails, a bare connection finds out what listens at the port.

Called by: the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import trio

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import ClusterDescription
from kraftrio.clients.cli.cluster.health import Problem, check_partitions
from kraftrio.clients.cli.doctor.probe import identify, look_up, reach
from kraftrio.clients.cli.doctor.symptoms import (
    Cause,
    StepFinding,
    cause_of_handshake,
    cause_of_login,
    ok,
    problem,
    skew_finding,
    warning,
)
from kraftrio.clients.cli.failures import one_line
from kraftrio.clients.cli.partitions import partition_text
from kraftrio.clients.cli.session import Session
from kraftrio.clients.config import AdminConfig, make_config, parse_bootstrap_servers
from kraftrio.clients.errors import (
    ConfigError,
    KafkaClientError,
    SaslAuthenticationError,
    SslAuthenticationError,
)

_USE_TIMEOUT_MS = 6_000
_LOCAL = ("localhost", "127.0.0.1", "::1")


async def examine(session: Session) -> AsyncIterator[StepFinding]:
    """Yield what each step finds."""
    addresses = parse_bootstrap_servers(session.target.servers)
    used: tuple[tuple[str, int], ClusterDescription] | None = None
    for host, port in addresses:
        description: ClusterDescription | None = None
        async for finding, found in _examine_address(session, host, port):
            description = found or description
            yield finding
        if description is not None and used is None:
            used = (host, port), description
    if used is None:
        return
    (host, port), description = used
    async for finding in _examine_advertised(session, host, description):
        yield finding
    async for finding in _examine_cluster(session, f"{host}:{port}"):
        yield finding


async def _examine_address(
    session: Session, host: str, port: int
) -> AsyncIterator[tuple[StepFinding, ClusterDescription | None]]:
    """Yield what is found on the way to an address, and the cluster behind it once it is used."""
    subject = f"{host}:{port}"
    addresses = await look_up(host, port)
    if isinstance(addresses, Cause):
        yield _problem(addresses, subject), None
        return
    yield ok("name", host, f"is {', '.join(addresses)}"), None
    stream = await reach(host, port)
    if isinstance(stream, Cause):
        yield _problem(stream, subject), None
        return
    await stream.aclose()
    yield ok("port", subject, "takes connections"), None
    config = make_config(AdminConfig, subject, session.settings(AdminConfig))
    used = await _use(session, subject)
    if isinstance(used, KafkaClientError):
        yield _problem(await _cause_of(used, host, port, config), subject), None
        return
    yield ok("protocol", subject, f"a broker, used by {config.protocol.name}"), used


async def _use(session: Session, subject: str) -> ClusterDescription | KafkaClientError:
    """Ask one address which cluster it belongs to."""
    settings = session.settings(AdminConfig)
    try:
        async with Admin(subject, **settings) as admin:
            return await admin.describe_cluster(timeout_ms=_USE_TIMEOUT_MS)
    except ConfigError:
        raise  # the command's own settings are wrong
    except KafkaClientError as error:
        return error


async def _cause_of(error: KafkaClientError, host: str, port: int, config: AdminConfig) -> Cause:
    """Return why a port that takes connections cannot be used."""
    sentence = one_line(str(error))
    uses_tls = config.protocol.uses_tls
    if isinstance(error, SaslAuthenticationError):
        return cause_of_login(sentence)
    if isinstance(error, SslAuthenticationError) and uses_tls:
        cause = cause_of_handshake(sentence)
        if cause.check == "certificate":
            return cause
    found = await identify(host, port, uses_tls=uses_tls)
    if uses_tls and found is None:
        return Cause(
            "tls",
            "the listener speaks plain text, and this client speaks TLS",
            "set security.protocol=PLAINTEXT, or use the port of the TLS listener",
        )
    if isinstance(error, SslAuthenticationError):
        return cause_of_handshake(sentence)
    if found is not None:
        return found
    return Cause(
        "protocol",
        f"a broker listens there, but does not serve this client: {sentence}",
        "the listener may want a login (security.protocol=SASL_...), or be a controller's:"
        " use a broker's listener",
    )


async def _examine_advertised(
    session: Session, bootstrap_host: str, cluster: ClusterDescription
) -> AsyncIterator[StepFinding]:
    """Yield whether the addresses that the brokers give can be used from here."""
    for node in cluster.nodes:
        subject = f"broker {node.node_id} at {node.host}:{node.port}"
        hint = "correct advertised.listeners of that broker to what this machine can reach"
        if node.host in _LOCAL and bootstrap_host not in _LOCAL:
            found = f"it says that it is on {node.host}, which is this machine"
            yield problem("advertised", subject, found, hint)
            continue
        failed = await _reach_advertised(session, node.host, node.port)
        if isinstance(failed, Cause):
            remedy = f"{failed.remedy}; or {hint}"
            yield problem("advertised", subject, failed.found, remedy)
        elif failed.cluster_id != cluster.cluster_id:
            found = f"another cluster answers there, {failed.cluster_id}"
            yield problem("advertised", subject, found, hint)
        else:
            yield ok("advertised", subject, "can be used")


async def _reach_advertised(session: Session, host: str, port: int) -> ClusterDescription | Cause:
    addresses = await look_up(host, port)
    if isinstance(addresses, Cause):
        return addresses
    stream = await reach(host, port)
    if isinstance(stream, Cause):
        return stream
    await stream.aclose()
    subject = f"{host}:{port}"
    used = await _use(session, subject)
    if isinstance(used, KafkaClientError):
        config = make_config(AdminConfig, subject, session.settings(AdminConfig))
        return await _cause_of(used, host, port, config)
    return used


async def _examine_cluster(session: Session, subject: str) -> AsyncIterator[StepFinding]:
    """Yield whether partitions have leaders, and how far the cluster's clock is off."""
    try:
        async with Admin(subject, **session.settings(AdminConfig)) as admin:
            names = await admin.list_topics(list_internal=True, timeout_ms=_USE_TIMEOUT_MS)
            topics = await admin.describe_topics(names, timeout_ms=_USE_TIMEOUT_MS)
            yield _leaders(len(topics), check_partitions(topics, {}))
            asked_ms = wall_ms()
            began_at = trio.current_time()
            quorum = await admin.describe_metadata_quorum(timeout_ms=_USE_TIMEOUT_MS)
            half_ms = round((trio.current_time() - began_at) * 500)
    except KafkaClientError as error:
        remedy = "the user may lack rights: 'kraftrio acl list' shows what there is"
        yield warning("cluster", subject, one_line(str(error)), remedy)
        return
    for voter in quorum.voters:
        at_ms = voter.last_caught_up_timestamp_ms
        if voter.replica_id == quorum.leader_id and at_ms is not None and at_ms > 0:
            name = f"controller {voter.replica_id}"
            yield skew_finding(name, at_ms - (asked_ms + half_ms))


def _leaders(count: int, problems: Sequence[Problem]) -> StepFinding:
    serious = [each for each in problems if each.is_serious]
    if not serious:
        return ok("leaders", f"{count} topics", "every partition has a leader and its replicas")
    first = serious[0]
    found = f"{len(serious)} partitions, such as {partition_text(first.item)}: {first.kind.value}"
    remedy = "'kraftrio cluster health' shows them: start the brokers that are down"
    return problem("leaders", f"{count} topics", found, remedy)


def _problem(cause: Cause, subject: str) -> StepFinding:
    return problem(cause.check, subject, cause.found, cause.remedy)
