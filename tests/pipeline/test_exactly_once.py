"""The pipeline with --exactly-once: what a batch puts into topics is there whole and once."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kraftrio.clients.pipeline import batches
from tests.conformance.broker_process import Broker
from tests.pipeline import support
from tests.pipeline.support import Feed, Pipeline

pytestmark = pytest.mark.timeout(600)

BEFORE = "2013-01-12"


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a driver does that dies once its last whole batch is put out."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    remove(checkpoint / "commits" / str(last))
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        if int(path.name) > last:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file of a checkpoint, and the one with its checksum."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_done_again_is_not_sent_again(broker: Broker, tmp_path: Path) -> None:
    """The driver is killed, and the batch it had put out is done again: topics have it once."""
    feed = Feed(late=0, bad=0.01, before=BEFORE)
    trio.run(feed.send, broker.address)
    pipeline = Pipeline(broker.address, tmp_path)
    options = ("--exactly-once", "--max-offsets-per-trigger", "4000")  # three batches
    run = pipeline.run(*options, available_now=False)
    run.wait_for(lambda: len(run.batches()) > 1, "two batches")
    run.kill9()
    forget_last_commit(pipeline.checkpoint)
    pipeline.run(*options).finish()

    expected = support.expected_results(BEFORE)
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(broker.address), expected)
    support.check_dead_letters(broker.address, feed.letters)
    sent = len(support.read_topics(broker.address, "delays.hourly"))
    noted = batches.read_batches(pipeline.output / "_progress.jsonl")
    assert sent == sum(batch.results for batch in noted), "a batch of results is there twice"
