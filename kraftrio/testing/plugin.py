"""The pytest plugin: `kafka_broker`, `kafka_cluster`, `kafka_world`, and the mark `kafka`.

Rules:
1. A project that does not use it pays nothing: brokers are imported when a fixture is asked for.
2. What a test gets is empty, or as its `start` says. Brokers of the scope "module" or "session"
   are made so again between tests, and only tests with the same mark share them.
3. An async test that takes `kafka_world` runs in that world, whatever runs other async tests.
4. Each worker of pytest-xdist has brokers of its own, on ports of their own.

Called by: pytest, through the entry point `pytest11`.
"""

from __future__ import annotations

import functools
import inspect
from argparse import ArgumentTypeError
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from kraftrio.testing.cluster import KafkaBroker, KafkaCluster
    from kraftrio.testing.faults.plan import Fault
    from kraftrio.testing.kafka_world import KafkaWorld
    from kraftrio.testing.snapshots.snapshot import Snapshot

_MARK = (
    "kafka(scope='function', brokers=3, config={}, disk='memory', in_process=True,"
    " start=None): what the brokers of kafka_broker, kafka_cluster and kafka_world are like"
)
_FAULTS_MARK = (
    "kafka_faults(seeds=20): play a test that takes kafka_world so many times, each time under"
    " other faults"
)
_STORY = "kafka_story"
_STORY_LINES = 80
_SCOPES = ("function", "module", "session")


@dataclass(frozen=True)
class ClusterRequest:
    """What a test asks for with the mark `kafka`."""

    scope: str = "function"
    brokers: int = 3
    config: dict[str, object] = field(default_factory=dict)
    disk: Literal["memory", "folder"] = "memory"
    in_process: bool = True
    start: Snapshot | str | PathLike[str] | None = None

    @property
    def key(self) -> str:
        """Tests with the same one share brokers."""
        start = self.start if isinstance(self.start, str) else id(self.start)
        return repr((self.brokers, sorted(self.config.items()), self.disk, self.in_process, start))

    def snapshot(self, brokers: int) -> Snapshot | None:
        """What a cluster of so many nodes begins with."""
        if self.start is None:
            return None
        from kraftrio.testing.snapshots.errors import SnapshotError
        from kraftrio.testing.snapshots.snapshot import snapshot_at

        try:
            return snapshot_at(self.start, brokers)
        except SnapshotError as error:
            _refuse(f"@pytest.mark.kafka(start=...): {error}")


def _seed(text: str) -> int:
    """Read a seed from the command line."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no seed: give the number that a failing run named")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the scope of brokers as an option and as a setting of the project."""
    text = "how long brokers live that no mark says more about: function, module or session"
    group = parser.getgroup("kafka")
    group.addoption(
        "--kafka-seed",
        type=_seed,
        metavar="N",
        default=None,
        help="the one seed to play tests in kafka_world with",
    )
    group.addoption(
        "--kafka-shrink",
        action="store_true",
        help="look for the fewest faults with which a test marked kafka_faults fails",
    )
    group.addoption(
        "--kafka-report",
        metavar="FILE",
        help="write what has happened in each test with brokers as a page of HTML",
    )
    group.addoption("--kafka-scope", choices=_SCOPES, default=None, help=text)
    parser.addini("kafka_scope", text, default="function")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and look at the setting."""
    config.addinivalue_line("markers", _MARK)
    config.addinivalue_line("markers", _FAULTS_MARK)
    path = config.getoption("--kafka-report")
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise pytest.UsageError(f"--kafka-report {path}: there is no such folder")
    if path is not None and not hasattr(config, "workerinput"):  # no worker of pytest-xdist
        config.pluginmanager.register(_Report(path), "kafka-report")
    scope = config.getini("kafka_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"kafka_scope is {scope!r}: expected function, module or session")


class BrokerPool:
    """Starts brokers, and keeps those that tests share until it is closed."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._shared: dict[str, KafkaCluster] = {}

    def start(self, requested: ClusterRequest, brokers: int) -> KafkaCluster:
        """Start a cluster of a test's own."""
        from kraftrio.testing.cluster import KafkaBroker, KafkaCluster

        folder = self._folders.mktemp("kafka") if requested.disk == "folder" else None
        make = KafkaBroker if brokers == 1 else functools.partial(KafkaCluster, brokers)
        return make(
            config=requested.config,
            folder=folder,
            in_process=requested.in_process,
            start=requested.snapshot(brokers),
        ).start()

    @contextmanager
    def lend(self, requested: ClusterRequest, brokers: int) -> Iterator[KafkaCluster]:
        """Give a test a cluster, as it began, that others have had or will have."""
        key = f"{brokers} {requested.key}"
        cluster = self._shared.get(key)
        if cluster is None:
            cluster = self._shared[key] = self.start(requested, brokers)
        elif (snapshot := requested.snapshot(brokers)) is not None:
            cluster.restore(snapshot)
        else:
            cluster.reset()
        if cluster.life.has_story:
            cluster.life.begin_story()
        yield cluster
        if cluster.life.failures or not cluster.life.is_whole:
            del self._shared[key]  # no other test is to meet what this one has broken
            cluster.stop()

    def close(self) -> None:
        """Stop all of them."""
        while self._shared:
            self._shared.popitem()[1].stop()


