"""The console in a real browser: every page, the changes it makes, and a broker that is killed.

TEST_BROKER=apache runs it against Apache Kafka; TEST_SCREENSHOTS=FOLDER keeps pictures of pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trio

from kraftrio import Admin, Consumer, NewTopic, Producer
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.browser import ENTER, ESCAPE, NARROW, Browser, ConsoleProcess, chromium

MANY = 1_000_000
EVIL = "<script>document.title = 'evil'</script>"

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "records": "/records?topic=orders&limit=20",
    "record": "/record?topic=orders&partition=0&offset=1",
    "write": "/produce?topic=orders",
    "groups": "/groups",
    "group": "/group?id=readers",
    "reset": "/reset?group=readers&to=earliest",
    "quorum": "/quorum",
    "settings": "/settings?find=log.dir",
    "no-topic": "/topic?name=ordes",
    "no-page": "/nowhere",
}


@dataclass
class Stage:
    """What all tests share: one broker, its console, one browser."""

    broker: Broker
    browser: Browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Open a console of a broker with a topic of unusual records and one of a million."""
    folder = tmp_path_factory.mktemp("console")
    with chromium(folder / "profile") as driver:
        broker = start_broker(folder / "broker")
        try:
            trio.run(fill, broker.address)
            with ConsoleProcess(broker.address, folder, "--writable", "--timeout", "2") as console:
                yield Stage(broker, Browser(driver, console.url))
        finally:
            broker.close()


@pytest.fixture
def browser(stage: Stage) -> Iterator[Browser]:
    """The browser, as wide as a screen; no script may have failed in the test."""
    stage.browser.look()
    stage.browser.errors()
    yield stage.browser
    assert not stage.browser.errors()


