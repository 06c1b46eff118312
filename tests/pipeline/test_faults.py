"""The pipeline on two months while its driver, leaders and the whole cluster are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from tests.conformance.cluster_process import Cluster
from tests.pipeline import support
from tests.pipeline.support import Feed, Pipeline

pytestmark = pytest.mark.timeout(1200)

BEFORE = "2013-03-01"


def test_killed_in_the_middle_with_malformed_and_late_rows(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Whatever is killed, results are those of the files, nothing is lost and nothing is twice."""
    feed = Feed(bad=0.02, before=BEFORE)
    trio.run(lambda: feed.send(cluster.bootstrap, replicas=3))
    assert len(feed.letters) > 1000
    pipeline = Pipeline(cluster.bootstrap, tmp_path)
    batches = ("--max-offsets-per-trigger", "9000")  # six of them

    driver = pipeline.run(*batches)
    driver.wait_for(driver.batches, "a batch")
    time.sleep(1)  # into the next batch
    driver.kill9()

    run = pipeline.run(*batches)
    run.wait_for(run.batches, "a batch after the driver was killed")
    leader = cluster.leader("flights", 0)
    cluster.node(leader).kill9()
    run.wait_for(lambda: len(run.batches()) > 1, "a batch after a leader was killed")
    for node in cluster.reachable():
        node.kill9()
    time.sleep(2)
    cluster.heal()
    assert run.wait() == 0, run.text

    expected = support.expected_results(BEFORE)
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(cluster.bootstrap), expected)
    support.check_dead_letters(cluster.bootstrap, feed.letters)
