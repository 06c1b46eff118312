"""Runs simulations of whole clusters, called by scripts/simulate in the checkout's .venv.

Each seed is one cluster with its clients and faults, in virtual time. Printed per seed: simulated
and real time, events, what was done, the digest of the trace and the verdict. A seed that fails
prints its options, the last lines of its trace and how to replay it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kraftrio.testing.simulation.world import LEGEND  # noqa: E402
from tests.sim.mutations import MUTATIONS, mutated  # noqa: E402
from tests.sim.simulation import Outcome, simulate  # noqa: E402

_LAST_LINES = 60


def seeds_of(chosen: argparse.Namespace) -> Iterator[int]:
    """The seeds that were asked for."""
    if chosen.seed is not None:
        return iter([chosen.seed])
    if chosen.seeds is not None:
        first, _, last = chosen.seeds.partition("-")
        return iter(range(int(first), int(last or first) + 1))
    if chosen.minutes is not None and chosen.count is None:
        return itertools.count(chosen.first)
    return iter(range(chosen.first, chosen.first + (chosen.count or 20)))


def print_verdict(outcome: Outcome, chosen: argparse.Namespace) -> None:
    """Print the verdict, and all that helps where it is bad."""
    print(outcome.line(), flush=True)
    if outcome.failure is None or chosen.mutation is not None:
        return
    if not chosen.trace:
        print("\n".join(f"  {line}" for line in outcome.options.describe()))
        print("\n".join(list(outcome.trace.newest)[-_LAST_LINES:]))
    nodes = "" if chosen.nodes is None else f" --nodes {chosen.nodes}"
    disks = " --bad-disks" if chosen.bad_disks else ""
    disks += " --transactions" if chosen.transactions else ""
    disks += " --throttled" if chosen.throttled else ""
    disks += " --secured" if chosen.secured else ""
    faults = "" if chosen.faults is None else f" --faults {chosen.faults}"
    print(
        f"replay: scripts/simulate --seed {outcome.seed}{nodes}{disks}{faults} --trace", flush=True
    )


def run(chosen: argparse.Namespace) -> int:
    """Run the seeds; return how many failed."""
    begin = time.monotonic()
    count = failed = 0
    simulated_s = 0.0
    if chosen.trace:
        print(LEGEND)
    for seed in seeds_of(chosen):
        if chosen.minutes is not None and time.monotonic() - begin > chosen.minutes * 60:
            break
        likely = {} if chosen.mutation is None else MUTATIONS[chosen.mutation].likely
        options = {**likely, **({} if chosen.nodes is None else {"nodes": chosen.nodes})}
        if chosen.bad_disks:
            options["bad_disks"] = True
        if chosen.transactions:
            options["transactional"] = True
        if chosen.throttled:
            options["throttled"] = True
        if chosen.secured:
            options["secured"] = True
        if chosen.faults is not None:
            options["faults"] = tuple(filter(None, chosen.faults.split(",")))
        with mutated(chosen.mutation):
            outcome = simulate(seed, sink=print if chosen.trace else None, **options)
        print_verdict(outcome, chosen)
        count += 1
        simulated_s += outcome.simulated_s
        failed += outcome.failure is not None
        if failed and chosen.first_failure:
            break
    real_s = time.monotonic() - begin
    print(
        f"{count} seeds, {failed} failed, {simulated_s:.0f} simulated seconds in {real_s:.0f},"
        f" {simulated_s / max(real_s, 0.001):.0f} per second"
    )
    return failed


def main() -> int:
    """Read the options and simulate."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate", description="Simulate whole clusters from seeds."
    )
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--seeds", metavar="A-B", help="these seeds")
    parser.add_argument("--count", type=int, help="so many seeds (default 20)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default 1)")
    parser.add_argument("--minutes", type=float, help="no new seed after so many minutes")
    parser.add_argument("--nodes", type=int, help="so many nodes, whatever the seed says")
    parser.add_argument(
        "--bad-disks", action="store_true", help="with every fault of disks, whatever the seed says"
    )
    parser.add_argument(
        "--transactions", action="store_true", help="with transactions, whatever the seed says"
    )
    parser.add_argument(
        "--throttled", action="store_true", help="with quotas of clients, whatever the seed says"
    )
    parser.add_argument(
        "--secured", action="store_true", help="with logins and ACLs, whatever the seed says"
    )
    parser.add_argument("--faults", metavar="A,B", help="these, whatever the seed says")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("-x", dest="first_failure", action="store_true", help="end at a failure")
    parser.add_argument(
        "--mutation", choices=sorted(MUTATIONS), help="break the cluster's code in this way"
    )
    return 1 if run(parser.parse_args()) else 0


if __name__ == "__main__":
    sys.exit(main())
