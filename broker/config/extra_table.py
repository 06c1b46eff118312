"""Sheet of the broker's settings for quotas, metrics, security and tiered storage.

Names, types, defaults and ranges are Kafka's (4.3); the form is that of `config/types`. Read by
`config`, which refuses those that would change what the broker promises (see `config/checks`).
"""

from __future__ import annotations

EXTRA_SHEET = """\
# Quotas, metrics and plugins
quota.window.num | int | 11 | 1.. | low
    Windows kept to measure client quotas.
quota.window.size.seconds | int | 1 | 1.. | low
    Length of one window of client quotas.
controller.quota.window.num | int | 11 | 1.. | low
    Windows kept to measure controller quotas.
controller.quota.window.size.seconds | int | 1 | 1.. | low
    Length of one window of controller quotas.
replication.quota.window.num | int | 11 | 1.. | low
    Windows kept to measure replication quotas.
replication.quota.window.size.seconds | int | 1 | 1.. | low
    Length of one window of replication quotas.
alter.log.dirs.replication.quota.window.num | int | 11 | 1.. | low
    Windows kept to measure moves between folders.
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | 1.. | low
    Length of one window of moves between folders.
client.quota.callback.class | class | null | | low
    Java class that decides quotas; not supported here.
metric.reporters | list | |  | low | cluster
    Java classes that report metrics; without effect here.
metrics.num.samples | int | 2 | 1.. | low
    Samples kept to compute metrics.
metrics.recording.level | string | INFO | | low
    Least level at which metrics are recorded.
metrics.sample.window.ms | long | 30000 | 1.. | low
    Time over which one metrics sample is taken.
kafka.metrics.polling.interval.secs | int | 10 | 1.. | low
    Polling interval of kafka.metrics.reporters.
kafka.metrics.reporters | list | |  | low
    Java classes that report metrics; without effect here.
telemetry.max.bytes | int | 1048576 | 1.. | low
    Largest metrics push of a client.
metrics.listener | string | | | medium
    Where /metrics, /health and /ready are served, as host:port; empty: nowhere.
metrics.max.series | int | 2000 | 1.. | low
    Most series of one metric (topics, partitions, groups); the others are not shown.
console.listener | string | | | medium
    Where browsers find the console, as host:port (see kraftrio console --help); empty: nowhere.
console.writable | boolean | false | | medium
    Whether visitors of the console may write records and reset groups.
console.allowed.hosts | list | | | low
    Names that browsers may call the console by, besides localhost, addresses and its host.
console.client.config | string | | | medium
    A Java client's properties file for the console: how it gets in where listeners are secured.
slow.request.ms | long | 1000 | 0.. | medium | cluster
    A request that takes longer is logged, with where its time went; 0: none is.
event.loop.stall.ms | int | 500 | 0.. | low
    A turn of the event loop that takes longer is logged, with what held it; 0: none is.
log.dirs.free.bytes.warning | long | 1073741824 | 0.. | medium
    Less free space than this in a log directory is warned of; 0: it is not.
config.providers | list | |  | low | cluster
    Java classes that fill in values; not supported here.
principal.builder.class | class | null | | medium | broker
    Java class that names the client; not supported here.
security.providers | string | null | | low
    Java security providers; without effect here.
authorizer.class.name | string | |  | low
    StandardAuthorizer decides by ACLs what each client may do; none: all may do everything.
super.users | string | | | high | internal
    Principals that may do everything, with `;` between them: User:admin;User:broker.
allow.everyone.if.no.acl.found | boolean | false | | medium | internal
    Allow everyone what no ACL is about.
unstable.api.versions.enable | boolean | false | | high | internal
    Offer versions of the protocol that are not final.
unstable.feature.versions.enable | boolean | false | | high | internal
    Allow feature levels that are not final.
# Delegation tokens
delegation.token.secret.key | password | null | | medium
    Secret that signs delegation tokens.
delegation.token.expiry.check.interval.ms | long | 3600000 | 1.. | low
    Time between two looks for expired tokens.
delegation.token.expiry.time.ms | long | 86400000 | 1.. | medium
    Time after which a token that is not renewed expires.
delegation.token.max.lifetime.ms | long | 604800000 | 1.. | medium
    Longest life of a token.
# TLS
ssl.allow.dn.changes | boolean | false | | low
    Allow another distinguished name when a keystore is renewed.
ssl.allow.san.changes | boolean | false | | low
    Allow other alternative names when a keystore is renewed.
ssl.cipher.suites | list | |  | medium | broker
    Cipher suites that may be used.
ssl.client.auth | string | none | required,requested,none | medium | broker
    Whether clients must show a certificate.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | | medium | broker
    TLS versions that may be used.
ssl.endpoint.identification.algorithm | string | https | | low | broker
    How the name of the peer is checked.
ssl.engine.factory.class | class | null | | low | broker
    Java class that makes TLS engines.
ssl.key.password | password | null | | medium | broker
    Password of the private key.
ssl.keymanager.algorithm | string | SunX509 | | medium | broker
    Java algorithm of the key manager.
ssl.keystore.certificate.chain | password | null | | medium | broker
    Certificates of this node, in PEM.
ssl.keystore.key | password | null | | medium | broker
    Private key of this node, in PEM.
ssl.keystore.location | string | null | | medium | broker
    File that holds this node's key and certificates.
ssl.keystore.password | password | null | | medium | broker
    Password of the keystore file.
ssl.keystore.type | string | JKS | | medium | broker
    Format of the keystore file.
ssl.principal.mapping.rules | string | DEFAULT | | low
    How a certificate's name becomes a principal.
ssl.protocol | string | TLSv1.3 | | medium | broker
    TLS version a context is made for.
ssl.provider | string | null | | medium | broker
    Java provider of TLS.
ssl.secure.random.implementation | string | null | | low | broker
    Java source of random numbers for TLS.
ssl.trustmanager.algorithm | string | PKIX | | medium | broker
    Java algorithm of the trust manager.
ssl.truststore.certificates | password | null | | medium | broker
    Trusted certificates, in PEM.
ssl.truststore.location | string | null | | medium | broker
    File that holds the trusted certificates.
ssl.truststore.password | password | null | | medium | broker
    Password of the truststore file.
ssl.truststore.type | string | JKS | | medium | broker
    Format of the truststore file.
# SASL
sasl.client.callback.handler.class | class | null | | medium
    Java class that answers SASL's questions on the client side.
sasl.enabled.mechanisms | list | GSSAPI | | medium | broker
    SASL mechanisms clients may use.
sasl.jaas.config | password | null | | medium | broker
    Login settings of SASL.
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit | | medium | broker
    Path of the kinit program.
sasl.kerberos.min.time.before.relogin | long | 60000 | | medium | broker
    Least time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules | list | DEFAULT | | medium | broker
    How a Kerberos name becomes a short name.
sasl.kerberos.service.name | string | null | | medium | broker
    Kerberos name of the service.
sasl.kerberos.ticket.renew.jitter | double | 0.05 | | medium | broker
    Random share added to the time of a ticket's renewal.
sasl.kerberos.ticket.renew.window.factor | double | 0.8 | | medium | broker
    Share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class | class | null | | medium
    Java class that answers SASL's questions at login.
sasl.login.class | class | null | | medium
    Java class that logs in.
sasl.login.connect.timeout.ms | int | null | | low
    Time to connect to the identity provider.
sasl.login.read.timeout.ms | int | null | | low
    Time to read from the identity provider.
sasl.login.refresh.buffer.seconds | short | 300 | | medium | broker
    Least time left in a credential when it is refreshed.
sasl.login.refresh.min.period.seconds | short | 60 | | medium | broker
    Least time before a credential is refreshed.
sasl.login.refresh.window.factor | double | 0.8 | | medium | broker
    Share of a credential's life after which it is refreshed.
sasl.login.refresh.window.jitter | double | 0.05 | | medium | broker
    Random share added to the time of a refresh.
sasl.login.retry.backoff.ms | long | 100 | | low
    First wait before a login is tried again.
sasl.login.retry.backoff.max.ms | long | 10000 | | low
    Longest wait before a login is tried again.
sasl.mechanism.controller.protocol | string | GSSAPI | | high
    SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol | string | GSSAPI | | medium | broker
    SASL mechanism among brokers.
sasl.oauthbearer.assertion.algorithm | string | RS256 | ~es256,rs256 | medium
    Algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud | string | null | | medium
    Audience claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.exp.seconds | int | 300 | 0..86400 | low
    Life of an OAuth assertion.
sasl.oauthbearer.assertion.claim.iss | string | null | | medium
    Issuer claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.jti.include | boolean | false | | medium
    Whether an OAuth assertion gets an id.
sasl.oauthbearer.assertion.claim.nbf.seconds | int | 60 | 0..3600 | low
    How far back an OAuth assertion is valid.
sasl.oauthbearer.assertion.claim.sub | string | null | | medium
    Subject claim of an OAuth assertion.
sasl.oauthbearer.assertion.file | string | null | | medium
    File that holds a ready OAuth assertion.
sasl.oauthbearer.assertion.private.key.file | string | null | | medium
    File with the key that signs an OAuth assertion.
sasl.oauthbearer.assertion.private.key.passphrase | password | null | | medium
    Password of that key.
sasl.oauthbearer.assertion.template.file | string | null | | medium
    File with more claims of an OAuth assertion.
sasl.oauthbearer.client.credentials.client.id | string | null | | medium
    Client id of the OAuth client.
sasl.oauthbearer.client.credentials.client.secret | password | null | | medium
    Secret of the OAuth client.
sasl.oauthbearer.clock.skew.seconds | int | 30 | | low
    Difference of clocks that is allowed for tokens.
sasl.oauthbearer.expected.audience | list | |  | high
    Audiences a token may be for.
sasl.oauthbearer.expected.issuer | string | null | | high
    Issuer a token must come from.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | | low
    Time after which the provider's keys are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | | low
    Longest wait before the keys are asked for again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | | low
    First wait before the keys are asked for again.
sasl.oauthbearer.jwks.endpoint.url | string | null | | medium
    Where the provider's keys are found.
sasl.oauthbearer.jwt.retriever.class | class | null | | medium
    Java class that gets tokens.
sasl.oauthbearer.jwt.validator.class | class | null | | medium
    Java class that checks tokens.
sasl.oauthbearer.scope | string | null | | medium
    Scope asked of the provider.
sasl.oauthbearer.scope.claim.name | string | scope | | low
    Claim that holds the scope.
sasl.oauthbearer.sub.claim.name | string | sub | | low
    Claim that holds the subject.
sasl.oauthbearer.token.endpoint.url | string | null | | medium
    Where the provider gives tokens.
sasl.server.callback.handler.class | class | null | | medium
    Java class that answers SASL's questions on the server side.
sasl.server.max.receive.size | int | 524288 | | medium
    Largest SASL message accepted.
# Tiered storage
remote.log.storage.system.enable | boolean | false | | medium
    Turn tiered storage on; not supported here.
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | 1.. | low | cluster
    Disk space for indexes fetched from remote storage.
remote.log.index.file.cache.ttl.ms | long | 900000 | -1.. | low | internal
    Life of a fetched index; -1 means no limit.
remote.log.manager.copier.thread.pool.size | int | 10 | 1.. | medium | cluster
    Threads that copy segments away.
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | 1.. | medium | cluster
    Limit on copying to remote storage.
remote.log.manager.copy.quota.window.num | int | 11 | 1.. | medium
    Windows kept to measure the copying.
remote.log.manager.copy.quota.window.size.seconds | int | 1 | 1.. | medium
    Length of one window of the copying.
remote.log.manager.expiration.thread.pool.size | int | 10 | 1.. | medium | cluster
    Threads that delete expired remote segments.
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | 1.. | medium | cluster
    Limit on reading from remote storage.
remote.log.manager.fetch.quota.window.num | int | 11 | 1.. | medium
    Windows kept to measure the reading.
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | 1.. | medium
    Length of one window of the reading.
remote.log.manager.follower.thread.pool.size | int | 2 | 1.. | medium | cluster
    Threads for the tasks of followers.
remote.log.manager.task.interval.ms | long | 30000 | 1.. | low
    Time between two rounds of remote storage tasks.
remote.log.manager.task.retry.backoff.max.ms | long | 30000 | 1.. | low | internal
    Longest wait before a remote task is tried again.
remote.log.manager.task.retry.backoff.ms | long | 500 | 1.. | low | internal
    First wait before a remote task is tried again.
remote.log.manager.task.retry.jitter | double | 0.2 | 0..0.5 | low | internal
    Random share of the wait.
remote.log.manager.thread.pool.size | int | 2 | 1.. | medium
    Threads of the remote storage tasks.
remote.log.metadata.custom.metadata.max.bytes | int | 128 | 0.. | low
    Largest custom note of a remote segment.
remote.log.metadata.manager.class.name | string | null | | medium
    Java class that keeps remote metadata.
remote.log.metadata.manager.class.path | string | null | | medium
    Where that class is found.
remote.log.metadata.manager.impl.prefix | string | rlmm.config. | | medium
    Prefix of that class's own settings.
remote.log.metadata.manager.listener.name | string | null | | medium
    Listener that class connects to.
remote.log.reader.max.pending.tasks | int | 100 | 1.. | medium
    Most reads waiting for remote storage.
remote.log.reader.threads | int | 10 | 1.. | medium | cluster
    Threads that read from remote storage.
remote.log.storage.manager.class.name | string | null | | medium
    Java class that reaches remote storage.
remote.log.storage.manager.class.path | string | null | | medium
    Where that class is found.
remote.log.storage.manager.impl.prefix | string | rsm.config. | | medium
    Prefix of that class's own settings.
remote.fetch.max.wait.ms | int | 500 | 1.. | medium | cluster
    Longest wait for remote data in a fetch.
remote.list.offsets.request.timeout.ms | long | 30000 | 1.. | medium | cluster
    Longest wait for remote data in a search for offsets.
"""
