"""The tutorial's test finds each of the five ways to break its program that the page names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kraftrio.errors import CommitFailedError
from kraftrio.testing import KafkaWorld

PAGE = Path(__file__).resolve().parents[4] / "docs" / "testing" / "tutorial.md"

_FORGETS = """\
            if attempt == attempts - 1:
                raise
            await trio.sleep(2**attempt)
"""
_ORDERS = "            for order in await consumer.poll():\n"
_COMMITS_FIRST = """\
            orders = await consumer.poll()
            await consumer.commit()
            for order in orders:
"""
_IN_VAIN = "the program ended, and was started again"


@pytest.mark.parametrize(
    ("part", "instead", "error", "said"),
    [
        ("attempts=4", "attempts=1", OSError, "the database is away"),
        (_FORGETS, "            return None\n", AssertionError, _IN_VAIN),
        (_ORDERS, _COMMITS_FIRST, AssertionError, _IN_VAIN),
        ("except CommitFailedError:", "except KeyError:", CommitFailedError, "another member"),
        ("if place not in self.written:", "if True:", AssertionError, ""),
    ],
    ids=["no_retry", "forgets", "commits_first", "commit_error", "twice"],
)
def test_a_broken_program_is_found(
    part: str, instead: str, error: type[Exception], said: str
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = "\n".join(blocks)
    assert part in program
    names: dict[str, Any] = {}
    exec(program.replace(part, instead), names)
    world = KafkaWorld()
    with pytest.raises((error, ExceptionGroup)) as raised:
        world.run(lambda: names["test_every_order_has_its_invoice"](world))
    found: BaseException = raised.value
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, error)
    assert said in str(found)
