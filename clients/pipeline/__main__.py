"""`python -m kraftrio.clients.pipeline`: see `cli`."""

from __future__ import annotations

import sys

from kraftrio.clients.pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
