"""What members of a share group (KIP-932) were given, and an independent model of what may be.

Owns: `ShareGroupModel`. It knows nothing of brokers; producers and members report what they sent
and got, by the clock of the simulation. It raises at once for what no later event can mend. The
promises
1. One member has a record at a time: nobody is given what another one has got from the same process
   of a leader, until that member has said what became of it, has lost its connection, or was silent
   for the time of a lock.
2. A member that has a record may acknowledge it, for as long.
3. What was accepted or rejected, and acknowledged, is never given to anybody again, whatever dies.
4. A record is delivered no more often than the limit. Each delivery by one leader counts, and one
   that was released still counts for the next leader.
5. In the end all that was written has been accepted or rejected, or was delivered as often as the
   limit allows (an answer that was lost may have been a delivery).

A time at which something may have happened earlier or later is taken as its sender or hearer knows
it: a lock begins when the request for it was sent, at the earliest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.testing.simulation.world import SimulationFailure


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Server(NamedTuple):
    """One process of a broker: what it gave to members ends with it."""

    node_id: int
    life: int


class Hold(NamedTuple):
    """A member has got a record."""

    server: Server
    until_s: float


@dataclass(slots=True)
class RecordView:
    """What is known of one record.

    Attributes:
        holds: members that acquired it, and have not parted with it.
        counts: the deliveries by each process of a leader that members heard of.
        greatest_count: of all deliveries.
        kept_count: of the last delivery that was released, and acknowledged.
        is_doubtful: its last acknowledgement was not answered, or failed.
        settled_s: when it was acknowledged that it is accepted or rejected.
        settled_by: who acknowledged that.
    """

    value: bytes | None = None
    holds: dict[str, Hold] = field(default_factory=dict)
    counts: dict[Server, set[int]] = field(default_factory=lambda: defaultdict(set))
    greatest_count: int = 0
    kept_count: int = 0
    kept_s: float = 0.0
    is_doubtful: bool = False
    settled_s: float | None = None
    settled_by: Server | None = None


class ShareGroupModel:
    """See the module; one group on one topic.

    Args:
        limit: how often a record is delivered.
        lock_s: how long a member has what it got.
    """

    def __init__(self, limit: int, lock_s: float) -> None:
        self._limit = limit
        self._lock_s = lock_s
        self._records: dict[Place, RecordView] = defaultdict(RecordView)
        self._lost_answers: Counter[int] = Counter()  # by partition
        self.tally: Counter[str] = Counter()

    def write(self, place: Place, value: bytes) -> None:
        """It was acknowledged that a record is in the log."""
        self._records[place].value = value
        self.tally["written"] += 1

    # -- deliveries -------------------------------------------------------------------------------

    def acquire(
        self,
        name: str,
        place: Place,
        count: int,
        value: bytes | None,
        *,
        server: Server,
        sent_s: float,
        now_s: float,
    ) -> None:
        """A member was given a record.

        Args:
            count: how often it was delivered, as the answer says.
            value: of the record at this offset of the answer; None: it has none there.
        """
        record = self._records[place]
        what = f"{name} was given {_name(place)} for the {count}. time"
        if value is None or record.value not in (None, value):
            raise SimulationFailure(f"{what} as {value!r}: {record.value!r} was written there")
        if not 1 <= count <= self._limit:
            raise SimulationFailure(f"{what}: the limit is {self._limit}")
        if count in record.counts[server]:
            raise SimulationFailure(f"{what} by {server}, which had said so before")
        self._check_not_settled(record, what, server, count, sent_s)
        if record.kept_s < sent_s and count <= record.kept_count:
            raise SimulationFailure(f"{what}: it was released after {record.kept_count}")
        for other, hold in record.holds.items():
            if other != name and hold.server == server and now_s < hold.until_s:
                raise SimulationFailure(
                    f"{what}: {other} has it for another {hold.until_s - now_s:.2f} s"
                )
        record.counts[server].add(count)
        record.greatest_count = max(record.greatest_count, count)
        record.holds[name] = Hold(server, sent_s + self._lock_s)
        self.tally["deliveries"] += 1
        self.tally["again"] += count > 1

    def _check_not_settled(
        self, record: RecordView, what: str, server: Server, count: int, sent_s: float
    ) -> None:
        if record.settled_s is None:
            return
        is_later = record.settled_by == server and count > max(record.counts[server])
        if is_later or sent_s > record.settled_s:
            raise SimulationFailure(f"{what}: that it is settled was acknowledged before")

    def lose_answer(self, partition: int) -> None:
        """A member asked for records and does not know whether it was given some."""
        self._lost_answers[partition] += 1

    # -- what members say of records --------------------------------------------------------------

    def part(self, name: str, place: Place) -> None:
        """A member is about to say what became of a record."""
        self._records[place].holds.pop(name, None)

    def doubt(self, place: Place) -> None:
        """Nobody knows whether what a member said of a record counts."""
        self._records[place].is_doubtful = True

    def part_with_all(self, name: str, server: Server | None = None) -> None:
        """A member has nothing any more: its process or its connection has ended.

        Args:
            server: it has what others gave it.
        """
        for record in self._records.values():
            hold = record.holds.get(name)
            if hold is not None and server in (None, hold.server):
                del record.holds[name]

    def settle(self, place: Place, server: Server, now_s: float) -> None:
        """It was acknowledged that a record is accepted or rejected."""
        record = self._records[place]
        record.settled_s, record.settled_by = now_s, server
        self.tally["settled"] += 1

    def release(self, place: Place, count: int, server: Server, now_s: float) -> None:
        """It was acknowledged that a record is given back after its `count`. delivery."""
        record = self._records[place]
        record.is_doubtful = False
        self.tally["released"] += 1
        if count > record.kept_count:
            record.kept_count, record.kept_s = count, now_s
        if count >= self._limit:
            record.settled_s, record.settled_by = now_s, server

    def renew(self, name: str, place: Place, server: Server, sent_s: float) -> None:
        """It was acknowledged that a member has a record for longer."""
        self._records[place].holds[name] = Hold(server, sent_s + self._lock_s)
        self.tally["renewed"] += 1

    def refuse(self, name: str, places: dict[Place, Hold], now_s: float) -> None:
        """A member was answered that it does not hold what it acknowledged.

        Args:
            places: all that one acknowledgement was about.
        """
        until_s = min(hold.until_s for hold in places.values())
        if now_s < until_s:
            raise SimulationFailure(
                f"{name} was answered that it does not hold {sorted(map(_name, places))}:"
                f" it has them for another {until_s - now_s:.2f} s"
            )
        self.tally["refused"] += 1

    def hold(self, name: str, place: Place) -> Hold | None:
        """What a member has got, and not parted with."""
        return self._records[place].holds.get(name)

    # -- the end ----------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """A record that has not come to its end; None: all have."""
        for place, record in self._records.items():
            if record.value is None or record.settled_s is not None or record.is_doubtful:
                continue
            deliveries = record.greatest_count + self._lost_answers[place.partition]
            if deliveries < self._limit:
                return f"{_name(place)} was delivered {record.greatest_count} times"
        return None


def _name(place: Place) -> str:
    return f"{place.partition}@{place.offset}"
