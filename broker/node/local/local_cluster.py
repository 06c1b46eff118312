"""A cluster on one machine: its nodes as processes of their own.

`run_cluster` owns the processes: it starts them, passes their ready lines and their log lines on,
reports when one ends by itself, and stops all in good order at SIGTERM, SIGINT or SIGHUP. When one
that was ready ends, the others continue; one that cannot start stops them. A second signal is
passed on too, which ends the nodes at once.

Called by the command line, with what `cluster_layout` planned.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import trio

from kraftrio.broker.node.local.cluster_layout import PlannedNode
from kraftrio.broker.node.stop_signals import is_impatient, stop_signals_received

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_READ_BYTES = 1 << 16


@dataclass
class _NodeProcess:
    """A node's process with the pipes that it writes to."""

    node: PlannedNode
    process: subprocess.Popen[bytes]
    output: trio.lowlevel.FdStream
    errors: trio.lowlevel.FdStream
    is_ready: bool = False


@dataclass
class _NodeStates:
    """Which nodes run, and whether they are being stopped."""

    is_stopping: bool = False
    has_failed: bool = False
    running: dict[int, _NodeProcess] = field(default_factory=dict)

    def stop(self) -> None:
        """Ask every node to stop; asked again they end at once."""
        self.is_stopping = True
        for running in self.running.values():
            running.process.send_signal(signal.SIGTERM)


async def run_cluster(
    nodes: Sequence[PlannedNode],
    options: Sequence[str],
    announce: Callable[[str], object],
    report: Callable[[str], object],
) -> int:
    """Run the nodes until a signal stops them, or none is left.

    Args:
        options: further options of every node's `kraftrio start`.
        announce: takes the ready lines.
        report: takes the nodes' log lines, and ours.

    Returns:
        the exit status: 1 if a node ended by itself, or badly.
    """
    states = _NodeStates()
    with stop_signals_received() as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_signals_on, signals, states)
            async with trio.open_nursery() as watched:
                for node in nodes:
                    running = _start(node, options)
                    states.running[node.node_id] = running
                    watched.start_soon(_watch, running, states, announce, report)
            nursery.cancel_scope.cancel()
    return 1 if states.has_failed else 0


def _start(node: PlannedNode, options: Sequence[str]) -> _NodeProcess:
    """Start a node in a process group of its own, so that Ctrl-C reaches it through us alone."""
    output, output_end = os.pipe()
    errors, errors_end = os.pipe()
    try:
        # In this thread: the kernel signals the child when the thread ends.
        process = subprocess.Popen(
            node.command(*options),
            stdin=subprocess.DEVNULL,
            stdout=output_end,
            stderr=errors_end,
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    finally:
        os.close(output_end)
        os.close(errors_end)
    return _NodeProcess(
        node, process, trio.lowlevel.FdStream(output), trio.lowlevel.FdStream(errors)
    )


def _end_with_parent() -> None:
    """Have the kernel stop this process when its parent is killed, so that no node is orphaned."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


async def _pass_signals_on(signals: AsyncIterator[int], states: _NodeStates) -> None:
    earlier: list[int] = []
    async for number in signals:
        if not states.is_stopping or is_impatient(earlier, number):
            states.stop()
        earlier.append(number)


async def _watch(
    running: _NodeProcess,
    states: _NodeStates,
    announce: Callable[[str], object],
    report: Callable[[str], object],
) -> None:
    """Pass a node's lines on until it ends, and report an end that was not asked for."""
    node = running.node

    def on_ready(line: str) -> None:
        running.is_ready = True
        ready, at, data = line.partition(" data=")
        announce(f"{ready} pid={running.process.pid}{at}{data}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_each_line, running.output, on_ready)
        nursery.start_soon(
            _each_line, running.errors, lambda line: report(f"[{node.node_id}] {line}")
        )
    status = await trio.to_thread.run_sync(running.process.wait)
    del states.running[node.node_id]
    if not states.is_stopping:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        report(f"kraftrio: node {node.node_id} ended by itself: {how}")
        states.has_failed = True
        if not running.is_ready and states.running:
            report("kraftrio: stopping the other nodes, since not all could start")
            states.stop()
    elif status:
        states.has_failed = True


async def _each_line(stream: trio.lowlevel.FdStream, take: Callable[[str], object]) -> None:
    rest = b""
    async with stream:
        while data := await stream.receive_some(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                take(line.decode(errors="replace"))
    if rest:
        take(rest.decode(errors="replace"))
