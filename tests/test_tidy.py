"""The house rules that no linter knows: who may import what, what a core may not do, how long.

`base` and `wire` import nothing of ours, `net` these two; `kraft_meta` and `clients` import all
three, and `broker` all but `clients`. A core is a state
machine without input or output: time, randomness and reads come in as arguments, writes go out as
values, so that a simulation can own them all.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("base", "wire", "net", "kraft_meta", "clients", "broker")

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 70

# Package -> what it may import of ours.
MAY_IMPORT = {
    "base": ("base",),
    "wire": ("wire",),
    "net": ("base", "wire", "net"),
    "kraft_meta": ("base", "wire", "net", "kraft_meta"),
    "clients": ("base", "wire", "net", "clients"),
    "broker": ("base", "wire", "net", "kraft_meta", "broker"),
}

FORBIDDEN = frozenset(
    {
        "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib",
        "queue", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
        "tempfile", "threading", "time", "trio",
    }
)  # fmt: skip

# Who may do what: all others are cores, or pure. The disk layer knows locks and the log; of it only
# files.py opens files.
WORKS_WITH = {
    "base/threads.py": {"async", "trio"},
    "broker/log/files.py": {"os"},
    "broker/log/**/*.py": {"logging", "threading"},
    "broker/metadata/auto_topics.py": {"logging"},
    "broker/node/broker_role.py": {"async", "logging", "trio"},
    "broker/controller/broker_sessions.py": {"async", "logging", "trio"},
    "broker/server/client_connection.py": {"async", "trio"},
    "base/clock.py": {"time", "trio"},
    "broker/config/config.py": {"socket"},
    "broker/controller/channel.py": {"async", "logging", "trio"},
    "broker/controller/client.py": {"async", "logging", "trio"},
    "broker/node/controller_role.py": {"async", "trio"},
    "broker/coordinator/runtime.py": {"async", "logging", "trio"},
    "broker/controller/departure.py": {"async", "logging", "trio"},
    "broker/replica/directory_assignments.py": {"logging"},
    "broker/replica/disk_errors.py": {"logging"},
    "broker/replica/full_directories.py": {"logging"},
    "broker/replica/isr_keeper.py": {"logging"},
    "broker/replica/isr_proposals.py": {"logging"},
    "base/line_output.py": {"os", "select", "threading"},
    "broker/node/local_cluster.py": {"async", "os", "signal", "socket", "subprocess", "trio"},
    "broker/upkeep/log_cleaner.py": {"async", "logging", "time", "trio"},
    "broker/upkeep/maintenance.py": {"async", "logging", "trio"},
    "base/logging_setup.py": {"logging", "time"},
    "broker/node/node.py": {"async", "logging", "os", "signal", "socket", "trio"},
    "broker/node/settings.py": {"logging"},
    "broker/controller/quorum_peers.py": {"async", "logging", "trio"},
    "broker/replica/follower/fetcher.py": {"async", "logging", "trio"},
    "broker/replica/manager.py": {"logging"},
    "broker/replica/moves.py": {"async", "logging", "trio"},
    "broker/server/server.py": {"async", "logging", "trio"},
    "broker/node/services.py": {"shutil"},
    "broker/node/stop_signals.py": {"signal", "trio"},
    "broker/server/sliced_work.py": {"async", "trio"},
    "base/timers.py": {"async", "trio"},
    "base/deferred.py": {"async", "trio"},
    "kraft_meta/quorum/news.py": {"logging"},
    "kraft_meta/quorum/service.py": {"async", "logging", "trio"},
    "net/*.py": {"async", "logging", "os", "socket", "trio"},
    "clients/**/*.py": {"async", *FORBIDDEN},
}


def modules(*patterns: str) -> list[str]:
    """Return the modules of the packages that fit the patterns, as paths below the checkout."""
    chosen = patterns or tuple(f"{package}/**/*.py" for package in PACKAGES)
    found = {path for pattern in chosen for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def parse(module: str) -> ast.Module:
    """Parse a module of the packages."""
    return ast.parse((ROOT / module).read_text(), module)


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, full dotted name) of everything that is imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("module", modules())
def test_import_law(module: str) -> None:
    """A package imports downwards only, and always through the public name kraftrio."""
    allowed = MAY_IMPORT[module.split("/")[0]]
    for line, name in imports(parse(module)):
        top, _, below = name.partition(".")
        assert top not in PACKAGES, f"{module}:{line}: write kraftrio.{name}"
        if top == "kraftrio":
            names = (*allowed, "__version__")
            fits = any(below == prefix or below.startswith(f"{prefix}.") for prefix in names)
            assert fits, f"{module}:{line}: {name} is above {module.split('/')[0]}"


@pytest.mark.parametrize("module", modules())
def test_only_shells_do_io(module: str) -> None:
    """A core has no async, no clock, no thread, no file, no socket and no log of its own."""
    allowed: set[str] = set()
    for pattern, names in WORKS_WITH.items():
        if module in modules(pattern):
            allowed |= names
    tree = parse(module)
    for line, name in imports(tree):
        top = name.split(".")[0]
        fits = top not in FORBIDDEN or top in allowed
        assert fits, f"{module}:{line}: this module may not import {top}"
    for node in ast.walk(tree):
        is_async = isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await)
        fits = not is_async or "async" in allowed
        assert fits, f"{module}:{getattr(node, 'lineno', 0)}: this module may not wait"


@pytest.mark.parametrize("module", modules())
def test_randomness_is_injected(module: str) -> None:
    """Nobody throws the dice of the module random: a generator comes in."""
    for node in ast.walk(parse(module)):
        is_dice = (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr not in {"Random", "SystemRandom"}
        )
        assert not is_dice, f"{module}:{getattr(node, 'lineno', 0)}: randomness is injected"


def test_no_permission_is_left_over() -> None:
    """WORKS_WITH names only what is there and is used."""
    for pattern, names in WORKS_WITH.items():
        if "*" in pattern:
            continue
        tree = parse(pattern)
        used = {name.split(".")[0] for _, name in imports(tree)}
        if any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree)):
            used.add("async")
        assert names <= used, f"{pattern} no longer needs {sorted(names - used)}"


@pytest.mark.parametrize("module", modules())
def test_size_limits(module: str) -> None:
    """Modules and functions stay short enough to be read whole."""
    source = (ROOT / module).read_text()
    line_count = len(source.splitlines())
    assert line_count <= MAX_MODULE_LINES, f"{module} has {line_count} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{module}: {node.name} has {length} lines"


@pytest.mark.parametrize("module", modules())
def test_module_says_what_it_is(module: str) -> None:
    """Each module begins with a docstring."""
    assert ast.get_docstring(parse(module)), f"{module} has no docstring"


@pytest.mark.parametrize("module", modules())
def test_nothing_is_left_undone(module: str) -> None:
    """No marks of work to come, and nothing that only pretends to be there."""
    source = (ROOT / module).read_text()
    mark = re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", source)
    assert not mark, f"{module}: {mark and mark.group(0)}"


def test_architecture_names_every_module() -> None:
    """ARCHITECTURE.md names each module, and no module that is not there."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"[\w/]*\w+\.py\b", text))
    present = [module for module in modules() if not module.endswith("__init__.py")]
    missing = [
        module
        for module in present
        if not any(module == name or module.endswith(f"/{name}") for name in named)
    ]
    assert not missing, f"not in ARCHITECTURE.md: {missing}"
    others = ("kraftrio", "scripts", "tests")
    files = modules(*(f"{folder}/**/*.py" for folder in (*PACKAGES, *others)))
    gone = [
        name
        for name in sorted(named)
        if not any(file == name or file.endswith(f"/{name}") for file in files)
    ]
    assert not gone, f"ARCHITECTURE.md names what is not there: {gone}"


def test_top_level_of_the_checkout() -> None:
    """Whoever opens the repository sees the packages and the papers, and nothing else."""
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return  # a copy without its history
    found = {path.split("/")[0] for path in done.stdout.splitlines()}
    folders = {*PACKAGES, "kraftrio", "scripts", "tests", "docs"}
    papers = {"pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"}
    others = {name for name in found - folders - papers if not name.startswith(".")}
    assert not others, f"not for the top level: {sorted(others)}"
