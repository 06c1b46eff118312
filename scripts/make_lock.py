"""Renew scripts/constraints.txt: each version that scripts/ensure_venv installs, with its hashes.

    python scripts/make_lock.py [--upgrade]         needs `uv` on PATH (pip install uv)

Without --upgrade what is pinned stays so as long as pyproject.toml allows it. A section holds what
one group of pyproject.toml needs, for every Python and system that we run on; what several groups
need is in several sections, at the same version.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "scripts" / "constraints.txt"
HEAD = """\
# What scripts/ensure_venv installs, by group: the same tools for each check, today and tomorrow;
# pip takes no archive whose hash is not here. Written by scripts/make_lock.py.
"""
COMPILE = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
OPTIONS = ["--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url"]


def main(arguments: list[str]) -> int:
    """Write the file again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    build = project["build-system"]["requires"]
    wanted = {"base": [*project["project"]["dependencies"], *build], **extras}
    known = "" if "--upgrade" in arguments else pins_of(LOCK.read_text())
    # All groups at once first: one version of each for all of them.
    pins = pins_of(compiled([part for group in wanted.values() for part in group], known))
    sections = [f"# {name}\n{compiled(group, pins)}" for name, group in wanted.items()]
    LOCK.write_text("\n".join([HEAD, *sections]))
    return 0


def pins_of(lock: str) -> str:
    """Return the requirements of a lock without their hashes."""
    lines = [line.rstrip(" \\") for line in lock.splitlines() if "==" in line]
    return "\n".join(dict.fromkeys(line for line in lines if not line.startswith("#")))


def compiled(requirements: list[str], constraints: str) -> str:
    """Return the requirements with all that they need, pinned and with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, bounds = Path(folder, "wanted.txt"), Path(folder, "bounds.txt")
        wanted.write_text("\n".join(requirements))
        bounds.write_text(constraints)
        command = [*COMPILE, *OPTIONS, str(wanted), "--constraint", str(bounds)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
