"""The two folders of a run: whether they can be used, and whether they belong together.

The checkpoint holds Spark's offsets and state, the output the results that were made of them. One
without the other is worth nothing, and with another cluster's topics the offsets mean other
records. So both carry a mark (`_pipeline.json`) with the same id, the checkpoint's also the ids of
cluster and topics, and `open_folders` refuses what does not fit. A lock in each keeps a second run
out; it ends with the process, however that dies.

Called by: `query`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.wire.primitives import TopicPartition

MARK_NAME: Final = "_pipeline.json"
LOCK_NAME: Final = "_lock"
LOG_NAME: Final = "_spark.log"
PROGRESS_NAME: Final = "_progress.jsonl"


@dataclass(frozen=True, slots=True)
class Folders:
    """Two folders that belong together, by the id that both carry."""

    output: Path
    checkpoint: Path
    id: str

    @property
    def log(self) -> Path:
        """Where Spark's own output goes."""
        return self.output / LOG_NAME

    @property
    def progress(self) -> Path:
        """Where the batches are noted, one line of JSON each."""
        return self.output / PROGRESS_NAME

    def unsure_since_ms(self) -> int | None:
        """Return when the batch began that is noted but not done; None if there is none."""
        offsets, commits = (_numbered(self.checkpoint / name) for name in ("offsets", "commits"))
        if not offsets or offsets[-1] in commits:
            return None
        text = (self.checkpoint / "offsets" / str(offsets[-1])).read_text(errors="replace")
        for line in text.splitlines()[1:2]:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["batchTimestampMs"])
        return 0

    def done_offsets(self) -> dict[TopicPartition, int]:
        """Return where the last batch that is done ended in each partition."""
        commits = _numbered(self.checkpoint / "commits")
        path = self.checkpoint / "offsets" / str(commits[-1] if commits else "")
        if not path.is_file():
            return {}
        found: dict[TopicPartition, int] = {}
        for line in path.read_text(errors="replace").splitlines()[2:]:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                for topic, partitions in json.loads(line).items():
                    for partition, offset in partitions.items():
                        found[TopicPartition(topic, int(partition))] = int(offset)
        return found


@contextlib.contextmanager
def open_folders(
    output: Path, checkpoint: Path, cluster_id: str, topic_ids: Mapping[str, str]
) -> Iterator[Folders]:
    """Lock two folders while the body runs, and check that they belong to each other.

    Raises:
        PipelineError: they cannot be used, are in use, or belong to something else.
    """
    if output.resolve() == checkpoint.resolve():
        raise PipelineError("--output and --checkpoint must be two folders")
    with contextlib.ExitStack() as stack:
        for path in (output, checkpoint):
            stack.enter_context(_locked(path))
        mark = _check_marks(output, checkpoint, {"cluster": cluster_id, "topics": dict(topic_ids)})
        yield Folders(output, checkpoint, mark["id"])


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except FileExistsError:
        raise PipelineError(f"{folder} is a file, not a folder") from None
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise PipelineError(f"another run is using {folder}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _check_marks(output: Path, checkpoint: Path, source: dict[str, Any]) -> dict[str, Any]:
    """Return the checkpoint's mark, of which the output has the id."""
    mark = _read_mark(checkpoint)
    if mark is None:
        others = [path for path in checkpoint.iterdir() if path.name != LOCK_NAME]
        if others:
            raise PipelineError(f"{checkpoint} is not empty and no checkpoint of this pipeline")
        if next(output.glob("date=*"), None) is not None:
            raise PipelineError(
                f"{output} has the results of another checkpoint; give that or another --output"
            )
        mark = {"id": uuid.uuid4().hex, **source}
        _write_mark(output, {"id": mark["id"]})
        _write_mark(checkpoint, mark)
        return mark
    if mark.get("cluster") != source["cluster"]:
        raise PipelineError(f"the checkpoint {checkpoint} belongs to another cluster")
    if mark.get("topics") != source["topics"]:
        raise PipelineError(
            f"the checkpoint {checkpoint} belongs to topics that were deleted since;"
            " start over with another --checkpoint and --output"
        )
    belonging = _read_mark(output)
    if belonging is None or belonging.get("id") != mark.get("id"):
        raise PipelineError(f"the checkpoint {checkpoint} belongs to another output than {output}")
    if (checkpoint / "offsets").is_dir() and not (checkpoint / "metadata").is_file():
        raise PipelineError(f"the checkpoint {checkpoint} is damaged: its metadata is missing")
    for name in ("offsets", "commits"):
        _check_log(checkpoint, name)
    offsets, commits = (_numbered(checkpoint / name) for name in ("offsets", "commits"))
    if commits and commits[-1] not in offsets:
        raise PipelineError(f"the checkpoint {checkpoint} is damaged: its offsets are missing")
    return mark


def _check_log(checkpoint: Path, name: str) -> None:
    """Refuse a log of batches whose last entry Spark could not read."""
    numbers = _numbered(checkpoint / name)
    if not numbers:
        return
    path = checkpoint / name / str(numbers[-1])
    try:
        version, *lines = path.read_text("utf-8").splitlines()
        is_good = version.startswith("v") and all(
            isinstance(json.loads(line), dict) for line in lines if line != "-"
        )
    except (OSError, ValueError):
        is_good = False
    if not is_good:
        raise PipelineError(
            f"the checkpoint {checkpoint} is damaged: {path} cannot be read;"
            " start over with another --checkpoint and --output"
        )


def _numbered(folder: Path) -> list[int]:
    """Return the batches that a log of a checkpoint has, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def _read_mark(folder: Path) -> dict[str, Any] | None:
    path = folder / MARK_NAME
    try:
        mark = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        mark = None
    if not isinstance(mark, dict):
        raise PipelineError(f"{path} is damaged")
    return mark


def _write_mark(folder: Path, mark: dict[str, Any]) -> None:
    path = folder / MARK_NAME
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(mark) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {error.strerror}") from error
