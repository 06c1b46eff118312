"""The nodes of a cluster for tests in a process of their own: `kraftrio test-broker`.

It ends with its standard input, so also when the process of the tests is killed.

Called by: `cluster`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from kraftrio.testing.local_nodes import NodesSpec

_START_DEADLINE_S = 30.0


class NodeProcess:
    """See the module.

    Attributes:
        bootstrap_servers: where clients begin, once it is started.
    """

    def __init__(self, spec: NodesSpec) -> None:
        self._command = [sys.executable, "-P", "-m", "kraftrio", "test-broker"]
        self._command += ["--brokers", str(spec.node_count)]
        if spec.folder is not None:
            self._command += ["--data", spec.folder]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if spec.start is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="kraftrio-start-")
            start = Path(self._folder.name, "start.tar.zst")
            spec.start.save(start)
            self._command += ["--start", str(start)]
        for name, value in spec.config.items():
            self._command += ["--set", f"{name}={value}"]
        self.bootstrap_servers = ""
        self._node_count = spec.node_count
        self._process: trio.Process | None = None

    async def start(self, _nursery: trio.Nursery) -> None:
        """Start it, and wait until clients can connect.

        Raises:
            ValueError, RuntimeError: it ended instead; the text says why.
        """
        self._process = await trio.lowlevel.open_process(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        printed = b""
        with trio.fail_after(_START_DEADLINE_S):
            async for part in self._process.stdout:
                printed += part
                if b"\n" in printed:
                    break
        if b"\n" not in printed:
            status = await self._process.wait()
            raise RuntimeError(f"the brokers' process ended with status {status} (see its output)")
        self.bootstrap_servers = printed.decode().strip()

    def up(self) -> dict[int, bool]:
        """Which nodes run: all of them, or none."""
        return dict.fromkeys(range(1, self._node_count + 1), not self.failures())

    @property
    def is_disturbed(self) -> bool:
        """Whether a fault lasts: there are none here."""
        return False

    def failures(self) -> list[str]:
        """Why it ended by itself, if it did."""
        if self._process is None or self._process.poll() is None:
            return []
        return [f"the brokers' process ended by itself with status {self._process.returncode}"]

    def resume(self) -> None:
        """Let all paused nodes go on: none is paused here."""

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                await stream.aclose()

    def close(self) -> None:
        """Remove what it began with."""
        if self._folder is not None:
            self._folder.cleanup()
