"""Which cluster a node's folders belong to, and when that is written to them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.checkpoints import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.storage import NodeStorage
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError
from kraftrio.kraft_meta.raft.values import ElectionState
from tests.support.memory_files import MemoryFileSystem

A, B = "AAAAAAAAAAAAAAAAAAAAAg", "BBBBBBBBBBBBBBBBBBBBBB"


def new_fs(**owners: str) -> MemoryFileSystem:
    """A disk with folders a and b, of which some belong to a cluster."""
    fs = MemoryFileSystem()
    for name in ("a", "b"):
        fs.make_directory(f"/{name}")
        if name in owners:
            owner = MetaProperties(owners[name], 1, name.encode() * 16)
            write_meta_properties(fs, f"/{name}", owner)
    fs.sync_directory("/")
    return fs


OF_B: dict[str, Any] = {"kraftrio.cluster.id": B}


def open_storage(fs: MemoryFileSystem, *, seed: int = 1, **settings: Any) -> NodeStorage:
    properties = {
        "node.id": "1",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@localhost:9093",
        "log.dirs": "/a,/b",
        **settings,
    }
    config = BrokerConfig(properties, host_name=lambda: "localhost")
    return NodeStorage(config, Environment(fs=fs, rng=Random(seed)))


def owners_of(fs: MemoryFileSystem) -> list[str | None]:
    found = [read_meta_properties(fs, path) for path in ("/a", "/b")]
    return [None if owner is None else owner.cluster_id for owner in found]


def test_new_folders_wait_for_the_quorums_word() -> None:
    """They belong to nobody until it is known which cluster this is."""
    fs = new_fs()
    storage = open_storage(fs)
    assert not storage.identity.is_known
    assert owners_of(fs) == [None, None]
    storage.identity.learn(A, "the metadata log")
    storage.format()
    assert owners_of(fs.after_crash()) == [A, A]


def test_a_folder_without_an_owner_keeps_its_id() -> None:
    """A kill between the first vote and the owner's name: the vote is still this folder's."""
    fs = new_fs()
    first = open_storage(fs)
    state = ElectionState(3, -1, 9, is_proven=True)
    first.election_store.write(state, [1, 2, 3])
    killed = fs.after_crash()
    second = open_storage(killed, seed=2)
    assert second.directory_id == first.directory_id
    assert second.election_store.read() == state
    second.identity.learn(A, "the metadata log")
    second.format()
    owner = read_meta_properties(killed, "/a")
    assert owner is not None
    assert owner.directory_id == first.directory_id


def test_a_vote_of_another_folder_proves_nothing() -> None:
    """The metadata log of another voter was copied here."""
    fs = new_fs(a=A)
    first = open_storage(fs)
    first.election_store.write(ElectionState(3, is_proven=True), [1, 2, 3])
    first.release()
    write_meta_properties(fs, "/a", MetaProperties(A, 1, b"other" + bytes(11)))
    stored = open_storage(fs).election_store.read()
    assert stored == ElectionState(3, is_proven=False)


@pytest.mark.parametrize("setting", [{}, {"kraftrio.cluster.id": A}])
def test_a_new_folder_beside_others_takes_their_cluster(setting: dict[str, Any]) -> None:
    """At once: it is known."""
    fs = new_fs(b=A)
    storage = open_storage(fs, **setting)
    assert storage.identity.cluster_id == A
    assert owners_of(fs) == [A, A]


def test_the_configured_id_is_a_guard() -> None:
    """Folders of another cluster are refused, with both ids and the file."""
    with pytest.raises(StartError) as refused:
        open_storage(new_fs(a=A), **OF_B)
    assert str(refused.value) == (
        f"kraftrio.cluster.id names cluster {B}, but /a/meta.properties is of cluster {A}"
    )
    fs = new_fs()
    open_storage(fs, **OF_B)
    assert owners_of(fs) == [B, B]


def test_folders_of_two_clusters_are_refused() -> None:
    """With both files."""
    with pytest.raises(StartError, match=r"/a/meta.properties names .* /b/meta.properties is of"):
        open_storage(new_fs(a=A, b=B))


def test_an_identity_is_learnt_once() -> None:
    """Then it admits requests that name it, or none."""
    identity = ClusterIdentity()
    assert identity.on_wire is None
    assert identity.admits(A) and identity.admits(None)
    identity.learn(A, "the metadata log")
    identity.learn(A, "somebody")
    assert identity.on_wire == A
    assert identity.admits(A) and identity.admits(None) and not identity.admits(B)
    with pytest.raises(ClusterIdError, match=f"the metadata log names cluster {A}, but x is of"):
        identity.learn(B, "x")
