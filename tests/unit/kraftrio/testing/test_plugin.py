"""The plugin in a project of its own: scopes, wrong marks, the examples of docs/testing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

pytest_plugins = ["pytester"]

# As pytest-asyncio does it in its mode "auto": it takes every coroutine for its own.
_OTHER_PLUGIN = """
import inspect
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    made = yield
    for item in made if isinstance(made, list) else []:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = lambda **_: pytest.fail("run by another plugin")
    return made
"""

_PROJECT = """
import pytest
seen = []

@pytest.mark.kafka(scope="module")
@pytest.mark.parametrize("number", range(2))
def test_shared(kafka_broker, number):
    assert kafka_broker.topics == {}
    kafka_broker.produce("orders", "one")
    seen.append(kafka_broker.bootstrap_servers)
    assert len(set(seen)) == 1

@pytest.mark.parametrize("number", range(2))
def test_own(kafka_broker, number):
    assert kafka_broker.bootstrap_servers not in seen
    seen.append(kafka_broker.bootstrap_servers)

@pytest.mark.kafka(brokers=2)
def test_cluster(kafka_cluster):
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 2

@pytest.fixture(scope="module", autouse=True)
def case(request):
    from kraftrio.testing import KafkaBroker

    with KafkaBroker() as broker:
        broker.produce("orders", "one")
        broker.save(request.path.parent / "case.tar.zst")

@pytest.mark.kafka(scope="module", start="case.tar.zst")
@pytest.mark.parametrize("number", range(2))
def test_started(kafka_broker, number):
    kafka_broker.produce("orders", "two")
    assert len(kafka_broker.records("orders")) == 2

@pytest.mark.kafka(brokers=1, start="case.tar.zst")
async def test_started_world(kafka_world):
    assert len(await kafka_world.records("orders")) == 1

@pytest.mark.kafka(start="case.tar.zst")
def test_start_does_not_fit(kafka_cluster): ...

@pytest.mark.kafka(scope="module", start="case.tar.zst", in_process=False)
def test_start_elsewhere(kafka_broker): ...

@pytest.fixture
def servers(kafka_world):
    return lambda: kafka_world.bootstrap_servers

async def test_fixture_of_its_own(servers):
    assert servers() == "n1:9092,n2:9092,n3:9092"

@pytest.mark.kafka(scope="week")
def test_scope(kafka_broker): ...

@pytest.mark.kafka(borkers=3)
def test_name(kafka_cluster): ...

@pytest.mark.kafka(3)
def test_position(kafka_cluster): ...

@pytest.mark.kafka(disk="tape")
def test_disk(kafka_broker): ...
"""


def _examples() -> dict[str, str]:
    """The examples of the documentation, by page."""
    blocks = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return {
        f"test_{page.stem.replace('-', '_')}": "\n".join(blocks.findall(page.read_text()))
        for page in sorted((ROOT / "docs" / "testing").glob("*.md"))
    }


def test_a_project(pytester: pytest.Pytester) -> None:
    """Shared brokers are empty for each test; what a wrong mark should be is said in a sentence."""
    examples = _examples()
    pytester.makeconftest(_OTHER_PLUGIN)
    pytester.makepyfile(test_project=_PROJECT, **examples)
    passed = 9 + sum(text.count("def test_") for text in examples.values())
    result = pytester.runpytest_subprocess("-p", "kraftrio.testing.plugin", "--strict-markers")
    result.assert_outcomes(passed=passed, errors=6)
    result.stdout.fnmatch_lines_random(
        [
            "@pytest.mark.kafka(scope='week'): expected function, module or session",
            "*knows no 'borkers': expected one of scope, brokers, config, disk, in_process*",
            "*a cluster with 1 node, and this one has 3 nodes: make it with brokers=1*",
            "*cannot go back for the next test; add scope='function'",
            "*takes names only, such as brokers=3, not 3*",
            "@pytest.mark.kafka(disk='tape'): expected memory or folder",
        ]
    )


_DUPLICATES = """
import pytest
import trio
from kraftrio import Producer

@pytest.mark.kafka(brokers=1)
@pytest.mark.kafka_faults(seeds=40)
async def test_each_order_is_there_once(kafka_world):
    await kafka_world.create_topic("orders", 1)
    async with Producer(kafka_world.bootstrap_servers, enable_idempotence=False) as producer:
        for number in range(20):
            await producer.send("orders", str(number).encode())
            await trio.sleep(1)
    assert len(await kafka_world.records("orders")) == 20

@pytest.mark.kafka_faults(seed=7)
async def test_wrong_mark(kafka_world): ...

@pytest.mark.kafka_faults
def test_not_async(kafka_world): ...

@pytest.mark.kafka_faults
async def test_without_world(): ...

@pytest.fixture
def servers(kafka_world):
    return lambda: kafka_world.bootstrap_servers

