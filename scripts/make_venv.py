"""Make or renew the checkout's .venv: the slow half of scripts/ensure_venv, which calls it.

Usage: make_venv.py ROOT [EXTRA ...], prints the path of the environment's python.

Versions and hashes are those of constraints.txt, a section for each group.

Rules: one process at a time (a lock on pyproject.toml, so that no lock file is left about); who
waited finds the work done; a stamp is written last, so an interrupted run is done again. Extras
once installed stay: what renews one renews all, so that no script undoes another's work.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Make the environment under the lock; messages go to stderr, the python's path to stdout."""
    root = Path(arguments[0])
    groups = ["base", *arguments[1:]]
    with (root / "pyproject.toml").open() as pyproject:
        fcntl.flock(pyproject, fcntl.LOCK_EX)
        constraints = (root / "scripts" / "constraints.txt").read_text()
        stamp = f"{root}\n{pyproject.read()}{constraints}"
        return make(root, groups, stamp)


def make(root: Path, groups: list[str], stamp: str) -> int:
    """Bring .venv to the state of `stamp`, keeping what still fits; return the exit code."""
    venv = root / ".venv"
    python = venv / "bin" / "python"
    missing = [group for group in groups if not is_fresh(venv, group, stamp)]
    if not missing and python.exists():
        print(python)
        return 0
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # A moved checkout keeps scripts that name the old path; a broken python cannot install.
    if not is_same_root(venv, root) or not works(python):
        report(f"making {venv} with Python {version} (first use, this takes a moment)")
        shutil.rmtree(venv, ignore_errors=True)
        if run([sys.executable, "-P", "-m", "venv", str(venv)]) != 0:
            return fail(f"could not make {venv} with {sys.executable}")
    else:
        groups += sorted(installed(venv) & extras_of(root) - set(groups))
        missing = [group for group in groups if not is_fresh(venv, group, stamp)]
        report(f"renewing {venv} for {', '.join(missing)}")
    if install(root, python, groups) != 0:
        return fail(f"could not install {', '.join(groups)} of {root} into {venv}")
    for stale in venv.glob("stamp-*"):
        if stale.read_text() != stamp:
            stale.unlink()
    for group in groups:
        (venv / f"stamp-{group}").write_text(stamp)
    print(python)
    return 0


def install(root: Path, python: Path, groups: list[str]) -> int:
    """Install what groups need, then the checkout itself; return the exit code.

    In two steps, since pip takes no checkout, which has no hash, where it checks hashes.
    """
    pip = [str(python), "-P", "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text("\n".join(locked(root, group) for group in groups))
        code = run([*pip, "--require-hashes", "--no-deps", "--requirement", str(wanted)])
    if code != 0:
        return code
    return run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)])


def locked(root: Path, group: str) -> str:
    """Return the section of constraints.txt with a group's requirements and their hashes."""
    sections = (root / "scripts" / "constraints.txt").read_text().split("\n\n# ")
    return next(text for text in sections if text.partition("\n")[0] == group).partition("\n")[2]


def is_fresh(venv: Path, group: str, stamp: str) -> bool:
    """Return whether the group was installed from these very pyproject.toml and constraints.txt."""
    path = venv / f"stamp-{group}"
    return path.exists() and path.read_text() == stamp


def installed(venv: Path) -> set[str]:
    """Return the groups that were installed, be it from another pyproject.toml."""
    return {path.name.removeprefix("stamp-") for path in venv.glob("stamp-*")}


def extras_of(root: Path) -> set[str]:
    """Return the names of the extras that there are."""
    with (root / "pyproject.toml").open("rb") as pyproject:
        return set(tomllib.load(pyproject)["project"]["optional-dependencies"])


def is_same_root(venv: Path, root: Path) -> bool:
    """Return whether the environment was made at the place where it now stands."""
    path = venv / "stamp-base"
    return path.exists() and path.read_text().partition("\n")[0] == str(root)


def works(python: Path) -> bool:
    """Return whether the environment's python starts and can install."""
    if not python.exists():
        return False
    probe = [str(python), "-P", "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run(command: list[str]) -> int:
    """Run a command with its output on stderr: stdout is for the result alone."""
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode


def report(text: str) -> None:
    """Print what is going on, for the person who waits."""
    print(f"kraftrio: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> int:
    """Say what failed, after the output of what failed."""
    report(text)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
