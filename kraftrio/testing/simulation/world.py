"""Virtual time and seeded randomness for everything that runs in one simulation.

Owns: `World`: Trio's clock, the heap of simulated events (deliveries, faults), the order in which
Trio runs tasks, and the trace. Rules:
1. One seed decides everything: which task runs first, how long a packet travels, what fails. Every
   part draws from a generator of its own (`World.rng`), so that a change of one part does not
   change what the others draw.
2. Time stands still while any task can run. When none can, the world is at rest: invariants are
   checked, then time jumps to the next event or deadline. Nothing ever really waits.
3. Every task of a node knows its `Incarnation` (a context variable that children inherit). The
   tasks of a paused one are set aside when they become runnable, as SIGSTOP does to a process.
4. What happens is one line in the trace; the digest of all lines tells two runs apart.

Called by: `cluster` and everything below it. Trio's internals used here are pinned by a test.
"""

from __future__ import annotations

import gc
import hashlib
import heapq
import itertools
import logging
import math
import random
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from trio._core import _run as trio_run

from kraftrio.base.logging_setup import event_text
from kraftrio.testing.simulation.incarnation import Incarnation, current, incarnation_of
from kraftrio.testing.simulation.run_queue import (
    RunQueue,
    current_run_queue,
    current_runner,
    pause,
    resume,
)
from kraftrio.testing.simulation.work import Work

START_WALL_MS = 1_700_000_000_000
_FREE_TURNS = 50
_TURN_S = 0.00001
_MAX_TURNS_AT_ONE_INSTANT = 20_000
_KEPT_LINES = 20_000


class SimulationFailure(Exception):
    """The system under test violated an invariant; the text says which."""


LEGEND = """\
columns: simulated seconds, who (n1: a node, p0 r0 g0m1 admin: clients, net, world), what, details
  option  drawn from the seed              fault, heal   what the nemesis does
  start ready term stop crash end pause resume clock     the life of a node
  back fork                                a cluster is restored, or made, of a snapshot
  open refuse data close reset cut         connections: c12 is the twelfth, n1>p0 the direction
  hang mend                                links
  info warni error                         a line of the node's own log
  client                                   what a client met
  FAIL                                     the promise that was broken"""


class Trace:
    """The lines of what happened, the newest kept, all of them digested.

    Args:
        sink: gets every line as it comes, for --trace.
    """

    def __init__(self, sink: Callable[[str], object] | None = None) -> None:
        self._hash = hashlib.sha256()
        self._sink = sink
        self.newest: deque[str] = deque(maxlen=_KEPT_LINES)
        self.count = 0

    def add(self, now_s: float, who: str, kind: str, text: str) -> None:
        line = f"{now_s:11.6f} {who:<6} {kind:<6} {text}"
        self._hash.update(line.encode("utf-8", "surrogateescape"))
        self.count += 1
        self.newest.append(line)
        if self._sink is not None:
            self._sink(line)

    def digest(self) -> str:
        """Return the name of the run: the same for the same events, in any process."""
        return self._hash.hexdigest()[:16]


