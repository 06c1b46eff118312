"""The settings that are known, so that Kafka's files load, but change nothing here, and why.

Owns the list. Rule: every setting of the broker, and of groups, is either read by some part of it
or stands here; a group's with the broker's setting that is its default. A test holds the list and
the code together. A start with one of them set to another value than its default warns, with the
reason. Called by `config/checks`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.config.listener_settings import setting_of
from kraftrio.broker.config.types import ConfigValue

# Names, several with one reason; a name that ends with `*` stands for all that begin so.
_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "one event loop serves all sockets and requests",
        ("num.network.threads", "num.io.threads", "queued.max.requests"),
    ),
    (
        "worker threads are taken as they are needed",
        (
            "background.threads",
            "group.coordinator.threads",
            "group.coordinator.background.threads",
            "share.coordinator.threads",
        ),
    ),
    (
        "requests that wait free themselves",
        (
            "producer.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests",
            "delete.records.purgatory.purge.interval.requests",
            "share.fetch.purgatory.purge.interval.requests",
        ),
    ),
    ("no listener accepts clients before the broker is ready", ("early.start.listeners",)),
    ("a start takes as long as it needs", ("server.max.startup.time.ms",)),
    (
        "socket.connection.setup.timeout.ms limits every attempt to connect",
        ("socket.connection.setup.timeout.max.ms",),
    ),
    ("request.timeout.ms limits requests to the controller", ("controller.socket.timeout.ms",)),
    (
        "sockets between brokers keep the system's buffer size",
        ("replica.socket.receive.buffer.bytes",),
    ),
    ("one task fetches from each leader broker", ("num.replica.fetchers",)),
    (
        "one task moves a broker's replicas between its folders",
        ("num.replica.alter.log.dirs.threads",),
    ),
    (
        "the quorum's leader writes at once, with all that came while it last wrote",
        ("controller.quorum.append.linger.ms",),
    ),
    (
        "the voters are those of controller.quorum.voters",
        ("controller.quorum.auto.join.enable",),
    ),
    (
        "a snapshot ends a segment of the metadata log, and what it holds is deleted at once",
        (
            "metadata.log.segment.ms",
            "metadata.max.retention.bytes",
            "metadata.max.retention.ms",
            "internal.metadata.delete.delay.millis",
        ),
    ),
    (
        "an idle quorum needs no records to show that it is alive",
        ("metadata.max.idle.interval.ms",),
    ),
    (
        "it serves Apache Kafka's own tests",
        (
            "internal.metadata.log.segment.bytes",
            "internal.metadata.max.batch.size.in.bytes",
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms",
        ),
    ),
    (
        "an unclean election that a topic allows is held at once",
        ("unclean.leader.election.interval.ms",),
    ),
    ("the compaction reads and writes in pieces of its own size", ("log.cleaner.io.buffer.size",)),
    (
        "the coordinator writes at once what a request decides",
        (
            "group.coordinator.append.linger.ms",
            "group.coordinator.cached.buffer.max.bytes",
            "share.coordinator.append.linger.ms",
            "share.coordinator.cached.buffer.max.bytes",
        ),
    ),
    (
        "the coordinator acts at the time that a transaction or its id is due",
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "transaction.remove.expired.transaction.cleanup.interval.ms",
        ),
    ),
    (
        "metrics are shown at metrics.listener, and sampled by what reads them there",
        (
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "kafka.metrics.*",
        ),
    ),
    (
        "OpenSSL encrypts, not a provider of Java's",
        (
            "security.providers",
            "ssl.keymanager.algorithm",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
    ),
    ("ssl.enabled.protocols has the versions of TLS", ("ssl.protocol",)),
    (
        "GSSAPI is not supported",
        ("sasl.kerberos.*",),
    ),
    (
        "a token is asked for when one is needed",
        (
            "sasl.client.callback.handler.class",
            "sasl.login.class",
            "sasl.login.callback.handler.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.*",
            "sasl.login.retry.*",
            "sasl.oauthbearer.assertion.*",
            "sasl.oauthbearer.jwt.*",
        ),
    ),
    (
        "tiered storage is not supported",
        (
            "remote.log.index.*",
            "remote.log.manager.*",
            "remote.log.metadata.*",
            "remote.log.reader.*",
            "remote.log.storage.manager.*",
            "remote.fetch.*",
            "remote.list.*",
            "log.local.retention.ms",
            "log.local.retention.bytes",
            "follower.fetch.last.tiered.offset.enable",
            "rsm.config.*",
            "rlmm.config.*",
        ),
    ),
    (
        "every version that is served is final",
        ("unstable.api.versions.enable", "unstable.feature.versions.enable"),
    ),
)
_PATTERNS = {pattern: reason for reason, patterns in _REASONS for pattern in patterns}


# What a listener may have of its own, by how the names begin.
_OF_ONE_LISTENER = ("connections.max.reauth.ms", "max.connection", "sasl.", "ssl.")


def reason_without_effect(name: str) -> str | None:
    """Why a setting changes nothing; None: it changes something."""
    of_listener = setting_of(name)
    if of_listener is not None:
        if not of_listener.startswith(_OF_ONE_LISTENER):
            return "each listener has the settings of all of them"
        name = of_listener
    for pattern, reason in _PATTERNS.items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return reason
    return None


def warnings_without_effect(
    originals: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    defaults: Mapping[str, ConfigValue],
) -> list[str]:
    """Return a sentence for each setting that was set and has no effect.

    Args:
        originals: what was set, in any order.
        values, defaults: of every setting that has a name of its own.
    """
    warnings = []
    for name in originals:
        reason = reason_without_effect(name)
        is_default = name in defaults and values[name] == defaults[name]
        if reason is not None and not is_default:
            warnings.append(f"{name} has no effect: {reason}")
    return warnings