async def fill(bootstrap: str) -> None:
    """Make the topics, and a group that has read some of one."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 2, 1), NewTopic("many", 2, 1)])
    async with Producer(bootstrap, compression_type="lz4", linger_ms=5) as producer:
        for number in range(40):
            value = json.dumps({"id": number, "note": EVIL})
            await producer.send(
                "orders", value.encode(), key=EVIL.encode(), headers=[(EVIL, EVIL.encode())]
            )
        for start in range(0, MANY, 10_000):
            values = [b"event %07d of many" % number for number in range(start, start + 10_000)]
            await producer.send_values("many", values)
    async with Consumer(
        bootstrap, group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.subscribe(["orders"])
        await consumer.poll(max_records=10)
        await consumer.commit()


def test_every_page(browser: Browser) -> None:
    """Wide and narrow, light and dark, on paper; records are text, and nothing overflows."""
    for name, address in PAGES.items():
        browser.look()
        browser.open(address)
        assert browser.texts("h1"), name
        browser.take_picture(name)
        for look, changes in {
            "dark": {"dark": True},
            "narrow": {"width": NARROW},
            "paper": {"medium": "print"},
        }.items():
            browser.look(**changes)  # type: ignore[arg-type]
            browser.take_picture(f"{name}-{look}")
            over = browser.run("return document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, f"{name} {look}: {over} pixels too wide"
        assert not browser.find("header nav").is_displayed(), "areas are not for paper"
        browser.look()
        assert browser.run("return document.scripts.length") == 1, name
        assert browser.run("return document.title") != "evil"
    browser.open(PAGES["records"])
    assert browser.texts("td[data-label=key]") == [EVIL] * 20
    assert browser.texts("td[data-label=headers]") == [f"{EVIL}: {EVIL}"] * 20
    assert all(EVIL in text for text in browser.texts("td[data-label=value]"))
    browser.open(PAGES["record"])
    assert EVIL in browser.texts("pre")[0]
    browser.open(PAGES["no-topic"])
    assert "There is no topic 'ordes'; did you mean 'orders'?" in browser.text()


def test_colours_follow_the_screen(browser: Browser) -> None:
    browser.open("/quorum")
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.look(dark=True)
    assert browser.run(colour) != light


def test_search_among_a_million(browser: Browser) -> None:
    """Records are shown as they are found, and so is the progress; the search can be stopped."""
    browser.open("/records?topic=many")
    browser.choose("begin", "oldest")
    browser.fill("text", "event 0999")
    browser.fill("limit", "7")
    browser.submit("Show")
    browser.wait(lambda: browser.texts("#records td[data-label=value]"), "something is found")
    browser.wait(lambda: len(browser.texts("#records tr")) == 7, "all that were asked for")
    assert all("event 0999" in text for text in browser.texts("td[data-label=value]"))
    browser.take_picture("search")
    browser.open("/records?topic=many&text=not+there")
    browser.run("document.getElementById('search-stop').click()")
    assert browser.find("#search-state").text.startswith("Stopped: ")
    browser.open("/records?topic=many&text=event+0000007+")
    browser.wait(
        lambda: f"1 found in {MANY:,} of {MANY:,}, in" in browser.find("#search-state").text,
        "all was searched",
    )
    assert browser.texts("#records td[data-label=value]") == ["event 0000007 of many"]
    assert not browser.find("#search-stop").is_displayed()


def test_a_reset_is_shown_before_it_is_made(stage: Stage, browser: Browser) -> None:
    browser.open("/group?id=readers")
    assert "lag 30" in browser.text()
    browser.find("main .actions a").click()
    browser.choose("to", "shift")
    browser.fill("value", "2")
    browser.submit("Preview")
    shown = dict(
        zip(
            browser.texts("td[data-label=partition]"),
            browser.texts("td[data-label='new offset']"),
            strict=True,
        )
    )
    assert "Nothing has been changed yet." in browser.text()
    browser.take_picture("reset-preview")

    async def committed() -> dict[str, str]:
        async with Admin(stage.broker.address) as admin:
            found = await admin.list_group_offsets("readers")
        return {str(item.partition): str(at.offset) for item, at in found.items() if at is not None}

    before = trio.run(committed)
    assert before != shown
    browser.submit("Commit these offsets")
    browser.wait_text("The group goes on where the preview said.")
    assert trio.run(committed) == shown


def test_a_record_is_written(browser: Browser) -> None:
    browser.open("/topic?name=orders")
    browser.driver.find_element("link text", "Write a record").click()
    browser.fill("key", "k")
    browser.fill("value", '{"a": [1, 2]}')
    browser.fill("headers", "source: console")
    browser.submit("Write")
    browser.wait_text("source console")
    assert browser.texts("pre") == ["k", '{ "a": [ 1, 2 ] }']


def test_keys(browser: Browser) -> None:
    browser.open("/")
    browser.press("?")
    browser.wait(lambda: browser.find("dialog").is_displayed(), "the keys are shown")
    browser.press(ESCAPE)
    browser.press("g", "t")
    browser.wait(lambda: browser.texts("h1") == ["Topics"], "the topics")
    browser.press("j", "j", "k", ENTER)
    browser.wait(lambda: browser.texts("h1") == ["many"], "the first topic")
    browser.open("/topics")
    browser.press("/", "o", "r", "d", ENTER)
    browser.wait(lambda: browser.texts("td[data-label=topic]") == ["orders"], "the topics found")


def test_pages_refresh_themselves(stage: Stage, browser: Browser) -> None:
    """What a visitor is typing stays."""

    async def write() -> None:
        async with Producer(stage.broker.address) as producer:
            await (await producer.send("orders", b"more"))

    browser.open("/topic?name=orders")
    before = browser.texts("td[data-label=records]")
    trio.run(write)
    browser.wait(lambda: browser.texts("td[data-label=records]") != before, "the record counts")
    browser.open("/topics")
    browser.fill("find", "half a na")
    browser.wait(lambda: browser.run("return performance.now()") > 3000, "it would have looked")
    assert browser.find("[name=find]").get_attribute("value") == "half a na"


def test_a_broker_is_killed_while_somebody_looks(stage: Stage, browser: Browser) -> None:
    """The page says which brokers were asked, and recovers once one of them answers."""
    browser.open("/topic?name=orders")
    browser.run("window.isTheSamePage = true")
    stage.broker.kill9()
    browser.wait_text(f"No broker answered at {stage.broker.address} within")
    assert "looks into it" in browser.text()
    browser.take_picture("no-broker")
    stage.broker.start()
    browser.wait(lambda: browser.texts("td[data-label=records]"), "the topic is back")
    assert browser.run("return window.isTheSamePage")
