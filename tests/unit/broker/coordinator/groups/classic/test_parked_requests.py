"""Every parked JoinGroup and SyncGroup is answered exactly once, whatever happens to its group.

Members of all kinds act at random while records are committed late or lost, deadlines come and the
coordinator moves away. After each step the requests without an answer must be those that members
hold; at the end, when nobody does anything any more, none may be left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import JoinGroupResponse
from tests.unit.broker.coordinator.groups.group_context import GroupContext, Properties

_HOUR_MS = 3_600_000
_SOME_TIMES_MS = (1, 500, 3_000, 4_000, 9_000, 21_000)
_LOSSES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Members:
    """Some clients of one group, dynamic and static, that do whatever a client may do."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.context = GroupContext(
            Properties(
                group_initial_rebalance_delay_ms=self.rng.choice((0, 3_000)),
                group_max_size=self.rng.choice((2, 5, 100)),
            )
        )
        self.sent: list[int] = []
        self.states: set[GroupState] = set()  # in which something happened
        actions: list[tuple[Callable[[], None], float]] = [
            (self._join_first, 1),
            (self._rejoin, 3),
            (self._restart_static, 3),
            (self._sync, 6),
            (self._live_on, 6),
            (self._leave, 1),
            (self._pass_time, 1),
            (self._commit, 4),
            (self._lose, 1),
            (self._commit_late, 2),
        ]
        # Each run has its own mixture: what is rare in most runs is common in some.
        self._actions = [action for action, _ in actions]
        self._weights = [weight * self.rng.choice((0, 0.1, 1, 3)) for _, weight in actions]
        self._weights[4] += 4  # who does not live on meets no deadline but that of its session
        self.context.hold_commits = self.rng.random() < 0.5
        self._metadata = self.rng.choice(((b"",), (b"", b"changed")))
        self._rebalance_timeout_ms = self.rng.choice((5_000, 20_000))

    @property
    def group(self) -> ClassicGroup | None:
        return self.context.shard.groups.find(self.context.group_id, ClassicGroup)

    def step(self) -> None:
        """Let something happen."""
        group = self.group
        if group is not None:
            self.states.add(group.state)
        self.rng.choices(self._actions, self._weights)[0]()

    def check(self) -> None:
        """What has no answer is held by a member, once; and the group's counts are right."""
        group = self.group
        members = [] if group is None else list(group.members.values())
        held = [one.join_ticket for one in members] + [one.sync_ticket for one in members]
        parked = sorted(ticket for ticket in held if ticket is not None)
        assert parked == [ticket for ticket in self.sent if ticket not in self.context.replies]
        if group is not None:
            assert group.roster.awaiting_join_count == sum(one.is_awaiting_join for one in members)
            assert set(group.roster.static_members.values()) == {
                one.member_id for one in members if one.is_static
            }

    # --- what may happen ---

    def _known(self) -> list[tuple[str, str | None]]:
        """Ids that were ever given out, with the instance id of a static member."""
        return [
            (
                reply.member_id,
                reply.member_id.split("-uuid")[0] if "inst" in reply.member_id else None,
            )
            for reply in self.context.replies.values()
            if isinstance(reply, JoinGroupResponse) and reply.member_id
        ]

    def _send_join(self, member_id: str = "", instance_id: str | None = None) -> None:
        self.sent.append(
            self.context.send_join(
                member_id,
                instance_id=instance_id,
                protocols=[("range", self.rng.choice(self._metadata))],
                session_timeout_ms=self.rng.choice((10_000, 60_000)),
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                api_version=self.rng.choice((3, 5, 9)),
            )
        )

    def _join_first(self) -> None:
        self._send_join()

    def _rejoin(self) -> None:
        if known := self._known()[-8:]:
            self._send_join(*self.rng.choice(known))

    def _restart_static(self) -> None:
        self._send_join(instance_id=f"inst{self.rng.randrange(3)}")

    def _sync(self) -> None:
        group = self.group
        if group is None or not group.members:
            return
        # mostly who has to, and with the generation that counts
        member = self.rng.choice(list(group.members.values()))
        late = self.rng.random() < 0.1
        is_leader = group.roster.is_leader(member.member_id)
        given = dict.fromkeys(group.members, b"x") if is_leader else {}
        self.sent.append(
            self.context.send_sync(
                member.member_id,
                given,
                generation_id=group.generation_id - late,
                instance_id=member.group_instance_id,
                protocol_type=group.protocol_type,
            )
        )

    def _live_on(self) -> None:
        """Time passes, and members heartbeat."""
        self.context.advance(self.rng.choice((1_000, 4_000, 6_000)))
        group = self.group
        for member in [] if group is None else list(group.members.values()):
            self.context.heartbeat(member.member_id, instance_id=member.group_instance_id)

    def _leave(self) -> None:
        if (known := self._known()[-8:]) and self.group:
            self.context.leave(self.rng.choice(known))

    def _pass_time(self) -> None:
        self.context.advance(self.rng.choice(_SOME_TIMES_MS))

    def _commit(self) -> None:
        self.context.commit()

    def _commit_late(self) -> None:
        self.context.hold_commits = not self.context.hold_commits

    def _lose(self) -> None:
        self.context.fail_appends(self.rng.choice(_LOSSES))


_FOUND_SOMETHING = (1190, 1280, 2392)  # a join that no sync deadline answered


@pytest.mark.parametrize("seeds", [*(range(i, i + 10) for i in range(0, 80, 10)), _FOUND_SOMETHING])
def test_every_parked_request_is_answered_once(seeds: Sequence[int]) -> None:
    """`GroupContext` refuses a second answer; `check` sees one that is missing."""
    states: set[GroupState] = set()
    for seed in seeds:
        members = Members(seed)
        for _ in range(150):
            members.step()
            members.check()
        members.context.hold_commits = False
        members.context.commit()
        members.context.advance(_HOUR_MS)
        members.check()
        assert not set(members.sent) - members.context.replies.keys()
        states |= members.states
    assert states == set(GroupState) - {GroupState.DEAD}


def test_unloading_at_any_time_answers_everybody() -> None:
    """The partition moves away: NOT_COORDINATOR for all who wait; late commits do no harm."""
    for seed in range(100):
        members = Members(seed)
        for _ in range(seed):
            members.step()
        members.context.carry_out(members.context.shard.unload(members.context.now))
        members.context.fail_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not set(members.sent) - members.context.replies.keys()
