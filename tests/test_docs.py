"""The documentation holds together: made pages are up to date, links lead somewhere, it is a site.

That what it shows works is tested in tests/docs, by playing its pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from kraftrio.commands.root import root

ROOT = Path(__file__).resolve().parent.parent
PAPERS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {*ROOT.glob("docs/changes/*.md")}
)
WRITTEN = [path for path in PAPERS if path.parent != ROOT]

_LINK = re.compile(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:`|^\$ |\| )(?:scripts/)?kraftrio ([a-z][^`\n]*)", re.MULTILINE)


def test_the_reference_is_made_from_the_code() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "make_docs.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(path: Path) -> None:
    """As plain files are read: each link names a file that is there, and a heading in it."""
    dead = []
    for target in _LINK.findall(_FENCE.sub("", path.read_text())):
        if urlsplit(target).scheme:
            continue
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            dead.append(target)
    assert not dead


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", path.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_exist(path: Path) -> None:
    """Each `kraftrio` command has these words and these options."""
    wrong = []
    for line in _COMMAND.findall(path.read_text()):
        words = re.split(r"\s*[|;&<>$\\]", line)[0].split()
        command: click.Command = root
        while isinstance(command, click.Group) and words and words[0][0].islower():
            found = command.get_command(click.Context(command), words[0])
            if found is None:
                break
            command = found
            words.pop(0)
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        unknown = {word for word in words if word.startswith("--") and word not in known}
        if command is root or unknown:
            wrong.append(f"kraftrio {line}")
    assert not wrong


class _Page(HTMLParser):
    """The links and the anchors of a page of the site."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def test_the_site(tmp_path: Path) -> None:
    """It is built without a warning, no link is dead, and nothing comes from elsewhere."""
    pytest.importorskip("mkdocs", reason="scripts/ensure_venv docs installs mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", str(ROOT / "scripts" / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    pages = {path: _Page(path) for path in tmp_path.rglob("*.html")}
    assert len(pages) > 20
    assert not [f"{path.relative_to(tmp_path)}: {link}" for path, link in dead_links(pages)]
    index = (tmp_path / "search" / "search_index.json").read_text()
    assert "log.retention.ms" in index and "ProducerFencedError" in index


def dead_links(pages: dict[Path, _Page]) -> Iterator[tuple[Path, str]]:
    """Yield the links of a site that lead nowhere, or away from it to fetch something."""
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are for wherever it is shown
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if not link.startswith("https://") or link.endswith((".js", ".css")):
                    yield path, link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            anchor = unquote(parts.fragment)
            if not target.exists() or (known and anchor and anchor not in known.anchors):
                yield path, link
