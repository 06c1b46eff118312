"""The disks of a node, opened and locked: log directories, metadata log, election state.

Owns: `NodeStorage`. Rules:
1. A directory belongs to one cluster and one node, as its `meta.properties` says; a new directory
   is formatted with the cluster id of the others, or with the one configured (kraftrio.cluster.id,
   which is a guard besides: directories of another cluster are refused).
2. Where neither is known, directories are formatted (`format`) once the id is known from the
   metadata quorum. Until then the directory of the metadata log has the id that its election
   state names, so that a kill in between changes nothing.
3. Storage of Apache Kafka is refused untouched, since its metadata cannot be read here.

Called by: `node`.
"""

from __future__ import annotations

import posixpath

from kraftrio.base.start_errors import StartError, reason
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.checkpoints import (
    META_PROPERTIES,
    CheckpointError,
    read_meta_properties,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.manager.directories import METADATA_DIRECTORY
from kraftrio.broker.log.manager.log_dir import PendingLog
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.metadata.foreign_records import holds_foreign_records
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.names import MetadataLogError
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.broker.node.environment import Environment
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError
from kraftrio.wire.primitives import ZERO_UUID


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
        self.identity = _known_identity(fs, config)
        self._node_id = config.node_id
        self.pending_logs = self._open_log_dirs(fs, config)
        self.metadata_log = self._open_metadata_log(fs, config)
        self.directory_id = self._metadata_directory_id(config)
        self.election_store = QuorumStateFile(fs, self.metadata_directory, self.directory_id)

    def format(self) -> None:
        """Write the cluster id to the directories that have none yet; blocks."""
        self.log_manager.dirs.format(self.identity.cluster_id, self._node_id)

    def release(self) -> None:
        """Unlock and close everything, without calling it a clean stop."""
        self.log_manager.release()
        self.metadata_log.close()

    def _refuse_foreign_metadata(self, fs: FileSystem, config: BrokerConfig) -> None:
        try:
            is_foreign = holds_foreign_records(fs, self.metadata_directory)
        except OSError:
            return  # opening the directory reports why it cannot be used
        if is_foreign:
            raise StartError(
                f"{config.metadata_log_dir} was written by Apache Kafka: kraftrio cannot take"
                " over its metadata log, so start with an empty data directory"
            )

    def _open_log_dirs(self, fs: FileSystem, config: BrokerConfig) -> list[PendingLog]:
        try:
            voted_in = QuorumStateFile(fs, self.metadata_directory).directory_id()
        except (OSError, MetadataLogError):
            voted_in = None  # opening the file reports why it cannot be used
        known_ids = {config.metadata_log_dir: voted_in} if voted_in else {}
        try:
            return self.log_manager.start(self.identity.cluster_id, config.node_id, known_ids)
        except LogDirError as error:
            self.log_manager.release()
            raise StartError(str(error)) from error

    def _metadata_directory_id(self, config: BrokerConfig) -> bytes:
        """The id of the metadata log's directory; zero where it is no log directory."""
        for log_dir in self.log_manager.dirs:
            if log_dir.path == config.metadata_log_dir:
                return log_dir.directory_id
        return ZERO_UUID

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


def _known_identity(fs: FileSystem, config: BrokerConfig) -> ClusterIdentity:
    """The cluster that the configuration or the directories name, if any does."""
    identity = ClusterIdentity(config.kraftrio_cluster_id, "kraftrio.cluster.id")
    for directory in dict.fromkeys((config.metadata_log_dir, *config.log_dirs)):
        try:
            found = read_meta_properties(fs, directory)
        except CheckpointError as error:
            raise StartError(f"cannot understand {directory}: {error}") from error
        except OSError as error:
            if directory != config.metadata_log_dir:
                continue  # offline: reported when the directories are opened
            raise StartError(f"cannot use {directory}: {reason(error)}") from error
        if found is not None:
            try:
                identity.learn(found.cluster_id, posixpath.join(directory, META_PROPERTIES))
            except ClusterIdError as error:
                raise StartError(str(error)) from error
    return identity
