"""`run`: the streaming query from its start to its end, with what users see of it.

One Trio program: Spark works in its JVM and is asked for news by calls in worker threads; the
admin client makes the topics of results, and commits for the group `flights-pipeline` what each
batch has read, so that Kafka's own tools show the lag. Spark itself keeps its offsets in the
checkpoint and never reads the group's.

Failures: what brokers cause (they are being restarted, a leader is gone) ends a query in Spark,
not us; it starts again from the checkpoint until no batch was done for `retry_s` since the first
failure. All else is said in a sentence. SIGINT and SIGTERM stop the query where it is; the batch
that was being done is done again by the next run, which is safe (`results`).

Called by: `cli`.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.pipeline import batches, topics
from kraftrio.clients.pipeline.batches import Offsets
from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.failures import (
    PipelineError,
    explain,
    is_expected,
    is_of_brokers,
    kinds,
)
from kraftrio.clients.pipeline.folders import Folders, open_folders
from kraftrio.clients.pipeline.schemas import (
    COMPACTED,
    DEAD_LETTER_TOPIC,
    FLIGHTS,
    GROUP,
    PLANES,
    RESULTS_TOPIC,
    WEATHER,
)
from kraftrio.clients.pipeline.session import SparkOptions, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kraftrio.clients.pipeline.results import Publisher

_POLL_S: Final = 0.2
_COMMIT_TIMEOUT_MS: Final = 5_000
_RETRY_PAUSE_S: Final = 3.0
_END_TIMEOUT_S: Final = 15

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of the command line."""

    brokers: BrokerAccess
    output: Path
    checkpoint: Path
    spark: SparkOptions = field(default_factory=SparkOptions)
    available_now: bool = False
    watermark: str = "400 days"
    max_offsets_per_trigger: int = 100_000
    min_partitions: int | None = None
    trigger: str | None = None
    exactly_once: bool = False
    retry_s: float = 300.0


async def run(options: RunOptions, print_line: Callable[[str], None]) -> None:
    """Run the pipeline until it is done or stopped.

    Args:
        print_line: shows the user a line.

    Raises:
        PipelineError: it cannot go on.
    """
    brokers = options.brokers
    async with Admin(brokers.servers, client_id="flights-pipeline", **brokers.security) as admin:
        cluster_id, broker_count = await topics.brokers_of(admin, brokers.servers)
        sources = await topics.require(admin, [FLIGHTS.name, WEATHER.name, PLANES.name])
        wanted = {RESULTS_TOPIC: COMPACTED, DEAD_LETTER_TOPIC: {"retention.ms": "-1"}}
        await topics.make(admin, wanted, broker_count)
        log_starts = await topics.starts(admin, sources)
        with open_folders(
            options.output, options.checkpoint, cluster_id, topics.ids_of(sources)
        ) as folders:
            pipeline = _Pipeline(options, folders, admin, log_starts, print_line)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch_signals, pipeline)
                try:
                    await pipeline.run()
                finally:
                    nursery.cancel_scope.cancel()


async def _watch_signals(pipeline: _Pipeline) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            pipeline.stop()


async def _in_thread(call: Callable[[], T]) -> T:
    """Call into Spark without holding up the rest; left alone there when we are cancelled."""
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


async def _quietly(end: Callable[[], object]) -> None:
    """End something in Spark that may have ended already, as the whole JVM may."""
    from py4j.protocol import Py4JError

    with (
        trio.CancelScope(shield=True),
        trio.move_on_after(_END_TIMEOUT_S),
        contextlib.suppress(Py4JError, OSError),
    ):
        await _in_thread(end)


