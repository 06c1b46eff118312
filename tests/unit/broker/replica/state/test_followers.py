"""What a leader knows of its followers, and what it makes of it."""

from __future__ import annotations

import pytest

from kraftrio.broker.replica.state.followers import Followers
from kraftrio.wire.errors import ErrorCode, KafkaError

LAG_MS = 30


class Cluster:
    """Brokers 2 and 3 with the epochs 20 and 30."""

    def __init__(self) -> None:
        self.epochs = {2: 20, 3: 30}
        self.leaving: set[int] = set()

    def live_epoch(self, broker_id: int) -> int:
        return self.epochs.get(broker_id, -1)

    def may_join_isr(self, broker_id: int) -> bool:
        return broker_id in self.epochs and broker_id not in self.leaving


def followers(cluster: Cluster | None = None, isr: tuple[int, ...] = (1, 2, 3)) -> Followers:
    found = Followers(cluster or Cluster(), LAG_MS)
    found.begin((2, 3), isr, 0)
    return found


def fetch(
    known: Followers, replica_id: int, offset: int, now_ms: float = 0, start: int = 0
) -> bool:
    return known.on_fetch(replica_id, 10 * replica_id, offset, start, 10, now_ms)


def test_a_fetch_returns_whether_the_follower_has_moved() -> None:
    known = followers()
    assert fetch(known, 2, 5)
    assert not fetch(known, 2, 5)
    assert fetch(known, 2, 4)


def test_a_fetch_with_the_epoch_before_a_restart_does_not_count() -> None:
    cluster = Cluster()
    known = followers(cluster)
    cluster.epochs[2] = 21
    with pytest.raises(KafkaError) as caught:
        fetch(known, 2, 5)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    progress = known.get(2)
    assert progress is not None and progress.log_end_offset == -1


@pytest.mark.parametrize(
    ("maximal_isr", "now_ms", "expected"),
    [
        ((1, 2, 3), 0, 4),
        ((1, 2), 0, 4),  # 3 is about to join
        ((1, 2), LAG_MS + 1, 8),  # 3 is late
        ((1,), LAG_MS + 1, 10),
    ],
)
def test_where_the_logs_of_those_who_count_end(
    maximal_isr: tuple[int, ...], now_ms: float, expected: int
) -> None:
    known = followers()
    fetch(known, 2, 8)
    fetch(known, 3, 4)
    assert known.shared_end_offset(maximal_isr, 10, now_ms) == expected


def test_members_of_the_isr_have_time_to_fetch_at_first() -> None:
    known = followers(isr=(1, 2))
    assert not known.is_late(2, 10, LAG_MS)
    assert known.is_late(2, 10, LAG_MS + 1)
    assert known.is_late(3, 10, 0)
    assert known.is_late(9, 10, 0), "no replica at all"


def test_who_may_join() -> None:
    cluster = Cluster()
    known = followers(cluster)
    assert not known.may_join(2, 0), "it has not fetched yet"
    fetch(known, 2, 8)
    assert known.may_join(2, 8) and not known.may_join(2, 9)
    cluster.leaving.add(2)
    assert not known.may_join(2, 8), "it shuts down"
    cluster.leaving.clear()
    cluster.epochs[2] = 21
    assert not known.may_join(2, 8), "another broker fetched"


def test_a_change_of_replicas_keeps_what_is_known_of_the_others() -> None:
    known = followers()
    fetch(known, 2, 8)
    known.change((2, 4))
    progress = known.get(2)
    assert progress is not None and progress.log_end_offset == 8
    assert 3 not in known and 4 in known and list(known) == [2, 4]
    known.begin((2, 4), (), 0)
    progress = known.get(2)
    assert progress is not None and progress.log_end_offset == -1, "another leadership"


def test_the_low_watermark_is_that_of_the_living() -> None:
    cluster = Cluster()
    known = followers(cluster)
    fetch(known, 2, 8, start=3)
    fetch(known, 3, 8, start=1)
    assert known.low_watermark(5) == 1
    del cluster.epochs[3]
    assert known.low_watermark(5) == 3
    assert known.low_watermark(2) == 2
