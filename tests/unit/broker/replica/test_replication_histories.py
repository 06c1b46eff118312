"""Random lives of one replicated partition: three replicas and a controller as plain calls.

Brokers crash and lose the end of their logs, metadata and answers come late or never, followers
fetch in pieces; leaders that were deposed do not know it yet. Whatever was acknowledged must be in
the log of every member of the ISR that the controller has committed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from kraftrio.broker.replica.state.isr import IsrAnswer, IsrProposal
from kraftrio.broker.replica.state.partition_state import Effects, PartitionState, Role
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.wire.errors import ErrorCode, KafkaError

LAG_MS = 30


@dataclass
class World:
    """What brokers look up: who lives, with which epoch."""

    epochs: dict[int, int] = field(default_factory=lambda: {1: 1, 2: 1, 3: 1})
    alive: set[int] = field(default_factory=lambda: {1, 2, 3})

    def live_epoch(self, broker_id: int) -> int:
        return self.epochs[broker_id] if broker_id in self.alive else -1

    def may_join_isr(self, broker_id: int) -> bool:
        return broker_id in self.alive


class Replica:
    """One broker's copy: its log (ids of records) and its state."""

    def __init__(self, broker_id: int, world: World) -> None:
        self.broker_id = broker_id
        self.world = world
        self.log: list[int] = []
        self.known = 0  # of the controller's images
        self.state = self.new_state(0)

    def new_state(self, high_watermark: int) -> PartitionState:
        return PartitionState(
            self.broker_id,
            high_watermark,
            self.world,
            min_insync_replicas=2,
            lag_time_max_ms=LAG_MS,
        )