def _refuse(text: str) -> NoReturn:
    """End a test that is written wrongly with a sentence, without our code in the report."""
    pytest.fail(text, pytrace=False)


def _requested(item: pytest.Item) -> ClusterRequest:
    mark = item.get_closest_marker("kafka")
    config = item.config
    default = config.getoption("--kafka-scope") or config.getini("kafka_scope")
    if mark is None:
        return ClusterRequest(scope=default)
    if mark.args:
        _refuse(f"@pytest.mark.kafka takes names only, such as brokers=3, not {mark.args[0]!r}")
    known = list(ClusterRequest.__dataclass_fields__)
    for name in mark.kwargs:
        if name not in known:
            _refuse(f"@pytest.mark.kafka knows no {name!r}: expected one of {', '.join(known)}")
    requested = ClusterRequest(**{"scope": default, **mark.kwargs})
    if requested.scope not in _SCOPES:
        _refuse(
            f"@pytest.mark.kafka(scope={requested.scope!r}): expected function, module or session"
        )
    if requested.disk not in ("memory", "folder"):
        _refuse(f"@pytest.mark.kafka(disk={requested.disk!r}): expected memory or folder")
    if requested.start is not None and requested.scope != "function" and not requested.in_process:
        _refuse(
            "@pytest.mark.kafka(start=..., in_process=False): brokers in a process of their own"
            " cannot go back for the next test; add scope='function'"
        )
    if isinstance(requested.start, str | PathLike):
        requested = replace(requested, start=str(item.path.parent / requested.start))
    return requested


@pytest.fixture(scope="session")
def kafka_session_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPool]:
    """The brokers of the scope "session"."""
    pool = BrokerPool(tmp_path_factory)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def kafka_module_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPool]:
    """The brokers of the scope "module"."""
    pool = BrokerPool(tmp_path_factory)
    yield pool
    pool.close()


@contextmanager
def _provided(
    request: pytest.FixtureRequest, requested: ClusterRequest, brokers: int
) -> Iterator[KafkaCluster]:
    if requested.scope == "function":
        folders = request.getfixturevalue("tmp_path_factory")
        cluster = BrokerPool(folders).start(requested, brokers)
        yield cluster
        cluster.stop()
    else:
        pool: BrokerPool = request.getfixturevalue(f"kafka_{requested.scope}_pool")
        with pool.lend(requested, brokers) as cluster:
            yield cluster


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """One broker with real sockets, empty; see the mark `kafka`."""
    with _provided(request, _requested(request.node), 1) as cluster:
        yield cast("KafkaBroker", cluster)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A replicated cluster with real sockets, empty; see the mark `kafka`."""
    requested = _requested(request.node)
    with _provided(request, requested, requested.brokers) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that leaves clients or tasks open which it has opened."""
    if not {"kafka_broker", "kafka_cluster"}.intersection(pyfuncitem.fixturenames):
        return (yield)
    from kraftrio.clients.diagnostics.open_clients import open_clients
    from kraftrio.testing.asyncio_tasks import watched_tasks
    from kraftrio.testing.leftovers import LeftOpen, new_clients

    before = open_clients()
    with watched_tasks() as left_tasks:
        result = yield
        left = [*map(repr, new_clients(before)), *left_tasks()]
    if left:
        raise LeftOpen(left)
    return result


# -- virtual time ---------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a mark that would have no effect."""
    if item.get_closest_marker("kafka_faults") is None:
        return
    if not (
        isinstance(item, pytest.Function)
        and "kafka_world" in item.fixturenames
        and inspect.iscoroutinefunction(inspect.unwrap(item.obj))
    ):
        _refuse("a test marked kafka_faults is `async def` and takes kafka_world")


