"""The house rules that no linter knows: who may import what, what a core may not do, how long.

The law of imports is wire <- kraft_meta <- broker, and clients sees wire alone. A core is a state
machine without input or output: time, randomness and reads come in as arguments, writes go out as
values, so that a simulation can own them all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("wire", "kraft_meta", "clients", "broker")

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 70

# Package -> what it may import of ours, as prefixes below kraftrio.
MAY_IMPORT = {
    "wire": ("wire",),
    "kraft_meta": ("wire", "kraft_meta"),
    "clients": ("wire", "clients"),
    "broker": ("wire", "kraft_meta", "broker", "clients.connection"),
}

CORES = (
    "wire/**/*.py",
    "kraft_meta/records.py",
    "kraft_meta/quorum_state.py",
    "kraft_meta/raft*.py",
    "kraft_meta/image.py",
    "kraft_meta/controller.py",
    "kraft_meta/*_control.py",
    "broker/partition_state.py",
    "broker/producer_state.py",
    "broker/fetch_session.py",
    "broker/coordinator/group_state.py",
    "broker/coordinator/offset_state.py",
    "broker/log/leader_epoch_cache.py",
)

FORBIDDEN_IN_CORES = frozenset(
    {
        "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib",
        "queue", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
        "tempfile", "threading", "time", "trio",
    }
)  # fmt: skip


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
            fits = any(below == prefix or below.startswith(f"{prefix}.") for prefix in allowed)
            assert fits, f"{module}:{line}: {name} is above {module.split('/')[0]}"


@pytest.mark.parametrize("module", modules(*CORES))
def test_cores_do_no_io(module: str) -> None:
    """A core has no async, no clock, no thread, no file, no socket and no log of its own."""
    tree = parse(module)
    for line, name in imports(tree):
        top = name.split(".")[0]
        assert top not in FORBIDDEN_IN_CORES, f"{module}:{line}: a core may not import {top}"
    for node in ast.walk(tree):
        is_async = isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await)
        assert not is_async, f"{module}:{getattr(node, 'lineno', 0)}: a core is not async"
        is_dice = (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr != "Random"
        )
        assert not is_dice, f"{module}:{getattr(node, 'lineno', 0)}: randomness is injected"


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
