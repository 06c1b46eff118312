"""`kraftrio log` on a recorded directory of Apache Kafka: what it prints, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.commands.logs import log
from kraftrio.commands.tree import main
from kraftrio.wire.records.batch import iter_headers, iter_records
from tests.unit.wire.batches import LOG_DIRS

FIRST = "00000000000000000000"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """Run a command and return what it printed; a failure is one sentence."""
    assert log.name == "log"
    assert main(["log", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    if status:
        assert captured.err.count("\n") == 1
    return captured.out + captured.err


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_verify_a_sound_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "verify", LOG_DIRS) == (
        "20 partitions with 24 segments, 34.8 kB: nothing is damaged\n"
    )
    assert printed(capsys, "verify", LOG_DIRS, "--json") == ""


def test_verify_a_damaged_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copy = tmp_path / "plain-1"
    shutil.copytree(LOG_DIRS / "plain-1", copy)
    path = copy / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    text = printed(capsys, "verify", copy, status=1)
    assert f"{path}" in text
    assert text.endswith(
        "kraftrio: 1 files are damaged; looked at were 1 partitions with 1 segments, 212 B\n"
    ), text
    assert main(["log", "verify", str(copy), "--json"]) == 1
    (row,) = rows(capsys.readouterr().out)
    assert (row["path"], row["offset"], row["position"]) == (str(path), 0, 0)


def test_a_running_broker_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(LOG_DIRS / "plain-1", tmp_path / "plain-1")
    lock = OsFileSystem().lock(str(tmp_path / ".lock"))
    assert "a broker runs on" in printed(capsys, "verify", tmp_path)
    lock.release()
    assert "a broker runs on" not in printed(capsys, "verify", tmp_path)


def test_stats(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["topic"]: row for row in rows(printed(capsys, "stats", LOG_DIRS, "--json"))}
    assert found["codec-gzip"]["records"] == found["codec-gzip"]["keys"] == 10
    assert found["codec-gzip"]["compression"] == {"gzip": 226}
    assert found["plain"]["partitions"] == 2
    assert found["plain"]["null_keys"] == sum(
        record.key is None
        for name in (f"plain-0/{FIRST}", f"plain-0/{'6'.zfill(20)}", f"plain-1/{FIRST}")
        for data in [(LOG_DIRS / f"{name}.log").read_bytes()]
        for header in iter_headers(data)
        for record in iter_records(data, header)
    )
    assert found["txn"]["damaged_bytes"] == 0
    assert "codec-zstd" in printed(capsys, "stats", LOG_DIRS)


def test_dump_of_batches_and_records(capsys: pytest.CaptureFixture[str]) -> None:
    batches = rows(printed(capsys, "dump", LOG_DIRS / "rolled-0", "--json"))
    assert [batch["base_offset"] for batch in batches] == [0, 1, 2]
    records = rows(printed(capsys, "dump", LOG_DIRS / "txn-0", "--records", "--json"))
    assert records[0]["value"] == "committed-0"
    assert [record["offset"] for record in records if record["control"]]
    text = printed(capsys, "dump", LOG_DIRS / "txn-0" / f"{FIRST}.log")
    assert text.startswith("position=0 size_bytes=121 base_offset=0 last_offset=2 records=3 ")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        (f"indexed-0/{FIRST}.index", "offset=2 position=318"),
        (f"txn-0/{FIRST}.timeindex", "timestamp=1795818038636 offset=16"),
        (f"txn-0/{FIRST}.txnindex", "producer_id=1 first_offset=4 last_offset=6 last_stable"),
        (f"plain-1/{'5'.zfill(20)}.snapshot", "producer_id=0 producer_epoch=0 last_sequence=4"),
        ("plain-0/leader-epoch-checkpoint", "epoch=0 start_offset=0"),
        ("recovery-point-offset-checkpoint", "topic="),
    ],
)
def test_dump_of_other_files(capsys: pytest.CaptureFixture[str], name: str, first: str) -> None:
    assert printed(capsys, "dump", LOG_DIRS / name).startswith(first)


def test_what_cannot_be_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / f"{FIRST}.snapshot").write_bytes(b"x")
    for arguments, sentence in (
        (("verify", tmp_path / "nothing"), "nothing is not a directory"),
        (("stats", tmp_path / "empty"), "no log of a partition lies in"),
        (("dump", tmp_path / "nothing"), "there is no file"),
        (("dump", LOG_DIRS / "meta.properties"), "is not one of the files of a log"),
        (("dump", tmp_path / f"{FIRST}.snapshot"), "is damaged: a producer snapshot is incomplete"),
    ):
        assert sentence in printed(capsys, *arguments, status=1)
