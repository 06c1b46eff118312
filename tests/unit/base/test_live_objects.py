"""What `base/live_objects` freezes, and what it must not."""

from __future__ import annotations

import gc
import weakref

from kraftrio.base.live_objects import freeze_live_objects


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
        freeze_live_objects()
        assert gone() is None
        assert not any(one is kept for one in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()
