"""The pipeline's parts that need neither Spark nor brokers: rows, batches, folders, plots."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kraftrio.clients.errors import TimedOutError
from kraftrio.clients.pipeline import batches, cli, dataset, failures, folders, resume
from kraftrio.clients.pipeline.batches import BatchCounts, MicroBatch
from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.clients.pipeline.report import charts
from kraftrio.clients.pipeline.report.charts import DataPoint
from kraftrio.clients.pipeline.report.page import Findings, Share, render
from kraftrio.clients.pipeline.schemas import AIRLINES, FLIGHTS, WEATHER, Table
from kraftrio.wire.primitives import TopicPartition

FLIGHT_LINES = (
    ",".join(FLIGHTS.columns),
    "2013,1,1,542,540,2,923,850,33,AA,1141,N619AA,JFK,MIA,160,1089,5,40,2013-01-01T10:00:00Z",
    "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    "2013,1,1,NA,600,NA,NA,901,NA,B6,125,NA,JFK,FLL,NA,1069,6,0,2013-01-01T09:00:00Z",
)
WEATHER_LINES = (
    ",".join(WEATHER.columns),
    "EWR,2013,1,1,1,39.02,26.06,59.37,270,10.357019999999999,NA,0,1e3,10,2013-01-01T06:00:00Z",
)


def rows_of(table: Table, lines: tuple[str, ...], folder: Path) -> dataset.Rows:
    (folder / table.file).write_text("\n".join(lines) + "\n")
    return dataset.Rows(table, folder)


def test_rows_come_by_time_and_keep_their_digits(tmp_path: Path) -> None:
    """Sorted by hour and minute; numbers as in the file, NA as null, times as timestamps."""
    rows = rows_of(FLIGHTS, FLIGHT_LINES, tmp_path)
    found = list(rows.from_row(0))
    assert [row.number for row in found] == [0, 1, 2]
    assert [row.key for row in found] == [None, b"N14228", b"N619AA"]
    first = json.loads(found[0].value)
    assert list(first) == list(FLIGHTS.columns)
    assert first["dep_time"] is None and first["tailnum"] is None and first["flight"] == 125
    assert first["time_hour"] == "2013-01-01T09:00:00Z"
    assert found[0].timestamp_ms == 1_357_030_800_000
    assert found[1].due_ms - found[0].due_ms == 75 * 60_000
    assert [row.value for row in rows.from_row(2)] == [found[2].value]
    (weather,) = rows_of(WEATHER, WEATHER_LINES, tmp_path).from_row(0)
    assert b'"wind_speed":10.357019999999999,' in weather.value
    assert json.loads(weather.value)["pressure"] == 1000


def test_rows_of_several_tables_are_merged_by_time(tmp_path: Path) -> None:
    """What happened earlier comes earlier, whichever table it is in."""
    parts = [
        rows_of(WEATHER, WEATHER_LINES, tmp_path).from_row(0),
        rows_of(FLIGHTS, FLIGHT_LINES, tmp_path).from_row(0),
    ]
    merged = [(index, row.number) for index, row in dataset.in_event_order(parts)]
    assert merged == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2013,1", "row 0"),
        (FLIGHT_LINES[1].replace("540", "soon"), "row 0"),
        (FLIGHT_LINES[1].replace("T10:00:00Z", ""), "row 0"),
        (FLIGHT_LINES[1].replace(",33,", ",3.5,"), "arr_delay is not a number"),
    ],
)
def test_broken_rows_are_reported(tmp_path: Path, line: str, reason: str) -> None:
    """A file that is not what it should be is refused with the row's number."""
    rows = rows_of(FLIGHTS, (FLIGHT_LINES[0], line), tmp_path)
    with pytest.raises(PipelineError, match=reason):
        list(rows.from_row(0))


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    """Other columns, no file, and no zip file are refused."""
    with pytest.raises(PipelineError, match="other columns"):
        rows_of(AIRLINES, ("a,b",), tmp_path)
    with pytest.raises(PipelineError, match="cannot be read"):
        dataset.Rows(FLIGHTS, tmp_path)


def test_present_rows() -> None:
    """What lies DOUBT below the highest row found is there; above it only what was found."""
    high = 3 * resume.DOUBT
    found = {high, high - 2, high - resume.DOUBT - 1}
    present = resume.present_rows(found)
    assert present.complete_to == high - resume.DOUBT
    assert high in present and high - 1 not in present and high - 2 in present
    assert 0 in present and high - resume.DOUBT - 1 in present
    assert high - resume.DOUBT not in present
    assert present.count == high - resume.DOUBT + 2
    assert 0 not in resume.present_rows(set())
    small = resume.present_rows({0, 2})
    assert [number for number in range(4) if number in small] == [0, 2]


