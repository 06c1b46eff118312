"""What the small programs with a planted bug share: their world, their work, and who restarts them.

Owns: `Bug` and `planted`, which lists them; `Scene`, in which a program runs once, right or broken;
`Books`, which stands for the database that a program writes to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from kraftrio import Consumer, ConsumerRecord
from kraftrio.errors import KafkaClientError
from kraftrio.testing import Fault, KafkaWorld
from kraftrio.testing.simulation.world import SimulationFailure

TOPIC = "orders"
GROUP = "billing"
KEYS = 3
_DRAIN_DEADLINE_S = 60.0


class AwayError(Exception):
    """The database, or whatever else a program needs, is away."""


@dataclass
class Books:
    """What a program has done, in the order in which it was done."""

    entries: list[ConsumerRecord] = field(default_factory=list)
    work_s: float = 0.05

    async def write(self, record: ConsumerRecord) -> None:
        """Do what the record asks for; it is done at the end, or not at all."""
        await trio.sleep(self.work_s)
        self.entries.append(record)

    async def write_once(self, record: ConsumerRecord) -> None:
        """The same, but not again."""
        await trio.sleep(self.work_s)
        if self.place(record) not in map(self.place, self.entries):
            self.entries.append(record)

    @staticmethod
    def place(record: ConsumerRecord) -> tuple[str, int, int]:
        return record.topic, record.partition, record.offset

    @property
    def values(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.entries]


@dataclass
class Scene:
    """One run of a program."""

    world: KafkaWorld
    is_broken: bool
    books: Books = field(default_factory=Books)

    @property
    def servers(self) -> str:
        return self.world.bootstrap_servers

    def consumer(self, **settings: object) -> Consumer:
        """A member of the group that is to handle every order."""
        chosen: dict[str, object] = {
            "group_id": GROUP,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 10_000,
            **settings,
        }
        return Consumer(self.servers, **chosen)  # type: ignore[arg-type]

    async def write_orders(self, count: int = 20, every_s: float = 1.0) -> list[str]:
        """Have orders come in, one after the other; return their values."""
        values = [str(number) for number in range(count)]
        for number, value in enumerate(values):
            await self.world.produce(TOPIC, value, key=f"k{number % KEYS}")
            await trio.sleep(every_s)
        return values

    async def drained(self) -> None:
        """Wait until the group has committed all that was ordered."""
        await self.world.topic(TOPIC).drained(by=GROUP, timeout_s=_DRAIN_DEADLINE_S)

    async def run_until_drained(
        self, program: Callable[[], Awaitable[None]], *, count: int = 20, every_s: float = 1.0
    ) -> list[str]:
        """Keep a program running until its group has committed all; return what was ordered."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_running, program)
            values = await self.write_orders(count, every_s)
            await self.drained()
            nursery.cancel_scope.cancel()
        return values

    async def results(self, topic: str, *, read_committed: bool = False) -> list[str]:
        """The values of a topic that the program has written."""
        records = await self.world.records(topic, read_committed=read_committed)
        return [(record.value or b"").decode() for record in records]


async def keep_running(program: Callable[[], Awaitable[None]]) -> None:
    """Start a program again whenever it ends with an error, as a supervisor does."""
    while True:
        try:
            await program()
        except (KafkaClientError, AwayError):
            await trio.sleep(1)
        except BaseExceptionGroup as group:
            if group.split((KafkaClientError, AwayError))[1] is not None:
                raise
            await trio.sleep(1)


Play = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Bug:
    """A program, what is wrong with its broken form, and in which world it runs."""

    name: str
    play: Play
    wrong: str
    brokers: int
    partitions: int

    def fails(self, seed: int, faults: Sequence[Fault], *, is_broken: bool) -> Exception | None:
        """Play it under some faults; return what fails, if anything does."""
        world = KafkaWorld(seed, self.brokers, faults=faults)
        try:
            world.run(partial(self._act, Scene(world, is_broken)))
        except SimulationFailure:
            raise  # a fault of ours
        except Exception as error:
            return error
        return None

    async def _act(self, scene: Scene) -> None:
        await scene.world.create_topic(TOPIC, self.partitions)
        await self.play(scene)


BUGS: dict[str, Bug] = {}


def planted(wrong: str, *, brokers: int = 1, partitions: int = 1) -> Callable[[Play], Play]:
    """List a program with what is wrong with it."""

    def add(play: Play) -> Play:
        name = play.__name__
        BUGS[name] = Bug(name, play, wrong, brokers, partitions)
        return play

    return add
