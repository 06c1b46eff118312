"""Every call of the file system in what the log manager does fails once, for each reason.

A directory without room (ENOSPC, EMFILE) stays online, and what was asked works when it is asked
again; one that fails (EIO) goes offline until the next start. Either way nothing of a log is lost,
nothing of a deleted topic turns up in the next one of that name, the logs in service are just those
on disk, and no file stays open.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from kraftrio.base.no_room import NO_ROOM
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.directories import parse_directory_name
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import NOW_MS, batch, load_all, records_of
from tests.support.memory_files import FailedCall, MemoryFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
KEPT, OTHER = TopicPartition("kept", 0), TopicPartition("other", 0)
KEPT_ID, OLD_ID, NEW_ID = b"1" * 16, b"2" * 16, b"3" * 16
CONFIG = LogConfig(segment_bytes=300)
CODES = [errno.EMFILE, errno.ENOSPC, errno.EIO]


def values(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    for scanned in log.batches(log.log_start_offset):
        records = records_of(bytes(scanned.buffer)[scanned.header.position :][:1000])
        found += [r.value for r in records[:1] if r.offset >= log.log_start_offset]
    return found


class Node:
    """A log manager over several lives; `kept` has records, `other` comes and goes."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.ids = 0
        self.kept: list[bytes] = []
        self.other: list[bytes] = []
        self.other_id = OLD_ID
        self.manager = self.start()
        for number in range(10):
            self.append(KEPT, b"kept %d" % number)
            self.append(OTHER, b"old %d" % number)
        log = self.manager.get_log(OTHER)
        assert log is not None
        log.delete_records_before(6)
        del self.other[:6]
        self.manager.write_checkpoints()

    def start(self) -> LogManager:
        self.manager = LogManager(self.fs, ["/a"], new_id=self._new_id)
        load_all(self.manager, self.manager.start(CLUSTER, 1), NOW_MS, CONFIG)
        return self.manager

    def _new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def log(self, tp: TopicPartition) -> PartitionLog:
        topic_id = KEPT_ID if tp == KEPT else self.other_id
        return self.manager.get_or_create_log(tp, topic_id, CONFIG, NOW_MS)

    def append(self, tp: TopicPartition, value: bytes) -> None:
        log = self.log(tp)
        log.append_as_leader(batch(value), 0, NOW_MS)
        log.update_high_watermark(log.log_end_offset)
        (self.kept if tp == KEPT else self.other).append(value)


Step = Callable[[Node], None]


def create(node: Node) -> None:
    node.manager.get_or_create_log(TopicPartition("new", 0), b"4" * 16, CONFIG, NOW_MS)


def delete(node: Node) -> None:
    node.other_id = NEW_ID
    node.other.clear()
    node.manager.delete_log(OTHER, NOW_MS)


def delete_and_recreate(node: Node) -> None:
    delete(node)
    node.append(OTHER, b"new 0")
    node.append(OTHER, b"new 1")


def recreate_while_down(node: Node) -> None:
    """The topic was deleted and made again while this broker was down."""
    node.other_id = NEW_ID
    node.other.clear()
    node.append(OTHER, b"new 0")


def set_aside(node: Node) -> None:
    node.other_id = NEW_ID
    node.other.clear()
    node.manager.set_aside(OTHER)


def remove_deleted(node: Node) -> None:
    delete(node)
    node.manager.remove_deleted(NOW_MS + 10**9)


def save(node: Node) -> None:
    node.append(KEPT, b"saved")
    node.manager.write_checkpoints()


def retain(node: Node) -> None:
    node.manager.retain(NOW_MS)


def truncate(node: Node) -> None:
    del node.kept[4:]
    try:
        node.manager.truncate(node.log(KEPT), 4)
    except OSError as error:
        node.manager.fail_log(node.log(KEPT), error)
        node.fs.heal()
        if error.errno in NO_ROOM:
            node.manager.truncate(node.log(KEPT), 4)
        else:  # what the follower does once the directory is back
            node.manager.release()
            node.start()
            node.manager.truncate(node.log(KEPT), 4)


def stop_and_start(node: Node) -> None:
    node.manager.close(broker_epoch=5)
    node.start()


STEPS: list[Step] = [
    create, delete, delete_and_recreate, recreate_while_down, set_aside, remove_deleted, save,
    retain, truncate, stop_and_start,
]  # fmt: skip


def failed_once(step: Step, code: int) -> Iterator[tuple[str, Node]]:
    for number in range(1, 1000):
        node = Node()
        call = FailedCall(number, code)
        node.fs.failed_call = call
        try:
            step(node)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        except LogDirError:
            assert step is stop_and_start
        except OSError as error:
            assert call.place in str(error)  # of an append, which the replica manager answers
            node.manager.fail_dir(node.manager.dirs[0], error)
        node.fs.heal()
        if not call.place:
            assert number > 1
            return
        yield f"{errno.errorcode[code]} of {call.place}", node
    raise AssertionError("the step does not end")


def check(node: Node, where: str) -> None:
    """What is in service is what is on disk, and is right."""
    manager = node.manager
    assert values(node.log(KEPT)) == node.kept, where
    other = manager.get_log(OTHER)
    if other is not None and other.topic_id == node.other_id:
        assert values(other) == node.other, where
    on_disk = {tp for name in node.fs.list_directory("/a") if (tp := parse_directory_name(name))}
    assert {log.topic_partition for log in manager.logs()} == on_disk, where
    for log in manager.logs():
        assert log.recovery_point <= log.log_end_offset, where


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_one_call_fails(step: Step, code: int) -> None:
    """See the module; ends with a stop and a kill by turns, the other way round by each reason."""
    for number, (where, node) in enumerate(failed_once(step, code)):
        is_online = node.manager.dirs[0].is_online
        assert is_online or code not in NO_ROOM or step is stop_and_start, where
        if not is_online or not node.manager.dirs[0].is_loaded:
            node.manager.release()
            node.start()
            if step is set_aside:
                set_aside(node)  # as every start does with what the metadata does not know
        node.append(KEPT, b"after")
        node.append(OTHER, b"other after")
        check(node, where)
        node.manager.remove_deleted(NOW_MS + 10**9)
        node.manager.write_checkpoints()
        node.append(OTHER, b"not saved")
        if (number + CODES.index(code)) % 2:
            node.manager.close()
        node.manager.release()
        lock = "/a/.lock"
        assert {f._path for f in node.fs.open_files if f._path != lock} == set(), where
        node.start()
        check(node, where)
        assert values(node.log(OTHER)) == node.other, where
        if step is set_aside:
            logs = [path for path in node.fs.files if "-stray/" in path and path.endswith(".log")]
            assert any(b"old 9" in node.fs.read_file(path) for path in logs), where
