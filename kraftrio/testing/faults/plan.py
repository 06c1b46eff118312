"""Faults by seed: what a test meets when it is played again and again, and the fewest that matter.

Owns: `Fault`, `drawn`, which makes the list of a seed, and `shrunk`. Rules:
1. A plan is a list of faults with their times: the same seed is the same list, and any part of the
   list is a plan as well.
2. Only what a program must survive is drawn: one broker at a time dies, is paused, has no disk
   or cannot be reached; leaders and members come and go; requests are late, done twice, refused
   with errors that are to be tried again, or their answers lost. Nothing that was acknowledged by
   all in-sync replicas is lost by it.

Called by: `player`, `kraftrio.testing.strategies`, and the mark `kafka_faults` of `plugin`.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kraftrio.testing.faults.requests import api_key_of, error_code_of
from kraftrio.testing.traffic.traffic import PROGRAM

EVERY: Final = "every"  # in place of a group, or of one node's clock

_NODE, _LINK, _REQUEST, _REFUSAL, _GROUP, _CLOCK = (
    'a node, such as "n1"',
    'a direction, such as "program>n1"',
    'a request, such as "OffsetCommit"',
    'a request and an error, such as "OffsetCommit NOT_COORDINATOR"',
    'a group, or "every"',
    'a node, or "every"',
)
KINDS: Final = {
    "kill": _NODE,
    "power cut": _NODE,
    "pause": _NODE,
    "full disk": _NODE,
    "failing disk": _NODE,
    "move leaders": _NODE,
    "move coordinators": _NODE,
    "cut": _LINK,
    "lose answer": _REQUEST,
    "delay": _REQUEST,
    "duplicate": _REQUEST,
    "refuse": _REFUSAL,
    "rebalance": _GROUP,
    "clock": _CLOCK,
}
"""What a fault may be, and what its target is."""

OF_SEVERAL: Final = frozenset({"power cut", "move leaders", "move coordinators"})
"""Those that one node alone is spared: nobody else has what it has, or can lead."""

LASTING: Final = frozenset({"kill", "power cut", "pause", "full disk", "failing disk", "cut"})
_TIMED: Final = LASTING | {"delay", "clock"}

# Requests, and what each may be answered by a cluster that does nothing wrong, as something moves.
REFUSALS: Final = {
    "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "UNKNOWN_TOPIC_OR_PARTITION"),
    "Fetch": ("FETCH_SESSION_ID_NOT_FOUND",),
    "OffsetCommit": ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_MEMBER_ID"),
    "Heartbeat": ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    "JoinGroup": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "SyncGroup": ("REBALANCE_IN_PROGRESS", "NOT_COORDINATOR"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
    "TxnOffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "EndTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
}
# Those that a test meets more often are named more often.
_DRAWN: Final = (
    *("kill", "kill", "pause", "cut", "cut", "full disk", "failing disk"),
    *("lose answer", "lose answer", "lose answer", "delay", "delay", "duplicate"),
    *("refuse", "refuse", "refuse", "rebalance", "rebalance", "clock"),
    *("power cut", "move leaders", "move coordinators"),
)
MOST_FAULTS: Final = 6
HORIZON_S: Final = 20.0
_LONGEST_S = 15.0
_LONGEST_DELAY_S = 5.0
_LONGEST_CLOCK_S = 300.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at_s: when it happens, in seconds after the test began.
        kind: one of `KINDS`.
        target: whom it hits, as `KINDS` says.
        length_s: how long it lasts, how late a request is, or how far a clock is moved; of no
            meaning for the others.

    Raises:
        ValueError: there is no such fault; the text says what to write instead.
    """

    at_s: float
    kind: str
    target: str
    length_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = difflib.get_close_matches(self.kind, KINDS, 1)
            instead = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(KINDS)}"
            raise ValueError(f"there is no fault {self.kind!r}; {instead}")
        if self.at_s < 0 or (self.length_s < 0 and self.kind != "clock"):
            raise ValueError(f"{self.kind!r} of {self.target!r}: its times are seconds, 0 or more")
        form = KINDS[self.kind]
        request, _, error = self.target.partition(" ")
        if form in (_REQUEST, _REFUSAL):
            api_key_of(request)
        if form is _REFUSAL and error:
            error_code_of(error)
        is_wrong = (form is _REFUSAL) != bool(error) and form in (_REQUEST, _REFUSAL)
        if not self.target or is_wrong or (form is _LINK) != (">" in self.target):
            raise ValueError(f"{self.kind!r} cannot hit {self.target!r}: expected {form}")

    def __str__(self) -> str:
        text = f"{self.at_s:.2f} s: {self.kind} {self.target}"
        if self.kind == "clock":
            return f"{text} by {self.length_s:+.2f} s"
        return f"{text} for {self.length_s:.2f} s" if self.kind in _TIMED else text


def check_nodes(faults: Sequence[Fault], names: Collection[str]) -> None:
    """Check that faults hit only nodes that there are (ValueError)."""
    for fault in faults:
        form = KINDS[fault.kind]
        named = fault.target.split(">") if form is _LINK else [fault.target]
        if form is _LINK:
            named = [name for name in named if name[:1] == "n" and name[1:].isdigit()]
        elif form not in (_NODE, _CLOCK) or fault.target == EVERY:
            continue
        for name in named:
            if name not in names:
                known = ", ".join(names)
                raise ValueError(f"{fault}: there is no node {name!r}: the nodes are {known}")


def targets(kind: str, node_count: int) -> list[str]:
    """Whom a fault of a plan may hit."""
    nodes = [f"n{number}" for number in range(1, node_count + 1)]
    by_form = {
        _NODE: nodes,
        _LINK: [link for node in nodes for link in (f"{PROGRAM}>{node}", f"{node}>{PROGRAM}")],
        _REQUEST: list(REFUSALS),
        _REFUSAL: [f"{request} {error}" for request in REFUSALS for error in REFUSALS[request]],
        _GROUP: [EVERY],
        _CLOCK: [EVERY, *nodes],
    }
    return by_form[KINDS[kind]]


def lengths_s(kind: str) -> tuple[float, float]:
    """How long a fault of a plan lasts: the least and the most."""
    if kind in LASTING:
        return 0.1, _LONGEST_S
    if kind == "delay":
        return 0.1, _LONGEST_DELAY_S
    return (-_LONGEST_CLOCK_S, _LONGEST_CLOCK_S) if kind == "clock" else (0.0, 0.0)


def one_at_a_time(faults: Iterable[Fault]) -> list[Fault]:
    """Order faults by their times, without those that hit a broker while another one is away."""
    kept = []
    busy_until_s = 0.0
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        if fault.kind in LASTING:
            if fault.at_s < busy_until_s:
                continue
            busy_until_s = fault.at_s + fault.length_s
        kept.append(fault)
    return kept


def drawn(seed: int, node_count: int) -> list[Fault]:
    """Draw the faults of a seed: from one to six, in the order of their times."""
    rng = random.Random(f"kafka-faults-{seed}")
    kinds = [kind for kind in _DRAWN if node_count > 1 or kind not in OF_SEVERAL]

    def fault() -> Fault:
        kind = rng.choice(kinds)
        at_s, length_s = rng.uniform(0, HORIZON_S), rng.uniform(*lengths_s(kind))
        target = rng.choice(targets(kind, node_count))
        return Fault(round(at_s, 2), kind, target, round(length_s, 2))

    return one_at_a_time(fault() for _ in range(rng.randint(1, MOST_FAULTS)))


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
