"""The tutorial's test is quick, and finds each of the five ways to break its program."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
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


def _tutorial(part: str = "", instead: str = "") -> Callable[[KafkaWorld], Awaitable[None]]:
    """The page's test, with a part of its program changed."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = "\n".join(blocks)
    assert part in program
    names: dict[str, Any] = {}
    exec(program.replace(part, instead) if part else program, names)
    test: Callable[[KafkaWorld], Awaitable[None]] = names["test_every_order_has_its_invoice"]
    return test


def test_it_takes_about_a_second() -> None:
    """Of work, for most of a minute: about one on a quiet machine, with room for a busy one."""
    test, world = _tutorial(), KafkaWorld()
    began_s = time.process_time()
    world.run(lambda: test(world))
    assert time.process_time() - began_s < 5
    assert world.now_s > 45


@pytest.mark.parametrize(
    ("part", "instead", "error", "said"),
    [
        ("attempts=4", "attempts=1", OSError, "the database is down"),
        (_FORGETS, "            return None\n", AssertionError, _IN_VAIN),
        (_ORDERS, _COMMITS_FIRST, AssertionError, _IN_VAIN),
        ("except CommitFailedError:", "except KeyError:", CommitFailedError, "another member"),
        ("if position not in self.written:", "if True:", AssertionError, ""),
    ],
    ids=["no_retry", "forgets", "commits_first", "commit_error", "twice"],
)
def test_a_broken_program_is_found(
    part: str, instead: str, error: type[Exception], said: str
) -> None:
    test = _tutorial(part, instead)
    world = KafkaWorld()
    with pytest.raises((error, ExceptionGroup)) as raised:
        world.run(lambda: test(world))
    found: BaseException = raised.value
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, error)
    assert said in str(found)
