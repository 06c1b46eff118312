"""What members of a consumer group (KIP-848) were given, and an independent model of what may be.

Owns: `ConsumerGroupModel`. It knows nothing of brokers; members report what they sent and got,
by the clock of the simulation. It raises at once for what no later event can mend. The promises
1. A partition has one owner at a time. A member is given it only when no other has it, unless
   that other has not been heard for a session: its last heartbeat that was answered was
   sent longer ago. (Only answers of the same broker are compared: one that was replaced as the
   coordinator, and does not know it yet, keeps answering.)
2. Commits never go back: what is acknowledged is not less than what was acknowledged before it was
   sent, and who asks later finds it or more.
3. Who lost a partition to another member commits no more for it.
4. In the end every partition has an owner, all members are in one epoch, and nothing changes any
   more, not even if the coordinator dies and another one reads its log.
5. Nobody keeps a copy of the state of what it has itself (standby tasks of a streams group). In the
   end there are as many copies as are set, as far as there are members for them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.testing.simulation.world import SimulationFailure


class Given(NamedTuple):
    """What a member has, or is given.

    Attributes:
        owned: partitions that it works on.
        copies: partitions whose state it keeps a copy of.
    """

    owned: set[int]
    copies: set[int]


@dataclass(slots=True)
class View:
    """What one process of a member believes.

    Attributes:
        owned: partitions that it uses, until it says or learns that it does not.
        copies: partitions whose state it keeps a copy of.
        answered_s: when its last heartbeat was sent that was answered.
        node: who answered.
        lost_s: since when another member has what it had.
    """

    epoch: int = 0
    owned: set[int] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    answered_s: float = 0.0
    node: int = -1
    lost_s: dict[int, float] = field(default_factory=dict)


class ConsumerGroupModel:
    """See the module; one group.

    Args:
        copy_count: how many copies of a partition's state are wanted.
    """

    def __init__(self, partition_count: int, session_s: float, copy_count: int = 0) -> None:
        self._partition_count = partition_count
        self._session_s = session_s
        self._copy_count = copy_count
        self.views: dict[str, View] = {}
        self.commit_count = 0
        self.take_over_count = 0  # partitions whose former owner was not heard for a session
        self._commits: dict[int, list[tuple[float, int]]] = defaultdict(list)

    # -- owners -----------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """A process starts."""
        self.views[name] = View()

    def end(self, name: str) -> None:
        """A process is no more, or knows that it has lost all."""
        self.views.pop(name, None)

    def lose_all(self, name: str) -> None:
        """A process was fenced."""
        view = self.views[name]
        view.owned.clear()
        view.copies.clear()
        view.epoch = 0

    def on_answer(
        self,
        name: str,
        epoch: int,
        given: Given | None,
        *,
        sent_s: float,
        node: int,
        now_s: float,
    ) -> set[int]:
        """A heartbeat was answered; return the partitions that are new."""
        view = self.views[name]
        view.epoch, view.answered_s, view.node = epoch, sent_s, node
        if given is None:
            return set()
        added = given.owned - view.owned
        for partition in added:
            self._take(name, partition, node, now_s)
        view.owned |= added
        view.copies = given.copies
        if view.copies & view.owned:
            raise SimulationFailure(
                f"{name} is to keep copies of {sorted(view.copies)}, and has {sorted(view.owned)}"
            )
        return added

    def _take(self, name: str, partition: int, node: int, now_s: float) -> None:
        self.views[name].lost_s.pop(partition, None)
        for other, view in self.views.items():
            if other == name or partition not in view.owned:
                continue
            silent_s = now_s - view.answered_s
            if view.node == node and silent_s < self._session_s:
                raise SimulationFailure(
                    f"{name} was given partition {partition}, which {other} has: it was heard"
                    f" {silent_s:.2f} s ago"
                )
            self.take_over_count += 1
            view.owned.discard(partition)
            view.lost_s[partition] = now_s

    def release(self, name: str, kept: set[int]) -> None:
        """A process is about to say that it owns these, and no others."""
        self.views[name].owned &= kept

    # -- commits ----------------------------------------------------------------------------------

    def committed_before(self, partition: int, time_s: float) -> int:
        """The greatest offset that was acknowledged by then."""
        return max((one for when, one in self._commits[partition] if when < time_s), default=0)

    def commit(
        self, name: str, partition: int, offset: int, *, sent_s: float, now_s: float
    ) -> None:
        """A commit was acknowledged."""
        view = self.views[name]
        if view.lost_s.get(partition, sent_s) < sent_s:
            raise SimulationFailure(
                f"{name} committed for partition {partition}, which it had lost"
            )
        before = self.committed_before(partition, sent_s)
        if offset < before:
            raise SimulationFailure(
                f"{name} committed {offset} for partition {partition}: {before} was acknowledged"
                " before"
            )
        self._commits[partition].append((now_s, offset))
        self.commit_count += 1

    def find(self, name: str, partition: int, offset: int, *, sent_s: float) -> None:
        """A member has asked for what is committed."""
        before = self.committed_before(partition, sent_s)
        if offset < before:
            raise SimulationFailure(
                f"{name} finds {offset} committed for partition {partition}: {before} was"
                " acknowledged before"
            )

    # -- the end ----------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Why not everybody has what it is to have; None: it is so."""
        epochs = {name: view.epoch for name, view in self.views.items()}
        if len(set(epochs.values())) > 1 or 0 in epochs.values():
            return f"members are in epochs {epochs}"
        owned = sorted(one for view in self.views.values() for one in view.owned)
        if owned != list(range(self._partition_count)):
            return f"owned are {owned}"
        counts = [len(view.owned) for view in self.views.values()]
        if max(counts) - min(counts) > 1:
            return f"members have {sorted(counts)} partitions"
        copies = sorted(one for view in self.views.values() for one in view.copies)
        each = min(self._copy_count, len(self.views) - 1)
        if copies != sorted([*range(self._partition_count)] * each):
            return f"copies are kept of {copies}, not {each} of each"
        return None

    def state(self) -> dict[str, tuple[int, list[int], list[int]]]:
        """The epoch that everybody is in, what it has, and what it keeps copies of."""
        return {
            name: (view.epoch, sorted(view.owned), sorted(view.copies))
            for name, view in self.views.items()
        }
