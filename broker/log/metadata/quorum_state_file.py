"""The election state of a voter as Kafka's quorum-state file, beside the metadata log."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.log.metadata.names import MetadataLogError
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState
from kraftrio.wire.primitives import ZERO_UUID, uuid_from_text, uuid_to_text

QUORUM_STATE: Final = "quorum-state"

_NO_DIRECTORY: Final = uuid_to_text(ZERO_UUID)


class QuorumStateFile:
    """The election state as Kafka's quorum-state file, in a directory that MetadataLog has made.

    Ours has two fields more: whether the voter may be believed, and the log directory that this was
    written for. A write is durable when it returns.
    """

    def __init__(self, fs: FileSystem, directory: str, directory_id: bytes = ZERO_UUID) -> None:
        self._fs = fs
        self._path = posixpath.join(directory, QUORUM_STATE)
        self._directory_id = directory_id

    def read(self) -> ElectionState | None:
        """Return what was stored, None for a new node. Raises MetadataLogError.

        What was written for another log directory proves nothing here (voter_memory.py).
        """
        found = self._read()
        if found is None:
            return None
        state, directory_id = found
        if directory_id not in (None, self._directory_id):
            return replace(state, is_proven=False)
        return state

    def directory_id(self) -> bytes | None:
        """Return the log directory that the state was written for, None: not known."""
        found = self._read()
        return None if found is None else found[1]

    def _read(self) -> tuple[ElectionState, bytes | None] | None:
        try:
            data = self._fs.read_file(self._path)
        except FileNotFoundError:
            return None
        try:
            content = json.loads(data)
            is_proven = content.get("isProven")
            state = ElectionState(
                epoch=int(content["leaderEpoch"]),
                leader_id=int(content.get("leaderId", NO_NODE)),
                voted_id=int(content.get("votedId", NO_NODE)),
                is_proven=None if is_proven is None else bool(is_proven),
                committed_offset=int(content.get("appliedOffset", 0)),
            )
            directory_id = uuid_from_text(content.get("directoryId") or _NO_DIRECTORY)
            return state, None if directory_id == ZERO_UUID else directory_id
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MetadataLogError(f"{self._path} is damaged: {error!r}") from error

    def write(self, state: ElectionState, voter_ids: Sequence[int]) -> None:
        """Replace the file atomically and durably."""
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": state.committed_offset,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "isProven": state.is_proven,
            "directoryId": uuid_to_text(self._directory_id),
            "data_version": 0,
        }
        data = json.dumps(content, separators=(",", ":")).encode()
        write_atomically(self._fs, self._path, data)
