"""Runs `kraftrio` as a person or a script does: on a terminal of some width, or in a pipe.

`run` returns what was printed, without colours. On a terminal standard output and standard error
are the same, as they are there.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass

DEADLINE_S = 60.0
_ROWS = 50
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Ended:
    """A command that has ended; on a terminal `output` has everything."""

    status: int
    output: str
    errors: str = ""

    @property
    def everything(self) -> str:
        """What was printed, the results first."""
        return self.output + self.errors


def command_line(*arguments: str) -> list[str]:
    """Return the command line of `kraftrio` with these arguments."""
    return [sys.executable, "-P", "-m", "kraftrio", *arguments]


def run(
    *arguments: str, bootstrap: str, typed: bytes = b"", width: int | None = None, **more: str
) -> Ended:
    """Run a command to its end.

    Args:
        typed: the standard input; on a terminal as a user types it.
        width: of the terminal; None: in a pipe.
        more: environment variables.
    """
    environment = {**os.environ, "KRAFTRIO_BOOTSTRAP_SERVER": bootstrap, **more}
    environment.pop("COLUMNS", None)
    if width is None:
        ended = subprocess.run(
            command_line(*arguments),
            input=typed,
            capture_output=True,
            env=environment,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    return _on_terminal(command_line(*arguments), environment | {"TERM": "xterm"}, typed, width)


def _on_terminal(
    command: list[str], environment: dict[str, str], typed: bytes, width: int
) -> Ended:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, width, 0, 0))
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    printed = bytearray()
    deadline = time.monotonic() + DEADLINE_S
    try:
        if typed:
            os.write(ours, typed)
        while True:
            ready, _, _ = select.select([ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"not ended in time: {printed.decode(errors='replace')}"
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # Linux's way to say that nobody has the other side any more
                break
            if not chunk:
                break
            printed += chunk
        status = process.wait(DEADLINE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    return Ended(status, _STEERING.sub("", printed.decode()))