def test_tails_are_long_enough() -> None:
    """A tail has to begin far enough below the highest row, and with a row at all."""
    assert resume.is_long_enough(0, 2 * resume.DOUBT)
    assert not resume.is_long_enough(1, 2 * resume.DOUBT)
    assert not resume.is_long_enough(None, 2 * resume.DOUBT)


def progress(**changes: object) -> dict[str, object]:
    """Return a report as Spark makes it, as far as it is read."""
    report: dict[str, object] = {
        "batchId": 3,
        "runId": "r",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
        "eventTime": {"watermark": "2013-02-01T05:00:00.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": 2}],
        "sources": [
            {
                "startOffset": '{"flights":{"0":10}}',
                "endOffset": '{"flights":{"0":110,"1":50}}',
                "latestOffset": '{"flights":{"0":110,"1":70}}',
            },
            {
                "startOffset": None,
                "endOffset": '{"weather":{"0":30}}',
                "latestOffset": '{"weather":{"0":30}}',
            },
        ],
    }
    return report | changes


def test_batches_are_read_from_reports() -> None:
    """Records are counted by offsets, from the log's start where nothing was read before."""
    report = progress()
    starts = {TopicPartition("flights", 1): 5, TopicPartition("weather", 0): 20}
    latest = {TopicPartition("flights", 0): 115}
    batch = batches.read_progress(report, BatchCounts(7, 4), starts, latest)
    assert batch.records == 100 + 45 + 10
    assert batch.lag == 5 + 20
    assert batch.records_per_s == 77.5
    assert batch.line() == (
        "batch 3  155 records  78 rows/s  lag 25  watermark 2013-02-01T05:00Z  7 results"
        "  4 malformed  2 too late"
    )
    unknown = progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    first = batches.read_progress(unknown, BatchCounts(), starts, {})
    assert first.watermark is None and "watermark -" in first.line()
    assert batches.is_batch(report)
    assert not batches.is_batch(progress(durationMs={"triggerExecution": 1}))
    assert batches.ends_of(report) == {
        TopicPartition("flights", 0): 110,
        TopicPartition("flights", 1): 50,
        TopicPartition("weather", 0): 30,
    }


def a_batch(number: int, lag: int = 0) -> MicroBatch:
    return MicroBatch(number, "r", "2026-01-02T03:04:05.678Z", 2.0, 100, lag, None, 5, 1, 0)


def test_noted_batches_are_read_back(tmp_path: Path) -> None:
    """A batch that was done again counts once, and a torn line is nothing."""
    path = tmp_path / "progress"
    assert batches.read_batches(path) == []
    for batch in (a_batch(0), a_batch(1, 9), a_batch(1, 3)):
        batches.append(path, batch)
    with path.open("a") as file:
        file.write('{"batch": 2, "ru')
    assert batches.read_batches(path) == [a_batch(0), a_batch(1, 3)]


def opened(folder: Path, *, cluster: str = "c", topic_id: str = "t") -> folders.Folders:
    """Open and close the folders of a run."""
    with folders.open_folders(
        folder / "output", folder / "checkpoint", cluster, {"flights": topic_id}
    ) as found:
        return found


def test_folders_belong_together(tmp_path: Path) -> None:
    """A second run with the same folders may go on; with anything else it is refused."""
    opened(tmp_path)
    assert opened(tmp_path).log == tmp_path / "output" / "_spark.log"
    with pytest.raises(PipelineError, match="another cluster"):
        opened(tmp_path, cluster="other")
    with pytest.raises(PipelineError, match="topics that were deleted"):
        opened(tmp_path, topic_id="other")
    (tmp_path / "output" / folders.MARK_NAME).write_text('{"id": "other"}')
    with pytest.raises(PipelineError, match="another output"):
        opened(tmp_path)
    (tmp_path / "checkpoint" / folders.MARK_NAME).write_text("{")
    with pytest.raises(PipelineError, match="damaged"):
        opened(tmp_path)


