"""What asks a process to stop in good order: SIGTERM, SIGINT and SIGHUP.

Called by: `node`, `local_cluster`.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

import trio


@contextmanager
def stop_signals_received() -> Iterator[AsyncIterator[int]]:
    """Receive them; SIGHUP not where it is ignored, as nohup wishes.

    Afterwards SIGHUP is ignored: it may come once more while the process ends.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what the receiver restores at its end
    with trio.open_signal_receiver(*numbers) as received:
        yield received


def is_impatient(earlier: Iterable[int], number: int) -> bool:
    """Whether a signal asks a process that is stopping to end at once.

    A second one does, but for SIGHUP: a terminal that closes sends it more than once, and a service
    manager after SIGTERM.
    """
    return number != signal.SIGHUP and any(one != signal.SIGHUP for one in earlier)


async def cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope once an event is set; a task beside what is in the scope."""
    await event.wait()
    scope.cancel()
