"""Errors of the operating system that pass once there is room again: `NO_ROOM`."""

from __future__ import annotations

import errno
from typing import Final

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
"""No space on the disk, for anybody or for this user."""

NO_ROOM: Final = (*NO_SPACE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""No space, or no file descriptors or memory left. Any other error is a fault of the disk."""