class _Clock(trio.abc.Clock):
    """Trio's clock: asks the world for the next instant whenever no task can run."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start_clock(self) -> None:
        self._world.take_over_scheduler()

    def current_time(self) -> float:
        return self._world.now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        self._world.on_rest(deadline)
        return 0.0


class _RunQueue(RunQueue):
    """One whose turns the world counts."""

    def __init__(self, world: World, tasks: Iterable[trio.lowlevel.Task]) -> None:
        super().__init__(tasks, world.active)
        self._world = world

    def clear(self) -> None:
        tasks = list(self)
        super().clear()
        self._world.on_turn(tasks)  # which may make others runnable


class World:
    """See the module; one per simulation."""

    def __init__(self, seed: str, trace: Trace | None = None) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.start_wall_ms = START_WALL_MS  # of every wall clock that no fault has moved
        self.trace = trace if trace is not None else Trace()
        self.active: dict[Incarnation, None] = {}  # whose tasks ran since the last checks
        self.failure: SimulationFailure | None = None
        self.checks: list[Callable[[], None]] = []
        self.tolerated: list[str] = []
        self.reread_count = 0  # whenever it changes, readers begin again: for faults that need it
        self.event_count = 0
        self.work = Work(self.keep_busy)
        self.disturbances = 0  # faults under way that may keep a request from being answered
        self.calm_since_s = 0.0  # the effects of the last one are over
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._turns_at_instant = 0
        self._is_over = False
        self._paused: dict[Incarnation, None] = {}
        self._busy: dict[Incarnation, None] = {}
        self._scope = trio.CancelScope()
        self._incarnations: dict[str, int] = {}

    def rng(self, name: str) -> random.Random:
        """Make the generator of one part of the simulation."""
        return random.Random(f"{self.seed}/{name}")

    def incarnate(self, name: str) -> Incarnation:
        """Begin a new life of a node."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Incarnation(name, number)

    # -- time and events ------------------------------------------------------------------------

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Let a simulated event happen after a delay."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), callback))

    def on_rest(self, deadline: float) -> None:
        """Check the invariants, then jump to the next event or deadline (no task can run)."""
        if self._is_over:
            return  # Trio cleans up, for which it wakes itself through a socket
        if self.failure is None:
            try:
                for check in self.checks:
                    check()
                self.active.clear()
            except SimulationFailure as failure:
                self.fail(failure)
            except Exception as error:
                self.fail(SimulationFailure(f"a check failed: {describe(error)}"))
        if current_run_queue():
            return
        events = self._events
        target = min(deadline, events[0][0]) if events else deadline
        if math.isinf(target):
            self.fail(SimulationFailure("every task waits for ever"))
            return
        if target > self.now_s:
            self.now_s = target
            self._turns_at_instant = 0
        while events and events[0][0] <= self.now_s:
            self.event_count += 1
            heapq.heappop(events)[2]()

    def on_turn(self, queue: list[trio.lowlevel.Task]) -> None:
        """Count the turns of Trio's loop, so that a busy loop is a failure and no hang."""
        text = self.work.on_turn()
        if text:
            self.fail(SimulationFailure(text))
        self._turns_at_instant += 1
        if self._turns_at_instant > _FREE_TURNS:
            self.now_s += _TURN_S  # work takes time; so a wait that is short by rounding ends
        if self._turns_at_instant == _MAX_TURNS_AT_ONE_INSTANT:
            busy = ", ".join(sorted(f"{incarnation_of(t)} {t.name}" for t in queue))
            text = f"a busy loop: tasks run on while time stands still: {busy}"
            self.fail(SimulationFailure(text))
        if self._turns_at_instant >= 5 * _MAX_TURNS_AT_ONE_INSTANT:
            raise RuntimeError("a busy loop that cannot be cancelled")

    @contextmanager
    def disturbed(self, aftermath_s: float) -> Iterator[None]:
        """Expect no answers in time while the body runs, and for that long after it."""
        self.disturbances += 1
        try:
            yield
        finally:
            self.disturbances -= 1
            self.calm_since_s = max(self.calm_since_s, self.now_s + aftermath_s)

    def was_calm_since(self, time_s: float) -> bool:
        """Return whether a request sent at that time should have been answered by now."""
        return not self.disturbances and self.calm_since_s <= time_s

    def fail(self, failure: SimulationFailure) -> None:
        """End the simulation with its first failure."""
        if self.failure is None:
            self.failure = failure
            self.note("world", "FAIL", str(failure))
            self._scope.cancel()
            for who in list(self._busy):
                who.is_busy = False
                current_run_queue().go_on(who)
            for who in list(self._paused):
                self.resume(who)  # or it would never end

    def note(self, who: str, kind: str, text: str) -> None:
        """Write a line of the trace."""
        self.trace.add(self.now_s, who, kind, text)

    def tolerates(self, text: str) -> bool:
        """Return whether a node may log this as an error, given the faults that hit it."""
        return any(part in text for part in self.tolerated)

    # -- pauses ---------------------------------------------------------------------------------

    def pause(self, who: Incarnation) -> None:
        """Let no task of `who` run until `resume`; its timers fall due meanwhile."""
        if self.failure is not None:
            return
        self._paused[who] = None
        pause(who)

    def resume(self, who: Incarnation) -> None:
        self._paused.pop(who, None)
        resume(who)

    def keep_busy(self, who: Incarnation) -> None:
        """Let no task of `who` run for as long as its work takes, from the next turn on."""
        if self.failure is not None:
            return
        who.is_busy = True
        self._busy[who] = None
        current_run_queue().set_aside(who)

        def done() -> None:
            who.is_busy = False
            self._busy.pop(who, None)
            current_run_queue().go_on(who)

        # What is charged until this turn is over counts, too.
        self.after(0.0, lambda: self.after(self.work.take_owed_s(who), done))

    def forget_work(self, who: Incarnation) -> None:
        """End the work of a life that is over."""
        self.work.take_owed_s(who)
        if self._busy.pop(who, False) is None:
            who.is_busy = False
            current_run_queue().go_on(who)

    # -- the run --------------------------------------------------------------------------------

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` in this world.

        Raises:
            SimulationFailure: a promise was broken.
        """

        async def body() -> None:
            with self._scope:
                await main()
            self._is_over = True

        with seeded_scheduling(self.rng("scheduler")), _captured_log(self):
            try:
                trio.run(body, clock=_Clock(self))
            except trio.TrioInternalError as error:
                self.fail(SimulationFailure(f"Trio gave up: {describe(error.__cause__ or error)}"))
                with _silence():
                    del error
                    gc.collect()  # what was never closed complains
        if self.failure is not None:
            raise self.failure

    def take_over_scheduler(self) -> None:
        runner = current_runner()
        runner.runq = _RunQueue(self, runner.runq)


class _ChanceOfThread:
    """Trio's random generator: the world's own in the thread that runs it, Trio's in others."""

    def __init__(self, rng: random.Random, elsewhere: random.Random) -> None:
        self._rng = rng
        self._elsewhere = elsewhere
        self._thread_id = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        here = threading.get_ident() == self._thread_id
        return getattr(self._rng if here else self._elsewhere, name)


@contextmanager
def seeded_scheduling(rng: random.Random) -> Iterator[None]:
    """Let the generator decide in which order Trio runs what can run, in this thread."""
    module: Any = trio_run
    before = module._r, module._ALLOW_DETERMINISTIC_SCHEDULING
    module._r, module._ALLOW_DETERMINISTIC_SCHEDULING = _ChanceOfThread(rng, before[0]), True
    try:
        yield
    finally:
        module._r, module._ALLOW_DETERMINISTIC_SCHEDULING = before


@contextmanager
def _silence() -> Iterator[None]:
    hook, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _unraisable: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


class _TraceHandler(logging.Handler):
    """The nodes' log lines as lines of the trace; an error is a failure of the simulation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._thread_id = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        owner = current.get()
        if owner is None or not owner.is_alive or threading.get_ident() != self._thread_id:
            return
        text = record.getMessage()
        line = f"{record.name[9:]}: {event_text(record)}"
        self._world.note(owner.name, record.levelname.lower()[:5], line)
        if record.levelno >= logging.ERROR and not self._world.tolerates(text):
            detail = ""
            if record.exc_info and record.exc_info[1] is not None:
                detail = f": {describe(record.exc_info[1])}"
            self._world.fail(SimulationFailure(f"{owner!r} logged an error: {text}{detail}"))


# Rare, and the only trace of a choice that no request shows.
_TRACED_IN_DETAIL = "kraftrio.clients.producer.partitioner"


@contextmanager
def _captured_log(world: World) -> Iterator[None]:
    logger, detailed = logging.getLogger("kraftrio"), logging.getLogger(_TRACED_IN_DETAIL)
    before = logger.level, logger.propagate, logger.handlers[:]
    level_before = detailed.level
    logger.handlers[:] = [_TraceHandler(world)]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    detailed.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        detailed.setLevel(level_before)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.handlers[:] = before[2]


def describe(error: BaseException) -> str:
    """Describe an exception with the place where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f" at {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
