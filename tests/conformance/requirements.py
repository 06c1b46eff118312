"""Missing programs: skip where a person runs the tests, fail where CI does.

`missing` is called with one line of reason; it never returns. TEST_REQUIRE_TOOLS=1 turns the
skip into a failure, so that CI can't pass by lacking what it should test with.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the calling test, or fail it where every program must be there."""
    if os.environ.get("TEST_REQUIRE_TOOLS"):
        pytest.fail(f"missing here, and TEST_REQUIRE_TOOLS is set: {reason}", pytrace=False)
    pytest.skip(reason)


def need_program(name: str) -> str:
    """Return the path of a program on PATH, or skip."""
    return shutil.which(name) or missing(f"no {name} on PATH")
