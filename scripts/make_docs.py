"""Renew the pages of docs/reference that are made from tables in the code.

python scripts/make_docs.py [--check]       --check: change nothing, fail where a page is old
"""

from __future__ import annotations

import sys
from pathlib import Path

from reference import clients, commands, errors, events, metrics, settings, spark

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES = {
    "client-settings.md": clients.page,
    "commands.md": commands.page,
    "errors.md": errors.page,
    "log-events.md": events.page,
    "metrics.md": metrics.page,
    "settings.md": settings.page,
    "spark-options.md": spark.page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    old = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, "\n".join(page()) + "\n"
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            old.append(f"docs/reference/{name}")
    if old:
        print(f"{', '.join(old)}: out of date, run scripts/make_docs.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
