"""When a voter tries to be elected: random timeouts, backoff, and the order of suspicion."""

from __future__ import annotations

import itertools
import random

from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.ready import RaftConfig

CONFIG = RaftConfig()


class Highest(random.Random):
    """Chance that always draws its highest number."""

    def random(self) -> float:
        return 1.0


def test_election_timeouts_lie_between_one_and_two_times_the_configured_one() -> None:
    """So that voters seldom try at the same time."""
    pace = ElectionPace(CONFIG, random.Random(1))
    drawn = [pace.election_deadline_ms(500) - 500 for _ in range(100)]
    assert CONFIG.election_timeout_ms <= min(drawn) < max(drawn) < 2 * CONFIG.election_timeout_ms
    assert all(pace.first_election_ms(0) < CONFIG.election_timeout_ms / 10 for _ in range(100))


def test_the_pause_after_a_lost_election_doubles_until_a_leader_is_met() -> None:
    """Up to controller.quorum.election.backoff.max.ms."""
    pace = ElectionPace(CONFIG, Highest())
    assert [pace.after_lost_election_ms(0) for _ in range(5)] == [200, 400, 800, 1000, 1000]
    assert not pace.has_met_leader
    pace.on_leader_met()
    assert pace.has_met_leader
    assert pace.after_lost_election_ms(0) == 200


def test_after_a_resignation_the_first_in_line_tries_at_once() -> None:
    """The others leave it time."""
    pace = ElectionPace(CONFIG, Highest())
    assert [pace.after_resignation_ms(rank, 7) for rank in range(3)] == [7, 207, 407]


def test_a_flapping_link_is_suspected_more_and_more_seldom() -> None:
    """Each attempt begins later after the one before; a long peace forgets them."""
    pace = ElectionPace(CONFIG, Highest())
    deadlines = [pace.after_suspicion_ms(0, 0) for _ in range(4)]
    pauses = [after - before for before, after in itertools.pairwise(deadlines)]
    assert deadlines[0] == 0
    assert pauses == [100, 200, 400]
    much_later = deadlines[-1] + 2 * CONFIG.fetch_timeout_ms + 1
    assert pace.after_suspicion_ms(0, much_later) == much_later
