"""Files that were not there before: all of them, or none, and some for their owner's eyes only.

Called by: `secure_setup/secure_setup`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

_PRIVATE_MODE = 0o600
_PUBLIC_MODE = 0o644
_PRIVATE_DIRECTORY_MODE = 0o700


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be written.

    Attributes:
        purpose: what it is for, in words for users.
        is_private: only its owner may read it.
    """

    path: str
    content: bytes = field(repr=False)
    purpose: str
    is_private: bool = True


def write_new_files(files: Sequence[NewFile]) -> None:
    """Write files durably; after an error none of them is left.

    Raises:
        FileExistsError: one is there already.
        OSError: one cannot be written.
    """
    written: list[str] = []
    try:
        for file in files:
            directory = os.path.dirname(file.path)
            os.makedirs(directory, mode=_PRIVATE_DIRECTORY_MODE, exist_ok=True)
            _write(file, written)
        for directory in {os.path.dirname(path) for path in written}:
            _sync_directory(directory)
    except OSError:
        for path in written:
            os.unlink(path)
        raise


def _write(file: NewFile, written: list[str]) -> None:
    mode = _PRIVATE_MODE if file.is_private else _PUBLIC_MODE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(file.path, flags, mode)
    written.append(file.path)
    try:
        rest = memoryview(file.content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
