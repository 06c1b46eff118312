"""Whole clusters under random faults, one seed each; and the seeds that once found something.

TEST_SIM_SEEDS sets how many seeds are run (40), TEST_SIM_FIRST_SEED where they begin (1).
"""

from __future__ import annotations

import os

import pytest

from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.usage.throttling import Throttle
from tests.sim.simulation import simulate

_FIRST_SEED = int(os.environ.get("TEST_SIM_FIRST_SEED", "1"))
_LAST_SEED = _FIRST_SEED + int(os.environ.get("TEST_SIM_SEEDS", "40")) - 1
_BUNCH = 10

# Seed, and what it found when it was first run. A change of the code makes another history of the
# same seed, so each of these stands for a unit test that it left behind as well.
REGRESSIONS = {
    21: "a group's partition was never loaded when its ISR was small at that moment",
    67: "a node that stopped failed when metadata named a new leader",
    150: "a follower of the metadata had two fetches under way, each answered for the other",
    174: "a node that stopped failed when a broker's connection to it ended",
    244: "a reader believed in an older leader epoch than it had seen",
    1280: "a full disk refused a producer's first batch and took the next, smaller one",
    310346: "a process that was fenced while it asked for its next epoch was not expected to be",
}
# The same for seeds with every fault that disks have (scripts/simulate --bad-disks).
DISK_REGRESSIONS = {
    35: "a voter took zeros that belong there for a sector never written, and cut its metadata",
}
# The same for seeds with transactions (scripts/simulate --transactions).
TRANSACTION_REGRESSIONS = {
    16: "a restarted log returned as stable what a marker above its high watermark had decided",
    1002: "nobody restarted a node that had no room to rename a compacted segment",
    4036: "a decision that was in the log, but could not be flushed, was made again",
    5085: "a coordinator that had been replaced fenced a producer of its successor",
    90849: "an older process, whose request came after that of the newer one, fenced it",
    90944: "readers that a quota slows began again, and again, before they were at the end",
}
_DISK_SEEDS = range(1, 11)
_SECURED_SEEDS = (1, 4, 11, 12)
_THROTTLED_SEEDS = (3, 12, 13, 14)


def _check(
    seed: int,
    *,
    bad_disks: bool = False,
    transactional: bool = False,
    throttled: bool = False,
    secured: bool | None = None,
) -> None:
    outcome = simulate(
        seed,
        bad_disks=bad_disks,
        transactional=transactional,
        throttled=throttled,
        secured=secured,
    )
    if outcome.failure is not None:
        lines = [*outcome.options.describe(), *list(outcome.trace.newest)[-40:]]
        pytest.fail(
            "\n".join(lines)
            + f"\n{outcome.line()}\nreplay: scripts/simulate --seed {seed} --trace"
            + " --bad-disks" * bad_disks
            + " --transactions" * transactional
            + " --throttled" * throttled
            + " --secured" * bool(secured),
            pytrace=False,
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(_FIRST_SEED, _LAST_SEED + 1, _BUNCH))
def test_random_clusters(first: int) -> None:
    """Nothing acknowledged is lost, doubled or reordered, and after the faults all goes on."""
    for seed in range(first, min(first + _BUNCH, _LAST_SEED + 1)):
        _check(seed)


@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_regressions(seed: int) -> None:
    """What a seed found once it does not find again."""
    _check(seed)


@pytest.mark.timeout(300)
def test_random_clusters_with_bad_disks() -> None:
    """Nor is it when disks give back other bits than were written, and syncs fail."""
    for seed in _DISK_SEEDS:
        _check(seed, bad_disks=True)


@pytest.mark.timeout(300)
def test_random_clusters_with_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are made to wait lose nothing, and finish; some are in each of these seeds."""
    waits: list[float] = []
    mute = Throttle._mute

    def noted(throttle: Throttle, client: ClientInfo, until_s: float) -> None:
        waits.append(until_s)
        mute(throttle, client, until_s)

    monkeypatch.setattr(Throttle, "_mute", noted)
    for seed in _THROTTLED_SEEDS:
        waits.clear()
        _check(seed, throttled=True)
        assert waits


@pytest.mark.timeout(300)
def test_random_clusters_with_logins_and_acls() -> None:
    """No node acts by rights that it knows to be revoked, and each has the last ones in the end."""
    for seed in _SECURED_SEEDS:
        _check(seed, secured=True)


@pytest.mark.parametrize("seed", sorted(DISK_REGRESSIONS))
def test_regressions_of_bad_disks(seed: int) -> None:
    """What such a seed found once it does not find again."""
    _check(seed, bad_disks=True)


@pytest.mark.parametrize("seed", sorted(TRANSACTION_REGRESSIONS))
def test_regressions_of_transactions(seed: int) -> None:
    """What such a seed found once it does not find again."""
    _check(seed, transactional=True)