@pytest.mark.kafka_faults
async def test_old_world(servers): ...

def test_real_sockets(kafka_broker):
    kafka_broker.produce("orders", "one")
    assert kafka_broker.records("orders") == []

@pytest.mark.kafka(in_process=False)
def test_without_a_story(kafka_broker):
    assert kafka_broker.topics == {}
"""


def _run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "kraftrio.testing.plugin", *options)


def _faults(result: pytest.RunResult) -> list[str]:
    """The faults that a run is said to fail under."""
    return re.findall(r"^E\s+(\d+\.\d\d s: .*)$", result.stdout.str(), re.MULTILINE)


def _story(page: Path) -> str:
    """The story of the one test that fails by faults."""
    section = page.read_text().partition("test_each_order_is_there_once: failed</h2>")[2]
    return section.partition("</table>")[0]


def test_faults_are_found_replayed_and_shrunk(pytester: pytest.Pytester) -> None:
    """A producer without idempotence writes twice what was not answered: one fault shows it."""
    pytester.makepyfile(_DUPLICATES)
    found = _run(pytester, "--kafka-report", "found.html")
    found.assert_outcomes(failed=4, passed=1, errors=2)
    found.stdout.re_match_lines(
        [
            r"E\s+AssertionError: assert 21 == 20",
            r"E\s+seed \d+ fails; replay it with --kafka-seed \d+; faults:",
            r"E\s+\d+\.\d\d s: \w.*",
            r".*story of the run.*",
        ]
    )
    story = _story(pytester.path / "found.html")
    assert "<tr class=fault>" in story
    stories = (pytester.path / "found.html").read_text()
    assert "test_real_sockets: failed</h2>" in stories
    assert "Produce to n1: orders-0 1 record; orders-0=0 after" in stories
    assert "test_without_a_story" not in stories  # its broker is in another process
    found.stdout.fnmatch_lines_random(
        [
            "*takes seeds=N, how often to play the test*",
            "*let it take kafka_world itself*",
            "*a test marked kafka_faults is `async def` and takes kafka_world*",
        ]
    )
    seed = re.findall(r"--kafka-seed (\d+)", found.stdout.str())[0]
    chosen = ("-k", "each_order", "--kafka-seed", seed)
    replayed = _run(pytester, *chosen, "--kafka-report", "replayed.html")
    assert _faults(replayed) == _faults(found)
    assert _story(pytester.path / "replayed.html") == story
    (cause,) = _faults(_run(pytester, *chosen, "--kafka-shrink"))
    assert cause in _faults(found) and len(_faults(found)) > 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--kafka-seed", "one"], "'one' is no seed: give the number that a failing run named"),
        (["--kafka-seed", "-1"], "'-1' is no seed: give the number that a failing run named"),
        (["--kafka-report", "nowhere/r.html"], "--kafka-report nowhere/r.html: there is no such"),
        (["--kafka-scope", "week"], "--kafka-scope: invalid choice: 'week'"),
    ],
)
def test_wrong_options(pytester: pytest.Pytester, options: list[str], sentence: str) -> None:
    result = _run(pytester, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in result.stderr.str() and "Traceback" not in result.stderr.str()


_LEAKS = """
import time
import pytest
from kraftrio import Consumer, Producer

pytestmark = pytest.mark.kafka(brokers=2)
BEGAN = time.time()

async def use(world):
    assert [world.node(number).is_running for number in (1, 2)] == [True, True]
    assert abs(time.time() - 1_700_000_000) < 10
    await world.produce("orders", "one")
    async with Producer(world.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"two")
        assert world.now_s < 1
    assert len(await world.records("orders")) == 2
    assert not {"fault", "hang"} & {line.split()[2] for line in world.story().splitlines()}

async def test_breaks(kafka_world):
    await use(kafka_world)
    kafka_world.move_clocks(90_000)
    kafka_world.node(1).move_clock(-60)
    kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS")
    kafka_world.lose_answer("Produce")
    kafka_world.delay("Metadata", seconds=60)
    kafka_world.duplicate("Produce")
    kafka_world.links.isolate("program")
    kafka_world.node(1).fill_disk()
    kafka_world.node(1).pause()
    kafka_world.node(2).fail_disk()
    kafka_world.node(2).cut_power()
    raise OSError("of the test")

async def test_is_whole(kafka_world):
    assert abs(BEGAN - time.time()) > 86_400, "it is the world's time"
    await use(kafka_world)

@pytest.mark.kafka_faults(seeds=1)
async def test_breaks_by_itself(kafka_world):
    import trio
    await trio.sleep(1)

async def test_is_whole_after_that(kafka_world):
    await use(kafka_world)

def test_time_is_real():
    assert 0 <= time.time() - BEGAN < 600
"""


def test_no_fault_outlives_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_LEAKS)
    result = _run(pytester)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["E*OSError: of the test"])
