"""What lives long is taken out of the garbage collector's sight.

Each partition is some hundred objects that stay, and a full collection that looks at those of
thousands stops everybody for a tenth of a second. The node calls `freeze_live_objects` once it has
made many of them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze_live_objects() -> None:
    """Let later collections pass over the objects that there are now.

    What refers to itself and is in use no more goes first, since nothing frees it later: a
    connection that ended with an exception, say. What is dropped later is freed all the same,
    unless it refers to itself. The time goes with the objects made since the last call.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def making_what_stays() -> Iterator[None]:
    """Look for no garbage while the body makes what stays, such as modules, and freeze that.

    Collections while a broker's modules are loaded take a tenth of its start, and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
