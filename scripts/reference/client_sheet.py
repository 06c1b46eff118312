"""What each setting of the clients means; `clients` makes a page of it.

A line is `setting | meaning`. Every setting has one, and every line a setting: the page is made
from both, and does not come about otherwise.
"""

from __future__ import annotations

SHEET = """\
bootstrap_servers | Brokers to begin with: "HOST:PORT,HOST:PORT", or several such texts. The others are learnt from them.
client_id | A name that brokers see in logs, metrics and quotas.
metadata_max_age_ms | What is known of topics and brokers is asked for again after this time.
metadata_recovery_strategy | `rebootstrap`: begin again with `bootstrap_servers` when no known broker answers. `none`: go on trying those known.
metadata_recovery_rebootstrap_trigger_ms | No metadata for that long is taken as "no known broker answers".
reconnect_backoff_ms | First pause before a broker is dialled again; it doubles up to the maximum.
reconnect_backoff_max_ms | Longest pause before a broker is dialled again.
retry_backoff_ms | First pause before a request is sent again; it doubles up to the maximum.
retry_backoff_max_ms | Longest pause before a request is sent again.
request_timeout_ms | How long one request may stay unanswered before its connection is given up.
default_api_timeout_ms | How long a call such as `list_offsets` may take with all its requests.
connections_max_idle_ms | A connection that nothing uses is closed after this time.
socket_connection_setup_timeout_ms | How long the first attempt to connect may take.
socket_connection_setup_timeout_max_ms | How long later attempts to connect may take: the limit doubles up to this.
allow_auto_create_topics | Whether asking for a topic may create it, where the broker allows it.
security_protocol | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
ssl_protocol | Newest version of TLS; `ssl_enabled_protocols` is more exact.
ssl_enabled_protocols | Versions of TLS that may be used.
ssl_cipher_suites | Cipher suites that may be used, by their names in Java.
ssl_endpoint_identification_algorithm | `https`: the broker's certificate must be for the host that was dialled. Empty: it need not.
ssl_keystore_type | `PEM`, `PKCS12` or `JKS`.
ssl_keystore_location | File with the client's key and certificate.
ssl_keystore_password | Password of that file.
ssl_keystore_key | The client's key itself, as PEM.
ssl_keystore_certificate_chain | The client's certificate itself, as PEM.
ssl_key_password | Password of the key.
ssl_truststore_type | `PEM`, `PKCS12` or `JKS`.
ssl_truststore_location | File with the certificate authorities that are trusted; without one those of the system.
ssl_truststore_password | Password of that file.
ssl_truststore_certificates | The trusted certificates themselves, as PEM.
sasl_mechanism | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.
sasl_jaas_config | User and password, or token, as Java's clients write them.
sasl_oauthbearer_token_endpoint_url | Where tokens are fetched.
sasl_oauthbearer_scope | The scope of the tokens.
sasl_oauthbearer_client_credentials_client_id | The client that asks for tokens.
sasl_oauthbearer_client_credentials_client_secret | The secret of the client that asks for tokens.
acks | `all`: every in-sync replica has the record. `1`: its leader has it. `0`: this machine's socket took it.
enable_idempotence | Whether a record that is sent again is stored once, and in order. None: wherever the other settings allow it.
batch_size | Bytes of records of one partition that are sent together.
linger_ms | How long a batch that is not full waits for more records.
buffer_memory | Bytes of records that may wait to be sent; `send` waits above it.
max_block_ms | How long `send` may wait for room, or for a topic's metadata.
max_request_size | Bytes of the largest record, and of one request.
compression_type | `none`, `gzip`, `snappy`, `lz4` or `zstd`.
compression_gzip_level | Level of gzip, 1 to 9; -1 is its own default.
compression_lz4_level | Level of lz4, 1 to 17.
compression_zstd_level | Level of zstd, -131072 to 22.
delivery_timeout_ms | How long a record may take from `send` to its answer, retries included.
retries | How often a record is sent again within `delivery_timeout_ms`; for `Admin`: how often a request is.
max_in_flight_requests_per_connection | Requests that one broker may owe an answer for.
metadata_max_idle_ms | A topic that nothing is sent to is forgotten after this time.
partitioner | A function (topic, key, value, number of partitions) that chooses the partition. None: by the key's hash as in Java, else whichever batch fills next.
partitioner_ignore_keys | Whether keys do not choose the partition.
partitioner_adaptive_partitioning_enable | Whether records without a key go less to slow brokers.
partitioner_availability_timeout_ms | A broker that takes nothing for that long gets no records without a key; 0: it always gets them.
transactional_id | The name under which transactions are written; it outlives the program.
transaction_timeout_ms | The broker aborts a transaction that is open for longer.
group_id | The group to be a member of.
group_instance_id | A name for this member that outlives restarts: with it a restart moves no partitions.
group_protocol | `classic`, or `consumer`: the broker shares partitions out (KIP-848).
group_remote_assignor | The broker's assignor, with `group_protocol="consumer"`: `uniform` or `range`. None: its first.
partition_assignment_strategy | Assignors in the order of preference, with `group_protocol="classic"`.
session_timeout_ms | A member that is silent for that long is removed from its group.
heartbeat_interval_ms | Time between two signs of life of a member.
max_poll_interval_ms | A member that does not ask for records for that long leaves its group.
max_poll_records | Most records that one `poll` returns.
enable_auto_commit | Whether offsets are committed by themselves, of what was returned before.
auto_commit_interval_ms | Time between two such commits.
auto_offset_reset | Where to begin without a committed offset: `earliest`, `latest`, `none` (an error) or `by_duration:PT1H` (an hour ago).
isolation_level | `read_committed` leaves out what transactions have not committed.
fetch_min_bytes | The broker waits for so many bytes before it answers.
fetch_max_bytes | Bytes that one answer may have.
fetch_max_wait_ms | How long the broker waits for `fetch_min_bytes`.
max_partition_fetch_bytes | Bytes of one partition that one answer may have.
check_crcs | Whether checksums of records are checked.
client_rack | The rack of this client: it may read from a replica there.
exclude_internal_topics | Whether a pattern leaves out Kafka's own topics.
share_acknowledgement_mode | `explicit`: the program says of each record what became of it. `implicit`: asking for more accepts what came before.
share_acquire_mode | `record_limit`: never more than `max_poll_records` are locked. `batch_optimized`: whole batches are.
"""


def meanings() -> dict[str, str]:
    """Return the meaning of each setting."""
    lines = (line.partition(" | ") for line in SHEET.splitlines())
    return {name: text for name, _, text in lines}
