"""What the options of `kraftrio consume` mean together, and which contradict each other."""

from __future__ import annotations

from typing import Any

import click
import pytest

from kraftrio.clients.cli.records.options import ConsumeOptions
from kraftrio.clients.cli.records.starts import Start

NOW_MS = 1_700_000_000_000


def options(**given: Any) -> ConsumeOptions:
    none: dict[str, Any] = dict.fromkeys(
        ("offset", "since", "until", "tail", "group", "count", "follow", "key", "template")
    )
    plain = {"from_beginning": False, "chosen": (), "read_committed": False, "value_format": "raw"}
    return ConsumeOptions(**none | plain | given)


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, Start()),
        ({"from_beginning": True, "follow": True}, Start()),
        ({"follow": True}, Start(at_end=True)),
        ({"count": 5}, Start()),
        ({"offset": 7, "follow": True}, Start(7)),
        ({"offset": -3}, Start(-3)),
        ({"tail": 3, "follow": True}, Start(-3)),
        ({"tail": 0, "follow": True}, Start(at_end=True)),
        ({"since": "1m ago", "follow": True}, Start(at_ms=NOW_MS - 60_000)),
    ],
)
def test_where_it_begins(given: dict[str, Any], start: Start) -> None:
    assert options(**given).start(NOW_MS) == start


def test_it_waits_for_a_count_or_with_the_option() -> None:
    assert not options().is_following
    assert options(count=1).is_following
    assert options(follow=True).is_following
    assert not options(count=1, follow=False).is_following


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"offset": 1, "tail": 2}, "--offset and --tail are two ways to say where to begin"),
        ({"from_beginning": True, "since": "1m ago"}, "--from-beginning and --since are two ways"),
        ({"group": "g", "offset": 0}, "--offset does not go with --group"),
        ({"group": "g", "until": "now"}, "--until does not go with --group"),
        ({"group": "g", "chosen": (1,)}, "--partition does not go with --group"),
        ({"tail": 1, "count": 1}, "--tail already says how many"),
    ],
)
def test_what_contradicts(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(click.UsageError, match=sentence):
        options(**given).check()


def test_what_is_no_moment() -> None:
    with pytest.raises(click.UsageError, match="--since: "):
        options(since="yesterdayish").start(NOW_MS)
