"""Where a group goes on, by each way to say so."""

from __future__ import annotations

import pytest

from kraftrio.clients.cli.groups import reset
from kraftrio.clients.cli.groups.reset import Form, KnownOffsets, plan_reset, read_table
from kraftrio.wire.primitives import TopicPartition

ITEM = TopicPartition("t", 0)
KNOWN = KnownOffsets(earliest=10, latest=50, current=20, at=30)


@pytest.mark.parametrize(
    ("form", "known", "offset"),
    [
        (reset.to_earliest, KNOWN, 10),
        (reset.to_latest, KNOWN, 50),
        (reset.to_current, KNOWN, 20),
        (reset.to_current, KnownOffsets(10, 50), 50),
        (reset.to_moment, KNOWN, 30),
        (reset.to_moment, KnownOffsets(10, 50, 20), 50),
        (reset.to_offset(33), KNOWN, 33),
        (reset.to_offset(5), KNOWN, 10),
        (reset.to_offset(99), KNOWN, 50),
        (reset.shift_by(5), KNOWN, 25),
        (reset.shift_by(-5), KNOWN, 15),
        (reset.shift_by(-500), KNOWN, 10),
        (reset.shift_by(500), KNOWN, 50),
        (reset.from_table({ITEM: 12}), KNOWN, 12),
    ],
)
def test_forms(form: Form, known: KnownOffsets, offset: int) -> None:
    """An offset that is not there becomes the nearest one that is."""
    (move,) = plan_reset(form, {ITEM: known}).moves
    assert (move.offset, move.lag) == (offset, 50 - offset)


@pytest.mark.parametrize("form", [reset.shift_by(5), reset.from_table({})])
def test_what_stays_as_it_is(form: Form) -> None:
    """What was never committed cannot be shifted; a table moves what it names."""
    assert not plan_reset(form, {ITEM: KnownOffsets(10, 50)}).offsets


def test_tables() -> None:
    assert read_table(["t,0,5", "", '"u,v",1 , 7']) == {
        TopicPartition("t", 0): 5,
        TopicPartition("u,v", 1): 7,
    }
    for line in ("t,0", "t,zero,5", "t,0,5,6"):
        with pytest.raises(ValueError, match="line 2 is not topic,partition,offset"):
            read_table(["t,0,5", line])
