"""Compaction of one log in the test's own thread, step by step as the broker does it."""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.broker.log.cleaner.cleaner import CleaningRun
from kraftrio.broker.log.cleaner.pace import CleanerPace
from kraftrio.broker.log.cleaner.plan import cleaning_target
from tests.support.logs import LogContext

MAP_BYTES = 1 << 20


def start_run(context: LogContext, map_bytes: int = MAP_BYTES) -> CleaningRun:
    """Plan a run over whatever of the log may be cleaned, due or not."""
    target = cleaning_target(context.log, context.now_ms)
    pace = CleanerPace(lambda: 0.0, lambda seconds: None, float("inf"))
    return CleaningRun(context.fs, target, context.now_ms, map_bytes=map_bytes, pace=pace)


def finish(
    run: CleaningRun, context: LogContext, between: Callable[[], None] | None = None
) -> None:
    """Do the run; `between` is called before every step that follows one in the thread."""
    try:
        steps = between or (lambda: None)
        run.build_map()
        steps()
        while run.next_group():
            run.clean_group()
            steps()
            run.swap(context.now_ms)
        run.sync()
        steps()
        run.complete()
    finally:
        run.discard()


def clean(context: LogContext, map_bytes: int = MAP_BYTES) -> CleaningRun:
    """Roll the active segment, take everything as committed, and compact."""
    if context.log.active_segment.size_bytes:
        context.log.roll(context.now_ms)
    context.commit()
    run = start_run(context, map_bytes)
    finish(run, context)
    return run
