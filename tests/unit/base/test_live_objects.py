"""What `base/live_objects` freezes, and what it must not."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress

from kraftrio.base.live_objects import LiveObjects, collect_less_often, making_permanent_objects


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_is_in_use_is_frozen_and_what_refers_only_to_itself_is_freed() -> None:
    """Objects that are frozen while nobody uses them would never go."""
    gc.disable()
    try:
        kept, dropped = Knot(), Knot()
        gone = weakref.ref(dropped)
        del dropped
        LiveObjects().freeze()
        assert gone() is None
        assert not any(one is kept for one in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()


def test_what_is_dropped_once_it_was_frozen_goes_when_there_is_twice_as_much() -> None:
    """Over and over: never much more than twice of what is in use."""
    gc.disable()
    try:
        live = LiveObjects()
        live.freeze()
        first_count = gc.get_freeze_count()
        for _ in range(10):
            knots = [Knot() for _ in range(first_count // 3)]
            live.freeze()
            knots.clear()
        assert gc.get_freeze_count() < 3.1 * first_count
    finally:
        gc.unfreeze()
        gc.enable()


def test_nothing_is_collected_while_what_stays_is_made() -> None:
    """Collections go on behind it, and pass over what was made, also when making it failed."""
    kept = []
    with suppress(ImportError), making_permanent_objects():
        assert not gc.isenabled()
        kept.append(Knot())
        raise ImportError
    try:
        assert gc.isenabled()
        assert not any(one is kept[0] for one in gc.get_objects())
    finally:
        gc.unfreeze()


def test_new_objects_that_are_in_use_are_looked_at_less_often() -> None:
    """A thousand requests that wait do not make a collection; older objects have theirs."""
    usual = gc.get_threshold()
    gc.collect()
    try:
        collect_less_often()
        before = [one["collections"] for one in gc.get_stats()]
        waiting = [Knot() for _ in range(1_000)]
        assert [one["collections"] for one in gc.get_stats()] == before
        assert len(waiting) == 1_000
        assert gc.get_threshold()[1:] == usual[1:]
    finally:
        gc.set_threshold(*usual)
