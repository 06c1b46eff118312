"""Recovery of a quorum: what is left of a voter, and letting it vote on an operator's decision.

In a quorum whose majority lost its disks for good no voter can vouch for the others
(kraft_meta/raft/voter_memory.py), so it stays without a leader. `recover_quorum` describes what one
voter's directory still has, and what may be lost if it votes; it may then let it vote from its next
start. Rules:
1. The node must not run: the directory is locked meanwhile.
2. Nothing is deleted or added but the voter's mark; the log that is elected then decides.

Called by: the command line (`kraftrio recover-quorum`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kraftrio.base.start_errors import StartError, reason
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.checkpoints import (
    LOCK_FILE,
    CheckpointError,
    MetaProperties,
    read_meta_properties,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.manager.directories import METADATA_DIRECTORY
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.names import MetadataLogError
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.values import ElectionState, OffsetAndEpoch
from kraftrio.wire.primitives import ZERO_UUID


@dataclass(frozen=True, slots=True)
class VoterRemains:
    """What a voter's directory holds.

    Attributes:
        state: the election state, None if that is gone.
        log_end: where the metadata log ends.
        is_proven: it votes at its next start without an operator's decision.
    """

    node_id: int
    directory: str
    owner: MetaProperties | None
    state: ElectionState | None
    log_end: OffsetAndEpoch
    is_proven: bool

    @property
    def committed_offset(self) -> int:
        """The end of what was committed, as far as this voter knows."""
        return self.state.committed_offset if self.state is not None else 0

    def lines(self) -> Iterator[str]:
        """Describe it to an operator."""
        cluster = "no cluster yet" if self.owner is None else f"cluster {self.owner.cluster_id}"
        yield f"node {self.node_id} of {cluster}, metadata log in {self.directory}"
        if self.state is None:
            yield "election state: gone"
        else:
            yield f"election state: epoch {self.state.epoch}, voted for {self.state.voted_id}"
        yield f"metadata log: ends at offset {self.log_end.offset} of epoch {self.log_end.epoch}"
        if self.committed_offset > self.log_end.offset:
            yield (
                f"lost: at least the records {self.log_end.offset} to {self.committed_offset - 1},"
                " which were committed, are not here any more"
            )

    def risks(self) -> Iterator[str]:
        """Say what an operator accepts by letting it vote."""
        offset, epoch = self.log_end
        yield (
            f"If it is believed, it votes for any voter whose log reaches offset {offset} of epoch"
            f" {epoch}."
        )
        yield (
            "Lost for good is every change of the metadata (topics, settings, members of ISRs)"
            " beyond the end of the log that is elected, and what partitions hold that their"
            " leaders by that metadata do not have."
        )
        yield (
            "So bring back first whatever voter still has its log, and do this only where a"
            " majority of them is lost."
        )


@contextmanager
def _locked(fs: FileSystem, config: BrokerConfig) -> Iterator[str]:
    directory = posixpath.join(config.metadata_log_dir, METADATA_DIRECTORY)
    try:
        fs.make_directory(directory)
        lock = fs.lock(posixpath.join(config.metadata_log_dir, LOCK_FILE))
    except BlockingIOError:
        raise StartError(f"{config.metadata_log_dir} is in use: stop the node first") from None
    except OSError as error:
        raise StartError(f"cannot use {config.metadata_log_dir}: {reason(error)}") from error
    try:
        yield directory
    except (OSError, MetadataLogError, CheckpointError) as error:
        raise StartError(f"cannot use {directory}: {reason(error)}") from error
    finally:
        lock.release()


def _state_file(fs: FileSystem, directory: str, owner: MetaProperties | None) -> QuorumStateFile:
    known_id = QuorumStateFile(fs, directory).directory_id() or ZERO_UUID
    return QuorumStateFile(fs, directory, known_id if owner is None else owner.directory_id)


def recover_quorum(
    fs: FileSystem, config: BrokerConfig, *, accept_loss: bool
) -> tuple[bool, list[str]]:
    """Describe a voter and, if the loss is accepted, let it vote.

    Returns:
        whether it votes at its next start, and the lines to show the operator.

    Raises:
        StartError: it is not a voter, it runs, or its directory cannot be used.
    """
    if config.node_id not in (voter.node_id for voter in config.controller_quorum_voters):
        raise StartError(f"node {config.node_id} is not in controller.quorum.voters")
    remains = inspect_voter(fs, config)
    lines = list(remains.lines())
    if remains.is_proven:
        return True, [*lines, "It has what it promised: there is nothing to recover here."]
    lines += remains.risks()
    if not accept_loss:
        return False, [*lines, "Nothing was changed. To have it vote, add --accept-loss."]
    declare_proven(fs, config, remains)
    return True, [*lines, "It votes and counts from its next start."]


def inspect_voter(fs: FileSystem, config: BrokerConfig) -> VoterRemains:
    """Find out what is left of this node as a voter. Raises StartError."""
    with _locked(fs, config) as directory:
        owner = read_meta_properties(fs, config.metadata_log_dir)
        state = _state_file(fs, directory, owner).read()
        log = MetadataLog(fs, directory, segment_bytes=config.metadata_log_segment_bytes)
        try:
            epochs = EpochStarts(
                log.epoch_starts(),
                log.log_start_offset,
                log.log_end_offset,
                log.latest_snapshot_id(),
            )
        finally:
            log.close()
    committed = 0 if state is None else state.committed_offset
    is_marked = state is not None and state.is_proven is not False
    return VoterRemains(
        config.node_id,
        directory,
        owner,
        state,
        epochs.end,
        is_marked and epochs.log_end_offset >= max(committed, 1),
    )


def declare_proven(fs: FileSystem, config: BrokerConfig, remains: VoterRemains) -> None:
    """Let the voter vote and count from its next start. Raises StartError."""
    state = remains.state if remains.state is not None else ElectionState()
    if state.epoch < remains.log_end.epoch:
        state = ElectionState(remains.log_end.epoch)
    proven = replace(
        state,
        is_proven=True,
        committed_offset=min(remains.committed_offset, remains.log_end.offset),
    )
    voters = [voter.node_id for voter in config.controller_quorum_voters]
    with _locked(fs, config) as directory:
        _state_file(fs, directory, remains.owner).write(proven, voters)