def test_folders_are_used_by_one_run(tmp_path: Path) -> None:
    """A second run at the same time is refused."""
    places = (tmp_path / "output", tmp_path / "checkpoint", "c", {"flights": "t"})
    with folders.open_folders(*places), pytest.raises(PipelineError, match="another run"):
        opened(tmp_path)
    opened(tmp_path)


def test_what_a_checkpoint_says(tmp_path: Path) -> None:
    """The batch in doubt is begun and not done; offsets are those of the last one done."""
    found = opened(tmp_path)
    assert found.unsure_since_ms() is None
    assert found.done_offsets() == {}
    offsets, commits = found.checkpoint / "offsets", found.checkpoint / "commits"
    for folder in (offsets, commits):
        folder.mkdir()
    (found.checkpoint / "metadata").write_text("{}")
    for number in (9, 10):
        lines = ["v1", '{"batchTimestampMs":77}', f'{{"flights":{{"0":{number}}}}}', "-"]
        (offsets / str(number)).write_text("\n".join(lines))
    (commits / "9").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert found.unsure_since_ms() == 77
    assert found.done_offsets() == {TopicPartition("flights", 0): 9}
    (commits / "10").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert found.unsure_since_ms() is None
    opened(tmp_path)
    (offsets / "10").rename(tmp_path / "10")
    with pytest.raises(PipelineError, match="damaged: its offsets are missing"):
        opened(tmp_path)
    (tmp_path / "10").rename(offsets / "10")
    (commits / "10").write_text("")
    with pytest.raises(PipelineError, match="damaged"):
        opened(tmp_path)


def test_results_stay_with_their_checkpoint(tmp_path: Path) -> None:
    """A new checkpoint does not take over results, but what an interrupted start has left."""
    found = opened(tmp_path)
    (found.checkpoint / folders.MARK_NAME).unlink()
    opened(tmp_path)
    (found.output / "date=2013-01-01").mkdir()
    opened(tmp_path)
    (found.checkpoint / folders.MARK_NAME).unlink()
    with pytest.raises(PipelineError, match="has the results of another checkpoint"):
        opened(tmp_path)


JAVA_STACK = """An error occurred while calling o1.start.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Foo
Caused by: org.apache.spark.SparkException: Task failed
\tat org.apache.spark.Bar
Caused by: java.io.IOException: {}
\t... 1 more
"""


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        ("No space left on device", "the disk is full"),
        ("Could not parse Master URL: 'x'", "--master names no cluster"),
        ("Some data may have been lost because", "start over"),
        ("org.apache.kafka.common.errors.TimeoutException: no", "the brokers do not answer"),
        ("something else", "something else"),
    ],
)
def test_failures_are_explained_in_a_sentence(cause: str, sentence: str) -> None:
    """Of a Java stack a user reads one line, in our words where we have some."""
    error = RuntimeError(JAVA_STACK.format(cause))
    explained = failures.explain(error, "the log")
    assert explained.startswith(sentence) or sentence in explained
    assert "\n" not in explained
    grouped = ExceptionGroup("one", [error])
    assert failures.explain(grouped, "the log") == explained


def test_what_java_says_of_the_cause_counts() -> None:
    """Spark's exceptions keep the cause beside their own text, which may say nothing."""

    class Captured(RuntimeError):
        _cause = RuntimeError("\n\nJVM stacktrace:\njava.io.EOFException\n\tat a.B.c(B.java:1)")

    assert "the checkpoint is damaged" in failures.explain(Captured("terminated with exception"))


def test_failures_that_pass_by_themselves() -> None:
    """Only what brokers cause is worth another try."""
    away = RuntimeError(JAVA_STACK.format("TimeoutException: Timed out waiting for a node"))
    assert failures.is_of_brokers(away)
    assert not failures.is_of_brokers(RuntimeError(JAVA_STACK.format("No space left on device")))
    assert not failures.is_of_brokers(RuntimeError(JAVA_STACK.format("division by zero")))
    assert not failures.is_of_brokers(PipelineError("Timeout"))


def test_only_what_is_expected_is_explained_in_a_sentence() -> None:
    """The clients' and the system's failures are, mistakes of ours never; a group as a whole."""
    expected = (
        PipelineError("no"),
        failures.SparkStartError("no JVM"),
        TimedOutError("no answer"),
        OSError(28, "No space left on device"),
    )
    for error in expected:
        assert failures.is_expected(error) and isinstance(error, failures.kinds())
    assert failures.is_expected(ExceptionGroup("all", expected))
    for mistake in (ValueError("Timeout"), KeyError("flights"), ZeroDivisionError()):
        assert not failures.is_expected(mistake)
        assert not failures.is_expected(ExceptionGroup("mixed", [*expected, mistake]))