@pytest.fixture
def kafka_world(request: pytest.FixtureRequest) -> KafkaWorld:
    """A replicated cluster in virtual time, in which an async test runs; see the mark `kafka`."""
    return _new_world(request.node, request.config.getoption("--kafka-seed") or 0, ())


def _new_world(item: pytest.Item, seed: int, faults: Sequence[Fault]) -> KafkaWorld:
    from kraftrio.testing.kafka_world import KafkaWorld

    requested = _requested(item)
    start = requested.snapshot(requested.brokers)
    return KafkaWorld(seed, requested.brokers, config=requested.config, faults=faults, start=start)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Let async tests that take `kafka_world` run in it.

    Innermost of all wrappers: those of other plugins, which look for coroutines to run them their
    way, find none.
    """
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if (
            isinstance(item, pytest.Function)
            and "kafka_world" in item.fixturenames
            and inspect.iscoroutinefunction(item.obj)
        ):
            item.obj = _in_world(item, item.obj)
    return made


def _in_world(item: pytest.Function, test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        mark = item.get_closest_marker("kafka_faults")
        if mark is None:
            world = item.funcargs["kafka_world"]  # which fixtures of the test's own may use, too
            cast("KafkaWorld", world).run(functools.partial(test, **arguments))
        else:
            _play_seeds(item, test, arguments, _seeds(item, mark))

    run._trio_test_runner_wrapped = True  # type: ignore[attr-defined] # for pytest-trio
    return run


def _seeds(item: pytest.Item, mark: pytest.Mark) -> Sequence[int]:
    count = mark.kwargs.get("seeds", 20)
    if mark.args or set(mark.kwargs) - {"seeds"} or not isinstance(count, int) or count < 1:
        _refuse("@pytest.mark.kafka_faults takes seeds=N, how often to play the test")
    chosen = item.config.getoption("--kafka-seed")
    return range(1, count + 1) if chosen is None else [chosen]


def _play_seeds(
    item: pytest.Function, test: Callable[..., Any], arguments: dict[str, Any], seeds: Sequence[int]
) -> None:
    """Play a test under the faults of each seed, until one fails it."""
    if "kafka_world" not in arguments:
        _refuse(
            "a test marked kafka_faults has a new world each time: let it take kafka_world itself"
        )
    from kraftrio.testing.faults.plan import drawn, shrunk

    def play(seed: int, faults: Sequence[Fault]) -> Exception | None:
        world = arguments["kafka_world"] = item.funcargs["kafka_world"] = _new_world(
            item, seed, faults
        )
        try:
            world.run(functools.partial(test, **arguments))
        except Exception as error:
            return error
        return None

    def fails(seed: int, faults: Sequence[Fault]) -> bool:
        return play(seed, faults) is not None

    for seed in seeds:
        faults = drawn(seed, _requested(item).brokers)
        error = play(seed, faults)
        if error is None:
            continue
        if item.config.getoption("--kafka-shrink"):
            faults = shrunk(faults, functools.partial(fails, seed))
            error = play(seed, faults) or error
        listed = "".join(f"\n  {fault}" for fault in faults) or " none: it fails without faults"
        error.add_note(f"seed {seed} fails; replay it with --kafka-seed {seed}; faults:{listed}")
        raise error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the story of the run of a test that failed with brokers of ours."""
    report = yield
    source = _story_source(item)
    if source is None or report.when != "call":
        return report
    is_wanted = item.config.getoption("--kafka-report")
    if not report.failed and not is_wanted:
        return report
    story = source.story()
    if report.failed:
        report.sections.append(("story of the run", "\n".join(story.splitlines()[-_STORY_LINES:])))
    if is_wanted:
        report.user_properties.append((_STORY, story))  # which xdist hands on
    return report


def _story_source(item: pytest.Item) -> KafkaWorld | KafkaCluster | None:
    """The object that has the story of a test's run."""
    given = getattr(item, "funcargs", {})
    if "kafka_world" in given:
        return cast("KafkaWorld", given["kafka_world"])
    cluster: KafkaCluster | None = given.get("kafka_cluster") or given.get("kafka_broker")
    return cluster if cluster is not None and cluster.life.has_story else None


class _Report:
    """Gathers stories, and writes the page at the end."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stories: list[tuple[str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._stories += [
            (report.nodeid, report.outcome, str(text))
            for name, text in report.user_properties
            if report.when == "call" and name == _STORY
        ]

    def pytest_sessionfinish(self) -> None:
        from kraftrio.testing.story import page

        self._stories.sort(key=lambda story: story[1] != "failed")
        self._path.write_text(page(self._stories), encoding="utf-8")
