"""The house rules: who may import what, what a core may not do, how long.

Who may import what stands in pyproject.toml as contracts for import-linter. A core is a state
machine without input or output: time, randomness and reads come in as arguments, writes go out as
values, so that a simulation can own them all.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.support.import_laws import CONTRACTS, broken_by, import_graph

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "base",
    "wire",
    "net",
    "kraft_meta",
    "clients",
    "broker",
    "kraftrio/commands",
    "kraftrio/testing",
)

TEXTS = (".py", ".md", ".toml", ".yml", ".j2", ".html", ".sh", "scripts/check", "scripts/bench")
MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 70
MAX_METHODS = 30
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef

# Of the modules that may not wait these open files, by the builtin.
MAY_OPEN = {
    "broker/config/config.py",
    "broker/log/files.py",
    "kraftrio/testing/snapshots/archive.py",
    "kraftrio/testing/snapshots/folders.py",
}

# Ports and wrappers of what waits: they do not wait themselves, so that they import no Trio.
PASS_WAITING_ON = {
    "broker/controller/other_clusters.py",
    "broker/server/admission/admission.py",
    "kraft_meta/quorum/ready_writer.py",
    "kraftrio/commands/node_console.py",
    "kraftrio/testing/faults/on_demand.py",
    "kraftrio/testing/subjects.py",
    "kraftrio/testing/world_cluster.py",
    "net/sasl/credentials.py",
    "net/secured_network.py",
}


# Methods by which libraries call us, and those that are called by names put together.
CALLED_BY_NAME = re.compile(
    r"__\w+__|test_\w+|Test\w*|pytest_\w+|visit_\w+|handle_\w+|_make_\w+|format_commands|shell_complete|streamWriter"
    r"|start_clock|deadline_to_sleep_time|redirect_request|log_message"
)


def modules(*patterns: str) -> list[str]:
    """Return the modules of the packages that fit the patterns, as paths below the checkout."""
    chosen = patterns or tuple(f"{package}/**/*.py" for package in PACKAGES)
    found = {path for pattern in chosen for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def parse(module: str) -> ast.Module:
    """Parse a module of the packages."""
    return ast.parse((ROOT / module).read_text(), module)


@cache
def all_nodes() -> list[tuple[str, str, ast.stmt | ast.expr]]:
    """Return (module, "module:line", node) of what the rules look at, in all packages."""
    kinds = ast.stmt | ast.Await | ast.Name | ast.Attribute
    return [
        (module, f"{module}:{node.lineno}", node)
        for module in modules()
        for node in ast.walk(parse(module))
        if isinstance(node, kinds)
    ]


@pytest.mark.parametrize("name", CONTRACTS)
def test_contract_is_kept(name: str) -> None:
    """Our imports keep the contract; an exemption that matches no import is an error."""
    broken = broken_by(CONTRACTS[name])
    assert not broken, f"{CONTRACTS[name]['name']}: {broken}"


def test_imports_are_by_full_name() -> None:
    """What is ours is imported by its public name: kraftrio.wire..., neither wire... nor dots."""
    faults = []
    for _, line, node in all_nodes():
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." if node.level else node.module or ""]
        faults += [f"{line}: {name}" for name in names if name.split(".")[0] in {"", *PACKAGES}]
    assert not faults


def test_cores_do_not_wait() -> None:
    """What imports Trio is not a core; nothing else has an `async`, but for those named above."""
    faults = []
    passing_on = set()
    waiting = ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
    for module, line, node in all_nodes():
        if isinstance(node, waiting) and not module.startswith("clients/"):
            path = module.removesuffix(".py").removesuffix("/__init__")
            name = "kraftrio." + path.removeprefix("kraftrio/").replace("/", ".")
            if "trio" not in import_graph().find_modules_directly_imported_by(name):
                passing_on.add(module)
                if module not in PASS_WAITING_ON:
                    faults.append(line)
    assert not faults
    assert passing_on == PASS_WAITING_ON


def test_few_open_files() -> None:
    """The builtin `open` is an import of nothing: who uses it is named here."""
    users = {
        module
        for module, _, node in all_nodes()
        if isinstance(node, ast.Name) and node.id == "open" and not module.startswith("clients/")
    }
    assert users == MAY_OPEN


def test_randomness_is_injected() -> None:
    """Nobody throws the dice of the module random: a generator comes in."""
    faults = [
        line
        for _, line, node in all_nodes()
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
        and node.attr not in {"Random", "SystemRandom"}
    ]
    faults += [
        line
        for _, line, node in all_nodes()
        if isinstance(node, ast.ImportFrom) and node.module == "random"
    ]
    assert not faults


def test_size_limits() -> None:
    """Modules and functions stay short enough to be read whole, and classes to be surveyed."""
    counts = {module: (ROOT / module).read_text().count("\n") for module in modules()}
    faults = [f"{name}: {lines}" for name, lines in counts.items() if lines > MAX_MODULE_LINES]
    for _, line, node in all_nodes():
        if isinstance(node, _FUNCTION):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                faults.append(f"{line}: {node.name} has {length} lines")
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, _FUNCTION) for each in node.body)
            if methods > MAX_METHODS:
                faults.append(f"{line}: {node.name} has {methods} methods")
    assert not faults


def test_modules_say_what_they_are() -> None:
    """Each module begins with a docstring."""
    assert not [module for module in modules() if not ast.get_docstring(parse(module))]


def test_nothing_is_left_undone() -> None:
    """No marks of work to come, and nothing that only pretends to be there."""
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert not [module for module in modules() if marks.search((ROOT / module).read_text())]


def test_whatever_is_defined_is_used() -> None:
    """No function and no class that is named nowhere but where it is defined.

    Those with a decorator are left out, which may hand them to somebody.
    """
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split() if name.endswith(TEXTS)]
    texts = {name: (ROOT / name).read_text() for name in names if (ROOT / name).exists()}
    counts = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    definition = re.compile(r"^(.*)\n[ \t]*(?:async def|def|class) (\w+)", re.MULTILINE)
    unused = [
        f"{name}: {defined}"
        for name, text in texts.items()
        if name.endswith(".py")
        for before, defined in definition.findall(text)
        # A method `_kill` may be called by the word "kill", with getattr.
        if counts[defined] == 1 and (counts[defined[1:]] == 0 or not defined.startswith("_"))
        if not before.lstrip().startswith(("@", ")"))  # the end of a decorator
        if not CALLED_BY_NAME.fullmatch(defined)
    ]
    assert not unused


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
    folders = {*PACKAGES, "kraftrio", "scripts", "tests", "docs", "deploy"}
    papers = {"pyproject.toml", "LICENSE"}
    papers |= {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    others = {name for name in found - folders - papers if not name.startswith(".")}
    assert not others, f"not for the top level: {sorted(others)}"


def test_changes_are_named_by_their_kind() -> None:
    """A fragment of the changelog is NAME.KIND.md, and says something."""
    kinds = {"added", "changed", "fixed"}
    for path in (ROOT / "docs" / "changes").iterdir():
        if path.name == "README.md":
            continue
        name, kind, *rest = path.name.split(".")
        assert name and kind in kinds and rest == ["md"], path.name
        assert path.read_text().strip(), f"{path.name} is empty"


def test_contributing_names_what_is_there() -> None:
    """The files that a newcomer is sent to exist, and each walk opens none of them twice."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`([\w/]+/\w+\.py)`", text)
    gone = [name for name in named if not (ROOT / name).exists()]
    assert not gone
    for walk in re.findall(r"^\*\*\w+, (?:.|\n)*?\n\n", text, re.MULTILINE):
        files = re.findall(r"`([\w/]+/\w+\.py)`", walk)
        count = re.match(r"\*\*\w+, (\d+) files", walk)
        assert count is not None
        assert len(files) == len(set(files)) == int(count[1]), walk.split(",")[0]


def test_what_is_installed_is_pinned_with_hashes() -> None:
    """The lock has a section for each group of dependencies, with all that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["project"]["optional-dependencies"]
    named["base"] = project["project"]["dependencies"] + project["build-system"]["requires"]
    lock = (ROOT / "scripts" / "constraints.txt").read_text()
    assert "://" not in lock
    sections = {text.partition("\n")[0]: text for text in lock.split("\n\n# ")[1:]}
    for group, requirements in named.items():
        pins = re.findall(r"^([\w.-]+)==\S+(.*)", sections.pop(group), re.MULTILINE)
        assert all(rest.endswith("\\") for _, rest in pins), f"one of {group} has no hash"
        wanted = {re.split(r"[^\w-]", text)[0] for text in requirements}
        assert wanted <= {name for name, _ in pins}, f"run scripts/make_lock.py for {group}"
    assert not sections, "groups that there are no more"
