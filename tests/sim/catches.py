"""Which seeds notice which breach of the protocol: the test of a breach tries those first.

    python -m tests.sim.catches [NAME ...]      look for them again, and write catches.json

A change of the code makes other histories of the same seeds, so what is written here is what was
once found, no promise: where none of them notices a breach any more the test goes on with all the
seeds, and takes longer. Then it is time to look for them again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.sim.mutations import MUTATIONS, mutated
from tests.sim.simulation import Outcome, simulate

SEEDS = range(1, 201)
_FILE = Path(__file__).with_suffix(".json")
_KEPT = 2  # for each breach, the quickest
_LOOKED_AT = 4  # catches, to choose those from
_SEARCH_S = 30.0  # of CPU, unless nothing was found by then


def known_catches() -> dict[str, list[int]]:
    """Return the seeds that were found, by the name of the breach."""
    found: dict[str, list[int]] = json.loads(_FILE.read_text())
    return found


def options_of(name: str) -> dict[str, Any]:
    """Under what to look for a breach: without logins, unless it is one of theirs."""
    return {"secured": False, **MUTATIONS[name].likely}


def first_catch(name: str, first: Iterable[int], seeds: Iterable[int]) -> Outcome | None:
    """Run seeds with a breach until one fails: those of `first`, then the others of `seeds`."""
    with mutated(name):
        for seed in dict.fromkeys((*first, *seeds)):
            outcome = simulate(seed, **options_of(name))
            if outcome.failure is not None:
                return outcome
    return None


def find_catches(name: str) -> list[int]:
    """Return some seeds that fail with a breach, the quickest first."""
    found: list[tuple[float, int]] = []
    begin = time.process_time()
    with mutated(name):
        for seed in SEEDS:
            outcome = simulate(seed, **options_of(name))
            if outcome.failure is not None:
                found.append((outcome.cpu_s, seed))
            if (found and time.process_time() - begin > _SEARCH_S) or len(found) == _LOOKED_AT:
                break
    return [seed for _, seed in sorted(found)[:_KEPT]]


def main(names: list[str]) -> None:
    """Look for seeds and write them down."""
    for name in names or MUTATIONS:
        seeds = find_catches(name)
        catches = {**known_catches(), name: seeds}
        lines = [f"  {json.dumps(name)}: {seeds}" for name, seeds in sorted(catches.items())]
        _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(name, *seeds, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