@pytest.mark.parametrize("grouped", [False, True])
def test_mistakes_of_ours_come_out_with_their_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], grouped: bool
) -> None:
    """The command line lets through the unexpected, and explains the rest in one sentence."""
    failure: Exception = ZeroDivisionError("a mistake")

    def fail(chosen: object) -> None:
        raise ExceptionGroup("of a nursery", [failure]) if grouped else failure

    monkeypatch.setattr(cli, "_report", fail)
    with pytest.raises((ZeroDivisionError, ExceptionGroup)):
        cli.main(["report", "--output", "x"])
    failure = TimedOutError("nobody answers")
    assert cli.main(["report", "--output", "x"]) == 1
    assert capsys.readouterr().err == "pipeline: nobody answers\n"


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (
            "Invalid maximum heap size: -Xmxlots\nError: Could not create",
            "Java refuses its options",
        ),
        ("26/11/28 ERROR DiskBlockManager: Failed to create any local dir.", "see spark.local.dir"),
        (
            "WARNING: odd\norg.apache.spark.SparkIllegalArgumentException: [BAD] 1 is little.\n"
            "\tat org.apache.spark.Foo.bar(Foo.scala:1)\n26/11/28 WARN more",
            "[BAD] 1 is little.",
        ),
        ("WARNING: odd", "WARNING: odd"),
    ],
)
def test_the_log_of_a_spark_that_does_not_start_explains_why(log: str, sentence: str) -> None:
    """Of the log's many lines the one with the reason is shown."""
    assert sentence in failures.explain(failures.SparkStartError(log))


def test_frames_of_a_stack_are_not_taken_for_the_cause() -> None:
    """Spark waits in classes whose names say Timeout, whatever the failure is about."""
    stack = "SparkException: odd\n\tat org.apache.spark.rpc.RpcTimeout.await(RpcTimeout.scala:75)\n"
    assert not failures.is_of_brokers(RuntimeError(stack))
    assert failures.is_of_brokers(RuntimeError(stack + "Caused by: TimeoutException: no answer"))


def test_charts_are_well_formed() -> None:
    """Each plot is XML, marks what it is given, and has text for what may not be text."""
    points = [DataPoint("<a&b>", 3.0, "x < y"), DataPoint("b", 0.0), DataPoint("c", 1234.5)]
    for svg in (
        charts.upright_bars(points, "hour"),
        charts.lying_bars(points, "min"),
        charts.line(points, "batch"),
        charts.upright_bars([], "hour"),
        charts.line(points[:1], "batch"),
    ):
        root = ElementTree.fromstring(svg)
        assert root.tag == "svg"
    bars = ElementTree.fromstring(charts.upright_bars(points, "hour")).findall("rect")
    heights = [float(bar.get("height", "")) for bar in bars]
    assert heights[1] == 0 < heights[0] < heights[2]


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (0, [0, 1]),
        (10, [0, 2.5, 5, 7.5, 10]),
        (24.7, [0, 10, 20, 30]),
        (4000, [0, 1000, 2000, 3000, 4000]),
    ],
)
def test_ticks_are_round(highest: float, ticks: list[float]) -> None:
    """An axis has few round numbers, up to what is shown."""
    assert charts.nice_ticks(highest) == ticks


def test_page_without_notes_of_a_run() -> None:
    """A page can be made without batches, and with an airline of a strange name."""
    share = Share("<b>", 30, 3, 4.5)
    few = Share("few", 1, 1, None)
    findings = Findings(
        share, "2013-01-01", "2013-01-02", 5, 20, 100, [share, few], [share], [], []
    )
    page = render(findings)
    assert "The run" not in page and "<b>" not in page and "&lt;b&gt;" in page
    noted = Findings(
        share, "2013-01-01", "2013-01-02", 5, 20, 100, [share], [share], [], [], [a_batch(0, 7)], 9
    )
    assert "Throughput" in render(noted) and "Lag now" in render(noted)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--output", "o", "--checkpoint", "c", "--trigger", "soon"],
        ["run", "--output", "o", "--checkpoint", "c", "--max-offsets-per-trigger", "0"],
        ["ingest", "--partitions", "-3"],
    ],
)
def test_wrong_values_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the option that is wrong, and the status is 2."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("pipeline: argument --") and printed.count("\n") == 1