class History:
    """One life, step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.replicas = {broker_id: Replica(broker_id, self.world) for broker_id in (1, 2, 3)}
        self.images = [PartitionImage((1, 2, 3), (1, 2, 3), 1, 0, 0)]
        self.proposals: deque[tuple[int, PartitionState, IsrProposal]] = deque()
        self.answers: list[tuple[int, PartitionState, IsrProposal, IsrAnswer]] = []
        self.acknowledged = 0  # of the one order in which records may be acknowledged
        self.order: list[int] = []
        self.next_id = 0
        self.now_ms = 0.0

    @property
    def image(self) -> PartitionImage:
        return self.images[-1]

    def step(self) -> None:
        moves = (
            (self.append, 8), (self.fetch, 24), (self.publish, 6), (self.decide, 6),
            (self.answer, 6), (self.look, 2), (self.crash, 0.4), (self.restart, 0.8),
        )  # fmt: skip
        [move] = self.rng.choices([m for m, _ in moves], [weight for _, weight in moves])
        self.now_ms += self.rng.choice((0, 1, 5, 20))
        move()
        self.check()

    def running(self) -> Replica:
        return self.replicas[self.rng.choice(sorted(self.world.alive))]

    # -- brokers --

    def append(self) -> None:
        replica = self.running()
        if replica.state.check_append(-1) is ErrorCode.NONE:
            replica.log.append(self.next_id)
            self.next_id += 1
            if replica.state.on_append(len(replica.log), self.now_ms):
                self.acknowledge(replica)

    def fetch(self) -> None:
        follower = self.running()
        leader = self.replicas.get(follower.state.leader_id)
        if (
            leader is None
            or leader is follower
            or leader.broker_id not in self.world.alive
            or follower.state.role is not Role.FOLLOWER
            or leader.state.check_leader(follower.state.leader_epoch) is not ErrorCode.NONE
        ):
            return
        common = 0
        while (
            common < min(len(follower.log), len(leader.log))
            and follower.log[common] == leader.log[common]
        ):
            common += 1
        if common < len(follower.log):
            assert common >= follower.state.high_watermark, "a committed record is truncated"
            del follower.log[common:]
            follower.state.on_truncation(0, common)
            return
        broker_epoch = self.world.epochs[follower.broker_id]
        try:
            effects = leader.state.on_follower_fetch(
                follower.broker_id, broker_epoch, common, 0, len(leader.log), self.now_ms
            )
        except KafkaError as error:
            pytest.fail(f"nobody fetches with an old epoch here: {error}")
        self.carry_out(leader, effects)
        follower.log += leader.log[common : common + self.rng.randint(0, 3)]
        follower.state.on_leader_answer(leader.state.high_watermark, 0, len(follower.log))

    def publish(self) -> None:
        """A broker gets one more image, or the newest at once."""
        replica = self.running()
        if replica.known < len(self.images):
            index = self.rng.choice((replica.known, len(self.images) - 1))
            replica.known = index + 1
            before = replica.state.high_watermark
            replica.state.apply(self.images[index], len(replica.log), self.now_ms)
            if replica.state.advance_high_watermark(self.now_ms):
                self.acknowledge(replica)
            assert replica.state.high_watermark >= before

    def look(self) -> None:
        replica = self.running()
        if replica.state.advance_high_watermark(self.now_ms):
            self.acknowledge(replica)
        self.carry_out(replica, Effects(proposal=replica.state.check_isr(self.now_ms)))

    def carry_out(self, replica: Replica, effects: Effects) -> None:
        if effects.proposal is not None:
            self.proposals.append((replica.broker_id, replica.state, effects.proposal))
        if effects.high_watermark_advanced:
            self.acknowledge(replica)

    def acknowledge(self, replica: Replica) -> None:
        committed = replica.log[: replica.state.high_watermark]
        assert len(committed) == replica.state.high_watermark, "beyond the log's end"
        shared = min(len(committed), len(self.order))
        assert committed[:shared] == self.order[:shared], "two orders of acknowledged records"
        if len(committed) > len(self.order):
            self.order = committed
        for member in replica.state.isr.maximal & self.world.alive:
            progress = replica.state.followers.get(member)
            if progress is not None:
                assert progress.log_end_offset >= len(committed)

    # -- the controller --

    def change(self, leader: int, isr: tuple[int, ...]) -> None:
        image = self.image
        epoch = image.leader_epoch + (leader != image.leader)
        self.images.append(
            replace(
                image,
                leader=leader,
                isr=isr,
                leader_epoch=epoch,
                partition_epoch=image.partition_epoch + 1,
            )
        )

    def decide(self) -> None:
        if not self.proposals:
            return
        sender, state, proposal = self.proposals.popleft()
        image, error = self.image, ErrorCode.NONE
        if self.rng.random() < 0.1:
            error = ErrorCode.REQUEST_TIMED_OUT  # never received
        elif proposal.leader_epoch != image.leader_epoch or image.leader != sender:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != image.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            self.world.live_epoch(member.broker_id) == -1
            or member.broker_epoch not in (-1, self.world.epochs[member.broker_id])
            for member in proposal.isr
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.change(image.leader, proposal.broker_ids)
        now = self.image
        answer = IsrAnswer(error, now.leader_epoch, now.partition_epoch, now.isr)
        if error is ErrorCode.NONE and self.rng.random() < 0.3:
            # The answer was lost, and the proposal sent again.
            answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        self.answers.append((sender, state, proposal, answer))

    def answer(self) -> None:
        if not self.answers:
            return
        sender, state, proposal, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
        replica = self.replicas[sender]
        if replica.state is state and sender in self.world.alive:
            self.carry_out(replica, state.on_isr_answer(proposal, answer, self.now_ms))

    def crash(self) -> None:
        replica = self.running()
        others = self.world.alive - {replica.broker_id}
        image = self.image
        isr = tuple(member for member in image.isr if member != replica.broker_id)
        if not isr or not others & set(isr):
            return  # the last one that has everything
        self.world.alive.discard(replica.broker_id)
        leader = image.leader
        if leader == replica.broker_id:
            leader = self.rng.choice(sorted(others & set(isr)))
        self.change(leader, isr)
        kept = self.rng.randint(0, len(replica.log))
        del replica.log[kept:]  # what the disk had not got yet

    def restart(self) -> None:
        away = sorted(set(self.replicas) - self.world.alive)
        if away:
            replica = self.replicas[self.rng.choice(away)]
            self.world.epochs[replica.broker_id] += 1
            self.world.alive.add(replica.broker_id)
            known = min(replica.state.high_watermark, len(replica.log))
            replica.state = replica.new_state(self.rng.randint(0, known))
            replica.known = len(self.images) - 1

    # -- what must hold --

    def check(self) -> None:
        assert len(self.order) >= self.acknowledged
        self.acknowledged = len(self.order)
        for member in self.image.isr:
            log = self.replicas[member].log
            assert log[: self.acknowledged] == self.order, (
                f"broker {member} lacks what was promised"
            )


def test_nothing_acknowledged_is_lost() -> None:
    """Through crashes, late news and lost answers; and there is progress to speak of."""
    acknowledged = 0
    for seed in range(60):
        history = History(seed)
        for _ in range(400):
            history.step()
        acknowledged += history.acknowledged
    assert acknowledged > 600
