"""What Spark reports of a finished batch, in the pipeline's own words.

Owns `MicroBatch`, read from Spark's progress report, its line for the terminal, and the file of all
batches, which the report reads. Spark counts each record once per scan of the plan; how many there
were, the offsets show.

Pure but for `append` and `read_batches`. Called by: `query`, `report`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kraftrio.wire.primitives import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class BatchCounts:
    """What came out of one batch."""

    results: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch; times are ISO 8601 in UTC."""

    batch: int
    run: str
    begun: str
    seconds: float
    records: int
    lag: int
    watermark: str | None
    results: int
    malformed: int
    late: int

    @property
    def records_per_s(self) -> float:
        """Throughput over the whole batch, its results put out."""
        return self.records / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """Return the status line."""
        watermark = "-" if self.watermark is None else self.watermark[:16] + "Z"
        parts = [
            f"batch {self.batch}",
            f"{self.records:,} records",
            f"{self.records_per_s:,.0f} rows/s",
            f"lag {self.lag:,}",
            f"watermark {watermark}",
            f"{self.results:,} results",
        ]
        if self.malformed:
            parts.append(f"{self.malformed:,} malformed")
        if self.late:
            parts.append(f"{self.late:,} too late")
        return "  ".join(parts)


def is_batch(progress: Mapping[str, Any]) -> bool:
    """Return whether a progress report is of a batch, not of waiting for one."""
    return "addBatch" in progress["durationMs"]


def ends_of(progress: Mapping[str, Any]) -> Offsets:
    """Return where a batch ended in each partition of the sources."""
    ended: Offsets = {}
    for source in progress["sources"]:
        ended |= _offsets(source["endOffset"])
    return ended


def read_progress(
    progress: Mapping[str, Any], counts: BatchCounts, log_starts: Offsets, latest: Offsets
) -> MicroBatch:
    """Return a batch from Spark's report of it.

    Args:
        log_starts: where partitions began that no batch has read before.
        latest: the ends of the partitions, as far as they are known better than by Spark.
    """
    records = lag = 0
    for source in progress["sources"]:
        begun, ended = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        known = _offsets(source["latestOffset"]) | {
            where: latest[where] for where in ended if where in latest
        }
        for where, end in ended.items():
            records += end - begun.get(where, log_starts.get(where, 0))
            lag += max(0, known.get(where, end) - end)
    watermark = progress.get("eventTime", {}).get("watermark")
    if watermark is not None and watermark.startswith("1970"):
        watermark = None  # no batch has set one yet
    return MicroBatch(
        batch=progress["batchId"],
        run=progress["runId"],
        begun=progress["timestamp"],
        seconds=progress["durationMs"]["triggerExecution"] / 1000,
        records=records,
        lag=lag,
        watermark=watermark,
        results=counts.results,
        malformed=counts.dead_letters,
        late=sum(op["numRowsDroppedByWatermark"] for op in progress["stateOperators"]),
    )


def _offsets(text: str | None) -> Offsets:
    if not text or text == "null":
        return {}
    topics = json.loads(text)
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def append(path: Path, batch: MicroBatch) -> None:
    """Note a batch at the end of the file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(batch)) + "\n")


def read_batches(path: Path) -> list[MicroBatch]:
    """Return all noted batches in order; one that was done again counts as it was done last.

    A torn last line, of a run that was killed, is left out.
    """
    found: dict[int, MicroBatch] = {}
    if not path.exists():
        return []
    for line in path.read_text().splitlines():
        try:
            batch = MicroBatch(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[batch.batch] = batch
    return [found[number] for number in sorted(found)]
