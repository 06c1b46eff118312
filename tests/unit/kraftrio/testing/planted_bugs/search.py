"""Looks for the seed whose faults show each planted bug, and for the fewest of them that do.

    python -m tests.unit.kraftrio.testing.planted_bugs.search [NAME ...]

writes what it has found into found.json, for those named or for all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

from kraftrio.testing import Fault
from kraftrio.testing.faults.plan import drawn, shrunk
from tests.unit.kraftrio.testing.planted_bugs import consumers, producers, transactions
from tests.unit.kraftrio.testing.planted_bugs.scene import BUGS, Bug

FOUND = Path(__file__).with_name("found.json")
MOST_SEEDS = 200
PROGRAMS = (consumers, producers, transactions)  # which list their bugs as they are imported


class Found(NamedTuple):
    """The first seed that shows a bug, and the fewest of its faults that do."""

    seed: int
    faults: list[Fault]


def search(bug: Bug) -> Found | None:
    """Play a bug's program under the faults of one seed after the other, until it fails.

    A seed under which the right program fails, too, shows nothing.
    """

    def fails(faults: Sequence[Fault]) -> bool:
        return bug.fails(seed, faults, is_broken=True) is not None

    for seed in range(1, MOST_SEEDS + 1):
        faults = drawn(seed, bug.brokers)
        if fails(faults) and bug.fails(seed, faults, is_broken=False) is None:
            return Found(seed, shrunk(faults, fails))
    return None


def load() -> dict[str, Found]:
    """What was found before."""
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    return {
        name: Found(seed, [Fault(*fault) for fault in faults])
        for name, (seed, faults) in found.items()
    }


def main(names: Sequence[str]) -> None:
    """Search, and write down what is found."""
    known = load()
    for name in names or BUGS:
        found = search(BUGS[name])
        if found is None:
            print(f"{name}: not found with {MOST_SEEDS} seeds")
            continue
        print(f"{name}: seed {found.seed}, {'; '.join(map(str, found.faults))}", flush=True)
        known[name] = found
    lines = [
        f"  {json.dumps(name)}: {json.dumps([seed, [astuple(fault) for fault in faults]])}"
        for name, (seed, faults) in sorted(known.items())
        if name in BUGS
    ]
    FOUND.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
