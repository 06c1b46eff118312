"""The command line; see `kraftrio.commands`."""

from __future__ import annotations

import sys

from kraftrio.commands.tree import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
