"""The limits of this machine: open files, and free space on the disk with the data.

Called by: `examination`.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator

from kraftrio.clients.cli.doctor.symptoms import StepFinding, ok, problem, warning
from kraftrio.clients.cli.output import size_text

_FEW_FILES = 1_024
_TOO_FEW_FILES = 256
_LITTLE_SPACE = 1 << 30
_NO_SPACE = 64 << 20


def examine_machine(directory: str | None) -> Iterator[StepFinding]:
    """Yield how many files may be open, and how much space a directory has."""
    yield _files()
    where = directory or ("kraftrio-data" if os.path.isdir("kraftrio-data") else ".")
    yield _space(where)


def _files() -> StepFinding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} open files are allowed to a process"
    remedy = f"raise it: ulimit -n {min(hard, 65_536) if hard > 0 else 65_536}, or LimitNOFILE="
    if soft < _TOO_FEW_FILES:
        return problem("files", "this machine", found, remedy)
    if soft < _FEW_FILES:
        return warning("files", "this machine", found, remedy)
    return ok("files", "this machine", found)


def _space(directory: str) -> StepFinding:
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        found = f"{directory} cannot be examined: {error.strerror}"
        return problem("disk", directory, found, "name the directory of the data with --data")
    found = f"{size_text(usage.free)} of {size_text(usage.total)} are free"
    remedy = "delete what is not needed, lower retention.bytes, or move data to another disk"
    if usage.free < _NO_SPACE:
        return problem("disk", directory, f"the disk is full: {found}", remedy)
    if usage.free < _LITTLE_SPACE:
        return warning("disk", directory, found, remedy)
    if not os.access(directory, os.W_OK):
        return warning("disk", directory, f"{directory} may not be written to", "run as its owner")
    return ok("disk", directory, found)
