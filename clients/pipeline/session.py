"""The Spark session: started quietly, with what the Kafka connector needs, in words for users.

Spark and its JVM write hundreds of lines that were not asked for. All of it goes to a log file: the
JVM inherits our stdout and stderr, so both point there while it is started. What we print ourselves
goes where it always went. Python's own logging, as far as it is not set up, goes there, too.

Called by: `query`, `report`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socketserver
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftrio.clients.pipeline.failures import PipelineError, SparkStartError, kinds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TAIL_BYTES: Final = 20_000
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",  # see plan.split
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    # The state is small: Spark's 200 would be 200 tiny stores to commit with each batch.
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.ui.retainedExecutions": "10",
}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of the command line for Spark."""

    master: str = "local[*]"
    jars: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    needs_kafka: bool = True


def start_session(options: SparkOptions, log_path: Path) -> SparkSession:
    """Start Spark; its own output goes to the end of `log_path`.

    Raises:
        PipelineError: pyspark is not installed, or a jar is not there.
        SparkStartError: whatever Spark says; see `failures.explain`.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise PipelineError("pyspark is not installed: pip install 'kraftrio[pipeline]'")
    for jar in (options.jars or "").split(","):
        if jar and ":" not in jar and not Path(jar).is_file():  # else an address of Spark's kind
            raise PipelineError(f"the file {jar} that --jars names is not there")
    logging.basicConfig(filename=log_path, level=logging.WARNING)  # what py4j has to say
    logging.raiseExceptions = False  # on a full disk the log cannot say it; users hear why anyway
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    begun_at = log_path.stat().st_size if log_path.exists() else 0
    with output_to(log_path):
        from pyspark.sql import SparkSession

        _print_no_lost_connections()
        builder = SparkSession.builder.master(options.master).appName("kraftrio pipeline")
        for name, value in settings(options).items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except kinds() as error:
            # A JVM that does not come up says why in its log alone.
            raise SparkStartError(_tail(log_path, begun_at)) from error


def _print_no_lost_connections() -> None:
    """Keep to debugging what Python's end of Spark's counters would print when the JVM is gone.

    It would be a traceback on stderr, beside the sentence that `failures` has for it.
    """
    from pyspark import accumulators

    def handle_error(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
        logging.getLogger(__name__).debug("a connection of Spark's counters", exc_info=True)

    for kind in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        kind.handle_error = handle_error


def _tail(log_path: Path, begun_at: int) -> str:
    with log_path.open("rb") as log:
        log.seek(begun_at)
        return log.read()[-_TAIL_BYTES:].decode(errors="replace")


def settings(options: SparkOptions) -> dict[str, str]:
    """Return Spark's settings: ours, and the user's over them."""
    chosen = dict(_DEFAULTS)
    if options.master.startswith("local"):
        chosen |= _LOCAL_DEFAULTS
    if options.jars:
        chosen["spark.jars"] = options.jars
    elif options.needs_kafka:
        import pyspark

        chosen["spark.jars.packages"] = f"{CONNECTOR}:{pyspark.__version__}"
    return {**chosen, **options.conf}


@contextlib.contextmanager
def output_to(log_path: Path) -> Iterator[None]:
    """Point stdout and stderr to a file for the processes that the body starts."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    saved = [os.dup(1), os.dup(2)]
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(saved, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(log)
