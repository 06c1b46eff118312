"""What members of a group reported, and whether it is allowed: `ChurnModel`.

Members report, with the time of the machine's clock, which partitions they have, and what they have
read; the test reports whom it killed and paused, and what is committed. The promises
1. A partition has one owner at a time. A member paused for longer than its session has lost all.
2. Every record is read by a member.
3. What is committed of a partition never goes back.

A member has a partition until it reports that it has lost it, is killed, or is asked to leave.
A member that was paused while its group rebalanced may wake right before the end of the session
that began with the answer to its join: it gets its share, and is out before its first heartbeat, by
which it learns that. What it reports right after it wakes counts from that heartbeat on.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

TOLERANCE_MS = 3  # of clocks that are read in whole milliseconds
WAKING_MS = 1_000  # two heartbeats: by then a member that stood still knows whether it is out


@dataclass(slots=True)
class Ownership:
    """A member had a partition, from one time to another."""

    member: str
    begin_ms: float
    end_ms: float = float("inf")


class ChurnModel:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: list[tuple[float, int, str, frozenset[int] | None]] = []  # None: has nothing
        self._woken: defaultdict[str, list[float]] = defaultdict(list)
        self._read: defaultdict[int, set[int]] = defaultdict(set)
        self._committed: dict[int, int] = {}
        self._backward: list[str] = []
        self.read_count = 0
        self.commit_count = 0

    # -- what happens -----------------------------------------------------------------------------

    def assign(self, member: str, partitions: Iterable[int], at_ms: float) -> None:
        """A member reports what it has now."""
        with self._lock:
            self._reports.append((at_ms, len(self._reports), member, frozenset(partitions)))

    def lose(self, member: str, at_ms: float) -> None:
        """A member has nothing any more, though it may not know."""
        with self._lock:
            self._reports.append((at_ms, len(self._reports), member, None))

    def wake(self, member: str, at_ms: float) -> None:
        """A member that was paused for longer than its session goes on."""
        with self._lock:
            self._woken[member].append(at_ms)

    def read(self, places: Iterable[tuple[int, int]]) -> None:
        """A member has read records: (partition, offset)."""
        with self._lock:
            for partition, offset in places:
                self._read[partition].add(offset)
                self.read_count += 1

    def commit(self, offsets: dict[int, int]) -> None:
        """These offsets were found committed."""
        with self._lock:
            for partition, offset in offsets.items():
                before = self._committed.get(partition, 0)
                if offset < before:
                    self._backward.append(f"partition {partition}: {offset} after {before}")
                self.commit_count += offset > before
                self._committed[partition] = max(before, offset)

    # -- what came of it --------------------------------------------------------------------------

    def behind(self, ends: dict[int, int]) -> dict[int, tuple[int, int]]:
        """Partitions that are not committed to their ends: how far, and where the end is."""
        with self._lock:
            found = {p: (self._committed.get(p, 0), end) for p, end in ends.items()}
        return {p: (at, end) for p, (at, end) in found.items() if at < end}

    def describe_behind(self, ends: dict[int, int]) -> str:
        """Each partition that is behind: who has it, and how far it is read."""
        owners = self.owners()
        return ", ".join(
            f"partition {partition} of {owners[partition][-1:]} is committed to {at}, read to"
            f" {max(self._read[partition], default=0)}, and ends at {end}"
            for partition, (at, end) in self.behind(ends).items()
        )

    def owners(self) -> dict[int, list[Ownership]]:
        """Who had each partition, one after the other."""
        found: defaultdict[int, list[Ownership]] = defaultdict(list)
        held: defaultdict[str, dict[int, Ownership]] = defaultdict(dict)
        for at_ms, _, member, owned in sorted(self._reports, key=lambda one: one[:2]):
            partitions = owned or frozenset()
            mine = held[member]
            for partition in [one for one in mine if one not in partitions]:
                mine.pop(partition).end_ms = at_ms
            for partition in sorted(partitions - set(mine)):
                mine[partition] = Ownership(member, self._begin_ms(member, at_ms))
                found[partition].append(mine[partition])
        for partition, several in found.items():
            lasting = [one for one in several if one.begin_ms <= one.end_ms]
            found[partition] = sorted(lasting, key=lambda one: one.begin_ms)
        return found

    def _begin_ms(self, member: str, at_ms: float) -> float:
        """The time from which on a member's report counts."""
        awake = [one + WAKING_MS for one in self._woken[member] if one <= at_ms]
        return max([at_ms, *awake])

    def history(self) -> Iterable[str]:
        """What members had, one change a line, by time in milliseconds."""
        for at_ms, _, member, owned in sorted(self._reports, key=lambda one: one[:2]):
            yield f"{at_ms:.0f} {member} {'lost' if owned is None else sorted(owned)}"

    def held(self) -> dict[int, str]:
        """The owner of each partition that has one now."""
        return {
            partition: owners[-1].member
            for partition, owners in self.owners().items()
            if owners[-1].end_ms == float("inf")
        }

    def errors(self, ends: dict[int, int], *, may_go_back: bool = False) -> list[str]:
        """Return what is not allowed.

        Args:
            ends: how many records were written to each partition.
            may_go_back: a client sends commits again without keeping their order.
        """
        backward = [] if may_go_back else self._backward
        errors = [f"a commit went back: {one}" for one in backward]
        for partition, owners in sorted(self.owners().items()):
            for before, after in pairwise(owners):
                overlap_ms = before.end_ms - after.begin_ms
                if before.member != after.member and overlap_ms > TOLERANCE_MS:
                    errors.append(
                        f"{after.member} had partition {partition}, which {before.member} kept for"
                        f" another {overlap_ms:.0f} ms"
                    )
        for partition, end in sorted(ends.items()):
            unread = set(range(end)) - self._read[partition]
            if unread:
                errors.append(f"partition {partition}: nobody has read {sorted(unread)[:5]}")
        return errors

    @property
    def moves(self) -> int:
        """How often a partition went to another member."""
        return len(self._moves())

    def moves_among_droppers(self) -> int:
        """How often one went from a member to another that had both dropped all they had."""
        had: dict[str, frozenset[int]] = {}
        droppers = set()
        for _, _, member, owned in sorted(self._reports, key=lambda one: one[:2]):
            if owned == frozenset() and had.get(member):
                droppers.add(member)
            had[member] = owned or frozenset()
        return sum(droppers.issuperset(pair) for pair in self._moves())

    def _moves(self) -> list[tuple[str, str]]:
        return [
            (before.member, after.member)
            for owners in self.owners().values()
            for before, after in pairwise(owners)
            if before.member != after.member
        ]
