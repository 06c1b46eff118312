"""How the processes of a group's members end: they crash, leave in good order, or only pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from tests.sim.client import SimClient, Unavailable


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """What the chances are, each time that a process is asked.

    Attributes:
        end: that it ends, one way or the other.
        pause: that it pauses.
    """

    end: float
    pause: float

    async def ends(
        self,
        rng: Random,
        client: SimClient,
        leave: Callable[[], Awaitable[None]],
        pause: Callable[[], Awaitable[None]],
    ) -> bool:
        """Whether a process ends now; it has left if it does, or has paused if not, perhaps."""
        dice = rng.random()
        if dice < self.end / 2:
            client.note("crashes")
            return True
        if dice < self.end:
            try:
                await leave()
            except Unavailable as error:
                client.note(f"could not leave: {error}")
            return True
        if dice < self.end + self.pause:
            await pause()
        return False