class _Pipeline:
    """One run."""

    def __init__(
        self,
        options: RunOptions,
        folders: Folders,
        admin: Admin,
        log_starts: Offsets,
        print_line: Callable[[str], None],
    ) -> None:
        self.options = options
        self.folders = folders
        self.admin = admin
        self.log_starts = log_starts
        self.print_line = print_line
        self.stopped = trio.Event()
        self.last_batch_id = -1
        self.seen_at = ""  # the time of the latest report that was looked at
        # A run that was killed may have left without a word about its last batch.
        self.uncommitted: Offsets = folders.done_offsets()
        self.failing_since: float | None = None  # the first failure since the last batch

    def stop(self) -> None:
        """End at the next opportunity."""
        self.stopped.set()

    async def run(self) -> None:
        """Start Spark, and queries until one ends well or for good.

        Raises:
            PipelineError: one ended for good.
        """
        self.print_line("starting Spark")
        log = str(self.folders.log)
        try:
            spark = await self._unless_stopped(
                lambda: start_session(self.options.spark, self.folders.log)
            )
            if spark is None:
                return
            try:
                await self._commit()
                while not await self._query_ended_well(spark):
                    self.print_line("going on from the checkpoint")
                await self._commit()
            finally:
                await _quietly(spark.stop)
        except kinds() as error:
            if not is_expected(error):
                raise
            raise PipelineError(explain(error, log)) from error

    async def _unless_stopped(self, call: Callable[[], T]) -> T | None:
        """Call into Spark; None when the user stops us meanwhile."""
        result: T | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await self.stopped.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            result = await _in_thread(call)
            nursery.cancel_scope.cancel()
        return result

    async def _query_ended_well(self, spark: SparkSession) -> bool:
        """Run one query to its end; False: brokers ended it, and it is to be started again."""
        try:
            await self._run_query(spark)
        except kinds() as error:
            now = time.monotonic()
            self.failing_since = self.failing_since or now
            if not is_of_brokers(error) or now - self.failing_since > self.options.retry_s:
                raise
            self.print_line(explain(error))
            with trio.move_on_after(_RETRY_PAUSE_S):
                await self.stopped.wait()
        else:
            return True
        return self.stopped.is_set()

    async def _run_query(self, spark: SparkSession) -> None:
        publisher, query = await _in_thread(lambda: self._start(spark))
        self.seen_at = ""
        try:
            while await _in_thread(lambda: query.isActive):
                await self._report(query, publisher)
                if self.stopped.is_set():
                    self.print_line("stopping; the next run goes on where this one ends")
                    await _in_thread(query.stop)
                    break
                with trio.move_on_after(_POLL_S):
                    await self.stopped.wait()
            await self._report(query, publisher)
            failure = await _in_thread(query.exception)
            ours = publisher.failure
            if ours is not None and not is_expected(ours):
                raise ours  # Spark's own has it as text only
            if failure is not None and not self.stopped.is_set():
                raise failure
        finally:
            await _quietly(query.stop)

    def _start(self, spark: SparkSession) -> tuple[Publisher, StreamingQuery]:
        """Build the query and start it (in a worker thread)."""
        from kraftrio.clients.pipeline import plan, results

        options = self.options
        results.clean_output(options.output)
        source = plan.KafkaSource(
            options.brokers, options.max_offsets_per_trigger, options.min_partitions
        )
        topics_writer = results.TopicsWriter(
            options.brokers,
            self.folders.unsure_since_ms(),
            f"{GROUP}-{self.folders.id}" if options.exactly_once else None,
        )
        if options.exactly_once:
            from kraftrio.clients.spark.source import KraftrioSource  # which needs pyarrow

            spark.dataSource.register(KraftrioSource)
        publisher = results.Publisher(topics_writer, options.output)
        writer = plan.build(spark, source, options.watermark).writeStream.outputMode("update")
        writer = writer.queryName("flights").foreachBatch(publisher)
        writer = writer.option("checkpointLocation", str(options.checkpoint))
        if options.available_now:
            writer = writer.trigger(availableNow=True)
        elif options.trigger is not None:
            writer = writer.trigger(processingTime=options.trigger)
        return publisher, writer.start()

    async def _report(self, query: StreamingQuery, publisher: Publisher) -> None:
        """Show, note and commit the batches that were done since the last time."""
        for progress in await _in_thread(lambda: self._news(query)):
            self.failing_since = None
            self.last_batch_id = progress["batchId"]
            ended = batches.ends_of(progress)
            self.uncommitted |= ended
            latest = await self._latest(ended)
            counts = publisher.counts.pop(progress["batchId"], None) or batches.BatchCounts()
            batch = batches.read_progress(progress, counts, self.log_starts, latest)
            self.log_starts |= ended
            batches.append(self.folders.progress, batch)
            self.print_line(batch.line())
            await self._commit()

    def _news(self, query: StreamingQuery) -> list[Any]:
        last = query.lastProgress
        if last is None or last["timestamp"] == self.seen_at:
            return []
        self.seen_at = last["timestamp"]
        reports = query.recentProgress
        return [
            report
            for report in reports
            if batches.is_batch(report) and report["batchId"] > self.last_batch_id
        ]

    async def _latest(self, ended: Offsets) -> Offsets:
        """Return the partitions' ends as they are now, if a broker answers in time."""
        wanted = dict.fromkeys(ended, -1)
        try:
            listed = await self.admin.list_offsets(wanted, timeout_ms=_COMMIT_TIMEOUT_MS)
        except KafkaClientError:
            return {}
        return {where: found.offset for where, found in listed.items()}

    async def _commit(self) -> None:
        """Commit for the group what was read; what cannot be committed now is with the next."""
        if not self.uncommitted:
            return
        offsets = dict(self.uncommitted)
        try:
            await self.admin.alter_group_offsets(GROUP, offsets, timeout_ms=_COMMIT_TIMEOUT_MS)
        except KafkaClientError as error:
            self.print_line(f"the group {GROUP} does not know yet how far we are: {error}")
        else:
            self.uncommitted = {}
