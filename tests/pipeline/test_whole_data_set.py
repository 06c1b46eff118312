"""The pipeline from the files to the page on all flights of 2013, as a user runs it."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import pytest

from kraftrio.clients.pipeline.schemas import TABLES
from tests.conformance.broker_process import Broker
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.pipeline import support
from tests.pipeline.support import Pipeline

pytestmark = pytest.mark.timeout(900)

ROWS = {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16}


def test_from_the_files_to_the_page(broker: Broker, tmp_path: Path) -> None:
    """Ingest survives a kill -9, and run and report come to what DuckDB finds in the files."""
    pipeline = Pipeline(broker.address, tmp_path)
    check_ingest(pipeline)
    # The connector is as --jars alone brings it.
    connector = pipeline.conf.pop("spark.driver.extraClassPath")
    pipeline.run().finish()
    pipeline.conf["spark.driver.extraClassPath"] = connector
    expected = support.expected_results()
    assert len(expected) == support.ALL_KEYS
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(broker.address), expected)
    pipeline.report().finish()
    check_page(pipeline.html.read_text("utf-8"))
    check_lag(broker.address)  # last: it needs Apache's tool


def check_ingest(pipeline: Pipeline) -> None:
    """Kill an ingest, let the next one go on, and a third one find nothing to do."""
    first = pipeline.ingest("--partitions", "4")
    first.wait_for(lambda: any("flights" in line for line in first.lines[1:]), "flights")
    first.kill9()
    pipeline.ingest().finish()
    pipeline.ingest().finish()
    records = support.read_topics(pipeline.address, *ROWS)
    for table in TABLES:
        mine = [record for record in records if record.topic == table.name]
        numbers = {dict(record.headers)["row"] for record in mine}
        assert len(mine) == ROWS[table.name], f"{len(mine)} records in {table.name}"
        assert len(numbers) == len(mine), f"rows of {table.name} are there twice"
        headers = dict(mine[0].headers)
        assert headers["schema"] == table.name.encode()
        assert headers["schema-version"] == b"1"
    sample = next(record for record in records if record.value and b'"N14228"' in record.value)
    assert sample.key == b"N14228"


def check_lag(address: str) -> None:
    """Assert that Kafka's own tool shows the pipeline as a group without lag."""
    runner = ToolRunner()
    try:
        tools = KafkaTools(address, runner)
        done = tools.run("kafka-consumer-groups", "--describe", "--group", "flights-pipeline")
    finally:
        runner.close()
    rows = re.findall(r"flights-pipeline\s+(\w+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", done.stdout)
    assert {row[0] for row in rows} == {"flights", "weather"}, done.stdout
    assert sum(int(row[2]) for row in rows) == ROWS["flights"] + ROWS["weather"], done.stdout
    assert all(row[4] == "0" for row in rows), done.stdout


def check_page(page: str) -> None:
    """Assert that the page has its plots in it and asks for nothing from elsewhere."""
    seen = Seen()
    seen.feed(page)
    seen.close()
    assert not seen.open_tags, f"not closed: {seen.open_tags}"
    assert seen.count["svg"] == 9
    assert seen.count["script"] == 0
    assert not seen.references, seen.references
    assert "url(" not in page and "@import" not in page
    assert '<meta name="viewport" content="width=device-width' in page
    for text in ("336,776", "116,904", "JetBlue Airways (B6)", "Throughput", "@media print"):
        assert text in page, f"no {text} in the page"
    assert len(page.encode()) < 200_000


class Seen(html.parser.HTMLParser):
    """What tags a page has, which of them stay open, and what they refer to."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.count = dict.fromkeys(("svg", "script", "figure"), 0)
        self.open_tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        if tag in self.count:
            self.count[tag] += 1
        self.references += [f"{tag} {name}" for name, _ in attrs if name in {"src", "href"}]
        if tag not in self.VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that is its own end."""

    def handle_endtag(self, tag: str) -> None:
        """Close the latest open tag, which must be this one."""
        assert self.open_tags and self.open_tags[-1] == tag, f"</{tag}> closes {self.open_tags}"
        self.open_tags.pop()
