"""What is logged while a test runs, as a broker writes it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kraftrio.base.logging_setup import setup_logging


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Everything from INFO on; afterwards the root logger is as it was."""
    root = logging.getLogger()
    before = root.level
    stream = io.StringIO()
    handler = setup_logging("INFO", stream)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
