"""`report`: a run's results, read with Spark, as one page.

The results come from the Parquet files of the run, its batches from the notes beside them. A broker
is asked only when one is named: for the airlines' names, and for the group's lag.

Called by: `cli`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.pipeline import topics
from kraftrio.clients.pipeline.batches import read_batches
from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.failures import PipelineError, explain, is_expected, kinds
from kraftrio.clients.pipeline.folders import PROGRESS_NAME
from kraftrio.clients.pipeline.report.page import Findings, Share, render
from kraftrio.clients.pipeline.schemas import AIRLINES, FLIGHTS, GROUP, WEATHER
from kraftrio.clients.pipeline.session import SparkOptions, start_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ZONE: Final = "America/New_York"
_WIND_STEP_MPH: Final = 5
_STRONG_WIND_MPH: Final = 30
_POLL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of the command line."""

    brokers: BrokerAccess | None
    output: Path
    html: Path
    spark: SparkOptions = field(default_factory=SparkOptions)


@dataclass(frozen=True, slots=True)
class _FromBrokers:
    """What only brokers know."""

    names: Mapping[str, str] = field(default_factory=dict)
    lag: int | None = None


async def report(options: ReportOptions, print_line: Callable[[str], None]) -> None:
    """Write the page.

    Raises:
        PipelineError: there are no results, or something cannot be read or written.
    """
    files = sorted(str(path) for path in options.output.glob("date=*/*.parquet"))
    if not files:
        raise PipelineError(f"{options.output} has no results; scripts/pipeline run makes them")
    if not options.html.parent.is_dir():
        raise PipelineError(f"the folder {options.html.parent} is not there")
    if options.html.is_dir():
        raise PipelineError(f"{options.html} is a folder, not a file")
    reported = _FromBrokers()
    if options.brokers is not None:
        print_line(f"asking {options.brokers.servers} for the airlines' names")
        reported = await _ask_brokers(options.brokers)
    print_line(f"reading the results of {len(files)} days with Spark")
    folder = Path(tempfile.mkdtemp(prefix="kraftrio-report-"))
    log_path = folder / "spark.log"
    try:
        findings = await trio.to_thread.run_sync(
            _find_out, options, files, reported, log_path, abandon_on_cancel=True
        )
    except kinds() as error:
        if not is_expected(error):
            raise
        raise PipelineError(explain(error, str(log_path))) from error
    shutil.rmtree(folder, ignore_errors=True)  # of a failure, Spark's own words stay
    text = render(findings)
    temporary = options.html.with_name(options.html.name + ".tmp")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, options.html)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PipelineError(f"{options.html} cannot be written: {error.strerror}") from error
    print_line(f"{options.html}: {len(text.encode()) / 1024:.0f} KiB, open it in a browser")


async def _ask_brokers(brokers: BrokerAccess) -> _FromBrokers:
    async with Admin(brokers.servers, client_id="flights-report", **brokers.security) as admin:
        await topics.brokers_of(admin, brokers.servers)
        found = await topics.find(admin, [AIRLINES.name, FLIGHTS.name, WEATHER.name])
        names: dict[str, str] = {}
        if AIRLINES.name in found:
            airlines = {AIRLINES.name: found.pop(AIRLINES.name)}
            names = await _names(brokers, await topics.ends(admin, airlines))
        committed = await admin.list_group_offsets(GROUP, raise_errors=False)
        ends = await topics.ends(admin, found)
        lags = [
            max(0, ends[where] - offset.offset)
            for where in ends
            if where in committed
            and where not in committed.errors
            and (offset := committed[where]) is not None
        ]
    return _FromBrokers(names, sum(lags) if lags else None)


async def _names(brokers: BrokerAccess, ends: Mapping[Any, int]) -> dict[str, str]:
    """Return the airlines' names by carrier."""
    names: dict[str, str] = {}
    async with Consumer(
        brokers.servers,
        client_id="flights-report",
        auto_offset_reset="earliest",
        **brokers.security,
    ) as consumer:
        consumer.assign(ends)
        for where, end in ends.items():
            while await consumer.position(where) < end:
                for record in await consumer.poll(_POLL_MS):
                    try:
                        row = json.loads(record.value or b"")
                        names[str(row["carrier"])] = str(row["name"])
                    except (ValueError, KeyError, TypeError):
                        continue  # not one of ours
    return names


def _find_out(
    options: ReportOptions, files: list[str], reported: _FromBrokers, log_path: Path
) -> Findings:
    """Ask Spark (in a worker thread)."""
    spark = start_session(options.spark, log_path)
    try:
        from pyspark.sql import functions as F

        from kraftrio.clients.pipeline.results import PARQUET_SCHEMA

        base = spark.read.schema(PARQUET_SCHEMA).option("basePath", str(options.output))
        rows = base.parquet(*files).withColumn("known", F.col("flights") - F.col("cancelled"))
        rows = rows.cache()
        hour = F.hour(F.from_utc_timestamp("window_start", ZONE))
        facts = rows.agg(
            F.min("date"), F.max("date"), F.count("*"), F.sum("planes_known"), F.sum("seats")
        ).collect()[0]
        (total,) = _shares(rows, F.lit(0), lambda key: "all")
        return Findings(
            total=total,
            first_date=str(facts[0]),
            last_date=str(facts[1]),
            results=facts[2],
            planes_known=facts[3] or 0,
            seats=facts[4] or 0,
            by_hour=_shares(rows, hour, lambda key: f"{key}"),
            by_carrier=sorted(
                _shares(rows, F.col("carrier"), lambda key: _carrier(key, reported.names)),
                key=lambda share: -(share.delay_mean or 0.0),
            ),
            by_wind=_shares(rows, _wind(), _wind_label),
            by_visibility=_shares(rows, _visibility(), lambda key: f"{key}"),
            batches=read_batches(options.output / PROGRESS_NAME),
            lag_now=reported.lag,
        )
    finally:
        spark.stop()


def _shares(rows: DataFrame, key: Column, label: Callable[[Any], str]) -> list[Share]:
    """Return what flights with the same key come to, in the key's order; none without a key."""
    from pyspark.sql import functions as F

    found = (
        rows.groupBy(key.alias("key"))
        .agg(
            F.sum("flights").alias("flights"),
            F.sum("cancelled").alias("cancelled"),
            F.sum(F.col("dep_delay_mean") * F.col("known")).alias("delays"),
            F.sum(F.when(F.col("dep_delay_mean").isNotNull(), F.col("known"))).alias("known"),
        )
        .where(F.col("key").isNotNull())
        .orderBy("key")
        .collect()
    )
    return [
        Share(
            label(row["key"]),
            row["flights"],
            row["cancelled"],
            row["delays"] / row["known"] if row["known"] else None,
        )
        for row in found
    ]


def _wind() -> Column:
    from pyspark.sql import functions as F

    step = F.floor(F.col("wind_speed") / _WIND_STEP_MPH) * _WIND_STEP_MPH
    return F.least(step, F.lit(_STRONG_WIND_MPH)).cast("int")


def _wind_label(key: int) -> str:
    return f"{key}+" if key == _STRONG_WIND_MPH else f"{key}-{key + _WIND_STEP_MPH}"


def _visibility() -> Column:
    from pyspark.sql import functions as F

    return F.floor("visib").cast("int")


def _carrier(code: str, names: Mapping[str, str]) -> str:
    return f"{names[code]} ({code})" if code in names else code
