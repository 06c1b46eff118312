"""The disks of a node, opened and locked: log directories, metadata log, election state.

Owns: `NodeStorage`. Rules:
1. A directory belongs to one cluster and one node, as its `meta.properties` says; a new directory
   is formatted with the cluster id of the others, or with the one configured.
2. Without a configured id, the nodes of a quorum take the same one from their list of voters; a
   node alone draws one.
3. Storage of Apache Kafka is refused untouched, since its metadata cannot be read here.

Called by: `node`.
"""

from __future__ import annotations

import hashlib
import posixpath
import random

from kraftrio.broker.config import BrokerConfig
from kraftrio.broker.environment import Environment
from kraftrio.broker.log.checkpoints import CheckpointError, read_meta_properties
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_manager import LogDirError, LogManager, PendingLog
from kraftrio.broker.log.metadata_log import (
    MetadataLog,
    MetadataLogError,
    QuorumStateFile,
    holds_foreign_records,
)
from kraftrio.broker.node_errors import StartError, reason
from kraftrio.wire.primitives import uuid_to_text

METADATA_DIRECTORY = "__cluster_metadata-0"


class NodeStorage:
    """See the module; opening raises StartError."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        fs = environment.fs
        self.metadata_directory = posixpath.join(config.metadata_log_dir, METADATA_DIRECTORY)
        self.log_manager = LogManager(
            fs,
            config.log_dirs,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            new_id=lambda: environment.rng.randbytes(16),
        )
        self._refuse_foreign_metadata(fs, config)
        self.cluster_id = _cluster_id(fs, config, environment.rng)
        self.pending_logs = self._open_log_dirs(config)
        self.metadata_log = self._open_metadata_log(fs, config)
        self.election_store = QuorumStateFile(fs, self.metadata_directory)

    def release(self) -> None:
        """Unlock and close everything, without calling it a clean stop."""
        self.log_manager.release()
        self.metadata_log.close()

    def _refuse_foreign_metadata(self, fs: FileSystem, config: BrokerConfig) -> None:
        try:
            is_foreign = holds_foreign_records(fs, self.metadata_directory)
        except OSError:
            return  # what opens the directory tells why it cannot be used
        if is_foreign:
            raise StartError(
                f"{config.metadata_log_dir} was written by Apache Kafka: kraftrio cannot take"
                " over its metadata log, so start with an empty data directory"
            )

    def _open_log_dirs(self, config: BrokerConfig) -> list[PendingLog]:
        try:
            return self.log_manager.start(self.cluster_id, config.node_id)
        except LogDirError as error:
            self.log_manager.release()
            raise StartError(str(error)) from error

    def _open_metadata_log(self, fs: FileSystem, config: BrokerConfig) -> MetadataLog:
        directory = self.metadata_directory
        try:
            fs.make_directory(directory)
            return MetadataLog(fs, directory, segment_bytes=config.metadata_log_segment_bytes)
        except (OSError, MetadataLogError) as error:
            self.log_manager.release()
            raise StartError(
                f"cannot open the metadata log in {directory}: {reason(error)}"
            ) from error


def _cluster_id(fs: FileSystem, config: BrokerConfig, rng: random.Random) -> str:
    """The cluster id that the directories were formatted with; a new one on the first start."""
    for directory in (config.metadata_log_dir, *config.log_dirs):
        try:
            found = read_meta_properties(fs, directory)
        except CheckpointError as error:
            raise StartError(f"cannot understand {directory}: {error}") from error
        except OSError as error:
            if directory != config.metadata_log_dir:
                continue  # offline, and told so when the directories are opened
            raise StartError(f"cannot use {directory}: {reason(error)}") from error
        if found is not None:
            return found.cluster_id
    if config.kraftrio_cluster_id:
        return config.kraftrio_cluster_id
    voters = config.controller_quorum_voters
    if len(voters) > 1 or not config.is_controller:
        return _id_of_quorum([f"{voter.node_id}@{voter.host}:{voter.port}" for voter in voters])
    return uuid_to_text(rng.randbytes(16))


def _id_of_quorum(voters: list[str]) -> str:
    """The cluster id that every node makes of the same voters, in whatever order they are named."""
    digest = hashlib.sha256(",".join(sorted(voters)).encode()).digest()
    return uuid_to_text(bytes([digest[0] & 0x7F]) + digest[1:16])
