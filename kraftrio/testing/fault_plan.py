"""Faults by seed: what a test meets when it is played again and again, and the fewest that matter.

Owns: `Fault`, `FaultPlan`, which draws them and plays them in a world, and `shrunk`. Rules:
1. A plan is a list of faults with their times: the same seed is the same list, and any part of the
   list is a plan as well.
2. Only what a program must survive: brokers die and come back one at a time, links of the program
   hang for a while, answers are lost, requests come late. Nothing that was acknowledged by all
   in-sync replicas is lost by it.

Called by: `kafka_world`, and the mark `kafka_faults` of `plugin`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from kraftrio.testing.request_faults import RequestFaults
from kraftrio.testing.simulation.cluster import Cluster

_REQUESTS: Final = (
    "Produce",
    "OffsetCommit",
    "Heartbeat",
    "JoinGroup",
    "SyncGroup",
    "EndTxn",
    "TxnOffsetCommit",
    "Fetch",
)
_KINDS: Final = ("kill", "pause", "cut", "lose answer", "delay", "lose answer", "delay")
_HORIZON_S = 20.0
_LONGEST_S = 15.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at_s: when it happens, in seconds after the test began.
        kind: kill, pause or cut (a node, or the way from the program to it), lose answer or delay
            (of a request).
        target: "n1", or the request.
        length_s: how long it lasts; nothing for lost answers.
    """

    at_s: float
    kind: str
    target: str
    length_s: float

    def __str__(self) -> str:
        text = f"{self.at_s:.2f} s: {self.kind} {self.target}"
        return text if self.kind == "lose answer" else f"{text} for {self.length_s:.2f} s"


def drawn(seed: int, node_count: int) -> list[Fault]:
    """Draw the faults of a seed: from one to six, in the order of their times."""
    rng = random.Random(f"kafka-faults-{seed}")
    faults = []
    busy_until_s = 0.0  # one broker is down at a time
    for at_s in sorted(rng.uniform(0, _HORIZON_S) for _ in range(rng.randint(1, 6))):
        kind = rng.choice(_KINDS)
        length_s = round(rng.uniform(0.1, _LONGEST_S), 2)
        if kind in ("lose answer", "delay"):
            target = rng.choice(_REQUESTS)
            length_s = min(length_s, 5.0)
        elif at_s < busy_until_s:
            continue
        else:
            target = f"n{rng.randint(1, node_count)}"
            busy_until_s = at_s + length_s
        faults.append(Fault(round(at_s, 2), kind, target, length_s))
    return faults


async def play(
    faults: Sequence[Fault], cluster: Cluster, requests: RequestFaults, program: str
) -> None:
    """Let the faults happen, each at its time after this began.

    Args:
        program: the machine of the program under test.
    """
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for fault in faults:
            await trio.sleep_until(began_s + fault.at_s)
            cluster.world.note("world", "fault", str(fault))
            match fault.kind:
                case "lose answer":
                    requests.lose_answer(fault.target, program)
                case "delay":
                    requests.delay(fault.target, program, seconds=fault.length_s)
                case _:
                    nursery.start_soon(_disturb, fault, cluster, program)


async def _disturb(fault: Fault, cluster: Cluster, program: str) -> None:
    """A node dies or stands still, or cannot be reached, for a while."""
    (node,) = (node for node in cluster.nodes.values() if node.name == fault.target)
    if not node.is_running or node.is_paused:
        return  # the test has done something to it itself
    match fault.kind:
        case "kill":
            node.crash()
        case "pause":
            node.pause()
        case _:
            cluster.internet.hang(program, fault.target)
    await trio.sleep(fault.length_s)
    cluster.world.note("world", "heal", str(fault))
    if fault.kind == "kill" and not node.is_running:
        node.start()
    elif fault.kind == "pause" and node.is_paused:
        node.resume()
    elif fault.kind == "cut":
        cluster.internet.mend(program, fault.target)


def shrunk(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Return the fewest of the faults that still make a test fail, by leaving out one at a time.

    Args:
        fails: plays the test under some faults.
    """
    kept = list(faults)
    if not fails([]):
        position = 0
        while position < len(kept):
            fewer = kept[:position] + kept[position + 1 :]
            if fails(fewer):
                kept = fewer
            else:
                position += 1
        return kept
    return []
