"""A voter's remains as an operator sees them, and the word that has it vote."""

from __future__ import annotations

import pytest

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.checkpoints import MetaProperties, write_meta_properties
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.broker.node.quorum_recovery import recover_quorum
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch
from tests.support.memory_files import MemoryFileSystem

DIRECTORY = "/data/__cluster_metadata-0"
DIRECTORY_ID = b"\x05" * 16
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


def config(node_id: int = 2, role: str = "controller") -> BrokerConfig:
    name = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    properties = {
        "node.id": str(node_id),
        "process.roles": role,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{name}://localhost:9093",
        "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
        "log.dirs": "/data",
    }
    return BrokerConfig(properties, host_name=lambda: "localhost")


def voter(*, state: ElectionState | None, records: int) -> MemoryFileSystem:
    """A disk of node 2 with an election state and some records of epoch 4."""
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    fs.sync_directory("/")
    write_meta_properties(fs, "/data", MetaProperties(CLUSTER_ID, 2, DIRECTORY_ID))
    log = MetadataLog(fs, DIRECTORY)
    log.append([LogBatch(offset, 4, 0, (b"x",)) for offset in range(records)])
    log.flush()
    log.close()
    if state is not None:
        QuorumStateFile(fs, DIRECTORY, DIRECTORY_ID).write(state, (1, 2, 3))
    return fs


def stored(fs: MemoryFileSystem) -> ElectionState | None:
    return QuorumStateFile(fs, DIRECTORY, DIRECTORY_ID).read()


def test_a_voter_that_remembers_is_left_alone() -> None:
    """There is nothing to recover, whatever is accepted."""
    state = ElectionState(5, 1, 3, is_proven=True, committed_offset=2)
    fs = voter(state=state, records=3)
    is_proven, lines = recover_quorum(fs, config(), accept_loss=True)
    assert is_proven
    assert f"cluster {CLUSTER_ID}" in lines[0]
    assert lines[1:3] == [
        "election state: epoch 5, voted for 3",
        "metadata log: ends at offset 3 of epoch 4",
    ]
    assert "nothing to recover" in lines[-1]
    assert stored(fs) == state


@pytest.mark.parametrize(
    ("state", "records", "after"),
    [
        (None, 0, ElectionState(0, is_proven=True)),
        (None, 3, ElectionState(4, is_proven=True)),
        (
            ElectionState(7, -1, 1, is_proven=True, committed_offset=9),
            3,
            ElectionState(7, -1, 1, is_proven=True, committed_offset=3),
        ),
        (ElectionState(7, is_proven=False), 3, ElectionState(7, is_proven=True)),
    ],
    ids=["nothing", "no state", "less than was committed", "catching up"],
)
def test_a_voter_without_memory_votes_once_the_loss_is_accepted(
    state: ElectionState | None, records: int, after: ElectionState
) -> None:
    """Before that nothing is changed, and what may be lost is printed."""
    fs = voter(state=state, records=records)
    is_proven, lines = recover_quorum(fs, config(), accept_loss=False)
    assert not is_proven
    assert stored(fs) == state
    assert f"reaches offset {records} of epoch" in "\n".join(lines)
    is_lost = state is not None and state.committed_offset > records
    assert any("the records 3 to 8" in line for line in lines) is is_lost
    assert recover_quorum(fs, config(), accept_loss=True)[0]
    assert stored(fs) == after
    assert recover_quorum(fs, config(), accept_loss=False)[0] is (records > 0)


def test_only_a_voter_that_is_stopped_is_recovered() -> None:
    """A running node holds its folder; a broker does not vote."""
    fs = voter(state=None, records=0)
    with pytest.raises(StartError, match=r"node 9 is not in controller\.quorum\.voters"):
        recover_quorum(fs, config(9, "broker"), accept_loss=True)
    lock = fs.lock("/data/.lock")
    with pytest.raises(StartError, match="stop the node first"):
        recover_quorum(fs, config(), accept_loss=True)
    lock.release()
    fs.fail("read", f"{DIRECTORY}/quorum-state")
    with pytest.raises(StartError, match="cannot use"):
        recover_quorum(fs, config(), accept_loss=True)
